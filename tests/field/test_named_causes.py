"""Files in the shapes that everyday tools write: what is sound goes through, what is not is refused by its cause."""

from __future__ import annotations

import base64
import codecs
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.field.trial import Ended, Trial


def event(number: int, **replaced: Any) -> dict[str, Any]:
    """A change event: row *number* of dbo.orders was inserted."""
    lsn = f"0000002C:{number:08X}:0001"
    source = {
        "db": "lab",
        "schema": "dbo",
        "tbl": "orders",
        "cols": [{"name": "id", "type": "int", "index": 0}, {"name": "name", "type": "nvarchar(20)", "index": 1}],
        "pkkey": [{"columnname": "id", "value": str(number)}],
        "transaction": {"commitlsn": lsn, "beginlsn": lsn, "sequencenumber": 1, "finalevent": False, "committime": "x"},
    }
    row = {"old": "{}", "current": json.dumps({"id": str(number), "name": f"é {number}"})}
    return {
        "specversion": "1.0",
        "type": "com.microsoft.SQL.CES.DML.V1",
        "source": "/",
        "id": f"{number:032X}",
        "logicalid": f"5b1f0c7e-2d34-4a86-9f10-77c0a1d2e3f4:{lsn.replace(':', '')}:{1:020}",
        "time": "2026-11-20T08:00:00.000Z",
        "datacontenttype": "application/json",
        "operation": "INS",
        "segmentindex": 0,
        "finalsegment": True,
        "data": json.dumps({"eventsource": source, "eventrow": row}),
        **replaced,
    }


def mirror(folder: Path, layout: str, files: dict[str, bytes]) -> Trial:
    """A mirror of dbo.orders over these files of events."""
    (folder / "events").mkdir()
    for name, content in files.items():
        (folder / "events" / name).write_bytes(content)
    trial = Trial(folder)
    trial.file.write_text(
        f"mirror: shapes\nsource: {{format: sqlserver-ces, transport: files, layout: {layout}, path: events}}\n"
        "landing_zone: {store: local, path: zone, tables: tables}\nledger: sqlite:///ledger.db\n"
        "change_log: change_log\ntables: [{source: dbo.orders, target: dbo/orders, key: [id]}]\n"
    )
    return trial


def ended(trial: Trial) -> tuple[Ended, dict[int, str]]:
    """A tick, and the mirrored rows after it."""
    found = trial.run("tick")
    trial.apply()
    is_there = (trial.tables / "dbo/orders/_delta_log").exists()
    return found, {row["id"]: row["name"] for row in trial.rows("dbo/orders")} if is_there else {}


def rows(*numbers: int) -> dict[int, str]:
    return {number: f"é {number}" for number in numbers}


def text(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False)


def test_json_in_any_shape_is_read(tmp_path: Path) -> None:
    """An array, indented JSON, commas behind lines, UTF-16 with and without a mark, packed or not (G-185)."""
    lines = [text(event(number)) for number in range(1, 40)]
    files = {
        "array.json": f"[\n{lines[0]},\n{lines[1]}\n]\n".encode(),
        "one_line.json": f"[{lines[2]},{lines[3]}]".encode(),
        "indented.json": f"{text(event(5), 2)}\n{text(event(6), 2)}".encode(),
        "indented_array.json": text([event(7), event(8)], 4).replace("\n", "\r\n").encode("utf-8-sig"),
        "arrays.jsonl": f"[{lines[8]}]\n[{lines[9]}]\n".encode(),
        "commas.jsonl": f"{lines[10]},\n{lines[11]},\n".encode(),
        "utf16.jsonl": f"{lines[12]}\r\n{lines[13]}\r\n".encode("utf-16"),
        "utf16be.jsonl": codecs.BOM_UTF16_BE + f"{lines[14]}\n".encode("utf-16-be"),
        "utf16bare.json": text([event(16)], 1).encode("utf-16-le"),
        "mark.jsonl": f"{lines[16]}\r\n{lines[17]}\r\n".encode("utf-8-sig"),
        "array.json.gz": gzip.compress(f"[{lines[18]},\n{lines[19]}]".encode()),
        "nothing.json": b"[\n]\n",
    }
    found, mirrored = ended(mirror(tmp_path, "bare", files))
    assert mirrored == rows(*range(1, 21))
    assert found.code == 0, found.text


