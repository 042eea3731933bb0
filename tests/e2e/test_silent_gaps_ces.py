"""Odd but possible change events, through the command line: each table ends equal to its source, or stopped, or the run
says what it lost. None differs in silence.

Every case is a table of its own, with the rows that its source has in the end; all lie in one delivery.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spark_jobs.command_line import main
from spark_jobs.exit_codes import Exit
from tests.ces_messages import COLS, envelope, event, payload, split
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
         ONE, "PARTIAL_ROWS"),
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
    Case("twice", [ins(1, 1, tbl="twice"), ins(2, 2, tbl="twice").replace(
        b'\\"current\\"', b'\\"current\\": \\"{}\\", \\"current\\"')], [row(1), row(2)], "CHANGES_MISSING"),
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
         [], "SCHEMA_CHANGED"),
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
    others = [ins(1, 1, tbl="items")[:-30], ins(1, 1, tbl="items"), ins(2, 2, tbl="Cased", db="other")[:-30]]
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
        foreign |= {name: foreign.get(name, 0) + count for name, count in manifest.foreign.items()}
    assert foreign == {"dbo.items": 3, "other.dbo.Cased": 1}
    capsys.readouterr()
    main(["status", str(pipeline.file)])
    out = capsys.readouterr().out
    assert "1 data base64" in out and "1 prose names" in out
