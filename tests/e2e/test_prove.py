"""Proving that the mirrored tables equal the source's: over JDBC and over exports, while the source moves (G-40)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
import yaml

from open_mirroring.changes.column_notes import NoteKind
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.columns import note_from_now
from open_mirroring.ledger.proofs import ProofLedger
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from spark_jobs.prove import ProofOptions, prove
from tests.ces_messages import envelope, lsn, payload
from tests.pipeline import ROOT, Pipeline
from tests.postgres import PostgresServer
from workload_generator.delivery import Message
from workload_generator.history import ColumnDef, TableDef
from workload_generator.qlik_file_target import full_load_files
from workload_generator.transports import json_lines, write_files

COLUMNS = (("id", "int"), ("name", "nvarchar(max)"), ("price", "decimal(10,2)"))
TABLES = tuple(f"shop.t{number}" for number in range(1, 6))
Row = tuple[int, str | None, str | None]
QLIK = TableDef(
    "shop",
    "t2",
    (ColumnDef("id", "int"), ColumnDef("name", "nvarchar(max)"), ColumnDef("price", "decimal(10,2)")),
    ("id",),
)


class Shop:
    """Tables in PostgreSQL whose changes are reported to a mirror, or not: then somebody has lost them."""

    def __init__(
        self,
        folder: Path,
        spark: Any,
        server: PostgresServer,
        tables: tuple[str, ...],
        consistency: str = "key",
        exports: Mapping[str, Any] | None = None,
        **prove: Any,
    ) -> None:
        self.server, self.tables, self.commit = server, tables, 15
        server.execute("DROP SCHEMA IF EXISTS shop CASCADE", "CREATE SCHEMA shop")
        for name in tables:
            server.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, name text, price numeric(10,2))")
        described = [
            {
                "source": name,
                "target": name.replace(".", "/"),
                "key": ["id"],
                "prove": (exports or {}).get(name, {"format": "jdbc", "connection": "shop_db", **prove}),
            }
            for name in tables
        ]
        self.pipeline = Pipeline(
            folder,
            spark,
            described,
            source={"layout": "wrapped", "partition_key_scheme": "stream-group"},
            landing_zone={"store": "local", "path": "zone", "tables": "tables"},
            prove={"settle_seconds": 0},
            consistency=consistency,
        )
        self.lines: list[Message] = []
        self.told = 0

    def set(self, table: str, row: Row, *, told: bool = True) -> None:
        name = "NULL" if row[1] is None else "'" + row[1].replace("'", "''") + "'"
        values = f"({row[0]}, {name}, {'NULL' if row[2] is None else row[2]})"
        update = "SET name = EXCLUDED.name, price = EXCLUDED.price"
        self.server.execute(f"INSERT INTO {table} VALUES {values} ON CONFLICT (id) DO UPDATE {update}")
        if told:
            image = {"id": str(row[0]), "name": row[1], "price": row[2]}
            self._tell("INS", table, current=image)

    def remove(self, table: str, key: int, *, told: bool = True) -> None:
        self.server.execute(f"DELETE FROM {table} WHERE id = {key}")
        if told:
            self._tell("DEL", table, old={"id": str(key)}, pkkey={"id": str(key)})

    def deliver(self) -> None:
        """What was reported reaches the place where it is read."""
        if self.lines:
            self.pipeline.deliver(f"{self.commit:06d}.jsonl", json_lines(self.lines, layout="wrapped"))
            self.lines = []

    def tick(self) -> None:
        self.deliver()
        self.pipeline.tick()

    def _tell(self, operation: str, table: str, **images: Any) -> None:
        self.commit += 1
        schema, _, tbl = table.partition(".")
        data = payload(**{"cols": COLUMNS, **images}, commit=self.commit, schema=schema, tbl=tbl)
        message = envelope(operation, json.dumps(data), commit=self.commit)
        self.lines.append(Message(0, self.told, json.dumps(message).encode(), None, "2026-01-01T00:00:00Z"))
        self.told += 1


@pytest.fixture
def shop_of(
    tmp_path: Path, spark: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Shop]:
    _connect(postgres, monkeypatch)
    return lambda *tables, **settings: Shop(tmp_path / "shop", spark, postgres, tables, **settings)


@pytest.fixture
def shop_anywhere(
    tmp_path: Path, executor: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Shop]:
    """As `shop_of`, in the tests' own process and in Spark."""
    _connect(postgres, monkeypatch)
    return lambda *tables, **settings: Shop(tmp_path / "shop", executor, postgres, tables, **settings)


