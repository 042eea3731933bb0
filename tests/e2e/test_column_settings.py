"""What a mirror file says of columns, all of it at once: other names, types and hashes, and columns of the change.

Each setting alone, as tables change and drift, is in the files of its name (G-110, G-118, G-120, G-121).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import event
from tests.e2e.test_extra_columns import NAMES
from tests.e2e.test_hashed_columns import OTHER, SALT, hashed, nowhere_in_clear, salted
from tests.pipeline import Pipeline, in_order
from tests.postgres import PostgresServer
from tests.spark.test_initial_load_jdbc import connect

APPROVED = ["--correct", "--approved-by", "Ada", "--why", "ticket 4711"]
ORDERS = (("id", "int"), ("name", "nvarchar(9)"), ("born", "datetime2(6)"), ("amount", "decimal(20,4)"))
LOADED = (None, None, "load", None, "dbo.orders")


def test_loaded_changed_and_corrected_rows_land_alike_and_are_proved_g110_g118_g120_g121(
    tmp_path: Path, spark: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """G-08, G-40, G-45: over JDBC; a NUMERIC without digits too, what does not fit is a dead letter, never rounded.

    What is hashed is the text as it lands, and NULL stays NULL. A proof names what differs as at the source, hashes
    it with the salt of the table, and leaves out what only tells of the change.
    """
    salted(monkeypatch)
    connect(monkeypatch, postgres, postgres.port)
    postgres.execute(
        "DROP TABLE IF EXISTS orders",
        "CREATE TABLE orders (id int PRIMARY KEY, name varchar(9), born timestamp(6), amount numeric, mail text)",
        "INSERT INTO orders SELECT n, nullif('n' || n, 'n1'), '2000-01-01 10:00:00.5', 1.5, 'm' "
        "FROM generate_series(1, 4) n",
    )
    load = {"format": "jdbc", "connection": "shop_db", "table": "public.orders", "split_column": "id", "chunks": 2}
    table = {
        "source": "dbo.orders",
        "target": "dbo/orders",
        "key": ["id"],
        "columns": {"include": ["id", "n*", "born", "amount"], "rename": {"id": "name", "NAME": "id"}},
        "types": {"Amount": "decimal(12,2)"},
        "hash": ["born"],
        "initial_load": load,
    }
    pipeline = Pipeline(
        tmp_path / "shop",
        spark,
        [table],
        source={"layout": "bare"},
        landing_zone={"store": "local", "path": "zone", "tables": "tables"},
        prove={"settle_seconds": 0},
        hash={"salt": "shop_salt", "columns": ["na*"]},
        extra_columns=NAMES,
    )
    assert main(["initial-load", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.service.poll()

    def rows() -> list[tuple[Any, ...]]:
        found = in_order(pipeline.mirrored("dbo", "orders"), ["name"])
        assert {row["born"] for row in found} == {hashed("2000-01-01T10:00:00.500000")}
        return [tuple(row[name] for name in ("name", "id", "amount", *NAMES.values())) for row in found]

    def change(operation: str, key: int, name: str, amount: str, at: int) -> bytes:
        row = {"id": str(key), "name": name, "born": "2000-01-01 10:00:00.500000", "amount": amount}
        images = (None, row) if operation == "DEL" else (row, None)
        return event(operation, *images, cols=ORDERS, commit=at) + b"\n"

    price = Decimal("1.50")
    assert rows() == [(at, None if at == 1 else hashed(f"n{at}"), price, *LOADED) for at in range(1, 5)]
    changes = [("DEL", 2, "n2", "1.5000", 11), ("INS", 3, "new", "2.7500", 12), ("INS", 5, "bad", "0.1250", 13)]
    pipeline.deliver("a.jsonl", b"".join(change(*one) for one in changes))
    postgres.execute("DELETE FROM orders WHERE id = 2", "UPDATE orders SET name = 'new', amount = 2.75 WHERE id = 3")
    assert main(["tick", str(pipeline.file)]) == Exit.DONE_WITH_LOSSES
    pipeline.service.poll()
    one, changed, four = rows()
    assert (one[:2], four[:2]) == ((1, None), (4, hashed("n4")))
    lsn = "0000002C0000000C0001"
    place = f"000000:{lsn}:00000000000000000001:1"
    assert changed[3].replace(tzinfo=None) == datetime(2026, 8, 7, 16, 30, 10, 123000)
    assert (*changed[:3], *changed[4:]) == (3, hashed("new"), Decimal("2.75"), place, "insert", lsn, "dbo.orders")
    main(["dead-letters", str(pipeline.file)])
    assert "'0.1250' has more than 2 digits after the point" in capsys.readouterr().out

    assert main(["prove", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    postgres.execute("UPDATE orders SET name = 'lost' WHERE id = 4")
    capsys.readouterr()
    assert main(["prove", str(pipeline.file), "--json"]) == Exit.NOT_EQUAL
    (proof,) = json.loads(capsys.readouterr().out)["tables"].values()
    assert proof["keys"] == [{"key": '["4"]', "kind": "different", "columns": ["name"]}], proof
    assert main(["prove", str(pipeline.file), *APPROVED]) == Exit.NOT_EQUAL
    pipeline.service.poll()
    assert (rows()[2][:3], rows()[2][5:]) == ((4, hashed("lost"), price), ("correction", None, "dbo.orders"))
    pipeline.deliver("b.jsonl", change("INS", 5, "good", "0.25", 15))
    postgres.execute("INSERT INTO orders VALUES (5, 'good', '2000-01-01 10:00:00.5', 0.25)")
    assert main(["tick", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.service.poll()
    assert rows()[3][:3] == (5, hashed("good"), Decimal("0.25"))
    assert main(["prove", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    assert main(["reconcile", str(pipeline.file)]) == Exit.DONE
    salted(monkeypatch, OTHER)
    assert main(["prove", str(pipeline.file)]) == Exit.ON_HOLD
    assert "TABLE_REDECLARED" in capsys.readouterr().out
    nowhere_in_clear(pipeline, SALT, "good")


def test_text_loads_through_the_log_and_tables_of_a_pattern_g110_g118_g120_g121(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-04, F-20, G-70: a row that was completed is like a whole one, and tells of its newest change.

    The metadata of text files have the target's names and the columns that are added.
    """
    salted(monkeypatch)
    cols = (("id", "int"), ("name", "nvarchar(9)"), ("mail", "nvarchar(9)"), ("at", "datetimeoffset(3)"))
    at, iso = "2026-01-05 08:00:00.125 +02:00", "2026-01-05T08:00:00.125+02:00"
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "export.csv").write_text(f"id,name,mail,at\n1,Ada,a@b,{at}\n2,Eve,e@b,{at}\n")
    load = {"format": "csv", "path": "export.csv", "stream_from": "beginning", "types": dict(cols)}
    columns = {"rename": {"id": "number", "mail": "address"}}
    said = {"columns": columns, "types": {"AT": "string", "id": "int64"}, "extra_columns": NAMES}
    shared = {"key": ["id"], "initial_load": load, "hash": ["name"], **said}
    text = {"columns": {"id": "int64", "name": "string", "mail": "string", "at": "string"}}
    tables = [
        {"source": "dbo.partial", "target": "dbo/partial", "complete_rows": True, **shared},
        {"source": "dbo.text", "target": "dbo/text", "delimited_text": text, **shared},
        {"source": "dbo.new*", **said, "hash": ["Name", "absent"], "types": {**said["types"], "unknown": "string"}},
    ]
    pipeline = Pipeline(tmp_path / "shop", spark, tables, source={"layout": "bare"}, hash={"salt": "shop_salt"})
    assert main(["initial-load", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    row = {"id": "1", "name": "New", "mail": "a@b", "at": at}
    part = {"id": "1", "name": "New"}
    story = [event("UPD", part, {"id": "1"}, cols=cols[:2], commit=9, tbl="partial")]
    story += [event("UPD", row, {**row, "name": "Ada"}, cols=cols, commit=9, tbl="text")]
    story += [event("INS", row, cols=cols, commit=9, tbl="new1", pkkey={"id": "1"})]
    pipeline.deliver("a.jsonl", b"".join(one + b"\n" for one in story))
    assert main(["tick", str(pipeline.file)]) == Exit.DONE_WITH_LOSSES
    assert "HASH_UNMATCHED: `hash` names 'absent', and no column of any table has this name" in capsys.readouterr().out
    pipeline.file.write_text(pipeline.file.read_text().replace("- absent", "- absent*"))
    assert main(["tick", str(pipeline.file)]) == Exit.DONE, "a pattern is for what may come"
    pipeline.service.poll()
    old = (2, hashed("Eve"), "e@b", iso, "load", None)
    for name, others in (("partial", [old]), ("text", [old]), ("new1", [])):
        rows = in_order(pipeline.mirrored("dbo", name), ["number"])
        found = [tuple(r[n] for n in ("number", "name", "address", "at", "_operation", "_position")) for r in rows]
        first = (1, hashed("New"), "a@b", iso, "insert" if name == "new1" else "update")
        assert (found[0][:-1], found[1:]) == (first, others), name
        assert rows[0]["_committed"].astimezone(UTC) == datetime(2026, 8, 7, 16, 30, 10, 123000, UTC)
        assert {r["_table"] for r in rows} == {f"dbo.{name}"}
    (metadata,) = pipeline.zone.rglob("text/_metadata.json")
    described = json.loads(metadata.read_text())["SchemaDefinition"]["Columns"]
    assert [one["Name"] for one in described] == ["number", "name", "address", "at", *NAMES.values()]
    assert main(["reconcile", str(pipeline.file)]) == Exit.DONE
    document = yaml.safe_load(pipeline.file.read_text())
    document["tables"][1]["types"] = {"id": "string"}
    pipeline.file.write_text(yaml.safe_dump(document))
    capsys.readouterr()
    assert main(["check", str(pipeline.file)]) != Exit.DONE
    assert "say two types of the column 'id'" in capsys.readouterr().err


SALTED = {"hash": {"salt": "shop_salt"}}


@pytest.mark.parametrize(
    ("mirror", "table", "what"),
    [
        ({}, {"hash": ["name"]}, "CONFIG_INVALID"),
        (SALTED, {"hash": ["ID"]}, "the key column 'id' cannot land as a hash"),
        ({"hash": {"salt": "shop_salt", "columns": ["i*"]}}, {}, "the key column 'id' cannot land as a hash"),
        (SALTED, {"hash": ["n*"], "types": {"name": "int64"}}, "not as text, but its hash is text"),
        ({"hash": {"salt": "nobody"}}, {"hash": ["name"]}, "CONNECTION_INVALID"),
        ({"hash": {"salt": "short_salt"}}, {"hash": ["name"]}, "fewer than 16 characters"),
        *(
            ({}, {"columns": columns}, what)
            for columns, what in (
                ({"rename": {"name": "ID"}}, "COLUMN_NAME_INVALID"),
                ({"rename": {"name": "x", "mail": "X"}}, "COLUMN_NAME_INVALID"),
                ({"include": ["id", "name", "mail"], "rename": {"name": "MAIL"}}, "COLUMN_NAME_INVALID"),
                ({"rename": {"name": "__rowMarker__"}}, "COLUMN_NAME_INVALID"),
                ({"rename": {"na*": "x"}}, "CONFIG_INVALID"),
                ({"rename": {"name": ""}}, "CONFIG_INVALID"),
                ({"rename": {"Name": "x", "name": "y"}}, "COLUMN_NAME_INVALID"),
                ({"exclude": ["mail"], "rename": {"mail": "x"}}, "CONFIG_INVALID"),
                ({"rename": {"mail": "x", "lost": "y"}}, "NOT_SEEN"),
            )
        ),
        *(
            ({"extra_columns": extra} if of_mirror else {}, {} if of_mirror else {"extra_columns": extra}, what)
            for extra, what in (
                ({"operation": "ID"}, "COLUMN_NAME_INVALID"),
                ({"operation": "x", "transaction": "X"}, "COLUMN_NAME_INVALID"),
                ({"operation": "__rowMarker__"}, "COLUMN_NAME_INVALID"),
                ({"operation": ""}, "CONFIG_INVALID"),
                ({"clock": "x"}, "CONFIG_INVALID"),
            )
            for of_mirror in (True, False)
        ),
        (
            {"extra_columns": {"operation": "Lands"}},
            {"columns": {"rename": {"mail": "lands"}}},
            "COLUMN_NAME_INVALID",
        ),
    ],
)
def test_check_says_which_settings_cannot_be_g118_g120_g121(
    mirror: dict[str, Any],
    table: dict[str, Any],
    what: str,
    tmp_path: Path,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    salted(monkeypatch)
    monkeypatch.setenv("AIRFLOW_CONN_SHORT_SALT", json.dumps({"conn_type": "generic", "password": "pepper"}))
    described = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], **table}
    pipeline = Pipeline(tmp_path, spark, [described], source={"layout": "bare"}, **mirror)
    cols = (("id", "int"), ("name", "nvarchar(9)"), ("mail", "nvarchar(9)"))
    pipeline.deliver("a.jsonl", event(cols=cols) + b"\n")
    ends = main(["check", str(pipeline.file), "--sample", "9"])
    assert (ends == Exit.DONE) is (what == "NOT_SEEN"), "a wrong name alone stops nothing"
    story = "".join(capsys.readouterr())
    assert what in story and "pepper" not in story
