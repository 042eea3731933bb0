"""Times the proof of a PostgreSQL table against its mirrored Delta table, next to DuckDB that joins both sides.

``make bench-prove ROWS=8000000``. Each is a complete process, its start included, in turns. In the end five rows are
spoiled, and the proof has to find them. ``--tables 24 --rows 1000`` proves 24 tables of 1,000 rows instead, and nothing
next to it: that is the fixed cost of a table. ``--changed --rows 2000000`` measures a routine proof of the keys that
changed, 1 % of all, next to one after no change, which is the fixed cost, and to a complete proof.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.generate import ROOT
from benchmarks.mirrors import address_of, connect, other_tool, write_mirror
from benchmarks.pairs import CHECKOUT, Program, compare

_ROW = (
    "SELECT i AS id, 'customer ' || i AS name, (i % 1000000)::numeric(12,2) / 100 AS price, "
    "timestamp '2020-01-01' + i * interval '1 second' AS changed, i % 3 = 0 AS open, i * 7 % 1000003 AS place "
    "FROM generate_series(1, {rows}) i"
)
_COLUMNS = "id bigint PRIMARY KEY, name text, price numeric(12,2), changed timestamp, open boolean, place bigint"
_SPOILED = 5
_WORK = ROOT / "prove"


def joined(dsn: str) -> int:
    """Join the rows of both sides in DuckDB, by ways that need no extension: COPY as CSV, and Delta's files."""
    import duckdb
    import psycopg2
    from deltalake import DeltaTable

    copied = _WORK / "orders.csv"
    with psycopg2.connect(dsn) as link, link.cursor() as cursor, copied.open("wb") as sink:
        cursor.copy_expert("COPY shop.orders TO STDOUT (FORMAT csv)", sink)
        rows: int = cursor.rowcount
    files = DeltaTable(str(_WORK / "tables" / "shop" / "orders")).file_uris()
    types = {"id": "BIGINT", "name": "VARCHAR", "price": "DECIMAL(12,2)", "changed": "TIMESTAMP"}
    types |= {"open": "BOOLEAN", "place": "BIGINT"}
    query = (
        "SELECT count(*) FROM read_csv(?, header = false, columns = "
        f"{types!r}) s FULL JOIN (SELECT * REPLACE (timezone('UTC', changed) AS changed) FROM read_parquet(?)) t "
        "ON s.id = t.id WHERE s IS DISTINCT FROM t"
    )
    [(differ,)] = duckdb.connect().execute(query, [str(copied), files]).fetchall()
    copied.unlink()
    return rows - int(differ)