def _connect(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {
        "conn_type": "postgres",
        "host": "127.0.0.1",
        "port": postgres.port,
        "login": postgres.user,
        "password": postgres.password,
        "schema": postgres.database,
    }
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_DB", json.dumps(content))


def proved(shop: Shop, capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["prove", str(shop.pipeline.file), "--json", *map(str, argv)])
    return code, json.loads(capsys.readouterr().out)["tables"]


def test_a_table_that_is_written_is_proved_by_what_is_read_meanwhile(shop_of: Callable[..., Shop]) -> None:
    """G-42, G-142: changes on their way are no differences; what differs beside them is found; what is hot
    stays unproven, and what is noted meanwhile stays unverified."""
    shop = shop_of("shop.t1", "shop.t2", split_column="id", chunks=4, max_connections=1)
    for table in shop.tables:
        for key in range(60):
            shop.set(table, (key, f"name {key}", f"{key}.50"))
    shop.tick()
    # Changed at the source and told, but not read yet; one lost row beside them.
    shop.set("shop.t1", (5, "later", "5.00"))
    shop.remove("shop.t1", 6)
    shop.set("shop.t1", (200, "new", "1.00"))
    shop.set("shop.t1", (300, "lost", "1.00"), told=False)
    shop.deliver()

    def run(between: Callable[[], None], looks: int = 4) -> Any:
        return prove(
            shop.pipeline.mirror,
            shop.pipeline.ledger,
            shop.pipeline._spark,
            asked=ProofOptions(settle_seconds=0, looks=looks),
            sleep=lambda _: between(),
        ).tables

    def note(why: str) -> None:
        with shop.pipeline.ledger.begin() as db:
            note_from_now(db, db.execute(sa.select(t.mirrored_table)), NoteKind.ROWS, [why], 1)

    # Nobody reads: nothing can be said of these keys, and the table is not called equal.
    note("before")
    found = run(lambda: note("meanwhile"))
    tables = shop.pipeline.reader.tables()
    noted = shop.pipeline.reader.unverified_columns(tables.values())
    told = {source: {one.column.strip() for one in noted[tables[source].id]} for source in tables}
    assert told == {"shop.t1": {"before", "meanwhile"}, "shop.t2": {"meanwhile"}}, "G-142: not what came behind a look"
    assert (found["shop.t1"]["verdict"], found["shop.t1"]["unproven"]) == ("UNPROVEN", 4)
    assert "the source had sent more than is in the change log" in found["shop.t1"]["reasons"][0]
    assert found["shop.t2"]["verdict"] == "EQUAL"

    # Somebody reads, and the source goes on being written: key 7 moves between any two looks.
    def traffic() -> None:
        shop.tick()
        shop.set("shop.t1", (7, f"hot {shop.commit}", "7.00"))
        shop.deliver()

    traffic()
    shop.set("shop.t1", (300, "lost", "1.00"), told=False)
    found = run(traffic, looks=5)
    one = found["shop.t1"]
    assert one["verdict"] == "DIFFERENT"
    assert [(key["key"], key["kind"]) for key in one["keys"]] == [('["300"]', "missing")]
    assert one["unproven"] <= 1

    # It comes to rest, and the lost row is reported after all.
    shop.set("shop.t1", (300, "lost", "1.00"))
    shop.tick()
    found = run(lambda: None)
    assert {table["verdict"] for table in found.values()} == {"EQUAL"}, found
    assert found["shop.t1"]["cells"] > 1_000 and found["shop.t1"]["position"].startswith("0:")


def test_an_export_proves_what_was_not_changed_since(
    shop_of: Callable[..., Shop], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-43: an export of a known position; a key that was changed since is not called different."""
    shop = shop_of("shop.t1")
    for key in range(5):
        shop.set("shop.t1", (key, "as exported", "1.00"))
    export = tmp_path / "export"
    export.mkdir()
    rows = [{"id": key, "name": "as exported", "price": Decimal("1.00")} for key in range(5)]
    schema = pa.schema([("id", pa.int32()), ("name", pa.string()), ("price", pa.decimal128(10, 2))])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), export / "shop.t1.parquet")
    since = lsn(shop.commit)
    shop.tick()
    assert proved(shop, capsys, "--export", export)[0] == Exit.DONE
    shop.set("shop.t1", (3, "since then", "2.00"))
    shop.tick()
    code, found = proved(shop, capsys, "--export", export)
    assert (code, found["shop.t1"]["different"]) == (Exit.NOT_EQUAL, 1)
    code, found = proved(shop, capsys, "--export", export, "--since", since)
    assert (code, found["shop.t1"]["verdict"], found["shop.t1"]["unproven"]) == (Exit.ON_HOLD, "UNPROVEN", 1)


def test_a_csv_export_and_a_full_load_prove_what_the_database_would(
    shop_anywhere: Callable[..., Shop], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-40, G-43: NULL, empty text, blanks and digits are told apart in each format; a stale row is found."""
    types = {name: kind for name, kind in COLUMNS}
    shop = shop_anywhere(
        *TABLES[:2],
        exports={
            "shop.t1": {"format": "csv", "path": "export/t1.csv", "types": types},
            "shop.t2": {"format": "qlik-full-load", "path": "export/shop.t2", "types": types},
        },
    )
    rows: list[Row] = [(1, "a, b", "1.00"), (2, None, None), (3, " ä ", "-0.10"), (4, 'say "x"\nno', "99999999.99")]
    rows += [(5, "", "0.00")]
    for key, name, price in rows:
        for table in shop.tables:
            shop.set(table, (key, name, price))
    shop.tick()
    export = shop.pipeline.folder / "export"
    write_files(export, full_load_files(QLIK, [dict(zip(types, map(_text, row), strict=True)) for row in rows]))

    def exported(rows: list[Row]) -> None:
        lines = [",".join("" if v is None else '"' + _text(v).replace('"', '""') + '"' for v in row) for row in rows]
        (export / "t1.csv").write_text("\n".join([",".join(types), *lines]) + "\n", encoding="utf-8")

    exported(rows)
    code, found = proved(shop, capsys)
    assert (code, {one["verdict"] for one in found.values()}) == (Exit.DONE, {"EQUAL"}), found
    exported([*rows[:3], (4, rows[3][1], "99999999.98"), (5, None, "0.00")])
    load = next((export / "shop.t2").glob("*.csv"))
    load.write_bytes(load.read_bytes().replace(" ä ".encode(), " ä".encode()))
    code, found = proved(shop, capsys)
    keys = {table: {(k["key"], tuple(k["columns"])) for k in one["keys"]} for table, one in found.items()}
    assert keys == {"shop.t1": {('["4"]', ("price",)), ('["5"]', ("name",))}, "shop.t2": {('["3"]', ("name",))}}
    assert code == Exit.NOT_EQUAL


def _text(value: Any) -> Any:
    return None if value is None else str(value)


def test_what_cannot_be_compared_says_so_and_holds_up_no_other(
    shop_of: Callable[..., Shop], capsys: pytest.CaptureFixture[str]
) -> None:
    """G-40: a table without its place, with a column of another type, with a value that nothing types."""
    shop = shop_of("shop.t1", "shop.t2", "shop.t3", "shop.t4")
    for table in shop.tables:
        shop.set(table, (1, "a", "1.00"))
    shop.tick()
    shop.server.execute(
        "ALTER TABLE shop.t1 ALTER price TYPE date USING NULL",
        "ALTER TABLE shop.t2 RENAME price TO cost",
        "DROP TABLE shop.t3",
    )
    code, found = proved(shop, capsys)
    assert {table: (one["verdict"], one["code"]) for table, one in found.items()} == {
        "shop.t1": ("UNPROVEN", "SCHEMA_CHANGED"),
        "shop.t2": ("DIFFERENT", ""),
        "shop.t3": ("UNPROVEN", "PLACE_MISSING"),
        "shop.t4": ("EQUAL", ""),
    }
    assert found["shop.t2"]["columns"] == {"cost": 1, "price": 1} and code == Exit.NOT_EQUAL
    reasons = found["shop.t2"]["reasons"][:2]
    assert reasons == ["the target has no column 'cost'", "the source has no column 'price'"]


APPROVED = ("--correct", "--approved-by", "Ada", "--why", "ticket 4711")
# A difference counts once it was seen twice; more looks only wait longer for what is on its way.
TWICE = ("--looks", "2")


def audited(shop: Shop, event: str) -> list[dict[str, Any]]:
    from open_mirroring.ledger.tables import audit

    with shop.pipeline.ledger.connect() as db:
        rows = db.execute(audit.select().where(audit.c.event == event).order_by(audit.c.id))
        return [json.loads(row.detail) for row in rows]


def spoiled(shop: Shop) -> None:
    """A lost row, a ghost and a stale one in the one table; all is right in the other."""
    for table in shop.tables:
        for key in range(30):
            shop.set(table, (key, f"name {key}", f"{key}.50"))
    shop.tick()
    shop.set("shop.t1", (100, "lost", None), told=False)
    shop.remove("shop.t1", 7, told=False)
    shop.set("shop.t1", (8, "name 8 ", "8.51"), told=False)


def test_keys_beyond_the_most_that_are_looked_at_again_are_unproven(
    shop_of: Callable[..., Shop], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-42: a table of which too much differs is never equal, and says that not every key was looked at twice."""
    shop = shop_of("shop.t1")
    spoiled(shop)
    monkeypatch.setattr("spark_jobs.prove._MOST_KEYS", 2)
    code, found = proved(shop, capsys, *TWICE)
    assert code == Exit.NOT_EQUAL and found["shop.t1"]["unproven"] == 1, found
    assert sum(found["shop.t1"][kind] for kind in ("missing", "extra", "different")) == 2
    assert any("more than 2 keys differ" in reason for reason in found["shop.t1"]["reasons"])


def test_a_correction_publishes_exactly_these_rows_by_the_protocol(
    shop_of: Callable[..., Shop], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """G-45: approved by name, through the log, the rows of the source as they are now; later changes win over it."""
    shop = shop_of("shop.t1", "shop.t2")
    spoiled(shop)
    assert main(["prove", str(shop.pipeline.file), "--correct"]) == Exit.USAGE
    plan = tmp_path / "plan.json"
    code, found = proved(shop, capsys, "--repair-plan", plan)
    assert (code, found["shop.t1"]["missing"], found["shop.t1"]["extra"]) == (Exit.NOT_EQUAL, 1, 1)
    planned = json.loads(plan.read_text())["tables"]
    assert set(planned) == {"shop.t1"} and planned["shop.t1"]["all_named"]
    assert {key["key"] for key in planned["shop.t1"]["keys"]} == {'["100"]', '["7"]', '["8"]'}

    code, found = proved(shop, capsys, *APPROVED)
    assert code == Exit.NOT_EQUAL and "3 keys are in the change log" in found["shop.t1"]["correction"]
    assert [(entry["who"], entry["why"], entry["keys"]) for entry in audited(shop, "CORRECTION_APPROVED")] == [
        ("Ada", "ticket 4711", 3)
    ]
    [state] = [s for s in shop.pipeline.reader.tables().values() if s.source == "shop.t1"]
    assert [file.rows for file in shop.pipeline.reader.published(state.id, 1)] == [30, 3]
    shop.pipeline.service.poll()
    code, found = proved(shop, capsys)
    assert (code, found["shop.t1"]["verdict"]) == (Exit.DONE, "EQUAL")

    # What comes later wins: the corrected rows change, and go, like any other.
    shop.set("shop.t1", (100, "later", "2.00"))
    shop.remove("shop.t1", 8)
    shop.set("shop.t1", (7, "back", "7.00"))
    shop.tick()
    assert proved(shop, capsys)[0] == Exit.DONE
    rows = {row["id"]: row["name"] for row in shop.pipeline.mirrored("shop", "t1")}
    assert (rows[100], rows[7], 8 in rows) == ("later", "back", False)
    assert main(["reconcile", str(shop.pipeline.file)]) == Exit.DONE
    capsys.readouterr()
    assert main(["status", str(shop.pipeline.file)]) == Exit.DONE
    assert "last proof EQUAL" in capsys.readouterr().out


def test_a_small_table_is_loaded_and_proved_without_spark(
    tmp_path: Path, postgres: PostgresServer, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-08, G-40: read by the job's own process, in ranges as well; of a view nobody tells how large it is."""
    _connect(postgres, monkeypatch)
    postgres.execute(
        "DROP SCHEMA IF EXISTS shop CASCADE",
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.t (id int PRIMARY KEY, name text, at timestamptz, price numeric(10,2)) "
        "PARTITION BY HASH (id)",
        "CREATE TABLE shop.t0 PARTITION OF shop.t FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
        "CREATE TABLE shop.t1 PARTITION OF shop.t FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        "INSERT INTO shop.t SELECT n, CASE n % 3 WHEN 0 THEN '' WHEN 1 THEN NULL ELSE 'ä\"' || n END, "
        "TIMESTAMPTZ '2024-07-01 12:00:00.123456+02', n / 100.0 FROM generate_series(-10, 4999) n",
        "CREATE TABLE shop.lines (name text)",
        "INSERT INTO shop.lines VALUES ('a'), ('a'), (NULL)",
        "CREATE VIEW shop.seen AS SELECT * FROM shop.t",
    )
    load = {"format": "jdbc", "connection": "shop_db"}
    tables: list[dict[str, Any]] = [
        {"source": "shop.t", "target": "shop/t", "key": ["id"]}
        | {"initial_load": {**load, "split_column": "id", "chunks": 3, "max_rows_per_second": 1_000_000}},
        {"source": "shop.lines", "target": "shop/lines", "key": [], "initial_load": {**load, "handover": "quiesced"}},
    ]
    zone = {"store": "local", "path": "zone", "tables": "tables"}
    shop = Pipeline(tmp_path / "shop", spark, tables, landing_zone=zone, prove={"settle_seconds": 0})

    def run(job: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        # A folder without a program `java` in it.
        nowhere = {**os.environ, "JAVA_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        command = [sys.executable, "-m", f"spark_jobs.{job}", str(shop.file), *arguments]
        return subprocess.run(command, env=nowhere, capture_output=True, text=True, timeout=300)

    for job in ("initial_load", "prove"):
        done = run(job)
        assert (done.returncode, "starting Spark" in done.stderr) == (Exit.DONE, False), done.stderr
        shop.service.poll()
    assert len(shop.mirrored("shop", "t")) == 5_010
    postgres.execute("UPDATE shop.t SET name = 'new' WHERE id = 7", "INSERT INTO shop.lines VALUES ('a'), ('b')")
    told = run("prove", "--tables", "shop.t")
    assert (told.returncode, "starting Spark" in told.stderr) == (Exit.NOT_EQUAL, False), told.stderr
    assert 'shop.t: different: ["7"] name' in told.stderr
    lines = json.loads(run("prove", "--tables", "shop.lines").stdout)["tables"]["shop.lines"]
    assert (lines["verdict"], lines["missing"], lines["extra"]) == ("DIFFERENT", 2, 0)
    shop.file.write_text(
        shop.file.read_text().replace(
            "key: []", "prove: {format: jdbc, connection: shop_db, table: shop.seen}\n  key: []"
        )
    )
    assert "starting Spark" in run("prove", "--tables", "shop.lines").stderr


def test_one_approval_has_one_effect_wherever_it_was_killed(
    shop_of: Callable[..., Shop], capsys: pytest.CaptureFixture[str]
) -> None:
    """G-45: a proof that dies leaves nothing, a correction that dies is finished by whatever runs next, once."""
    from open_mirroring.ledger.auditing import Reason
    from spark_jobs.corrections import correct

    shop = shop_of("shop.t1")
    spoiled(shop)
    shop.pipeline.killed("prove", "prove.looked")
    [state] = shop.pipeline.reader.tables().values()
    assert ProofLedger(shop.pipeline.ledger).newest([state.id]) == {}
    shop.pipeline.killed("prove", "prove.recorded")
    recorded = ProofLedger(shop.pipeline.ledger).newest([state.id])[state.id]
    assert recorded.proof.differing == 3

    def again() -> Any:
        mirror, ledger = shop.pipeline.mirror, shop.pipeline.ledger
        return correct(mirror, ledger, shop.pipeline._spark, recorded.id, Reason("Ada", "ticket 4711"))

    asked = ("--proof", recorded.id, "--approved-by", "Ada", "--why", "ticket 4711")
    for fault in ("correct.approved", "extract.written", "extract.committed"):
        shop.pipeline.killed("corrections", fault, *asked)
    for _ in range(2):
        assert again().keys == 3
    assert len(audited(shop, "CORRECTION_APPROVED")) == 1
    logged = [row for row in shop.pipeline.logged() if row["origin"].startswith("(correction)")]
    assert sorted((row["key"], row["op"]) for row in logged) == [('["100"]', "U"), ('["7"]', "D"), ('["8"]', "U")]
    shop.pipeline.killed("publish_changes", "publish.sealed")
    shop.tick()
    assert [file.rows for file in shop.pipeline.reader.published(state.id, 1)] == [30, 3]
    code, found = proved(shop, capsys)
    assert (code, found["shop.t1"]["verdict"]) == (Exit.DONE, "EQUAL")


def test_a_correction_keeps_transactions_complete(
    shop_of: Callable[..., Shop], capsys: pytest.CaptureFixture[str]
) -> None:
    """G-45, I4: where transactions are held back it waits for the next commit, unless a later one was seen."""
    shop = shop_of("shop.t1", "shop.t2", consistency="transaction")
    spoiled(shop)
    code, found = proved(shop, capsys, *TWICE)
    # The last transaction waits until a later one is seen: what it changed is on its way, and nothing else is.
    assert code == Exit.NOT_EQUAL and found["shop.t1"]["verdict"] == "DIFFERENT", found
    shop.set("shop.t2", (500, "a later commit", "1.00"))
    shop.tick()
    code, found = proved(shop, capsys, *TWICE, "--tables", "shop.t1", *APPROVED)
    assert "3 keys are in the change log" in found["shop.t1"]["correction"]
    shop.pipeline.service.poll()
    code, found = proved(shop, capsys, *TWICE, "--tables", "shop.t1")
    assert (code, found["shop.t1"]["verdict"]) == (Exit.DONE, "EQUAL"), found

    # Now the table itself has the newest commit that was seen: the correction stands above it, and waits.
    shop.set("shop.t1", (9, "the newest", "9.00"))
    shop.tick()
    shop.set("shop.t1", (10, "lost", "1.00"), told=False)
    code, found = proved(shop, capsys, *TWICE, "--tables", "shop.t1", *APPROVED)
    assert "1 keys are in the change log" in found["shop.t1"]["correction"], found
    shop.pipeline.service.poll()
    assert {row["id"]: row["name"] for row in shop.pipeline.mirrored("shop", "t1")}[10] == "name 10"
    code, found = proved(shop, capsys, *TWICE, "--tables", "shop.t1")
    assert (code, found["shop.t1"]["verdict"]) == (Exit.ON_HOLD, "UNPROVEN"), found
    shop.set("shop.t2", (501, "a later commit", "1.00"))
    shop.tick()
    code, found = proved(shop, capsys, *TWICE, "--tables", "shop.t1")
    assert (code, found["shop.t1"]["verdict"]) == (Exit.DONE, "EQUAL"), found
    assert {row["id"]: row["name"] for row in shop.pipeline.mirrored("shop", "t1")}[10] == "lost"


def test_a_listed_column_that_the_source_dropped_hinders_no_proof_g60(
    shop_of: Callable[..., Shop], capsys: pytest.CaptureFixture[str]
) -> None:
    """It cannot be taken out of `columns` either, for it is published (G-12); back at the source it is compared."""
    shop = shop_of("shop.t1")
    document = yaml.safe_load(shop.pipeline.file.read_text(encoding="utf-8"))
    document["tables"][0]["columns"] = ["id", "Name", "PRICE"]
    shop.pipeline.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    shop.set("shop.t1", (1, "a", "1.50"))
    shop.tick()
    shop.server.execute("ALTER TABLE shop.t1 DROP COLUMN price", "INSERT INTO shop.t1 VALUES (2, 'b')")
    shop._tell("INS", "shop.t1", current={"id": "2", "name": "b"}, cols=COLUMNS[:2])
    shop.tick()
    code, found = proved(shop, capsys)
    assert (code, found["shop.t1"]["verdict"]) == (Exit.DONE, "EQUAL"), found
    shop.server.execute("INSERT INTO shop.t1 VALUES (3, 'never told')")
    assert proved(shop, capsys, *APPROVED)[0] == Exit.NOT_EQUAL
    shop.pipeline.service.poll()
    code, found = proved(shop, capsys)
    assert (code, found["shop.t1"]["verdict"], found["shop.t1"]["rows_target"]) == (Exit.DONE, "EQUAL", 3), found
    shop.server.execute("ALTER TABLE shop.t1 ADD COLUMN price numeric(10,2)", "UPDATE shop.t1 SET price = 9")
    code, found = proved(shop, capsys)
    assert (code, found["shop.t1"]["verdict"]) == (Exit.NOT_EQUAL, "DIFFERENT")