def test_a_file_that_grows_is_read_on(tmp_path: Path) -> None:
    """A value, or an array, that is not closed waits; nothing is read twice or lost."""
    first, second = text(event(1), 2), text(event(2), 2)
    trial = mirror(
        tmp_path, "bare", {"a.json": f"{first}\n{second[:40]}".encode(), "b.json": b"[" + text(event(3)).encode()}
    )
    assert ended(trial)[1] == rows(1)
    (tmp_path / "events/a.json").write_text(f"{first}\n{second}\n", encoding="utf-8")
    (tmp_path / "events/b.json").write_text(f"[{text(event(3))}, {text(event(4))}]\n", encoding="utf-8")
    found, mirrored = ended(trial)
    assert (found.code, mirrored) == (0, rows(1, 2, 3, 4)), found.text


def test_lines_of_everyday_tools_are_unwrapped(tmp_path: Path) -> None:
    def line(offset: int, **members: Any) -> bytes:
        return text({"topic": "hub", "partition": 0, "offset": offset, **members}).encode() + b"\n"

    packed = base64.b64encode(text(event(3)).encode()).decode()
    sdk = {"topic": "hub", "partition": "1", "offset": "4294967296", "sequence_number": 0, "value": text(event(5))}
    rpk = {"topic": "hub", "value": text(event(6)), "timestamp": 1, "partition": 2, "offset": 0}
    files = {
        "kcat.jsonl": line(0, tstype="create", ts=1, broker=0, key=None, payload=text(event(1))),
        "object.jsonl": line(1, value=event(2)),
        "spark.jsonl": line(2, key=None, timestampType=0, value=packed),
        "usual.jsonl": line(3, value=base64.b64encode(text(event(4)).encode()).decode()),
        "sdk.jsonl": text(sdk).encode() + b"\n",
        "rpk.json": text(rpk, 2).encode(),
        "array.json": f"[{text({**rpk, 'offset': 1, 'value': text(event(7))})}]".encode(),
    }
    found, mirrored = ended(mirror(tmp_path, "wrapped", files))
    assert (found.code, mirrored) == (0, rows(*range(1, 8))), found.text


@pytest.mark.parametrize(
    ("layout", "name", "content", "words"),
    [
        ("bare", "a.json", b"[{}, oops, {}]\n", ("FILE_DAMAGED", "line 1 holds no JSON value")),
        ("bare", "a.jsonl", gzip.compress(b"{}\n" * 99), ("FILE_UNKNOWN", "packed by gzip")),
        ("bare", "a.jsonl", b"PK\x03\x04\n\n\n", ("FILE_UNKNOWN", "a ZIP archive")),
        ("bare", "a.jsonl", b'{"topic":"t","partition":0,"offset":0,"value":"{}"}\n', ("`layout: wrapped`",)),
        ("wrapped", "a.jsonl", text(event(1)).encode() + b"\n", ("`layout: bare`",)),
        ("bare", "a.jsonl", base64.b64encode(text(event(1)).encode()) + b"\n", ("base64",)),
        ("bare", "a.jsonl", text(event(1)).replace("lab", "é").encode("cp1252") + b"\n", ("looks like Windows-1252",)),
    ],
    ids=["an array with a fault", "gzip", "zip", "wrapped", "bare", "base64", "not UTF-8"],
)
def test_a_file_that_holds_no_messages_is_refused_by_its_cause(
    tmp_path: Path, layout: str, name: str, content: bytes, words: tuple[str, ...]
) -> None:
    trial = mirror(tmp_path, layout, {name: content})
    found, mirrored = ended(trial)
    assert found.code != 0
    assert not mirrored
    letters = trial.run("dead-letters").text
    assert all(word in letters for word in words), letters


def test_an_event_whose_place_is_written_as_text_is_read(tmp_path: Path) -> None:
    content = text(event(1, segmentindex="0", finalsegment="true")).encode() + b"\n"
    assert ended(mirror(tmp_path, "bare", {"a.jsonl": content}))[1] == rows(1)


