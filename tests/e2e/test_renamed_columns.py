"""Columns that have another name at the target (G-120): changes, loads, proofs, corrections, text, built anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from open_mirroring.landing_zone.layout import key_columns_of
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import event
from tests.e2e.test_dropped_columns_formats import (
    FIRST,
    FULL,
    RENAMED,
    CesLines,
    Change,
    QlikMessages,
    Source,
)
from tests.e2e.test_first_day import declare
from tests.e2e.test_lost_ledger import forget, said
from tests.e2e.test_rebuild_ledger import APPLY
from tests.pipeline import Pipeline, in_order
from tests.postgres import PostgresServer
from tests.spark.test_initial_load_jdbc import connect

RENAME = {"ID": "number", "name": "city", "city": "name"}
APPROVED = ["--correct", "--approved-by", "Ada", "--why", "ticket 4711"]
COLS = (("id", "int"), ("name", "nvarchar(9)"), ("mail", "nvarchar(9)"))


def landed(*rows: tuple[int, str, str | None], **more: Any) -> list[dict[str, Any]]:
    return [{"number": str(i), "city": n, "name": "Linz", "price": p, **more} for i, n, p in rows]


def found(told: Source) -> list[dict[str, Any]]:
    rows = in_order(told.pipeline.mirrored(*told.source.split(".")), ["number"])
    return [{name: None if value is None else str(value) for name, value in row.items()} for row in rows]


@pytest.mark.parametrize("kind", [CesLines, pytest.param(QlikMessages, marks=pytest.mark.long)])
def test_columns_land_under_other_names_and_drift_speaks_of_the_sources_g120(
    kind: type[Source], tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str], caplog: Any
) -> None:
    """G-120, G-60, G-80: a key, two names that change places, a collision, other names later, a lost ledger."""
    told = kind(tmp_path, spark, columns={"rename": RENAME})
    document = yaml.safe_load(told.pipeline.file.read_text())
    document["landing_zone"]["tables"] = "tables"
    told.pipeline.file.write_text(yaml.safe_dump(document))
    assert told.tick(*FIRST) == Exit.DONE, capsys.readouterr().out
    folder = next(told.pipeline.zone.rglob("_metadata.json"))
    assert key_columns_of(folder.read_bytes()) == ("number",)
    assert told.tick(Change("UPD", 2, 11, FULL, "Eve")) == Exit.DONE
    assert found(told) == landed((1, "Ada", "1.50"), (2, "Eve", "1.50"), (3, "Ada", "1.50"))

    declare(told, columns={"rename": {**RENAME, "cost": "PRICE"}})
    assert told.tick() == Exit.DONE, "nothing is published under the new name yet"
    after = [Change("INS", 4, 20, RENAMED)]
    assert told.tick(*after) == Exit.TABLES_STOPPED
    assert told.stop == "COLUMN_NAME_INVALID"
    caplog.clear()
    main(["status", str(told.pipeline.file)])
    assert "columns 'price' and 'cost' would both land as 'PRICE'" in capsys.readouterr().out
    declare(told, columns={"rename": RENAME})
    assert main(["resume", str(told.pipeline.file), "--table", told.source, "--why", "mended"]) == Exit.DONE
    if told.renames:
        assert told.tick() == Exit.TABLES_STOPPED
        assert told.stop == "RENAME_POSSIBLE"
        assert told.decide("--dropped", "price") == Exit.DONE
    assert told.tick() == Exit.DONE, capsys.readouterr().out
    assert told.gone == ["price"]
    rows = landed((1, "Ada", "1.50"), (2, "Eve", "1.50"), (3, "Ada", "1.50"), cost=None)
    assert found(told) == [*rows, *landed((4, "Ada", None), cost="2.50")]

    forget(told.pipeline)
    code, text = said(capsys, told.pipeline, "rebuild-ledger", *APPLY)
    assert code == Exit.DONE, text
    assert told.tick(Change("UPD", 3, 30, RENAMED, "Zoe")) == Exit.DONE, capsys.readouterr().out
    assert main(["reconcile", str(told.pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    assert found(told)[2] == landed((3, "Zoe", None), cost="2.50")[0]

    declare(told, columns={"rename": {"id": "number"}})
    told.tick(Change("INS", 5, 40, RENAMED))
    assert "`rename` lands 'name' as 'name', which is published as 'city'" in caplog.text
    for _ in range(4):
        told.tick()
    assert told.tick() == Exit.DONE, capsys.readouterr().out
    assert [(row["number"], row["name"], row["city"]) for row in found(told)] == [
        ("1", "Ada", "Linz"), ("2", "Eve", "Linz"), ("3", "Zoe", "Linz"), ("4", "Ada", "Linz"), ("5", "Ada", "Linz")
    ]  # fmt: skip
    declare(told, columns=None)
    capsys.readouterr()
    assert main(["tick", str(told.pipeline.file)]) == Exit.TERMINAL
    assert "TABLE_REDECLARED" in capsys.readouterr().err


def orders_to_load(monkeypatch: pytest.MonkeyPatch, postgres: PostgresServer, rows: int) -> dict[str, Any]:
    """The initial load of a table in a database that has rows with the keys from 1 on, each with a name and a mail."""
    connect(monkeypatch, postgres, postgres.port)
    postgres.execute(
        "DROP TABLE IF EXISTS orders",
        "CREATE TABLE orders (id int PRIMARY KEY, name varchar(9), mail varchar(9))",
        f"INSERT INTO orders SELECT n, 'n' || n, 'm' || n FROM generate_series(1, {rows}) n",
    )
    return {"format": "jdbc", "connection": "shop_db", "table": "public.orders", "split_column": "id", "chunks": 2}


def test_loaded_rows_and_proofs_know_the_names_of_both_sides_g120(
    tmp_path: Path, spark: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """G-120, G-08, G-40, G-45: over JDBC, straight into files; what differs is named as at the source, and mended."""
    load = orders_to_load(monkeypatch, postgres, 9)
    table = {
        "source": "dbo.orders",
        "target": "dbo/orders",
        "key": ["id"],
        "columns": {"include": ["id", "n*", "mail"], "rename": {"id": "name", "NAME": "id"}},
        "initial_load": load,
    }
    pipeline = Pipeline(
        tmp_path / "shop",
        spark,
        [table],
        source={"layout": "bare"},
        landing_zone={"store": "local", "path": "zone", "tables": "tables"},
        prove={"settle_seconds": 0},
    )
    assert main(["initial-load", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    postgres.execute("DELETE FROM orders WHERE id = 2", "UPDATE orders SET name = 'new' WHERE id = 3")
    row = {"id": "3", "name": "new", "mail": "m3"}
    changes = [event("DEL", None, {"id": "2", "name": "n2", "mail": "m2"}, cols=COLS, commit=11)]
    changes.append(event("UPD", row, {**row, "name": "n3"}, cols=COLS, commit=12))
    pipeline.deliver("a.jsonl", b"".join(one + b"\n" for one in changes))
    assert main(["tick", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.service.poll()
    rows = in_order(pipeline.mirrored("dbo", "orders"), ["name"])
    assert [row["name"] for row in rows] == [1, 3, 4, 5, 6, 7, 8, 9]
    assert rows[1] == {"name": 3, "id": "new", "mail": "m3"}
    assert main(["prove", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    postgres.execute("UPDATE orders SET name = 'lost' WHERE id = 4")
    capsys.readouterr()
    assert main(["prove", str(pipeline.file), "--json"]) == Exit.NOT_EQUAL
    (proof,) = json.loads(capsys.readouterr().out)["tables"].values()
    assert proof["keys"] == [{"key": '["4"]', "kind": "different", "columns": ["name"]}], proof
    assert main(["prove", str(pipeline.file), *APPROVED]) == Exit.NOT_EQUAL
    pipeline.service.poll()
    assert main(["prove", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    assert main(["reconcile", str(pipeline.file)]) == Exit.DONE


def test_loads_through_the_log_text_and_tables_of_a_pattern_g120(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-120, G-04, F-20, G-70: metadata and header of text files have the target's names."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "export.csv").write_text("id,name,mail\n1,Ada,a@b\n2,Eve,e@b\n")
    load = {"format": "csv", "path": "export.csv", "stream_from": "beginning", "types": dict(COLS)}
    columns = {"rename": {"id": "number", "mail": "address"}}
    shared = {"key": ["id"], "initial_load": load, "columns": columns}
    text = {"columns": {"id": "int32", "name": "string", "mail": "string"}}
    tables = [
        {"source": "dbo.partial", "target": "dbo/partial", "complete_rows": True, **shared},
        {"source": "dbo.text", "target": "dbo/text", "delimited_text": text, **shared},
        {"source": "dbo.plain", "target": "dbo/plain", **shared},
        {"source": "dbo.new*", "columns": columns},
    ]
    pipeline = Pipeline(tmp_path / "shop", spark, tables, source={"layout": "bare"})
    assert main(["initial-load", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    row = {"id": "1", "name": "New", "mail": "a@b"}
    part = {"id": "1", "name": "New"}
    told = [event("UPD", part, {"id": "1"}, cols=COLS[:2], commit=9, tbl="partial")]
    told += [event("UPD", row, {**row, "name": "Ada"}, cols=COLS, commit=9, tbl=name) for name in ("text", "plain")]
    told += [event("INS", row, cols=COLS, commit=9, tbl="new1", pkkey={"id": "1"})]
    pipeline.deliver("a.jsonl", b"".join(one + b"\n" for one in told))
    assert main(["tick", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.service.poll()
    for name, others in (("partial", [(2, "Eve", "e@b")]), ("text", [(2, "Eve", "e@b")]), ("new1", [])):
        rows = in_order(pipeline.mirrored("dbo", name), ["number"])
        assert [(r["number"], r["name"], r["address"]) for r in rows] == [(1, "New", "a@b"), *others], name
    (metadata,) = pipeline.zone.rglob("text/_metadata.json")
    described = json.loads(metadata.read_text())
    assert [one["Name"] for one in described["SchemaDefinition"]["Columns"]] == ["number", "name", "address"]
    assert main(["reconcile", str(pipeline.file)]) == Exit.DONE


@pytest.mark.parametrize(
    ("columns", "said_of_it"),
    [
        ({"rename": {"name": "ID"}}, "COLUMN_NAME_INVALID"),
        ({"rename": {"name": "x", "mail": "X"}}, "COLUMN_NAME_INVALID"),
        ({"include": ["id", "name", "mail"], "rename": {"name": "MAIL"}}, "COLUMN_NAME_INVALID"),
        ({"rename": {"name": "__rowMarker__"}}, "COLUMN_NAME_INVALID"),
        ({"rename": {"na*": "x"}}, "CONFIG_INVALID"),
        ({"rename": {"name": ""}}, "CONFIG_INVALID"),
        ({"rename": {"Name": "x", "name": "y"}}, "COLUMN_NAME_INVALID"),
        ({"exclude": ["mail"], "rename": {"mail": "x"}}, "CONFIG_INVALID"),
        ({"rename": {"mail": "x", "lost": "y"}}, "NOT_SEEN"),
    ],
)
def test_check_says_what_cannot_be_renamed_g120(
    columns: dict[str, Any], said_of_it: str, tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    table = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], "columns": columns}
    pipeline = Pipeline(tmp_path, spark, [table], source={"layout": "bare"})
    pipeline.deliver("a.jsonl", event(cols=COLS) + b"\n")
    ends = main(["check", str(pipeline.file), "--sample", "9"])
    assert (ends == Exit.DONE) is (said_of_it == "NOT_SEEN"), "a wrong name alone stops nothing"
    assert said_of_it in "".join(capsys.readouterr())
