"""Tables and change tables in a database of the kind of MySQL, tried with MariaDB (T-97)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from open_mirroring.config.connections import Connection
from open_mirroring.errors import TerminalError
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from spark_jobs.sources.jdbc.dialects import MySql
from tests.mariadb import MariaDbServer
from tests.pipeline import Pipeline, in_order
from tests.qlik_change_rows import sequence

HOSTILE = "o\"r`d\\e'rs"
HOSTILE_KEY = 'n"`1'
# Name, type, a value as SQL, and what has to land.
VALUES: list[tuple[str, str, str, Any]] = [
    ("tiny", "tinyint", "-128", -128),
    ("utiny", "tinyint unsigned", "255", 255),
    ("small", "smallint unsigned", "65535", 65535),
    ("medium", "mediumint unsigned", "16777215", 16777215),
    ("uint", "int unsigned", "4294967295", 4294967295),
    ("big", "bigint", "-9223372036854775808", -9223372036854775808),
    ("ubig", "bigint unsigned", "18446744073709551615", Decimal(18446744073709551615)),
    ("dec38", "decimal(38,10)", "-1234567890123456789012345678.0123456789",
     Decimal("-1234567890123456789012345678.0123456789")),
    ("flag", "bit(1)", "b'1'", True),
    ("f4", "float", "16777217.5", 16777218.0),
    ("f4b", "float", "0.1", 0.10000000149011612),
    ("f8", "double", "0.1e0 + 0.2e0", 0.1 + 0.2),
    ("f8big", "double", "1.7976931348623157e308", 1.7976931348623157e308),
    ("day", "date", "'9999-12-31'", date(9999, 12, 31)),
    ("dt", "datetime(6)", "'2024-02-29 23:59:59.999999'", datetime(2024, 2, 29, 23, 59, 59, 999999)),
    ("ts", "timestamp(6)", "'2024-07-01 10:00:00.000001'", datetime(2024, 7, 1, 8, 0, 0, 1, tzinfo=UTC)),
    ("yr", "year", "2155", 2155),
    ("txt", "varchar(20) CHARACTER SET latin1", "'Zürich \\\\ o''k '", "Zürich \\ o'k "),
    ("wide", "longtext", "'😀é'", "😀é"),
    ("one", "enum('a','b')", "'b'", "b"),
    ("bin", "binary(4)", "x'00FF'", b"\x00\xff\x00\x00"),
    ("blob_", "longblob", "repeat(x'00ff', 400000)", b"\x00\xff" * 400000),
    ("nothing", "varbinary(9)", "NULL", None),
]  # fmt: skip


@pytest.fixture
def source(mariadb: MariaDbServer, monkeypatch: pytest.MonkeyPatch) -> MariaDbServer:
    """The server, with a clean database `shop` and a connection `shop_db` that names it."""
    mariadb.execute("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop CHARACTER SET utf8mb4")
    content = {"conn_type": "mysql", "host": "127.0.0.1", "port": mariadb.port, "login": mariadb.user,
               "password": mariadb.password, "schema": "shop"}  # fmt: skip
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_DB", json.dumps(content))
    return mariadb


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def test_every_value_lands_as_it_is_t97(
    tmp_path: Path, spark: Any, source: MariaDbServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """T-97, G-06: whatever zone, character set and quotes; chunks of a split column are all rows."""
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind, *_ in VALUES)
    values = ", ".join(value for _, _, value, _ in VALUES)
    name = f"shop.{quoted(HOSTILE)}"
    source.execute(
        f"SET time_zone = '+02:00'; CREATE TABLE {name} ({quoted(HOSTILE_KEY)} int PRIMARY KEY, {columns})",
        *(f"INSERT INTO {name} VALUES ({at}, {values})" for at in range(1, 8)),
    )
    load = {"format": "jdbc", "connection": "shop_db", "split_column": HOSTILE_KEY, "chunks": 3,
            "table": f"shop.[{HOSTILE}]"}  # fmt: skip
    table = {"source": "dbo.orders", "target": "dbo/orders", "key": [HOSTILE_KEY], "initial_load": load,
             "columns": {"rename": {HOSTILE_KEY: "id"}}}  # fmt: skip
    pipeline = Pipeline(tmp_path, spark, [table], source={"layout": "bare"})
    assert main(["initial-load", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().err
    pipeline.service.poll()
    rows = in_order(pipeline.mirrored("dbo", "orders"), ["id"])
    assert [row.pop("id") for row in rows] == [*range(1, 8)]
    for row in rows:
        found = {name: spelled(value) for name, value in row.items()}
        assert found == {name: spelled(value) for name, _, _, value in VALUES}


def spelled(value: Any) -> Any:
    """Instants alike, whatever zone they are told in."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def test_a_change_table_and_control_tables_in_mysql_t97(
    tmp_path: Path, spark: Any, source: MariaDbServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """T-97, T-18, T-20, T-34, T-81, T-84: closed partitions; what the control tables tell."""
    headers = (
        "header__change_seq varchar(35), header__change_oper varchar(1), header__change_mask varbinary(128), "
        "header__partition_name varchar(64)"
    )
    control = "server_name text, task_name text, table_owner varchar(64), table_name varchar(64)"
    source.execute(
        f"CREATE TABLE shop.items__ct ({headers}, id int, name varchar(20), price decimal(8,2))",
        f"CREATE TABLE shop.attrep_cdc_partitions ({control}, partition_name varchar(64))",
        f"CREATE TABLE shop.attrep_suspended_tables ({control}, suspend_reason text, suspend_timestamp datetime)",
        f"CREATE TABLE shop.ATTREP_APPLY_EXCEPTIONS ({control}, error_time datetime, statement longtext)",
        f"CREATE TABLE shop.attrep_ddl_history ({control}, change_seq text, timestamp datetime, ddl_type text, "
        "details longtext)",
    )

    def change(at: int, oper: str, row: str, part: str, bits: str = "NULL") -> str:
        return f"INSERT INTO shop.items__ct VALUES ('{sequence(at)}', '{oper}', {bits}, '{part}', {row})"

    def closed(part: str) -> str:
        return f"INSERT INTO shop.attrep_cdc_partitions VALUES ('s', 't', 'shop', 'items__ct', '{part}')"

    first, second = "20240101T120000_20240101T130000", "20240101T130000_20240101T140000"
    table = {"source": "shop.items", "target": "shop/items", "key": ["id"]}
    at = {"format": "qlik-change-table", "transport": "jdbc", "connection": "shop_db", "path": "", "layout": None,
          "partitions": "shop.attrep_cdc_partitions", "before_images": True}  # fmt: skip
    pipeline = Pipeline(tmp_path, spark, [table], source=at)

    def tick() -> int:
        capsys.readouterr()
        code = main(["tick", str(pipeline.file), "--json"])
        pipeline.service.poll()
        return code

    source.execute(
        change(1, "I", "1, 'Ada', 1.50", first),
        change(2, "I", "2, 'O''\\\\k', 2.50", first),
        change(3, "B", "1, 'Ada', 1.50", first),
        change(3, "U", "7, 'Ada', 1.50", first, "x'10'"),
        change(4, "D", "9, NULL, NULL", first, "x'10'"),
        closed(first),
    )
    assert tick() == Exit.DONE, capsys.readouterr().out
    rows = [(row["id"], row["name"], row["price"]) for row in in_order(pipeline.mirrored("shop", "items"), ["id"])]
    assert rows == [(2, "O'\\k", Decimal("2.50")), (7, "Ada", Decimal("1.50"))]
    told: Mapping[str, Any] = {"columns": {"price": {"action": "DROP"}, "cost": {"action": "ADD"}}}
    source.execute(
        "ALTER TABLE shop.items__ct DROP COLUMN price, ADD COLUMN cost decimal(8,2)",
        f"INSERT INTO shop.attrep_ddl_history VALUES ('s', 't', 'SHOP', 'items', '{sequence(9)}', now(), "
        f"'ALTER_TABLE', '{json.dumps(told)}')",
        change(10, "I", "3, 'Eve', 3.50", second),
        closed(second),
        "INSERT INTO shop.attrep_suspended_tables VALUES ('s', 't', 'shop', 'items', 'it''s', '2024-01-01 12:30:00')",
        "INSERT INTO shop.ATTREP_APPLY_EXCEPTIONS VALUES ('s', 't', 'shop', 'items', '2024-01-01 12:31:00', 'INSERT')",
    )
    assert tick() == Exit.DONE_WITH_LOSSES
    told = json.loads(capsys.readouterr().out)
    assert told["losses"]["shop.items"].startswith("TABLE_SUSPENDED: the task suspended it at 2024-01-01 12:30:00")
    assert "APPLY_EXCEPTIONS: the task recorded 1 errors" in str(told["notes"]), told["notes"]
    rows = [(row["id"], row["price"], row["cost"]) for row in in_order(pipeline.mirrored("shop", "items"), ["id"])]
    assert rows[1] == (3, None, Decimal("3.50"))


