"""Times initial loads of a PostgreSQL table next to ADBC that writes Parquet, and next to COPY that writes nothing.

``make bench-load ROWS=4000000``. Each is a complete process, its start included, in turns. The job types and checks
every value, proves the keys unique, computes digests, stages, checks and publishes; the others do nothing of it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.generate import ROOT
from benchmarks.mirrors import address_of, connect, other_tool, write_mirror
from benchmarks.pairs import CHECKOUT, Program, compare

_COLUMNS = (
    "id bigint PRIMARY KEY, customer integer NOT NULL, name text NOT NULL, code varchar(20), price numeric(12,2), "
    "quantity smallint, rate double precision, placed timestamp, open boolean, note text"
)
_ROWS = (
    "SELECT i, i % 100000, 'customer ' || i % 100000, 'C-' || i % 1000, (i % 1000000)::numeric(12,2) / 100, i % 100, "
    "i / 7.0, timestamp '2020-01-01' + i * interval '1 second', i % 3 = 0, "
    "CASE WHEN i % 3 > 0 THEN 'delivered to the back door, ' || i END FROM generate_series(1, {rows}) i"
)
_WORK = ROOT / "load"


def adbc(dsn: str) -> int:
    """ADBC reads the table, pyarrow writes it as Parquet."""
    import pyarrow.parquet as pq
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(dsn) as link, link.cursor() as cursor:
        cursor.execute("SELECT * FROM shop.orders")
        reader, rows = cursor.fetch_record_batch(), 0
        with pq.ParquetWriter(_WORK / "adbc.parquet", reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
                rows += batch.num_rows
    return rows


def copy(dsn: str) -> int:
    """COPY as text, thrown away."""
    import psycopg2

    with psycopg2.connect(dsn) as link, link.cursor() as cursor, open(os.devnull, "wb") as sink:
        cursor.copy_expert("COPY shop.orders TO STDOUT", sink)
        return int(cursor.rowcount)


_OTHERS = {"adbc": adbc, "copy": copy}


def filled(server: Any, rows: int) -> None:
    """Make the table of so many rows."""
    fill = f"INSERT INTO shop.orders {_ROWS.format(rows=rows)}"
    server.execute("CREATE SCHEMA shop", f"CREATE TABLE shop.orders ({_COLUMNS})", fill, "VACUUM ANALYZE")


def job() -> Sequence[str]:
    """The command of a load into a fresh mirror."""
    shutil.rmtree(_WORK, ignore_errors=True)
    load = {"format": "jdbc", "connection": "shop", "split_column": "id", "chunks": 8}
    (_WORK / "source").mkdir(parents=True)
    source = {"format": "sqlserver-ces", "transport": "files", "layout": "bare", "path": "source"}
    table = {"source": "shop.orders", "target": "shop/orders", "key": ["id"], "initial_load": load}
    file = write_mirror(_WORK, source, [table])
    return [sys.executable, str(CHECKOUT / "spark_jobs" / "initial_load.py"), str(file)]


def _loaded(output: str) -> int:
    return int(json.loads(output.splitlines()[-1])["rows"]["shop.orders"])


def main() -> None:
    """Measure in turns, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--other", nargs=2, metavar=("NAME", "DSN"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.other:
        print(_OTHERS[given.other[0]](given.other[1]))
        return
    from tests.postgres import running_postgres

    with running_postgres() as server:
        filled(server, given.rows)
        dsn = connect("shop", server)
        others = {
            label: Program(lambda name=name: [sys.executable, __file__, "--other", name, dsn])  # type: ignore[misc]
            for label, name in (("ADBC → Parquet", "adbc"), ("`COPY`, thrown away", "copy"))
        }
        others["connectorx → Parquet"] = Program(lambda: other_tool("connectorx", address_of(server), _WORK))
        others["dlt with connectorx → Parquet"] = Program(lambda: other_tool("dlt", address_of(server), _WORK))
        programs = {"`initial-load`": Program(job, _loaded), **others}
        what = f"{given.rows:,} rows × 10 columns in PostgreSQL on the same machine, 8 chunks"
        compare("initial load", what, programs, given.rounds, of=given.rows, unit="rows")
    shutil.rmtree(_WORK)


if __name__ == "__main__":
    main()