_HEADER, _ROW = "id,name,price,at\n", "1,Ada,1.50,2026-01-01 10:00:00\n"
_TYPES = "{id: int, name: nvarchar(20), price: 'decimal(8,2)', at: datetime2(7)}"
_SOUND = {
    "plain": _HEADER + _ROW,
    "upper": _HEADER.upper() + _ROW,
    "crlf": (_HEADER + _ROW).replace("\n", "\r\n"),
    "header_only": _HEADER,
}
_REFUSED: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "semicolon": ((_HEADER + _ROW).replace(",", ";"), ("no columns", "id;name;price;at")),
    "tabs": ((_HEADER + _ROW).replace(",", "\t"), ("no columns", r"id\tname")),
    "no_header": (_ROW, ("no columns", "Ada")),
    "index": (f",{_HEADER}0,{_ROW}", ("index of a data frame", "index=False")),
    "latin1": ((_HEADER + _ROW).replace("Ada", "José").encode("cp1252"), ("0xE9", "Windows-1252", "iconv")),
    "oem": ((_HEADER + _ROW).replace("Ada", "Jürgen é").encode("cp850"), ("code page 850",)),
    "sqlcmd": (f"{_HEADER}-----------,-----,-----,----\n{_ROW}\n(1 rows affected)\n", ("sqlcmd", "dashes")),
    "counted": (f"{_HEADER}{_ROW}\n(1 row affected)\n", ("(1 row affected)",)),
    "null_text": (_HEADER + "1,Ada,NULL,NULL\n", ("'NULL' is not a decimal", "NULL is an empty field without quotes")),
    "quoted_null": (_HEADER + '1,"",1.5,""\n', ("NULL is an empty field without quotes",)),
    "lacking": ("id,name,prize,at\n" + _ROW, ("no columns ['price']", "'prize'")),
    "packed": (gzip.compress(b"id\n"), ("packed by gzip",)),
    "sheet": (b"PK\x03\x04\n", ("a ZIP archive",)),
    "empty": ("", ("it is empty",)),
}


def test_an_export_is_read_or_refused_by_its_cause(tmp_path: Path) -> None:
    """Sound ones are mirrored; each of the others is one line of its load, of the tick, and of the status."""
    contents: dict[str, str | bytes] = {**_SOUND, **{name: content for name, (content, _) in _REFUSED.items()}}
    contents["utf16"] = (_HEADER + _ROW).replace("Ada", "José").encode("utf-16")
    contents["utf16_bare"] = (_HEADER + _ROW).encode("utf-16-le")
    contents["mark"] = (_HEADER + _ROW).encode("utf-8-sig")
    trial = mirror(tmp_path, "bare", {"1.jsonl": b""})
    tables = ""
    for name, content in contents.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "part.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
        load = f"{{format: csv, path: {name}, stream_from: beginning, types: {_TYPES}}}"
        tables += f"  - {{source: dbo.{name}, target: dbo/{name}, key: [id], initial_load: {load}}}\n"
    trial.file.write_text(trial.file.read_text().partition("tables: [")[0] + f"tables:\n{tables}")

    loaded = trial.run("initial-load")
    assert loaded.code == 3
    trial.apply()
    for name in ("plain", "upper", "crlf", "utf16", "utf16_bare", "mark"):
        (row,) = trial.rows(f"dbo/{name}")
        assert (row["id"], row["name"]) == (1, "José" if name == "utf16" else "Ada"), name
        assert list(row)[:2] == ["id", "name"]
    again, status = trial.run("tick"), trial.run("status")
    for name, (_, words) in _REFUSED.items():
        for said in (loaded.out, again.out, status.out):
            (line,) = [one for one in said.splitlines() if f"dbo.{name}" in one and ": " in one
                       and "INTENT_OPEN" not in one and "unfinished" not in one]  # fmt: skip
            assert all(word in line for word in words) or said is not loaded.out, line
            assert words[0] in line


@pytest.mark.parametrize(
    ("tables", "line", "words"),
    [
        ("tables:\n\t- {source: dbo.a}\n", 7, "no tabs"),
        ("tables:\n  - source: dbo.a\n\tkey: [id]\n", 8, "no tabs"),
        ("tables:\n  - source: dbo.a\n   key: [id]\n", 8, "expected <block end>"),
        ("tables:\n  - source: dbo.a\n    key:[id]\n", 8, "expected ':'"),
        ("tables:\n  - source: dbo.a\n    key: [id\n", 8, "expected ',' or ']'"),
        ("tables:\n  - source: dbo.a\n    types: {off: string}\n", 8, "a date or a yes/no"),
        ("tables:\n  - source: dbo.a\n    keey: [id]\n", 8, "did you mean 'key'?"),
    ],
)
def test_a_mistake_in_yaml_is_named_with_its_line(tmp_path: Path, tables: str, line: int, words: str) -> None:
    trial = mirror(tmp_path, "bare", {})
    head = trial.file.read_text().partition("tables: [")[0]
    trial.file.write_text(f"{head}{tables}")
    found = trial.run("check")
    assert found.code == 2
    assert any(f"mirror.yaml:{line}: " in one and words in one for one in found.text.splitlines()), found.text


def test_options_before_the_mirror_file_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from spark_jobs.cli.command_line import main

    with pytest.raises(SystemExit):
        main(["check", "--sample", str(tmp_path / "mirror.yaml")])
    assert "write the mirror file before this option" in capsys.readouterr().err
