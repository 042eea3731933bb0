"""Files of Qlik's file target and of Event Hubs Capture in every form that their writers offer: equal, or reported."""

from __future__ import annotations

import codecs
import gzip
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import fastavro.read
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.sources.contract import avro_codecs
from spark_jobs.sources.contract.decoded import Refusal
from spark_jobs.sources.qlik.data_files import read_texts
from spark_jobs.sources.qlik.dfm import read_dfm
from spark_jobs.sources.transports import capture
from tests.field.trial import Trial

HEADERS = [
    ("header__change_seq", "STRING", 35),
    ("header__change_oper", "STRING", 1),
    ("header__change_mask", "BYTES", 8),
]
COLUMNS = [("id", "INT4", 0), ("name", "WSTRING", 40), ("price", "NUMERIC", 0)]
OPTIONS = {"fieldDelimiter": ",", "recordDelimiter": "\n", "nullValue": "", "quoteChar": '"', "escapeChar": '"'}
ROWS = [(1, "José, der 1.", "1.50"), (2, None, "2.00"), (3, 'say "hi"', None)]
LANDED = {1: "José, der 1.", 2: None, 3: 'say "hi"'}


class Case(NamedTuple):
    """A file of one table: its name and content, the options of its ``.dfm``, and what is mirrored of it or told."""

    file: str
    content: bytes
    options: Mapping[str, str] = {}
    names: Mapping[int, str | None] = LANDED
    told: Sequence[str] = ()
    beside: str = ""
    records: int = 3


def dfm(table: str, file: str, columns: Sequence[tuple[str, str, int]], records: int, **options: str) -> bytes:
    schema, name = table.removesuffix("__ct").split(".")
    described = [
        {"ordinal": at, "name": n, "type": t, "length": size, "precision": 8 if t == "NUMERIC" else 0, "scale": 2}
        for at, (n, t, size) in enumerate(columns, 1)
    ]
    return json.dumps(
        {
            "fileInfo": {"name": file, "recordCount": records},
            "formatInfo": {"format": "delimited", "options": {**OPTIONS, **options}},
            "dataInfo": {"sourceSchema": schema, "sourceTable": name, "columns": described},
        }
    ).encode()


def written(folder: Path, cases: Sequence[Case], encoding: str = "", load: bool = False) -> Trial:
    """A mirror with a table for each case."""
    more = f", encoding: {encoding}" if encoding else ""
    tables = ""
    for at, case in enumerate(cases):
        rows = (
            f", initial_load: {{format: qlik-full-load, path: data/dbo.t{at}, stream_from: beginning}}" if load else ""
        )
        tables += f"  - {{source: dbo.t{at}, target: dbo/t{at}, key: [id]{rows}}}\n"
        place = folder / "data" / (f"dbo.t{at}" if load else f"dbo.t{at}__ct")
        place.mkdir(parents=True)
        (place / case.file).write_bytes(case.content)
        columns = COLUMNS if load else [*HEADERS, *COLUMNS]
        beside = case.beside or case.file.removesuffix(".gz").rpartition(".")[0]
        (place / f"{beside}.dfm").write_bytes(dfm(place.name, case.file, columns, case.records, **case.options))
    (folder / "mirror.yaml").write_text(
        "mirror: files\n"
        f"source: {{format: qlik-change-table, transport: files, path: data, before_images: false{more}}}\n"
        "landing_zone: {store: local, path: zone}\n"
        f"ledger: sqlite:///ledger.db\nchange_log: change_log\ntables:\n{tables}"
    )
    return Trial(folder)


def judged(folder: Path, cases: Sequence[Case], encoding: str = "", load: bool = False) -> str:
    """Mirror all cases in one run, and compare each with what is mirrored or told of it."""
    trial = written(folder, cases, encoding, load)
    ended = trial.run("initial-load" if load else "tick")
    trial.apply()
    wrong = []
    for at, case in enumerate(cases):
        told = [line for line in ended.text.splitlines() if line.startswith(("STOPPED", "LOSSES"))]
        its = [line for line in told if f"dbo.t{at}:" in line]
        if case.told:
            if not its or not all(word in "\n".join(its) for word in case.told):
                wrong.append((case.file, case.options, case.told, its))
            continue
        there = (trial.tables / "dbo" / f"t{at}" / "_delta_log").exists()
        found = {row["id"]: row["name"] for row in trial.rows(f"dbo/t{at}")} if there else None
        if its or found != case.names:
            wrong.append((case.file, case.options, case.content[:300], found, its))
    assert not wrong, wrong
    assert (ended.code == 0) == (not any(case.told for case in cases))
    return ended.text


