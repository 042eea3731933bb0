"""Columns that land as the mirror file says (G-110): loads, changes, proofs, corrections, and tables built anew."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import event
from tests.e2e.test_dropped_columns_formats import (
    FIRST,
    FULL,
    CesLines,
    Change,
    ChangeTableFiles,
    Debezium,
    QlikMessages,
    Source,
)
from tests.e2e.test_first_day import declare
from tests.pipeline import Pipeline, in_order
from tests.postgres import PostgresServer
from tests.spark.test_initial_load_jdbc import connect

TYPES = {"Made": "string", "seen": "string", "amount": "decimal(12,2)", "stamp": "string"}
COLS = (
    ("made", "datetime2(6)"),
    ("seen", "datetimeoffset(6)"),
    ("amount", "decimal(20,4)"),
    ("stamp", "varbinary(max)"),
    ("number", "int"),
)
APPROVED = ["--correct", "--approved-by", "Ada", "--why", "ticket 4711"]


def change(operation: str, day: int, at: int, amount: str = "1.5000", **more: str | None) -> bytes:
    row = {
        "made": f"2024-01-{day:02d} 10:00:00.000000",
        "seen": f"2024-01-{day:02d} 12:00:00.5000000 +00:00",
        "amount": amount,
        "stamp": "0xAB",
        "number": str(day),
        **more,
    }
    gone = operation == "DEL"
    told = event(operation, None if gone else row, row if gone else None, cols=COLS, commit=at)
    return told + b"\n"


def mirrored(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    rows = in_order(pipeline.mirrored("dbo", "orders"), ["made"])
    return [tuple(row[name] for name, _ in COLS) for row in rows]


def as_landed(day: int, amount: str = "1.50", at: str = "12") -> tuple[Any, ...]:
    date = f"2024-01-{day:02d}"
    return f"{date}T10:00:00.000000", f"{date}T{at}:00:00.500000+00:00", Decimal(amount), "AB", day


def test_loaded_and_changed_rows_land_alike_and_are_proved_g110(
    tmp_path: Path, spark: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """G-110, G-40, G-45: a NUMERIC without digits too; what does not fit is a dead letter, never rounded."""
    connect(monkeypatch, postgres, postgres.port)
    postgres.execute(
        "DROP TABLE IF EXISTS orders",
        "CREATE TABLE orders (made timestamp(6) PRIMARY KEY, seen timestamptz(6), amount numeric, stamp bytea, "
        "number int)",
        *(
            f"INSERT INTO orders VALUES ('2024-01-{day:02d} 10:00', '2024-01-{day:02d} 12:00:00.5Z', 1.5, '\\xab', "
            f"{day})"
            for day in (1, 2, 3, 4)
        ),
    )
    load = {"format": "jdbc", "connection": "shop_db", "table": "public.orders"}
    table = {
        "source": "dbo.orders",
        "target": "dbo/orders",
        "key": ["made"],
        "types": TYPES,
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
    postgres.execute("DELETE FROM orders WHERE number = 2", "UPDATE orders SET amount = 2.75 WHERE number = 3")
    changes = change("DEL", 2, 11) + change("INS", 3, 12, "2.7500") + change("INS", 5, 13, "0.1250")
    pipeline.deliver("a.jsonl", changes)
    assert main(["tick", str(pipeline.file)]) == Exit.DONE_WITH_LOSSES
    pipeline.service.poll()
    assert mirrored(pipeline) == [as_landed(1), as_landed(3, "2.75"), as_landed(4)]
    capsys.readouterr()
    main(["dead-letters", str(pipeline.file)])
    assert "'0.1250' has more than 2 digits after the point" in capsys.readouterr().out

    assert main(["prove", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    postgres.execute("UPDATE orders SET seen = '2024-01-04 13:00:00.5Z' WHERE number = 4")
    assert main(["prove", str(pipeline.file), *APPROVED]) == Exit.NOT_EQUAL
    pipeline.service.poll()
    assert mirrored(pipeline)[2] == as_landed(4, at="13")
    assert main(["prove", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.deliver("b.jsonl", change("DEL", 4, 14) + change("INS", 5, 15, "0.25"))
    assert main(["tick", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.service.poll()
    assert mirrored(pipeline) == [as_landed(1), as_landed(3, "2.75"), as_landed(5, "0.25")]
    assert main(["reconcile", str(pipeline.file)]) == Exit.DONE


@pytest.mark.parametrize("kind", [CesLines, QlikMessages, ChangeTableFiles, Debezium])
def test_a_published_table_takes_other_types_once_it_is_built_anew_but_for_its_key_g110(
    kind: type[Source],
    tmp_path: Path,
    spark: Any,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """G-110, G-66: the log holds what the source told, so no load is needed; what it holds by a key stays by that."""
    told = kind(tmp_path, spark, types={"ID": "string"})
    assert told.tick(*FIRST) == Exit.DONE
    update = Change("UPD", 2, 11, FULL, "Eve")
    if kind in (CesLines, QlikMessages):  # the others tell the price as text
        document = yaml.safe_load(told.pipeline.file.read_text())
        document["landing_zone"]["tables"] = "tables"
        document["tables"][0]["types"] |= {"PRICE": "decimal(12,4)"}
        told.pipeline.file.write_text(yaml.safe_dump(document))
        told.tick(update)
        assert "`types` lands 'price' as decimal(12,4), which is published as decimal(8,2)" in caplog.text
        for _ in range(3):
            told.tick()
        assert told.tick() == Exit.DONE, capsys.readouterr().out
        assert {row["price"] for row in told.rows} == {"1.5000"}
    else:
        assert told.tick(update) == Exit.DONE
    found = told.pipeline.mirrored(*told.source.split("."))
    assert sorted((row["id"], row["name"]) for row in found) == [("1", "Ada"), ("2", "Eve"), ("3", "Ada")]
    declare(told, types={})
    assert main(["tick", str(told.pipeline.file)]) == Exit.TERMINAL
    assert "TABLE_REDECLARED" in capsys.readouterr().err


def test_a_key_with_seven_digits_of_a_second_lands_as_text_g110(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-02, G-69, G-110: two keys that differ in the seventh digit stay two; said on the first day, nothing is lost."""
    table = {"source": "dbo.orders", "target": "dbo/orders", "key": ["made"]}
    pipeline = Pipeline(tmp_path, spark, [table], source={"layout": "bare"})
    cols = (("made", "datetime2(7)"), ("name", "nvarchar(9)"))

    def line(operation: str, digit: int, at: int) -> bytes:
        row = {"made": f"2024-01-01 10:00:00.123456{digit}", "name": f"n{at}"}
        images = (None, row) if operation == "DEL" else (row, None)
        return event(operation, *images, cols=cols, commit=at) + b"\n"

    pipeline.deliver("a.jsonl", line("INS", 1, 10) + line("INS", 2, 11) + line("INS", 3, 12))
    assert main(["tick", str(pipeline.file)]) == Exit.TABLES_STOPPED
    assert "`types: {column: string}`" in str(pipeline.letters()[0])
    document = yaml.safe_load(pipeline.file.read_text())
    document["tables"][0]["types"] = {"made": "string"}
    pipeline.file.write_text(yaml.safe_dump(document))
    pipeline.deliver("b.jsonl", line("DEL", 2, 13))
    assert main(["tick", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.service.poll()
    found = in_order(pipeline.mirrored("dbo", "orders"), ["made"])
    assert [(row["made"], row["name"]) for row in found] == [
        ("2024-01-01T10:00:00.1234561", "n10"),
        ("2024-01-01T10:00:00.1234563", "n12"),
    ]
    assert main(["reconcile", str(pipeline.file)]) == Exit.DONE


def test_updates_that_tell_a_part_are_completed_and_text_files_land_alike_g110(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-110, G-04, F-20: loads through the log, a table of a pattern, and files of delimited text."""
    cols = (("id", "int"), ("name", "nvarchar(9)"), ("at", "datetimeoffset(3)"))
    at, iso = "2026-01-05 08:00:00.125 +02:00", "2026-01-05T08:00:00.125+02:00"
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "export.csv").write_text(f"id,name,at\n1,Ada,{at}\n2,Eve,{at}\n")
    load = {"format": "csv", "path": "export.csv", "stream_from": "beginning", "types": dict(cols)}
    shared = {"types": {"at": "string", "id": "int64"}, "key": ["id"], "initial_load": load}
    text = {"columns": {"id": "int64", "name": "string", "at": "string"}}
    tables = [
        {"source": "dbo.partial", "target": "dbo/partial", "complete_rows": True, **shared},
        {"source": "dbo.text", "target": "dbo/text", "delimited_text": text, **shared},
        {"source": "dbo.new*", "types": {"AT": "string", "unknown": "string"}},
    ]
    pipeline = Pipeline(tmp_path / "shop", spark, tables, source={"layout": "bare"})
    assert main(["initial-load", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    name = {"id": "1", "name": "New"}
    told = [event("UPD", name, {"id": "1"}, cols=cols[:2], commit=9, tbl="partial")]
    told += [event("UPD", {**name, "at": at}, {"id": "1"}, cols=cols, commit=9, tbl="text")]
    told += [event("INS", {**name, "at": at}, cols=cols, commit=9, tbl="new1", pkkey={"id": "1"})]
    pipeline.deliver("a.jsonl", b"".join(one + b"\n" for one in told))
    assert main(["tick", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.service.poll()
    for table, others in (("partial", [(2, "Eve", iso)]), ("text", [(2, "Eve", iso)]), ("new1", [])):
        found = in_order(pipeline.mirrored("dbo", table), ["id"])
        assert [(row["id"], row["name"], row["at"]) for row in found] == [(1, "New", iso), *others], table
    assert main(["reconcile", str(pipeline.file)]) == Exit.DONE
    document = yaml.safe_load(pipeline.file.read_text())
    document["tables"][1]["types"] = {"id": "string"}
    pipeline.file.write_text(yaml.safe_dump(document))
    assert main(["check", str(pipeline.file)]) != Exit.DONE
    assert "say two types of the column 'id'" in capsys.readouterr().err


def test_check_refuses_what_the_source_announces_otherwise_g110(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = [
        {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], "types": {"name": "int64"}},
        {"source": "dbo.keyed", "target": "dbo/keyed", "key": ["id"], "types": {"id": "decimal(12,2)"}},
        {"source": "dbo.sound", "target": "dbo/sound", "key": ["id"], "types": {"id": "int64", "lost": "string"}},
    ]
    pipeline = Pipeline(tmp_path, spark, tables, source={"layout": "bare"})
    pipeline.deliver("a.jsonl", b"".join(event(tbl=name) + b"\n" for name in ("orders", "keyed", "sound")))
    assert main(["check", str(pipeline.file), "--sample", "100"]) != Exit.DONE
    found = [line for line in capsys.readouterr().out.splitlines() if "tables[" in line]
    assert sum("TYPE_UNSUPPORTED" in line and "cannot land as" in line for line in found) == 2, found
    document = yaml.safe_load(pipeline.file.read_text())
    document["tables"] = tables[2:]
    pipeline.file.write_text(yaml.safe_dump(document))
    assert main(["check", str(pipeline.file), "--sample", "100"]) == Exit.DONE
    assert "NOT_SEEN: tables[0].types: the source has no column 'lost'" in capsys.readouterr().out
    for types in ({"name": "varchar(3)"}, {"name": "decimal(39,2)"}, {"gone": "string"}):
        document = yaml.safe_load(pipeline.file.read_text())
        document["tables"] = [{**tables[0], "columns": ["id", "name"], "types": types}]
        pipeline.file.write_text(yaml.safe_dump(document))
        assert main(["check", str(pipeline.file)]) != Exit.DONE
        out = "".join(capsys.readouterr())
        assert "TYPE_UNSUPPORTED" in out or "CONFIG_INVALID" in out, json.dumps(types)
