"""Odd but possible change events, through the command line: each table ends equal to its source, or stopped, or the run
says what it lost. None differs in silence.

Every case is a table of its own, with the rows that its source has in the end; all lie in one delivery.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from open_mirroring.ledger.columns import verify_columns
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from spark_jobs.extract import batch_writing
from spark_jobs.sources.ces import avro as ces_avro
from spark_jobs.sources.ces import envelope as ces_envelope
from tests.ces_messages import COLS, avro, envelope, event, payload, split
from tests.noted_facts import ignored
from tests.pipeline import Pipeline, in_order

NOTED = [*COLS, ("note", "nvarchar(20)")]
MORE = [("id", "int"), ("name", "nvarchar(50)"), ("price", "decimal(8,2)"), ("extra", "int")]


def row(key: int, name: str | None = "Ada", price: str | None = "1.50", **more: Any) -> dict[str, Any]:
    return {"id": str(key), "name": name, "price": price, **more}


def ins(key: int, commit: int, **parts: Any) -> bytes:
    values = parts.pop("values", {})
    return event("INS", {**row(key), **values}, commit=commit, pkkey={"id": str(key)}, **parts)


def upd(current: Mapping[str, Any], old: Any, commit: int, key: object = 1, **parts: Any) -> bytes:
    return event("UPD", current, old, commit=commit, **{"pkkey": {"id": str(key)}, **parts})


class Case(NamedTuple):
    """A table: what arrives, what the source has, and how it ends: `equal`, or the code of its stop."""

    table: str
    events: Sequence[bytes]
    rows: Sequence[Mapping[str, Any]]
    ends: str
    settings: Mapping[str, Any] = {}


def with_data(operation: str, data: Any, commit: int) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    return json.dumps(envelope(operation, text, commit=commit)).encode()


def changed(tbl: str, key: int, commit: int, **sources: Any) -> bytes:
    """An insert whose `eventsource` has other members; `...` leaves one out."""
    data = payload(row(key), commit=commit, tbl=tbl, pkkey={"id": str(key)})
    data["eventsource"] |= sources
    data["eventsource"] = {name: value for name, value in data["eventsource"].items() if value is not ...}
    return with_data("INS", data, commit)


def prose(tbl: str) -> bytes:
    data = payload(row(1), commit=1, tbl=tbl, pkkey={"id": "1"})
    return with_data("INS", {"eventSource": data["eventsource"], "eventRow": data["eventrow"]}, 1)


def encoded(tbl: str) -> bytes:
    data = json.dumps(payload(row(1), commit=1, tbl=tbl, pkkey={"id": "1"})).encode()
    return json.dumps(envelope("INS", ..., commit=1, data_base64=base64.b64encode(data).decode())).encode()


ONE = [row(1)]
CASES = [
    # Changes of a key.
    Case("key_5_6", [ins(5, 1, tbl="key_5_6"), upd(row(6), {}, 2, 5, tbl="key_5_6")], [row(6)], "KEY_UNKNOWN"),
    Case("key_untold", [ins(5, 1, tbl="key_untold"), upd(row(6), {}, 2, tbl="key_untold", pkkey={})], [row(6)],
         "KEY_UNKNOWN"),
    Case("key_new", [ins(1, 1, tbl="key_new"), upd(row(1, "Bo"), {}, 2, tbl="key_new")], [row(1, "Bo")], "equal"),
    Case("key_in_part", [
        ins(1, 1, tbl="key_in_part"),
        upd(row(1, "Bo"), {"id": "1"}, 2, tbl="key_in_part", pkkey={"id": "1", "name": "Bo"}),
    ], [row(1, "Bo")], "KEY_UNKNOWN", {"key": ["id", "name"]}),
    Case("key_told", [ins(5, 1, tbl="key_told"), upd(row(6), row(5), 2, 5, tbl="key_told")], [row(6)], "equal"),
    Case("key_unread", [ins(5, 1, tbl="key_unread"), upd({**row(6), "x": "1"}, {}, 2, 6, tbl="key_unread")], [row(6)],
         "letter"),
    Case("key_case", [ins(1, 1, tbl="key_case"), event("DEL", None, {}, commit=2, tbl="key_case", pkkey={"ID": "1"})],
         [], "KEY_UNKNOWN"),
    # Values that are not told.
    Case("absent", [ins(1, 1, tbl="absent"), upd({"id": "1", "price": "2.00"}, {}, 2, tbl="absent")],
         [row(1, price="2.00")], "PARTIAL_ROWS"),
    Case("absent_last", [ins(1, 1, tbl="absent_last"), upd({"id": "1", "name": "Bo"}, {"id": "1", "name": "Ada"}, 2,
         tbl="absent_last")], [row(1, "Bo")], "PARTIAL_ROWS"),
    Case("absent_only", [upd({"id": "1", "name": "Bo"}, {}, 2, tbl="absent_only")], [row(1, "Bo")], "PARTIAL_ROWS"),
    Case("absent_some", [upd({"id": "1", "name": "Bo"}, {}, 2, tbl="absent_some")], [row(1, "Bo")], "PARTIAL_ROWS",
         {"columns": ["id", "name", "price"]}),
    Case("absent_full", [ins(1, 1, tbl="absent_full"), upd({"id": "1", "name": "Ada"}, row(1), 2, tbl="absent_full")],
         ONE, "letter"),
    Case("absent_done", [ins(1, 1, tbl="absent_done"), upd({"id": "1", "price": "2.00"}, {}, 2, tbl="absent_done")],
         [row(1, price="2.00")], "equal", {"complete_rows": True}),
    Case("absent_null", [
        ins(1, 1, tbl="absent_null", values={"name": None}),
        upd({"id": "1", "price": "2.00"}, row(1, None), 2, tbl="absent_null"),
    ], [row(1, None, "2.00")], "equal"),
    Case("absent_both", [
        event("INS", {"id": "1", "price": "1.50"}, commit=1, tbl="absent_both", pkkey={"id": "1"}, cols=NOTED),
        upd({"id": "1", "price": "1.50", "note": "n"}, {"id": "1", "price": "1.50"}, 2, tbl="absent_both", cols=NOTED),
    ], [row(1, None, note="n")], "equal"),
    # Messages that cannot be read.
    Case("version", [ins(1, 1, tbl="version"), ins(2, 2, tbl="version", replaced={
        "type": "com.microsoft.SQL.CES.DML.V2"})], [row(1), row(2)], "CHANGES_MISSING"),
    Case("no_pkkey", [ins(1, 1, tbl="no_pkkey"), changed("no_pkkey", 2, 2, pkkey=...)], [row(1), row(2)],
         "CHANGES_MISSING"),
    Case("no_cols", [ins(1, 1, tbl="no_cols"), changed("no_cols", 2, 2, cols=...)], [row(1), row(2)],
         "CHANGES_MISSING"),
    Case("cut", [ins(1, 1, tbl="cut"), ins(2, 2, tbl="cut")[:-30]], [row(1), row(2)], "CHANGES_MISSING"),
    Case("cut_data", [ins(1, 1, tbl="cut_data"), with_data("INS", json.dumps(
        payload(row(2), commit=2, tbl="cut_data"))[:-40], 2)], [row(1), row(2)], "CHANGES_MISSING"),
    Case("Cased", [ins(1, 1, tbl="Cased"), ins(2, 2, tbl="CASED")], [row(1), row(2)], "CHANGES_MISSING"),
    Case("two_rows", [ins(1, 1, tbl="two_rows"), with_data("INS", {
        **payload(row(2), commit=2, tbl="two_rows"), "eventdata": {"old": "{}", "current": "{}"}}, 2)],
         [row(1), row(2)], "CHANGES_MISSING"),
    Case("unfinished", [ins(1, 1, tbl="unfinished"), split(ins(2, 99, tbl="unfinished"), [250, 300])[0]],
         [row(1), row(2)], "CHANGES_MISSING"),
    # Read leniently.
    Case("prose", [prose("prose")], ONE, "equal"),
    Case("base64", [encoded("base64")], ONE, "equal"),
    # Delivered in order to be refused.
    Case("old_in_insert", [ins(1, 1, tbl="old_in_insert"), event("INS", row(2), row(1), commit=2, tbl="old_in_insert",
         pkkey={"id": "2"})], [row(1), row(2)], "letter"),
    Case("short", [event("INS", {"id": "1", "name": "0x01"}, commit=1, tbl="short", pkkey={"id": "1"},
         cols=[("id", "int"), ("name", "binary(2)")])], [{"id": "1", "name": "0x0100"}], "letter"),
    Case("empty", [ins(1, 1, tbl="empty", values={"name": ""}), ins(2, 2, tbl="empty", values={"name": None})],
         [row(1, ""), row(2, None)], "equal"),
    Case("places", [changed("places", 1, 1, cols=[{"name": n, "type": t, "index": 9 - at}
                                                   for at, (n, t) in enumerate(COLS)])], ONE, "equal"),
    Case("renamed", [ins(1, 1, tbl="renamed"), event("INS", {"id": "2", "title": "Bo", "price": "1.50"}, commit=2,
         tbl="renamed", pkkey={"id": "2"}, cols=[("id", "int"), ("title", "nvarchar(50)"), ("price", "decimal(8,2)")])],
         [{**row(1), "title": None}, {"id": "2", "name": None, "price": "1.50", "title": "Bo"}], "equal"),
    Case("number", [event("INS", '{"id":1,"name":true,"price":1.50}', commit=1, tbl="number", pkkey={"id": 1})],
         [row(1, "true")], "equal"),
]  # fmt: skip
TABLES = [
    {"source": f"dbo.{c.table}", "target": f"dbo/{c.table}", "key": ["id"], **c.settings} for c in CASES
]  # fmt: skip


def values(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows as the target would have them."""
    kinds = {"id": int, "price": Decimal}
    return in_order(
        [{n: None if v is None else kinds.get(n, lambda t: t)(v) for n, v in one.items()} for one in rows], ["id"]
    )