def text(
    delimiter: str = ",",
    end: str = "\n",
    header: str = "names",
    quote: str = '"',
    escape: str = '"',
    null: str = "",
    rows: Sequence[tuple[Any, ...]] = ROWS,
    load: bool = False,
) -> str:
    columns = COLUMNS if load else [*HEADERS, *COLUMNS]
    kinds = [f"{t}(8,2)" if t == "NUMERIC" else f"{t}({size})" if size else t for _, t, size in columns]
    first = {
        "names": [name for name, *_ in columns],
        "types": kinds,
        "both": [f"{name}:{kind}" for (name, *_), kind in zip(columns, kinds, strict=True)],
        "quoted": [f"{quote}{name}{quote}" for name, *_ in columns],
        "upper": [name.upper() for name, *_ in columns],
    }
    lines = [delimiter.join(first[header])] if header else []
    for at, (key, name, price) in enumerate(rows, 1):
        spelled = null if name is None else f"{quote}{name.replace(quote, escape + quote) if quote else name}{quote}"
        change = [] if load else [f"{at:035d}", "I", null]
        lines.append(delimiter.join([*change, str(key), spelled, null if price is None else price]))
    return "".join(line + end for line in lines)


KINDS = ("names", "types", "both", "quoted", "upper", "")


def test_a_header_line_of_any_kind_is_no_row(tmp_path: Path) -> None:
    contents = [text(header=header).encode() for header in KINDS]
    judged(
        tmp_path,
        [*(Case("1.csv", one) for one in contents), *(Case("1.csv.gz", gzip.compress(one)) for one in contents)],
    )


def test_a_header_line_of_a_full_load_is_no_row(tmp_path: Path) -> None:
    judged(tmp_path, [Case("LOAD1.csv", text(header=header, load=True).encode()) for header in KINDS], load=True)


FIELD_ENDS = {
    **{"0x01": "\x01", "0X09": "\t", "\\t": "\t", "\\u0001": "\x01", "\\001": "\x01"},
    **{"||": "||", "0x0102": "\x01\x02", "|": "|", "¦": "¦", "0xC2A6": "¦", ";": ";"},
}
RECORD_ENDS = {
    **{"0x0A": "\n", "0x0D0A": "\r\n", "\\n": "\n", "\\r\\n": "\r\n", "\r\n": "\r\n", "\r": "\r"},
    **{"0x1E": "\x1e", "\x1e": "\x1e", "|\n": "|\n", "0x0102": "\x01\x02", "#": "#"},
}


def test_fields_and_records_end_as_the_metadata_file_spells_it(tmp_path: Path) -> None:
    """A line feed inside a text is a part of it where the text is in quotes, or another sign ends records."""
    cases = [Case("1.csv", text(end).encode(), {"fieldDelimiter": spelled}) for spelled, end in FIELD_ENDS.items()]
    cases += [Case("1.csv", text(end="\r\n").encode())]
    for spelled, end in RECORD_ENDS.items():
        for quote, delimiter in (('"', ","), ("", "\x03")):
            inside = "two\nlines" if quote or end not in ("\n",) else "one line"
            content = text(delimiter, end, quote=quote, null="NUL", rows=[(1, inside, "1.00"), (2, None, "2.00")])
            options = {"fieldDelimiter": delimiter, "recordDelimiter": spelled, "quoteChar": quote, "escapeChar": ""}
            names = {1: inside, 2: None}
            cases.append(Case("1.csv", content.encode(), {**options, "nullValue": "NUL"}, names, records=2))
    judged(tmp_path, cases)


def test_quotes_and_escapes_are_those_of_the_metadata_file(tmp_path: Path) -> None:
    cases = []
    for quote, escape in (("'", "'"), ("@", "@"), ('"', "\\"), ("'", "^"), ("0x27", "0x5C"), ('"', "")):
        sign, before = {"0x27": "'"}.get(quote, quote), {"0x5C": "\\", "": quote}.get(escape, escape)
        name = f"a {sign}b{sign}, {sign}"
        content = text(quote=sign, escape=before, rows=[(1, name, "1.00"), (2, "", "2.00"), (3, None, None)]).encode()
        cases.append(Case("1.csv", content, {"quoteChar": quote, "escapeChar": escape}, {1: name, 2: "", 3: None}))
    # A backslash that escapes nothing may be a part of the text, or of what the writer meant: it is not dropped.
    odd = text(escape="\\", rows=[(1, "C:\\temp", "1.00")]).encode()
    cases.append(Case("1.csv", odd, {"escapeChar": "\\"}, told=["escape character", "temp"], records=1))
    judged(tmp_path, cases)