def main() -> None:
    """Measure in turns, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--tables", type=int, help="prove so many tables, each of --rows rows")
    parser.add_argument("--changed", action="store_true", help="prove 1 %% changed keys as a routine")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--other", metavar="DSN", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.other:
        print(joined(given.other))
        return
    from tests.postgres import running_postgres

    shutil.rmtree(_WORK, ignore_errors=True)
    with running_postgres() as server:
        dsn = connect("shop", server)
        names = ["shop.orders"] if given.tables is None else [f"shop.t{at}" for at in range(given.tables)]
        server.execute("CREATE SCHEMA shop")
        for name in names:
            fill = f"INSERT INTO {name} {_ROW.format(rows=given.rows)}"
            server.execute(f"CREATE TABLE {name} ({_COLUMNS})", fill, f"ANALYZE {name}")
            _mirror_table(dsn, name)
        if given.changed:
            _changed(given.rows, given.rounds)
            return
        command = [*_job("prove"), str(_mirror(names, given.tables is None))]
        prove = {"`prove`, all equal": Program(lambda: command, _equal_rows)}
        if given.tables is not None:
            what = f"{given.tables} equal tables of {given.rows:,} rows × 6 columns in PostgreSQL on the same machine"
            compare("prove many", what, prove, given.rounds, of=given.rows * given.tables, unit="rows")
            return
        other = Program(lambda: [sys.executable, __file__, "--other", dsn])
        what = f"{given.rows:,} rows × 6 columns in PostgreSQL on the same machine, 16 chunks"
        programs = {**prove, "DuckDB joining both sides": other}
        programs["reladiff"] = Program(lambda: other_tool("reladiff", address_of(server), _WORK))
        compare("prove", what, programs, given.rounds, of=given.rows, unit="rows")
        for at in range(_SPOILED):
            key = given.rows * (at + 1) // (_SPOILED + 1)
            server.execute(f"UPDATE shop.orders SET name = name || ' ' WHERE id = {key}")
        report = json.loads(subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[-1])
        if report["tables"]["shop.orders"]["different"] != _SPOILED:
            raise SystemExit(f"{_SPOILED} rows were spoiled, the proof found {report}")
    shutil.rmtree(_WORK)


def _equal_rows(output: str) -> int:
    tables = json.loads(output.splitlines()[-1])["tables"].values()
    return sum(int(one["rows_target"]) for one in tables if one["verdict"] == "EQUAL")


def _job(name: str) -> list[str]:
    return [sys.executable, str(CHECKOUT / "spark_jobs" / f"{name}.py")]


def _changed(rows: int, rounds: int) -> None:
    """Measure proofs of changed keys; the target is as a service leaves it: changed rows are in files of their own."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from deltalake import DeltaTable, write_deltalake

    count = rows // 100
    changed = {"none": range(0), "newest": range(rows - count + 1, rows + 1), "scattered": range(50, rows + 1, 100)}
    before = pa.concat_tables(
        pq.read_table(path) for path in DeltaTable(str(_WORK / "tables" / "shop" / "orders")).file_uris()
    )
    programs = {}
    for label, keys in changed.items():
        work = _WORK / label
        file, place = _mirror(["shop.orders"], True, work), str(work / "tables" / "shop" / "orders")
        found = pc.is_in(before["id"], value_set=pa.array(keys, pa.int64()))
        write_deltalake(place, before.filter(pc.invert(found)))
        write_deltalake(place, before.filter(found), mode="append")
        subprocess.run([*_job("prove"), str(file)], check=True, capture_output=True)
        if keys:
            (work / "source" / "000001.jsonl").write_bytes(_events(keys))
            subprocess.run([*_job("extract_changes"), str(file)], check=True, capture_output=True)
        command = [*_job("prove"), str(file), "--routine"]
        programs[f"routine, {label} of the keys changed"] = Program(
            partial(list, command), partial(_all_if_asked, rows, len(keys))
        )
    complete = Program(lambda: command[:-1], _equal_rows)
    what = f"{rows:,} rows × 6 columns in PostgreSQL on the same machine, 16 chunks, {count:,} keys changed"
    compare("prove changed", what, {"`prove`, all rows": complete, **programs}, rounds, of=rows, unit="rows")


def _events(keys: Sequence[int]) -> bytes:
    """Changes of these keys, as the source would send them."""
    from tests.ces_messages import envelope, payload
    from workload_generator.delivery import Message
    from workload_generator.transports import json_lines

    columns, when = (("id", "bigint"), ("name", "nvarchar(max)")), "2026-01-01T00:00:00Z"
    told = []
    for at, key in enumerate(keys):
        row = payload({"id": str(key), "name": "x"}, cols=columns, commit=at + 1, schema="shop")
        told.append(Message(0, at, json.dumps(envelope("INS", json.dumps(row), commit=at + 1)).encode(), None, when))
    return json_lines(told, layout="bare")


def _all_if_asked(rows: int, keys: int, output: str) -> int:
    (table,) = json.loads(output.splitlines()[-1])["tables"].values()
    return rows if (table["verdict"], table["rows_source"]) == ("EQUAL", keys) else 0


def _mirror(names: Sequence[str], is_large: bool, work: Path = _WORK) -> Path:
    load: dict[str, Any] = {"format": "jdbc", "connection": "shop"}
    load |= {"split_column": "id", "chunks": 16} if is_large else {}
    (work / "source").mkdir(parents=True)
    source = {"format": "sqlserver-ces", "transport": "files", "layout": "bare", "path": "source"}
    tables = [{"source": n, "target": n.replace(".", "/"), "key": ["id"], "prove": load} for n in names]
    return write_mirror(work, source, tables, prove={"settle_seconds": 0, "cover_in_days": 7})


def _mirror_table(dsn: str, table: str) -> None:
    """Write the mirrored Delta table, in the form that the service writes."""
    import pyarrow as pa
    from adbc_driver_postgresql import dbapi
    from deltalake import write_deltalake

    types = [("id", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(12, 2))]
    types += [("changed", pa.timestamp("us", "UTC")), ("open", pa.bool_()), ("place", pa.int64())]
    schema, folder = pa.schema(types), _WORK / "tables" / table.replace(".", "/")
    with dbapi.connect(dsn) as link, link.cursor() as cursor:
        cursor.execute(f"SELECT id, name, price::text, changed, open, place FROM {table}")
        batches = (batch.cast(schema) for batch in cursor.fetch_record_batch())
        write_deltalake(str(folder), pa.RecordBatchReader.from_batches(schema, batches))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(CHECKOUT))
    main()
