"""Columns that tell of the change which made a row (G-118): changes, loads, proofs, text, drift and lost ledgers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import event
from tests.e2e.test_dropped_columns_formats import (
    FIRST,
    FULL,
    SHORT,
    CesAvroLines,
    CesLines,
    Change,
    ChangeTableFiles,
    Debezium,
    QlikAvroMessages,
    QlikMessages,
    Source,
)
from tests.e2e.test_first_day import declare, declare_mirror
from tests.e2e.test_hashed_columns import hashed, salted
from tests.e2e.test_lost_ledger import forget, said
from tests.e2e.test_rebuild_ledger import APPLY
from tests.e2e.test_renamed_columns import orders_to_load
from tests.pipeline import Pipeline, in_order
from tests.postgres import PostgresServer

NAMES = {
    "commit_time": "_committed",
    "log_position": "_position",
    "operation": "_operation",
    "transaction": "_transaction",
    "source_table": "_table",
}
APPROVED = ["--correct", "--approved-by", "Ada", "--why", "ticket 4711"]
COLS = (("id", "int"), ("name", "nvarchar(9)"), ("mail", "nvarchar(9)"))
MOMENT = "2026-08-07 16:30:10.123000"
OTHERS = [CesAvroLines, Debezium, ChangeTableFiles, QlikMessages, QlikAvroMessages]
TOLD = {CesLines: (MOMENT, "0000002C0000000B0001"), CesAvroLines: (MOMENT, "0000002C0000000B0001")}
TOLD |= {Debezium: (None, "0000002c:0000000b:0001"), ChangeTableFiles: (None, None)}
TOLD |= {QlikMessages: (MOMENT, "ABCD"), QlikAvroMessages: (None, None)}


def found(told: Source, *more: str) -> list[tuple[str | None, ...]]:
    names = ("id", "who", *NAMES.values(), *more)
    return [tuple(row.get(name) for name in names) for row in told.rows]


@pytest.mark.parametrize("kind", [CesLines, *(pytest.param(other, marks=pytest.mark.long) for other in OTHERS)])
def test_rows_tell_of_the_change_that_made_them_g118(
    kind: type[Source],
    tmp_path: Path,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: Any,
) -> None:
    """G-118, G-110, G-120, G-121, G-80: beside other names, types and hashes, over a lost ledger and a reset."""
    salted(monkeypatch)
    chosen = {"columns": {"rename": {"name": "who", "city": "name"}}, "hash": ["pri*"], "types": {"city": "string"}}
    told = kind(tmp_path, spark, extra_columns=NAMES, **chosen)
    declare_mirror(
        told, hash={"salt": "shop_salt"}, landing_zone={"store": "local", "path": "zone", "tables": "tables"}
    )
    assert told.tick(*FIRST) == Exit.DONE, capsys.readouterr().out
    assert told.tick(Change("UPD", 2, 11, FULL, "Eve")) == Exit.DONE
    (one, two, three), (moment, transaction) = found(told), TOLD[kind]
    place = one[3]
    assert place is not None and three[3] is not None and two[3] is not None
    assert place.startswith("000000:") and place < three[3] < two[3]
    assert (one[4], *two[4:]) == ("insert", "update", transaction, told.source)
    assert two[2] is None if moment is None else str(two[2]).startswith(moment)
    before = told.rows

    forget(told.pipeline)
    code, text = said(capsys, told.pipeline, "rebuild-ledger", *APPLY)
    assert code == Exit.DONE, text
    assert told.tick(Change("INS", 4, 20, SHORT), Change("UPD", 1, 21, SHORT, "Kim")) == Exit.DONE
    assert told.rows[1:3] == before[1:], "rows that did not change tell what they told"
    assert found(told)[0][4] == "update" and found(told)[3][4] == "insert"
    assert main(["reconcile", str(told.pipeline.file)]) == Exit.DONE, capsys.readouterr().out

    declare(told, extra_columns={"operation": "_operation"})
    told.tick(Change("UPD", 3, 30, SHORT, "Zoe"))
    assert "`extra_columns` leaves out the commit_time, which is published as '_committed'" in caplog.text
    for _ in range(4):
        told.tick()
    assert told.tick() == Exit.DONE, capsys.readouterr().out
    price = hashed("1.50")
    rows = [(row["who"], row["name"], row["price"], row["_operation"], "_table" in row) for row in told.rows]
    assert rows == [
        ("Kim", "Linz", None, "update", False), ("Eve", "Linz", price, "update", False),
        ("Zoe", "Linz", None, "update", False), ("Ada", "Linz", None, "insert", False)
    ]  # fmt: skip


def test_extra_columns_that_come_later_are_null_in_old_rows_g118(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str], caplog: Any
) -> None:
    """G-118, F-83, F-84: told by the run; a column of the source with such a name stops the table."""
    told = CesLines(tmp_path, spark)
    assert told.tick(*FIRST) == Exit.DONE
    declare(told, extra_columns={"commit_time": "_at", "operation": "cost"})
    assert told.tick(Change("UPD", 2, 11, FULL, "Eve")) == Exit.DONE, capsys.readouterr().out
    assert [(row["_at"] and row["_at"][:19], row["cost"]) for row in told.rows] == [
        (None, None), ("2026-08-07 16:30:10", "update"), (None, None)
    ]  # fmt: skip
    assert "['_at', 'cost'] of `extra_columns` are NULL in rows that were published before, until" in caplog.text
    assert told.tick(Change("INS", 4, 20, ("id", "name", "city", "cost"))) == Exit.TABLES_STOPPED
    assert told.stop == "COLUMN_NAME_INVALID"
    main(["status", str(told.pipeline.file)])
    assert "of `extra_columns` would both land as 'cost'" in capsys.readouterr().out


def test_loaded_and_corrected_rows_say_what_is_known_and_a_proof_leaves_that_out_g118(
    tmp_path: Path, spark: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """G-118, G-40, G-45: over JDBC, by the mirror's default."""
    load = orders_to_load(monkeypatch, postgres, 4)
    columns = {"include": ["id", "n*", "mail"], "rename": {"id": "number"}}
    pipeline = Pipeline(
        tmp_path / "shop",
        spark,
        [{"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], "columns": columns, "initial_load": load}],
        source={"layout": "bare"},
        landing_zone={"store": "local", "path": "zone", "tables": "tables"},
        prove={"settle_seconds": 0},
        extra_columns=NAMES,
    )
    assert main(["initial-load", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.service.poll()

    def rows() -> list[tuple[Any, ...]]:
        found = in_order(pipeline.mirrored("dbo", "orders"), ["number"])
        return [tuple(row[name] for name in ("name", *NAMES.values())) for row in found]

    loaded = (None, None, "load", None, "dbo.orders")
    assert rows() == [(f"n{at}", *loaded) for at in range(1, 5)]
    row = {"id": "3", "name": "new", "mail": "m3"}
    changes = [
        event("UPD", row, {**row, "name": "n3"}, cols=COLS, commit=12),
        event("DEL", None, {"id": "2"}, cols=COLS),
    ]
    pipeline.deliver("a.jsonl", b"".join(one + b"\n" for one in changes))
    postgres.execute("UPDATE orders SET name = 'new' WHERE id = 3", "DELETE FROM orders WHERE id = 2")
    assert main(["tick", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.service.poll()
    lsn, moment = "0000002C0000000C0001", datetime(2026, 8, 7, 16, 30, 10, 123000)
    place = f"000000:{lsn}:00000000000000000001:1"
    changed = ("new", moment, place, "update", lsn, "dbo.orders")
    assert [one if one[1] is None else (one[0], one[1].replace(tzinfo=None), *one[2:]) for one in rows()] == [
        ("n1", *loaded), changed, ("n4", *loaded)
    ]  # fmt: skip
    assert main(["prove", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    postgres.execute("UPDATE orders SET name = 'lost' WHERE id = 4")
    assert main(["prove", str(pipeline.file), *APPROVED]) == Exit.NOT_EQUAL
    pipeline.service.poll()
    name, at, _, *last = rows()[2]
    assert (name, at, last) == ("lost", None, ["correction", None, "dbo.orders"])
    assert main(["prove", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    assert main(["reconcile", str(pipeline.file)]) == Exit.DONE


def test_text_loads_through_the_log_and_tables_of_a_pattern_have_extra_columns_g118(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-118, G-04, F-20, G-70: declared in the metadata of text; a completed row tells of its newest change."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "export.csv").write_text("id,name,mail\n1,Ada,a@b\n2,Eve,e@b\n")
    load = {"format": "csv", "path": "export.csv", "stream_from": "beginning", "types": dict(COLS)}
    shared = {"key": ["id"], "initial_load": load, "extra_columns": NAMES}
    text = {"columns": {"id": "int32", "name": "string", "mail": "string"}}
    tables = [
        {"source": "dbo.partial", "target": "dbo/partial", "complete_rows": True, **shared},
        {"source": "dbo.text", "target": "dbo/text", "delimited_text": text, **shared},
        {"source": "dbo.new*", "extra_columns": NAMES},
    ]
    pipeline = Pipeline(tmp_path / "shop", spark, tables, source={"layout": "bare"})
    assert main(["initial-load", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    row = {"id": "1", "name": "New", "mail": "a@b"}
    told = [event("UPD", {"id": "1", "name": "New"}, {"id": "1"}, cols=COLS[:2], commit=9, tbl="partial")]
    told += [event("UPD", row, {**row, "name": "Ada"}, cols=COLS, commit=9, tbl="text")]
    told += [event("INS", row, cols=COLS, commit=9, tbl="new1", pkkey={"id": "1"})]
    pipeline.deliver("a.jsonl", b"".join(one + b"\n" for one in told))
    assert main(["tick", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.service.poll()
    for name, others in (("partial", ["load"]), ("text", ["load"]), ("new1", [])):
        rows = in_order(pipeline.mirrored("dbo", name), ["id"])
        first = "insert" if name == "new1" else "update"
        assert [row["_operation"] for row in rows] == [first, *others], name
        assert [row["_position"] for row in rows[1:]] == [None] * len(others)
        assert rows[0]["_committed"].astimezone(UTC) == datetime(2026, 8, 7, 16, 30, 10, 123000, UTC)
        assert {row["_table"] for row in rows} == {f"dbo.{name}"}
    (metadata,) = pipeline.zone.rglob("text/_metadata.json")
    described = json.loads(metadata.read_text())["SchemaDefinition"]["Columns"]
    assert [one["Name"] for one in described] == ["id", "name", "mail", *NAMES.values()]
    assert main(["reconcile", str(pipeline.file)]) == Exit.DONE


@pytest.mark.parametrize(
    ("extra", "said_of_it"),
    [
        ({"operation": "ID"}, "COLUMN_NAME_INVALID"),
        ({"operation": "Lands"}, "COLUMN_NAME_INVALID"),
        ({"operation": "x", "transaction": "X"}, "COLUMN_NAME_INVALID"),
        ({"operation": "__rowMarker__"}, "COLUMN_NAME_INVALID"),
        ({"operation": ""}, "CONFIG_INVALID"),
        ({"clock": "x"}, "CONFIG_INVALID"),
    ],
)
@pytest.mark.parametrize("place", ["mirror", "table"])
def test_check_says_which_extra_columns_cannot_be_g118(
    place: str, extra: dict[str, Any], said_of_it: str, tmp_path: Path, spark: Any, capsys: Any
) -> None:
    own = {"extra_columns": extra}
    table = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], "columns": {"rename": {"mail": "lands"}}}
    tables = [{**table, **(own if place == "table" else {})}]
    pipeline = Pipeline(tmp_path, spark, tables, **(own if place == "mirror" else {}))
    assert main(["check", str(pipeline.file)]) != Exit.DONE
    assert said_of_it in "".join(capsys.readouterr())
