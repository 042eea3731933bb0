"""Times the proof of a PostgreSQL table against its mirrored Delta table, beside DuckDB and a plain JDBC read.

``make bench-prove ROWS=10000000``. The real job (session, ledger, workers, both sides over their real readers) runs on
equal tables, then on the same tables with a few rows spoiled. DuckDB reads both sides by its own extensions, where they
are installed, and joins the rows in one process. A plain JDBC read counts the same columns and compares nothing. The
memory is that of the process tree, without the database.

``--tables 24 --rows 1000`` proves 24 equal tables of 1,000 rows instead, and nothing beside it: it measures the fixed
cost of a table.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil
import pyarrow as pa
import yaml

from benchmarks.measure import BUSY, Cost, measured, versions

ROOT = Path(__file__).resolve().parents[1]
_ROW = (
    "SELECT i AS id, 'customer ' || i AS name, (i % 1000000)::numeric(12,2) / 100 AS price, "
    "timestamp '2020-01-01' + i * interval '1 second' AS changed, i % 3 = 0 AS open, i * 7 % 1000003 AS place "
    "FROM generate_series(1, {rows}) i"
)
_COLUMNS = "id bigint PRIMARY KEY, name text, price numeric(12,2), changed timestamp, open boolean, place bigint"
_SPOILED = 5


def main(argv: list[str] | None = None) -> int:
    """Run the comparison; prints a table and one JSON line."""
    parser = argparse.ArgumentParser("benchmarks.prove", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--chunks", type=int, default=16)
    parser.add_argument("--tables", type=int, help="prove so many tables, each of --rows rows")
    parser.add_argument("--rounds", type=int, default=5, help="how often, with --tables")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench-prove")
    arguments = parser.parse_args(argv)
    logging.disable(logging.INFO)
    shutil.rmtree(arguments.folder, ignore_errors=True)
    arguments.folder.mkdir(parents=True)
    from tests.postgres import running_postgres

    before = {child.pid for child in psutil.Process().children()}
    with running_postgres() as server:
        database = {child.pid for child in psutil.Process().children()} - before
        names = ["shop.orders"] if arguments.tables is None else [f"shop.t{at}" for at in range(arguments.tables)]
        for name in names:
            _fill(server, name, arguments.rows)
        file = _mirror(arguments.folder, server, arguments.chunks if arguments.tables is None else None, names)
        if arguments.tables is not None:
            return _measure_many(file, len(names), arguments.rounds, database)
        print(f"{arguments.rows} rows of 6 columns; {os.cpu_count()} cores; {versions()}", flush=True)
        _measure(file, arguments.folder, server, arguments.rows, database)
    return 0


def _fill(server: Any, table: str, rows: int) -> None:
    server.execute(
        "CREATE SCHEMA IF NOT EXISTS shop",
        f"CREATE TABLE {table} ({_COLUMNS})",
        f"INSERT INTO {table} {_ROW.format(rows=rows)}",
        f"ANALYZE {table}",
    )


def _mirror(folder: Path, server: Any, chunks: int | None, names: list[str]) -> Path:
    """A mirror of these tables, and their mirrored tables in the form that the service writes."""
    from deltalake import write_deltalake

    content = {"conn_type": "postgres", "host": "127.0.0.1", "port": server.port, "login": server.user}
    content |= {"password": server.password, "schema": server.database}
    os.environ["AIRFLOW_CONN_SHOP"] = json.dumps(content)
    load: dict[str, Any] = {"format": "jdbc", "connection": "shop"}
    load |= {} if chunks is None else {"split_column": "id", "chunks": chunks}
    document = {
        "mirror": "bench",
        "source": {"format": "sqlserver-ces", "transport": "files", "layout": "bare", "path": "source"},
        "landing_zone": {"store": "local", "path": "zone", "tables": "tables"},
        "ledger": "sqlite:///ledger.db",
        "change_log": "log",
        "prove": {"settle_seconds": 0},
        "tables": [{"source": name, "target": name.replace(".", "/"), "key": ["id"], "prove": load} for name in names],
    }
    (folder / "mirrors").mkdir()
    (folder / "source").mkdir()
    file = folder / "mirrors" / "bench.yaml"
    file.write_text(yaml.safe_dump(document))
    for name in names:
        write_deltalake(str(folder / "tables" / name.replace(".", "/")), _batches(server, name))
    return file


def _batches(server: Any, table: str) -> pa.RecordBatchReader:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("price", pa.decimal128(12, 2)),
            ("changed", pa.timestamp("us", "UTC")),
            ("open", pa.bool_()),
            ("place", pa.int64()),
        ]
    )

    def rows() -> Any:
        connection = server.connect()
        connection.autocommit = False
        with connection.cursor("rows") as cursor:
            cursor.itersize = 100_000
            cursor.execute(f"SELECT id, name, price, changed AT TIME ZONE 'UTC', open, place FROM {table}")
            while lines := cursor.fetchmany(100_000):
                columns = zip(*lines, strict=True)
                arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        connection.close()

    return pa.RecordBatchReader.from_batches(schema, rows())


def _measure(file: Path, folder: Path, server: Any, rows: int, database: set[int]) -> None:
    from open_mirroring.config import load_mirror
    from open_mirroring.ledger import open_ledger
    from spark_jobs.prove import prove
    from spark_jobs.runtime.session import build_session

    mirror = load_mirror(file)
    ledger = open_ledger(mirror.ledger_url())
    spark = build_session("bench-prove")
    spark.range(1).count()

    def proved() -> str:
        one = prove(mirror, ledger, spark).tables["shop.orders"]
        return f"{one['verdict']}, {one['rows_source']} rows, {one['looks']} looks, {len(one['keys'])} keys"

    def plain() -> str:
        url = f"jdbc:postgresql://127.0.0.1:{server.port}/{server.database}"
        login = {"user": server.user, "password": server.password, "driver": "org.postgresql.Driver"}
        bounds = [rows * at // 16 for at in range(17)]
        where = [f"id > {low} AND id <= {high}" for low, high in pairwise(bounds)]
        read = spark.read.jdbc(url, "shop.orders", predicates=where, properties={**login, "fetchsize": "10000"})
        read.write.format("noop").mode("overwrite").save()
        return "read, nothing compared"

    def report(name: str, work: Callable[[], str]) -> None:
        name, cost, said = _run(name, work, database)
        marked = " (busy machine)" if cost.others > BUSY else ""
        rate = f"{cost.wall:8.1f} s {rows / cost.wall:12,.0f} rows/s {cost.cpu:8.0f} CPU s {cost.peak / 2**20:8,.0f} MB"
        # At once: who ends it early keeps what was measured by then.
        print(f"{name:28} {rate}  others {cost.others:.0%}  {said}{marked}", flush=True)

    report("prove, equal", proved)
    report("plain JDBC read of the source", plain)
    report("DuckDB, both sides joined", lambda: _duckdb(server, folder, rows))
    for at in range(_SPOILED):
        server.execute(f"UPDATE shop.orders SET name = name || ' ' WHERE id = {rows * (at + 1) // (_SPOILED + 1)}")
    report("prove, 5 rows spoiled", proved)


def _measure_many(file: Path, tables: int, rounds: int, database: set[int]) -> int:
    from open_mirroring.config import load_mirror
    from open_mirroring.ledger import open_ledger
    from spark_jobs.prove import prove
    from spark_jobs.runtime.session import build_session

    mirror = load_mirror(file)
    ledger = open_ledger(mirror.ledger_url())
    spark = build_session("bench-prove")
    spark.range(1).count()

    def proved() -> str:
        verdicts = [one["verdict"] for one in prove(mirror, ledger, spark).tables.values()]
        return f"{verdicts.count('EQUAL')} of {tables} EQUAL"

    for at in range(1, rounds + 1):
        name, cost, said = _run(f"round {at}", proved, database)
        load = f"{cost.cpu / tables:6.2f} CPU s a table, others {cost.others:.0%}"
        print(f"{name:10} {cost.wall:7.1f} s {cost.wall / tables:6.2f} s a table, {load}  {said}", flush=True)
    return 0


def _run(name: str, work: Callable[[], str], without: set[int]) -> tuple[str, Cost, str]:
    time.sleep(1)
    with measured(without) as cost:
        try:
            said = work()
        except Exception as error:  # a reader that cannot be measured is said, and the others are measured
            said = f"not measured: {type(error).__name__}: {str(error).splitlines()[0][:100]}"
    return name, cost, said


def _duckdb(server: Any, folder: Path, rows: int) -> str:
    """The rows of both sides by the fastest ways that need no extension: psycopg2's COPY as CSV, and Delta's files."""
    import duckdb
    from deltalake import DeltaTable

    copied = folder / "orders.csv"
    connection = server.connect()
    with connection.cursor() as cursor, copied.open("wb") as sink:
        cursor.copy_expert("COPY shop.orders TO STDOUT (FORMAT csv)", sink)
    connection.close()
    files = DeltaTable(str(folder / "tables" / "shop" / "orders")).file_uris()
    types = {"id": "BIGINT", "name": "VARCHAR", "price": "DECIMAL(12,2)", "changed": "TIMESTAMP"}
    types |= {"open": "BOOLEAN", "place": "BIGINT"}
    query = (
        "SELECT count(*) FROM read_csv(?, header = false, columns = "
        f"{types!r}) s FULL JOIN (SELECT * REPLACE (timezone('UTC', changed) AS changed) FROM read_parquet(?)) t "
        "ON s.id = t.id WHERE s IS DISTINCT FROM t"
    )
    [(differ,)] = duckdb.connect().execute(query, [str(copied), files]).fetchall()
    return f"{differ} of {rows} differ"


if __name__ == "__main__":
    raise SystemExit(main())