def lines(bodies: Sequence[bytes], layout: str) -> bytes:
    if layout == "bare":
        return b"".join(body.replace(b'": ', b'":').replace(b", ", b",") + b"\n" for body in bodies)
    wrapped = [
        {"topic": "t", "partition": 0, "offset": at, "encoding": "base64", "value": base64.b64encode(body).decode()}
        for at, body in enumerate(bodies)
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in wrapped)


@pytest.mark.parametrize("layout", ["wrapped", "bare"])
def test_no_table_differs_in_silence(
    layout: str, tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """C-73, C-77, C-95 to C-98, G-04: equal, or stopped by its own code; and the run's exit code says so."""
    pipeline = Pipeline(tmp_path / "odd", spark, TABLES, source={"layout": layout, "database": "shop"})
    others = [
        *split(ins(5, 98, tbl="items"), [200, 300]),
        ins(1, 1, tbl="items")[:-30],
        ins(1, 1, tbl="items"),
        ins(2, 2, tbl="Cased", db="other")[:-30],
    ]
    pipeline.deliver("a.jsonl", lines([*others, *(body for case in CASES for body in case.events)], layout))
    assert main(["tick", str(pipeline.file)]) == Exit.TABLES_STOPPED
    pipeline.make_overdue()
    pipeline.deliver("b.jsonl", lines([ins(9, 9, tbl="items")], layout))
    assert main(["tick", str(pipeline.file)]) == Exit.TABLES_STOPPED
    pipeline.service.poll()
    states, letters = pipeline.reader.tables(), pipeline.letters()
    ended: dict[str, str] = {}
    for case in CASES:
        state = states[f"dbo.{case.table}"]
        if state.stop_code:
            ended[case.table] = state.stop_code
        elif any(letter["tbl"] == state.source for letter in letters) or pipeline.reader.rejected([state.id]):
            ended[case.table] = "letter"
        else:
            rows = in_order(pipeline.mirrored("dbo", case.table), ["id"])
            ended[case.table] = "equal" if rows == values(case.rows) else f"{rows} is not {values(case.rows)}"
    assert ended == {case.table: case.ends for case in CASES}
    assert pipeline.reader.mirror().homeless_rejects == 0, "of what is not mirrored nothing is at risk"
    foreign: dict[str, int] = {}
    for manifest in pipeline.reader.manifests().values():
        foreign |= {name: foreign.get(name, 0) + count for name, count in ignored(manifest.facts).items()}
    assert foreign == {"dbo.items": 6, "other.dbo.Cased": 1}
    capsys.readouterr()
    main(["status", str(pipeline.file)])
    out = capsys.readouterr().out
    assert "1 data base64" in out and "1 prose names" in out


def test_what_a_newer_decoder_reads_heals_its_table(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """C-11, C-95: the table waits stopped, and a replay after the update brings its change to its place."""
    tables = [{"source": f"dbo.{name}", "target": f"dbo/{name}", "key": ["id"]} for name in ("orders", "Cased")]
    pipeline = Pipeline(tmp_path / "newer", spark, tables)
    newer = ins(2, 2, replaced={"type": "com.microsoft.SQL.CES.DML.V2"})
    newest = upd(row(1, "Eve"), row(1), 9)
    pipeline.deliver("a.jsonl", lines([ins(1, 1), newer, newest, ins(1, 1, tbl="Cased")], "wrapped"))
    assert main(["tick", str(pipeline.file)]) == Exit.TABLES_STOPPED
    assert "MESSAGE_INVALID" in capsys.readouterr().out
    assert pipeline.reader.tables()["dbo.orders"].stop_code == "CHANGES_MISSING"
    pipeline.service.poll()
    assert pipeline.mirrored("dbo", "Cased") == values(ONE), "the other table goes on"
    read = ces_envelope._event
    monkeypatch.setattr(
        ces_envelope,
        "_event",
        lambda envelope, is_avro: read(msgspec.structs.replace(envelope, type=ces_envelope.EVENT_TYPE), is_avro),
    )
    # Workers are processes of their own, and would not have the newer decoder.
    monkeypatch.setattr(
        batch_writing, "run_job", lambda _spark, _name, work, tasks, _size: [work(task) for task in tasks]
    )
    assert main(["replay-dead-letters", str(pipeline.file)]) == Exit.DONE
    assert pipeline.reader.tables()["dbo.orders"].stop_code == "CHANGES_RECOVERED"
    assert main(["resume", str(pipeline.file), "--table", "dbo.orders", "--why", "updated"]) == Exit.DONE
    assert main(["tick", str(pipeline.file)]) == Exit.DONE
    pipeline.service.poll()
    assert in_order(pipeline.mirrored("dbo", "orders"), ["id"]) == values([row(1, "Eve"), row(2)])


@pytest.mark.parametrize("is_split", [False, True])
def test_a_second_database_stops_the_table_once_c12(is_split: bool, tmp_path: Path, spark: Any) -> None:
    """Two tables of one name would become one; whoever lifts the stop says that they are one."""
    tables = [{"source": f"dbo.{name}", "target": f"dbo/{name}", "key": ["id"]} for name in ("orders", "cars")]
    pipeline = Pipeline(tmp_path / "two", spark, tables)

    def tick(name: str, *bodies: bytes) -> int:
        pipeline.deliver(name, lines(bodies, "wrapped"))
        code = main(["tick", str(pipeline.file)])
        pipeline.service.poll()
        return code

    assert tick("a.jsonl", ins(1, 1), ins(2, 2, db="SHOP"), ins(1, 3, tbl="cars")) == Exit.DONE
    other = ins(3, 4, db="other")
    assert tick("b.jsonl", *(split(other, [200]) if is_split else [other])) == Exit.TABLES_STOPPED
    stopped = pipeline.reader.tables()
    assert stopped["dbo.orders"].stop_code == "SENDER_OTHER" and stopped["dbo.cars"].stop_code is None
    assert in_order(pipeline.mirrored("dbo", "orders"), ["id"]) == values([row(1), row(2)])
    assert main(["resume", str(pipeline.file), "--table", "dbo.orders", "--why", "renamed"]) == Exit.DONE
    assert tick("c.jsonl", ins(4, 5, db="other")) == Exit.DONE
    assert in_order(pipeline.mirrored("dbo", "orders"), ["id"]) == values([row(key) for key in (1, 2, 3, 4)])


def loaded_table(folder: Path, name: str, types: Mapping[str, str], **settings: Any) -> dict[str, Any]:
    """A table with an export of one row, every text of it `1` but for the key."""
    folder.mkdir(exist_ok=True)
    content = ",".join(types) + "\n" + ",".join("1" for _ in types) + "\n"
    (folder / f"{name}.csv").write_text(content, encoding="utf-8")
    load = {"format": "csv", "path": str(folder / f"{name}.csv"), "stream_from": "beginning", "types": dict(types)}
    return {"source": f"dbo.{name}", "target": f"dbo/{name}", "key": ["id"], "initial_load": load, **settings}


def test_a_loaded_column_that_no_change_carries_stops_its_table(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """C-77, C-75, G-07: it is dropped, as its type is streamed; a type that is not known stops the table."""
    types = {"id": "int", "name": "nvarchar(50)", "doc": "nvarchar(max)"}
    (tmp_path / "x").mkdir()
    pq.write_table(pa.table({"id": [1], "name": ["1"], "doc": ["1"]}), tmp_path / "x" / "untyped.parquet")
    load = {"format": "parquet", "path": str(tmp_path / "x" / "untyped.parquet"), "stream_from": "beginning"}
    cols = [("id", "int"), ("name", "nvarchar(50)")]
    tables = [
        loaded_table(tmp_path / "x", "inserted", types),
        loaded_table(tmp_path / "x", "updated", types),
        loaded_table(tmp_path / "x", "completed", types, complete_rows=True),
        loaded_table(tmp_path / "x", "chosen", types, columns=["id", "name"]),
        loaded_table(tmp_path / "x", "quiet", types),
        {"source": "dbo.untyped", "target": "dbo/untyped", "key": ["id"], "initial_load": load},
    ]
    pipeline = Pipeline(tmp_path / "loads", spark, tables)
    assert main(["initial-load", str(pipeline.file)]) == Exit.DONE
    new, changed = {"id": "2", "name": "2"}, {"id": "1", "name": "2"}
    bodies = [event("INS", new, commit=1, cols=cols, tbl=tbl, pkkey={"id": "2"}) for tbl in ("inserted", "completed")]
    bodies.append(event("INS", new, commit=1, cols=cols, tbl="untyped", pkkey={"id": "2"}))
    old = {"id": "1", "name": "1"}
    bodies += [upd(changed, old, 2, cols=cols, tbl=tbl) for tbl in ("updated", "chosen")]
    pipeline.deliver("a.jsonl", lines(bodies, "wrapped"))
    assert main(["tick", str(pipeline.file)]) == Exit.TABLES_STOPPED
    assert "COLUMN_NOT_STREAMED" in capsys.readouterr().out
    pipeline.service.poll()
    stops = {source: state.stop_code for source, state in pipeline.reader.tables().items() if state.stop_code}
    assert stops == {
        "dbo.untyped": "COLUMN_NOT_STREAMED",
        # An update that changed all it carries may be a part of its row.
        "dbo.updated": "PARTIAL_ROWS",
    }
    rows = [{"id": 1, "name": "1", "doc": "1"}, {"id": 2, "name": "2", "doc": None}]
    assert in_order(pipeline.mirrored("dbo", "inserted"), ["id"]) == rows
    assert in_order(pipeline.mirrored("dbo", "completed"), ["id"]) == rows
    assert pipeline.mirrored("dbo", "chosen") == [{"id": 1, "name": "2"}]
    assert pipeline.mirrored("dbo", "quiet") == [{"id": 1, "name": "1", "doc": "1"}]
    resume = ["resume", str(pipeline.file), "--table", "dbo.untyped", "--why", "x"]
    assert main(resume) == Exit.TERMINAL
    assert "COMMAND_REFUSED" in capsys.readouterr().err


def test_a_load_of_a_column_that_is_never_streamed_is_refused_at_once(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """C-77: by `check`, which is told the types, and by `initial-load` before it reads."""
    types = {"id": "int", "doc": "XML"}
    tables = [
        loaded_table(tmp_path / "x", "orders", types),
        loaded_table(tmp_path / "x", "chosen", {**types, "name": "text"}, columns=["id"]),
    ]
    pipeline = Pipeline(tmp_path / "loads", spark, tables)
    assert main(["check", str(pipeline.file)]) == Exit.USAGE
    said = capsys.readouterr()
    assert "COLUMN_NOT_STREAMED" in said.out + said.err and "list `columns` without them" in said.out + said.err
    assert main(["initial-load", str(pipeline.file)]) == Exit.TABLES_STOPPED
    said = capsys.readouterr()
    assert "COLUMN_NOT_STREAMED" in said.out + said.err
    assert {s: state.load_state for s, state in pipeline.reader.tables().items()} == {
        "dbo.orders": "pending",
        "dbo.chosen": "loaded",
    }


def test_a_column_that_came_behind_rows_is_unverified_until_somebody_compared_it(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-07: ADD … NOT NULL DEFAULT gives rows a value that no change tells."""
    names = {"later": {}, "at_once": {}, "stops": {"require_reload_on_add": True}, "same": {}}
    tables = [{"source": f"dbo.{n}", "target": f"dbo/{n}", "key": ["id"], **s} for n, s in names.items()]
    tables.append(
        loaded_table(tmp_path / "x", "loaded", {"id": "int", "name": "nvarchar(50)", "price": "decimal(8,2)"})
    )
    pipeline = Pipeline(tmp_path / "added", spark, tables)
    assert main(["initial-load", str(pipeline.file)]) == Exit.DONE
    wide = {"cols": MORE, "values": {"extra": "5"}}
    first = [ins(1, 1, tbl=name) for name in names]
    pipeline.deliver("a.jsonl", lines([*first, ins(2, 2, tbl="at_once", **wide)], "wrapped"))
    assert main(["tick", str(pipeline.file)]) == Exit.DONE
    bodies = [ins(3, 3, tbl=tbl, **wide) for tbl in ("later", "stops", "loaded")]
    pipeline.deliver("b.jsonl", lines([*bodies, ins(3, 3, tbl="same")], "wrapped"))
    capsys.readouterr()
    assert main(["tick", str(pipeline.file)]) == Exit.TABLES_STOPPED
    assert "Note: dbo.later: column 'extra' unverified since position" in capsys.readouterr().out, "the run says so"
    main(["status", str(pipeline.file), "--json"])
    status = {table["source"]: table for table in json.loads(capsys.readouterr().out)["tables"]}
    at = {2: "0000002C000000020001:00000000000000000001:1", 3: "0000002C000000030001:00000000000000000001:1"}
    assert {name: table["unverified_columns"] for name, table in status.items()} == {
        "dbo.later": [["extra", at[3]]],
        "dbo.at_once": [["extra", at[2]]],
        "dbo.loaded": [["extra", at[3]]],
        "dbo.stops": [],
        "dbo.same": [],
    }
    assert f"column 'extra' unverified since position {at[3]}" in " ".join(status["dbo.later"]["notes"])
    assert status["dbo.stops"]["code"] == "COLUMN_ADDED"
    main(["status", str(pipeline.file)])
    assert "column 'extra' unverified since position" in capsys.readouterr().out
    later = pipeline.reader.tables()["dbo.later"]
    assert verify_columns(pipeline.ledger, later.id, pipeline.reader.unverified_columns([later])[later.id]) == 1
    pipeline.deliver("c.jsonl", lines([ins(4, 4, tbl="later", **wide)], "wrapped"))
    text = pipeline.file.read_text(encoding="utf-8").replace("require_reload_on_add: true", "full_rows: null")
    pipeline.file.write_text(text, encoding="utf-8")
    assert main(["resume", str(pipeline.file), "--table", "dbo.stops", "--why", "came without default"]) == Exit.DONE
    assert main(["tick", str(pipeline.file)]) == Exit.DONE
    capsys.readouterr()
    main(["status", str(pipeline.file), "--json"])
    status = {table["source"]: table for table in json.loads(capsys.readouterr().out)["tables"]}
    assert status["dbo.later"]["unverified_columns"] == [], "what is verified stays so"
    assert status["dbo.stops"]["unverified_columns"] == [["extra", at[3]]]


def test_binary_values_are_read_as_the_mirror_file_says(tmp_path: Path, spark: Any) -> None:
    """C-84, C-63: base64, as keys too, in JSON, and in an Avro container file."""
    tables = [{"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}]
    pipeline = Pipeline(tmp_path / "binary", spark, tables, source={"binary": "base64"})
    cols = [("id", "binary(2)"), ("data", "varbinary(max)")]
    one, two, changed = {"id": "q80=", "data": "3q2+7w=="}, {"id": "AAA=", "data": None}, {"id": "q80=", "data": "AA=="}
    data = avro(ces_avro.DATA_WITH_FINALEVENT, payload(two, cols=cols, commit=2, pkkey={"id": "AAA="}))
    stream = io.BytesIO()
    fastavro.writer(stream, ces_avro.CHANGE_EVENT, [envelope("INS", data, commit=2)])
    bodies = [
        event("INS", one, cols=cols, commit=1, pkkey={"id": "q80="}),
        stream.getvalue(),
        event("UPD", changed, {}, cols=cols, commit=3, pkkey={"id": "q80="}),
    ]
    pipeline.deliver("a.jsonl", lines(bodies, "wrapped"))
    assert main(["check", str(pipeline.file)]) == Exit.DONE
    assert main(["tick", str(pipeline.file)]) == Exit.DONE
    pipeline.service.poll()
    rows = sorted(pipeline.mirrored("dbo", "orders"), key=lambda one: bytes(one["id"]))
    assert rows == [{"id": b"\0\0", "data": None}, {"id": b"\xab\xcd", "data": b"\0"}]
