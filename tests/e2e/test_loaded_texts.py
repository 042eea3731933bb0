"""Loaded times that land as text, or as hashes, are spelled as the stream spells them, or the table stops (G-114)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import event
from tests.e2e.test_hashed_columns import hashed, salted
from tests.pipeline import Pipeline, in_order
from tests.postgres import PostgresServer
from tests.spark.test_initial_load_jdbc import connect

COLS = (("id", "int"), ("made", "datetime2(7)"), ("price", "decimal(9,4)"))
ZONE = {"store": "local", "path": "zone", "tables": "tables"}
ORDERS = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}


def change(key: int, at: int) -> bytes:
    row = {"id": str(key), "made": "2024-01-01 10:00:00.5000000", "price": "1.5000"}
    return event("UPD", row, {**row, "price": "9.0000"}, cols=COLS, commit=at) + b"\n"


def landed(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    pipeline.service.poll()
    return [(row["made"], row["price"]) for row in in_order(pipeline.mirrored("dbo", "orders"), ["id"])]


def stopped(pipeline: Pipeline) -> str:
    (state,) = pipeline.reader.tables().values()
    return state.stop_code or ""


def load_anew(pipeline: Pipeline) -> None:
    why = ["--reason", "digits", "--approved-by", "Ada", "--table", "dbo.orders", "--wait", "0"]
    for _ in range(6):
        if main(["reload-table", str(pipeline.file), *why]) == Exit.DONE:
            return
        pipeline.service.poll()
    raise AssertionError("the reset does not come to its end")


@pytest.mark.parametrize("kind", ["text", "hash"])
def test_a_database_that_shows_fewer_digits_stops_and_is_loaded_by_the_types_of_the_stream_g114(
    kind: str,
    tmp_path: Path,
    spark: Any,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """G-114, G-110, G-121: rows that are only loaded have the text, and the hash, that the stream gives the value."""
    salted(monkeypatch)
    connect(monkeypatch, postgres, postgres.port)
    postgres.execute(
        "DROP TABLE IF EXISTS orders",
        "CREATE TABLE orders (id int PRIMARY KEY, made timestamp(3), price numeric(9,2))",
        "INSERT INTO orders VALUES (1, '2024-01-01 10:00:00.5', 1.5), (2, '2024-01-01 10:00:00.5', 1.5)",
    )
    load = {"format": "jdbc", "connection": "shop_db", "table": "public.orders"}
    wish = {"types": {"made": "string", "price": "string"}} if kind == "text" else {"hash": ["made", "price"]}
    pipeline = Pipeline(
        tmp_path / "shop",
        spark,
        [{**ORDERS, **wish, "initial_load": load}],
        source={"layout": "bare"},
        landing_zone=ZONE,
        prove={"settle_seconds": 0},
        hash={"salt": "shop_salt"},
    )
    assert main(["initial-load", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.deliver("a.jsonl", change(1, 11))
    assert main(["tick", str(pipeline.file)]) == Exit.TABLES_STOPPED
    assert stopped(pipeline) == "VALUE_INVALID"
    load_anew(pipeline)
    assert main(["tick", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    texts = "2024-01-01T10:00:00.5000000", "1.5000"
    one = texts if kind == "text" else tuple(map(hashed, texts))
    assert landed(pipeline) == [one, one]
    pipeline.deliver("b.jsonl", change(2, 12))
    assert main(["tick", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    assert landed(pipeline) == [one, one]
    assert main(["prove", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