MARKS = {
    **{"utf-8": codecs.BOM_UTF8, "utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE},
    **{"utf-32-le": codecs.BOM_UTF32_LE, "utf-32-be": codecs.BOM_UTF32_BE},
}


def spelled_as(kind: str) -> str:
    if kind == "csv":
        return text()
    heads = [name for name, *_ in HEADERS]
    rows = []
    for at, (key, name, price) in enumerate(ROWS, 1):
        row = {**dict(zip(heads, [f"{at:035d}", "I", None], strict=True)), "id": key, "name": name, "price": price}
        rows.append(json.dumps({n: one for n, one in row.items() if one is not None}, ensure_ascii=False) + "\n")
    return "".join(rows)


def test_a_text_file_is_read_in_the_encoding_that_it_begins_with(tmp_path: Path) -> None:
    """T-46: a byte order mark shows it, or an ASCII character next to a zero byte."""
    cases = []
    for kind in ("csv", "json"):
        content = spelled_as(kind)
        cases += [Case(f"1.{kind}", mark + content.encode(name)) for name, mark in MARKS.items()]
        cases += [Case(f"1.{kind}", content.encode(name)) for name in ("utf-16-le", "utf-16-be")]
        cases += [Case(f"1.{kind}.gz", gzip.compress(MARKS["utf-16-le"] + content.encode("utf-16-le")))]
        cases += [Case(f"1.{kind}", content.encode("cp1252"), told=["not UTF-8", "0xE9", "Windows-1252", "`encoding`"])]
    judged(tmp_path, cases)


@pytest.mark.parametrize("encoding", ["cp1252", "cp850", "latin-1"])
def test_a_text_file_is_read_in_the_encoding_of_the_source(tmp_path: Path, encoding: str) -> None:
    """T-46: a mark goes before it. A file that is UTF-8 all the same would be read as other texts: it is reported."""
    told = ["the file is UTF-8", f"encoding: {encoding}"]
    cases = []
    for kind in ("csv", "json"):
        content = spelled_as(kind)
        cases += [Case(f"1.{kind}", content.encode(encoding)), Case(f"1.{kind}", content.encode(), told=told)]
        cases += [Case(f"1.{kind}.gz", gzip.compress(content.encode(encoding)))]
        cases += [Case(f"1.{kind}", MARKS["utf-8"] + content.encode())]
        cases += [Case(f"1.{kind}", content.replace("é", "e").encode(), names={**LANDED, 1: "Jose, der 1."})]
    judged(tmp_path, cases, encoding)


def test_a_full_load_is_read_in_the_encoding_of_the_source(tmp_path: Path) -> None:
    content = text(load=True).encode("cp1252")
    cases = [Case("LOAD1.csv", content), Case("LOAD1.csv.gz", gzip.compress(content))]
    judged(tmp_path, [*cases, Case("LOAD1.csv", text(load=True).encode(), told=["is UTF-8"])], "cp1252", load=True)


@pytest.mark.parametrize("name", ["no-such", "utf-16", "base64", "rot13"])
def test_an_encoding_that_is_none_is_refused_by_check(tmp_path: Path, name: str) -> None:
    ended = written(tmp_path, [Case("1.csv", text().encode())], name).run("check")
    assert ended.code != 0 and "encoding" in ended.text and name in ended.text


def test_a_file_of_another_form_names_what_was_found(tmp_path: Path) -> None:
    def case(content: str, *told: str, **options: str) -> Case:
        return Case("1.csv", content.encode(), options, told=told)

    one_more = "~ a line of the tool ~,,,,,\n" + text(header="")
    judged(
        tmp_path,
        [
            case(text(";"), "1 fields", "6 columns", "fields end with ','", "The file begins with"),
            case(text(), "records with '#'", recordDelimiter="#"),
            case(text(header="") + "x,y\n", "has 2 fields", "6 columns"),
            case(text().replace("name,", "nom,"), "header line", "nom", "name"),
            case(text(header="", rows=ROWS[:2]), "announces 3 rows, the file has 2"),
            case(one_more, "HEADER_INVALID", "FILE_DAMAGED"),
            case(text() + text(header=""), "announces 3 rows, the file has 6"),
        ],
    )


def test_a_count_that_is_off_by_one_asks_for_the_header_line(tmp_path: Path) -> None:
    content = ("Id;Bezeichnung;Preis\n" + text(";", header="", load=True)).encode()
    told = ["not a whole number"]  # the line is a row as far as one knows, and the first column has to be a number
    judged(tmp_path, [Case("LOAD1.csv", content, {"fieldDelimiter": ";"}, told=told)], load=True)
    described = read_dfm(dfm("dbo.t", "1.csv", COLUMNS, 3, fieldDelimiter=";"))
    (tmp_path / "1.csv").write_bytes(content)
    with pytest.raises(Refusal) as raised:
        list(read_texts(tmp_path / "1.csv", described))
    assert raised.value.code == "FILE_DAMAGED"
    for word in ("announces 3 rows, the file has 4", "header line", "Add metadata header"):
        assert word in raised.value.reason


def test_a_member_that_json_leaves_out_is_null_and_an_unknown_one_is_reported(tmp_path: Path) -> None:
    row = {"header__change_seq": f"{1:035d}", "header__change_oper": "I", "id": 1}
    cases = [
        Case("1.json", json.dumps(row).encode(), names={1: None}, records=1),
        Case("1.json", json.dumps({**row, "nom": "x"}).encode(), told=["FILE_DAMAGED", "nom"], records=1),
        Case("1.json", b"{}", told=["FILE_DAMAGED"], records=1),
    ]
    judged(tmp_path, cases)


def test_parquet_may_have_its_compression_in_its_name(tmp_path: Path) -> None:
    names = [name for name, *_ in [*HEADERS, *COLUMNS]]
    columns: list[list[Any]] = [[f"{at:035d}" for at in (1, 2, 3)], ["I"] * 3, [None] * 3]
    columns += [[row[at] for row in ROWS] for at in range(3)]
    types = [pa.string(), pa.string(), pa.string(), pa.int32(), pa.string(), pa.string()]
    arrays = [pa.array(one, kind) for one, kind in zip(columns, types, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, names), sink := io.BytesIO())
    files = [("1.snappy.parquet", "1.snappy"), ("1.snappy.parquet", "1"), ("1.parquet", "1"), ("1.parquet", "1.snappy")]
    files += [("1.SNAPPY.PARQUET", "1"), ("1.gz.parquet", "1"), ("1.zstd.parquet", "1.zstd")]
    judged(tmp_path, [Case(file, sink.getvalue(), beside=beside) for file, beside in files])
    pq.write_table(pa.Table.from_arrays(arrays[3:], names[3:]), sink := io.BytesIO())
    loads = [Case(f"LOAD{file}", sink.getvalue(), beside=f"LOAD{beside}") for file, beside in files]
    (tmp_path / "load").mkdir()
    judged(tmp_path / "load", loads, load=True)


def test_the_tables_of_a_file_target_from_the_field(shared_data: Path, tmp_path: Path) -> None:
    trial = Trial.of("C_ct", shared_data, tmp_path)
    ended = trial.run("tick")
    trial.apply()
    two = [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}]
    for table in ("h_types", "h_onlytypes", "hexdelim", "hexrecord", "tabdelim", "escrecord", "utf16"):
        assert trial.rows(f"dbo/{table}") == two, table
    assert trial.rows("dbo/rec02") == [{"id": 1, "name": "Ada\nLovelace"}, {"id": 2, "name": "Bob"}]
    for table in ("json", "jsonnull"):
        assert trial.rows(f"dbo/{table}") == [{"id": 1, "name": "Ada"}, {"id": 2, "name": None}], table
    assert trial.rows("dbo/escaped") == [{"id": 1, "name": 'say "hi"'}, {"id": 2, "name": "C:\\"}]
    assert trial.rows("dbo/nullword") == [{"id": 1, "name": None}, {"id": 2, "name": ""}]
    assert trial.rows("dbo/mask0x") == [{"id": 1, "name": "Eve"}]
    assert trial.rows("dbo/sap") == [{"/BIC/ID": 1, "A#B": "Ada", "Menge %": 5}]
    assert "dbo.cp1252" in ended.text and "Windows-1252" in ended.text and "`encoding`" in ended.text
    for table in ("pq", "pqsnappy"):
        assert (trial.tables / "dbo" / table).exists() or f"dbo.{table}" in ended.text, table


