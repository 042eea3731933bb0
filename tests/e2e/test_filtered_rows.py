"""Rows that `where` mirrors (G-193), against a filter of the source's own rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from open_mirroring.operate.exit_codes import Exit
from open_mirroring.page.views import table as page_of_table
from spark_jobs.cli.command_line import main
from tests.ces_messages import event
from tests.e2e.test_first_day import declare
from tests.e2e.test_kept_rows import ZONE, Orders
from tests.e2e.test_lost_ledger import forget, said
from tests.e2e.test_rebuild_ledger import APPLY
from tests.pipeline import Pipeline, in_order
from tests.postgres import PostgresServer
from tests.shaped_tables import FORMS, mirrored, plain
from tests.spark.test_initial_load_jdbc import connect
from workload_generator.history import SHOP_TABLES, History, random_history
from workload_generator.sql_values import typed

Row = Mapping[str, Any]
WHERE: dict[str, tuple[str, Callable[[Row], bool]]] = {
    "customers": (
        "(vip = TRUE OR credit >= 20000.5) AND EMAIL IS NOT NULL",
        lambda row: (row["vip"] or row["credit"] >= Decimal("20000.5")) and row["email"] is not None,
    ),
    "products": (
        "NOT (released > '2010-01-01') AND price <> 0",
        lambda row: row["released"] is not None and str(row["released"]) <= "2010-01-01" and row["price"] != 0,
    ),
    "orders": (
        "[status] in ('', 'Zürich', '  padded ') or \"note\" is null or placed_at < '1970-01-01 00:00:00'",
        lambda row: (
            row["status"] in ("", "Zürich", "  padded ")
            or row["note"] is None
            or row["placed_at"] < datetime(1970, 1, 1)
        ),
    ),
    "order_lines": (
        "quantity NOT IN (0, 18660) AND line_no < 15",
        lambda row: row["quantity"] not in (0, 18660) and row["line_no"] < 15,
    ),
}
TABLES = [
    {"source": t.full_name, "target": f"shop/{t.name}", "key": list(t.key), "where": WHERE[t.name][0]}
    for t in SHOP_TABLES
]
COLS = (("id", "int"), ("country", "nvarchar(9)"), ("amount", "decimal(8,2)"))
ORDERS = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], "where": "country = 'DE'"}


def assert_filtered(pipeline: Pipeline, made: History) -> None:
    """Every table has the rows that match, and each condition leaves out some."""
    for table in SHOP_TABLES:
        rows = made.typed_final(table.full_name)
        expected = [row for row in rows if WHERE[table.name][1](row)]
        found = pipeline.mirrored("shop", table.name)
        assert in_order(found, table.key) == in_order(expected, table.key), table.name
        assert 0 < len(expected) < len(rows)


@pytest.mark.parametrize("form", FORMS)
def test_the_target_has_the_rows_that_match_g193(form: str, tmp_path: Path, spark: Any) -> None:
    """G-193, G-03, G-05: rows that enter and leave, keys that change and are exchanged; late, repeated, over kills."""
    made = random_history(93, 60)
    assert_filtered(mirrored(form, made, tmp_path, spark, TABLES, publish={"max_rows_per_file": 3}), made)


@pytest.mark.long
def test_spark_s_workers_choose_the_same_rows_g193(tmp_path: Path, spark_workers: Any) -> None:
    made = random_history(93, 60)
    assert_filtered(mirrored("ces", made, tmp_path, spark_workers, TABLES), made)


@pytest.mark.parametrize("form", FORMS)
def test_a_table_without_key_has_the_inserts_that_match_g193_g191(form: str, tmp_path: Path, spark: Any) -> None:
    made = random_history(94, 40)
    made = replace(made, changes=[change for change in made.changes if change.op == "I"])
    tables = [{**table, "key": [], "append_only": True} for table in TABLES]
    pipeline = mirrored(form, made, tmp_path, spark, tables)
    for table in SHOP_TABLES:
        types = {column.name: column.sql_type for column in table.columns}
        rows = [change.after for change in made.changes if change.table.full_name == table.full_name]
        typed_rows = [{name: typed(types[name], text) for name, text in row.items()} for row in rows if row]
        expected = [row for row in typed_rows if WHERE[table.name][1](row)]
        assert Counter(map(plain, pipeline.mirrored("shop", table.name))) == Counter(map(plain, expected)), table.name


def story(operation: str, key: int, country: str | None, at: int, amount: str = "1.50") -> bytes:
    row = {"id": str(key), "country": country, "amount": amount}
    images = (None, {"id": str(key)}) if operation == "DEL" else (row, None if operation == "INS" else {"id": str(key)})
    return event(operation, *images, cols=COLS, commit=at) + b"\n"


def countries(orders: Orders) -> list[tuple[Any, ...]]:
    found = in_order(orders.pipeline.mirrored("dbo", "orders"), ["id"])
    return [(row["id"], row["country"]) for row in found]


def test_loads_proofs_and_corrections_choose_the_same_rows_g193(
    tmp_path: Path, spark: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """G-193, G-08, G-80: over JDBC, pushed down; rows that enter and leave; a lost ledger."""
    connect(monkeypatch, postgres, postgres.port)
    postgres.execute(
        "DROP TABLE IF EXISTS orders",
        "CREATE TABLE orders (id int PRIMARY KEY, country varchar(9), amount numeric(8,2))",
        "INSERT INTO orders SELECT n, CASE n % 3 WHEN 0 THEN 'DE' WHEN 1 THEN 'de' END, n FROM generate_series(1, 9) n",
    )
    load = {"format": "jdbc", "connection": "shop_db", "table": "public.orders", "split_column": "id", "chunks": 2}
    where = "country = 'DE' AND amount < 9.5"
    orders = Orders(tmp_path / "shop", spark, {**ORDERS, "where": where, "initial_load": load, "hash": ["country"]})
    orders.pipeline.file.write_text(orders.pipeline.file.read_text() + "hash: {salt: shop_salt}\n")
    salt = {"conn_type": "generic", "password": "a salt that nobody guesses"}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_SALT", json.dumps(salt))
    assert orders.command("initial-load") == Exit.DONE, capsys.readouterr().out

    def ids() -> list[int]:
        return sorted(key for key, _ in countries(orders))

    assert ids() == [3, 6, 9]
    assert orders.command("prove") == Exit.DONE, capsys.readouterr().out
    assert orders.tick(story("UPD", 1, "DE", 11), story("UPD", 3, "AT", 12), story("INS", 10, "de", 13)) == Exit.DONE
    change = "UPDATE orders SET country = 'DE', amount = 1.5 WHERE id = 1"
    postgres.execute(change, "UPDATE orders SET country = 'AT', amount = 1.5 WHERE id = 3")
    postgres.execute("INSERT INTO orders VALUES (10, 'de', 1.5)")
    assert ids() == [1, 6, 9]
    assert orders.command("prove") == Exit.DONE, capsys.readouterr().out
    postgres.execute("UPDATE orders SET amount = 10 WHERE id = 6", "UPDATE orders SET country = 'DE' WHERE id = 10")
    capsys.readouterr()
    assert orders.command("prove", "--json") == Exit.NOT_EQUAL
    (proof,) = json.loads(capsys.readouterr().out)["tables"].values()
    assert [(one["key"], one["kind"]) for one in proof["keys"]] == [('["10"]', "missing"), ('["6"]', "extra")], proof
    approved = ["--correct", "--approved-by", "Ada", "--why", "ticket 4711"]
    assert orders.command("prove", *approved) == Exit.NOT_EQUAL
    assert ids() == [1, 9, 10]
    forget(orders.pipeline)
    code, text = said(capsys, orders.pipeline, "rebuild-ledger", *APPLY)
    assert code == Exit.DONE, text
    assert orders.tick(story("DEL", 9, "", 20)) == Exit.DONE and ids() == [1, 10]
    postgres.execute("DELETE FROM orders WHERE id = 9")
    assert orders.command("prove") == Exit.DONE == orders.command("reconcile"), capsys.readouterr().out
    forget(orders.pipeline)
    assert said(capsys, orders.pipeline, "rebuild-ledger", *APPLY)[0] == Exit.DONE
    orders.pipeline.file.write_text(orders.pipeline.file.read_text().replace("9.5", "9.75"))
    orders.command("tick")
    assert orders.stop == "SCHEMA_CHANGED", "the files tell which rows they have"


@pytest.mark.parametrize("more", [{}, {"complete_rows": True}, {"on_delete": "keep"}])
def test_an_export_is_filtered_and_its_rows_may_enter_later_g193(
    more: dict[str, Any], tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-193, G-04, G-192: a row that leaves is deleted even where deleted rows stay, and enters as a whole row."""
    (tmp_path / "shop").mkdir()
    columns = {"id": pa.array([1, 2, 3], pa.int32()), "country": ["DE", "AT", None]}
    amounts = {"amount": pa.array([Decimal("1.50")] * 3, pa.decimal128(8, 2))}
    pq.write_table(pa.table({**columns, **amounts}), tmp_path / "shop" / "export.parquet")
    load = {"format": "parquet", "path": "export.parquet", "stream_from": "beginning", "types": dict(COLS)}
    orders = Orders(tmp_path / "shop", spark, {**ORDERS, **more, "initial_load": load}, landing_zone=ZONE)
    assert orders.command("initial-load") == Exit.DONE == orders.command("tick"), capsys.readouterr().out
    assert countries(orders) == [(1, "DE")]
    if more == {"complete_rows": True}:
        row, old = {"id": "2", "country": "DE"}, {"id": "2"}
        enters = event("UPD", row, old, cols=COLS[:2], commit=10) + b"\n"
    else:
        enters = story("UPD", 2, "DE", 10)
    assert orders.tick(enters, story("UPD", 1, "FR", 11)) == Exit.DONE, capsys.readouterr().out
    (entered,) = orders.pipeline.mirrored("dbo", "orders")
    assert (entered["id"], entered["country"], entered["amount"]) == (2, "DE", Decimal("1.50"))
    assert orders.tick(story("DEL", 2, "", 12), story("DEL", 3, "", 13)) == Exit.DONE
    assert countries(orders) == ([(2, "DE")] if "on_delete" in more else [])