def test_what_mysql_refuses_is_told_apart_and_no_secret_with_it_t97(
    tmp_path: Path, spark: Any, source: MariaDbServer, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    source.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, at datetime)")
    source.execute("SET sql_mode = ''; INSERT INTO shop.orders VALUES (1, '0000-00-00')")
    load = {"format": "jdbc", "connection": "shop_db", "table": "shop.orders"}
    table = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], "initial_load": load}
    pipeline = Pipeline(tmp_path, spark, [table], source={"layout": "bare"})
    assert main(["initial-load", str(pipeline.file)]) != Exit.DONE
    assert "VALUE_INVALID" in "".join(capsys.readouterr()), "a day that is none is no NULL"
    wrong = json.loads(os.environ["AIRFLOW_CONN_SHOP_DB"]) | {"password": "s3cret-and-wrong"}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_DB", json.dumps(wrong))
    other = Pipeline(tmp_path / "other", spark, [table], source={"layout": "bare"})
    assert main(["initial-load", str(other.file)]) == Exit.TABLES_STOPPED
    said = "".join(capsys.readouterr())
    assert "SOURCE_REFUSED" in said and "s3cret-and-wrong" not in said


def test_types_that_lose_something_are_refused_and_the_session_is_safe_t97() -> None:
    column = {"name": "c", "digits": 10, "scale": 0, "second_digits": None, "length": None}
    for kind, digits in (("bit", 8), ("geometry", 10), ("decimal", 65), ("uuid", 10), ("decimal unsigned", 39)):
        with pytest.raises(TerminalError, match="TYPE_UNSUPPORTED"):
            MySql().sql_type({**column, "data_type": kind, "digits": digits})
    url, properties = MySql().address(Connection("c", "mysql", "db.local", None, schema="a?user=b/c"))
    assert url == "jdbc:mariadb://db.local:3306/a%3Fuser%3Db%2Fc"
    assert "NO_BACKSLASH_ESCAPES" in properties["sessionVariables"] and properties["sslMode"] == "disable"
    with pytest.raises(TerminalError, match="CONNECTION_INVALID"):
        MySql().address(Connection("c", "mysql", "db.local", extra={"sslMode": "no&x=y"}))
    assert MySql().quote('a"b`; --') == '"a""b`; --"'