def test_a_code_page_from_the_field_is_read_once_it_is_named(shared_data: Path, tmp_path: Path) -> None:
    trial = Trial.of("C_ct", shared_data, tmp_path)
    trial.file.chmod(0o644)
    trial.file.write_text(trial.file.read_text().replace("path: data,", "path: data, encoding: cp1252,"))
    trial.run("tick")
    trial.apply()
    assert trial.rows("dbo/cp1252") == [{"id": 1, "name": "José"}]
    assert trial.rows("dbo/utf16") == [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}]


def test_the_full_loads_of_a_file_target_from_the_field(shared_data: Path, tmp_path: Path) -> None:
    trial = Trial.of("H_qlik", shared_data, tmp_path)
    trial.run("initial-load")
    ended = trial.run("tick")
    trial.apply()
    assert {row["name"] for row in trial.rows("dbo/fl_header")} == {"Ada", "Bob", "Eve"}
    assert {row["name"] for row in trial.rows("dbo/segs")} == {"Ada", "Bob", "Eve"}
    assert len(trial.rows("dbo/pq")) == 1
    for table in ("fl_nine", "json_nine", "weird"):  # their values are another subject
        assert (trial.tables / "dbo" / table).exists() or f"dbo.{table}" in ended.text, table


def test_capture_files_of_every_compression_from_the_field(shared_data: Path, tmp_path: Path) -> None:
    trial = Trial.of("K_capture", shared_data, tmp_path)
    ended = trial.run("tick")
    trial.apply()
    assert {row["id"] for row in trial.rows("dbo/orders")} == {1, 2, 4, 5}
    assert "FILE_DAMAGED" not in ended.text
    assert "FILE_UNKNOWN" in ended.text and "BODY_MISSING" in ended.text