def test_a_load_and_what_follows_it_have_one_condition_g193(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-193, G-08: neither a load that has begun, nor one that is complete, goes on with another."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "export.csv").write_text("id,country,amount\n1,DE,1.50\n2,AT,1.50\n")
    load = {"format": "csv", "path": "export.csv", "stream_from": "beginning", "types": dict(COLS)}
    orders = Orders(tmp_path / "shop", spark, {**ORDERS, "where": "contry = 'DE'", "initial_load": load})

    assert orders.command("initial-load") == Exit.TABLES_STOPPED and "FILTER_UNDECIDED" in capsys.readouterr().out
    declare(orders, where="country = 'DE'")
    orders.pipeline.killed("initial_load", "publish.intended")
    declare(orders, where="country = 'AT'")
    assert orders.command("initial-load") == Exit.TABLES_STOPPED and "LOAD_CHANGED" in capsys.readouterr().out
    declare(orders, where="country = 'DE'")
    assert orders.command("initial-load") == Exit.DONE and countries(orders) == [(1, "DE")]
    declare(orders, where="country = 'AT'")
    assert orders.tick(story("INS", 3, "AT", 3)) != Exit.DONE
    assert orders.stop == "SCHEMA_CHANGED" and countries(orders) == [(1, "DE")]


def test_files_of_text_keep_and_choose_rows_g193_g192(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-192, G-193, F-20: the page says what is chosen."""
    text = {"columns": {"id": "int32", "country": "string"}, "null_value": "__null__"}
    settings = {"on_delete": "keep", "delimited_text": text, "columns": ["id", "country"]}
    orders = Orders(tmp_path, spark, {**ORDERS, **settings})
    assert orders.tick(story("INS", 1, "DE", 1), story("INS", 2, "AT", 2), story("INS", 3, "DE", 3)) == Exit.DONE
    assert orders.tick(story("DEL", 1, "", 4), story("UPD", 3, "AT", 5), story("UPD", 2, "DE", 6)) == Exit.DONE
    rows = in_order(orders.pipeline.mirrored("dbo", "orders"), ["id"])
    assert [(row["id"], row["country"], row["_deleted_at"] is None) for row in rows] == [
        (1, "DE", False),
        (2, "DE", True),
    ]
    assert orders.command("reconcile") == Exit.DONE, capsys.readouterr().out
    shown = page_of_table(orders.pipeline.mirror, orders.pipeline.ledger, "dbo.orders", datetime.now(UTC))
    assert shown is not None and shown["rows"] == ["only those with country = 'DE'", "deleted ones stay"]


def test_what_cannot_be_decided_stops_the_table_g193(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = Orders(tmp_path, spark, {**ORDERS, "where": "contry = 'DE'"})
    assert orders.tick(story("INS", 1, "DE", 1), story("DEL", 7, "", 2)) == Exit.TABLES_STOPPED
    assert orders.stop == "FILTER_UNDECIDED" and not orders.pipeline.numbers("dbo/orders")
    assert "`where` names 'contry', and no row has such a column" in capsys.readouterr().out

    resume = ["resume", "--table", "dbo.orders", "--why", "mended"]
    declare(orders, where="amount = 'many'")
    assert orders.command(*resume) == Exit.DONE
    assert orders.command("tick") == Exit.TABLES_STOPPED and orders.stop == "FILTER_UNDECIDED"
    declare(orders, where="country = 'DE'")
    assert orders.command(*resume) == Exit.DONE == orders.command("tick"), capsys.readouterr().out
    assert countries(orders) == [(1, "DE")]
    short = event("INS", {"id": "5", "amount": "1.00"}, cols=COLS[::2], commit=9) + b"\n"
    assert orders.tick(short) == Exit.TABLES_STOPPED
    assert orders.stop == "FILTER_UNDECIDED" and countries(orders) == [(1, "DE")]


def test_another_condition_rebuilds_the_table_g193_g129(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str], caplog: Any
) -> None:
    """G-193, G-129: rows of the former one would stay, and those of the new one be missing, without a word."""
    orders = Orders(tmp_path, spark, ORDERS, publish={"on_schema_change": "log"})
    assert orders.tick(story("INS", 1, "DE", 1), story("INS", 2, "AT", 2)) == Exit.DONE

    declare(orders, where=" country  =  'DE'")
    assert orders.tick(story("INS", 3, "DE", 3)) == Exit.DONE, "it says the same"
    for now, expected in (("country = 'AT'", [2, 4]), (None, [1, 2, 3, 4])):
        declare(orders, where=now)
        changes = [story("INS", 4, "AT", 4)] if now else []
        orders.tick(*changes) if changes else orders.command("tick")
        assert "`where` chooses" in caplog.text
        for _ in range(6):
            orders.command("tick")
        assert [key for key, _ in countries(orders)] == expected, capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"where": "country = NULL"}, "write IS NULL"),
        ({"where": "upper(country) = 'DE'"}, "a comparison is missing before '('"),
        ({"where": "country = 'DE' OR"}, "a column is missing at its end"),
        ({"where": "1 = 1"}, "a column is missing before '1'"),
        ({"where": "country = 'DE'; DROP"}, "means nothing here"),
        ({"where": "(" * 5000 + "a = 1"}, "`where` cannot be read"),
        ({"where": "country = 'DE'", "columns": {"exclude": ["Country"]}}, "which `columns` leaves out"),
    ],
)
def test_check_refuses_other_conditions_g193(
    settings: dict[str, Any], what: str, tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = Orders(tmp_path, spark, {**ORDERS, **settings})
    assert main(["check", str(orders.pipeline.file)]) != Exit.DONE
    assert what in "".join(capsys.readouterr())