CODECS = ["null", "deflate", "snappy", "zstandard", "lz4", "bzip2", "xz"]
SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "EventData",
        "fields": [{"name": "SequenceNumber", "type": "long"}, {"name": "Body", "type": ["null", "bytes"]}],
    }
)


def captured(codec: str) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, SCHEMA, [{"SequenceNumber": at, "Body": b"%d" % at} for at in range(3)], codec=codec)
    return file.getvalue()


@pytest.mark.parametrize("codec", CODECS)
def test_a_capture_file_of_any_codec_is_read(tmp_path: Path, codec: str) -> None:
    (tmp_path / "1.avro").write_bytes(content := captured(codec))
    found = list(capture.read_capture(tmp_path, "1.avro", len(content)))
    assert [one.body for one in found if not isinstance(one, capture.Damage)] == [b"0", b"1", b"2"]
    assert len(found) == 3


def _containers() -> dict[str, Callable[[Path, bytes], Any]]:
    from spark_jobs.sources.ces.avro import read_container
    from spark_jobs.sources.qlik.message.avro import read_container as read_message
    from spark_jobs.sources.transports.capture import holes
    from spark_jobs.sources.transports.source_files import SourceFile

    def looked_for_holes(folder: Path, content: bytes) -> Any:
        name = "0/2026/01/01/00/00/00.avro"
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(content)
        return holes(folder, [SourceFile.of(folder / name, name)], {})

    return {
        "capture": lambda folder, content: list(capture.read_capture(folder, "1.avro", len(content))),
        "holes": looked_for_holes,
        "event": lambda _, content: read_container(content),
        "message": lambda _, content: read_message(content),
    }


@pytest.mark.parametrize("codec", ["snappy", "zstandard", "lz4"])
@pytest.mark.parametrize("reader", ["capture", "holes", "event", "message"])
def test_a_library_that_is_missing_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, reader: str
) -> None:
    from fastavro._read_common import missing_codec_lib

    (tmp_path / "1.avro").write_bytes(content := captured(codec))
    package = {"snappy": "cramjam", "zstandard": "backports.zstd", "lz4": "lz4"}[codec]
    monkeypatch.setitem(fastavro.read._read.BLOCK_READERS, codec, missing_codec_lib(codec, package))
    with pytest.raises(avro_codecs.TerminalError, match="INSTALLATION_INCOMPLETE") as raised:
        _containers()[reader](tmp_path, content)
    assert package in str(raised.value)
