"""Times publishing, from the change log to confirmed files, against DuckDB on the same log.

The real job (gate, plan, typing, digests, staging, seals, renames, confirmations) and DuckDB take turns on the same
batch. Each round gives one ratio, DuckDB's time over the job's. DuckDB takes the newest change of each key, types it
and writes Parquet; it checks nothing. ``--idle`` measures a run over tables without changes, ``--per-table`` the cost
of one more small table.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.extract import mirror_file
from benchmarks.generate import ROOT, TABLES, key_of, source_folder, table_names
from benchmarks.measure import Cost, measured, ready_and_go, versions

_TYPES = {"datetime2(7)": "TIMESTAMP", "bit": "BOOLEAN", "real": "REAL", "float": "DOUBLE", "tinyint": "SMALLINT"}


def publish_alone(log: Path, tables: int, target: Path) -> int:
    """DuckDB alone: per table the newest change of each key, typed, to one Parquet file; the rows written.

    The log is read once, into memory: with many tables twice as fast as reading each table's part. A delete carries
    its key, the marker comes last.
    """
    written = 0
    with duckdb.connect(config={"threads": 2, "preserve_insertion_order": False}) as db:
        files = f"{log}/*/*.parquet"
        db.execute(
            f"CREATE TEMP TABLE log AS SELECT tbl, op, key, pos, row FROM read_parquet('{files}') WHERE kind = 'change'"
        )
        for name in table_names(tables):
            columns = {column: kind for column, (kind, _) in TABLES[name.partition("_")[0]].items()}
            texts = ", ".join(f'"{column}":"VARCHAR"' for column in columns)
            values = {column: f"r.{column}" for column in columns}
            values[key_of(name)] = f"coalesce(r.{key_of(name)}, json_extract_string(key, '$[0]'))"
            casts = ", ".join(f"{values[column]}::{_landing(kind)} AS {column}" for column, kind in columns.items())
            query = f"""
                SELECT {casts}, CASE WHEN op IN ('D', 'K') THEN 2 ELSE 4 END AS __rowMarker__
                FROM (SELECT op, key, from_json(row, '{{{texts}}}') AS r
                      FROM log WHERE tbl = 'dbo.{name}'
                      QUALIFY row_number() OVER (PARTITION BY key ORDER BY pos DESC) = 1)"""
            copied = db.execute(f"COPY ({query}) TO '{target}/{name}.parquet' (FORMAT parquet, COMPRESSION zstd)")
            written += (copied.fetchone() or (0,))[0]
    return written


def _landing(kind: str) -> str:
    return _TYPES.get(kind, "VARCHAR" if "char" in kind else kind)


def run_reference(log: Path, tables: int) -> tuple[Cost, int]:
    """DuckDB in a process of its own, its start not counted."""
    command = [sys.executable, __file__, "--reference", str(log), "--tables", str(tables)]
    return ready_and_go(command)


def run_job(changes: int, tables: int, name: str, *, idle: bool) -> tuple[Cost, int, Path]:
    """One publication of a freshly extracted batch; with *idle* a second one, of nothing, is what counts."""
    from open_mirroring.config import load_mirror
    from open_mirroring.ledger import open_ledger
    from open_mirroring.ledger.reading import LedgerReader
    from spark_jobs.extract_changes import extract
    from spark_jobs.publish.changes import publish
    from spark_jobs.runtime.session import build_session

    work = ROOT / "work" / name
    shutil.rmtree(work, ignore_errors=True)
    mirror = load_mirror(mirror_file(work, source_folder(changes, "bare", tables), "bare", tables))
    ledger, spark = open_ledger(mirror.ledger_url()), build_session("bench", cores=2)
    extract(mirror, ledger, spark)
    if idle:
        publish(mirror, ledger, spark)
    with measured() as cost:
        published = publish(mirror, ledger, spark)
    reader = LedgerReader(ledger, mirror.name)
    if published.stopped or published.held:
        raise SystemExit(f"the job published not all: {published}")
    rows = sum(file.rows for t in reader.tables().values() for file in reader.published(t.id, t.row.generation))
    return cost, rows, work


def cost_of_a_table(rounds: int) -> None:
    """What one more table of 20 changes costs, from 20 against 220 of them, in its first run and without changes.

    The first run founds the table: folder, metadata, marker. The local store's own time, nearly all of it waiting for
    the disk, is reported separately.
    """
    few, many, changes = 20, 220, 20
    print(f"one more table of {changes} changes, ms: {many} tables against {few}; {versions()}")
    print("| round | first run | of it in the store | a run without changes |")
    print("|---|---|---|---|")
    for number in range(rounds):
        each: list[list[float]] = []
        for tables in (few, many):
            with _timed_store() as store:
                published, _, _ = run_job(tables * changes, tables, f"tables-{number}", idle=False)
            idle, _, _ = run_job(tables * changes, tables, f"tables-{number}", idle=True)
            each.append([published.wall, store[0], idle.wall])
        first, in_store, idle_run = (1000 * (more - less) / (many - few) for less, more in zip(*each, strict=True))
        print(f"| {number} | {first:.1f} | {in_store:.1f} | {idle_run:.1f} |", flush=True)


@contextmanager
def _timed_store() -> Iterator[list[float]]:
    """Seconds that this process spends in creating and renaming objects."""
    from open_mirroring.landing_zone.local_store import LocalStore

    spent = [0.0]

    def timed(verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            started = time.monotonic()
            try:
                return verb(*arguments, **named)
            finally:
                spent[0] += time.monotonic() - started

        return call

    with (
        patch.object(LocalStore, "create", timed(LocalStore.create)),
        patch.object(LocalStore, "rename", timed(LocalStore.rename)),
    ):
        yield spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=1_000_000)
    parser.add_argument("--tables", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", action="store_true")
    parser.add_argument("--per-table", action="store_true", help="the cost of one more small table instead")
    parser.add_argument("--reference", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.reference:
        target = ROOT / "reference"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        print("ready", flush=True)
        sys.stdin.readline()
        print(publish_alone(arguments.reference, arguments.tables, target), flush=True)
        sys.stdin.readline()
        return
    logging.basicConfig(level=logging.WARNING)
    run_job(20_000, 5, "warm", idle=False)
    if arguments.per_table:
        cost_of_a_table(arguments.rounds)
        return
    print(f"{arguments.changes:,} changes, {arguments.tables} tables; {versions()}")
    print("| round | job changes/s | job s | ms per table | DuckDB s | ratio wall | ratio CPU | job peak MB |")
    print("|---|---|---|---|---|---|---|---|")
    ratios: list[float] = []
    for number in range(arguments.rounds):
        job, rows, work = run_job(arguments.changes, arguments.tables, f"round-{number}", idle=arguments.idle)
        reference, alone = run_reference(work / "change_log", arguments.tables)
        shutil.rmtree(work)
        if rows != alone:
            raise SystemExit(f"the job published {rows} rows, DuckDB wrote {alone}")
        ratios.append(reference.wall / job.wall)
        print(
            f"| {number} | {arguments.changes / job.wall:,.0f} | {job.wall:.2f} "
            f"| {1000 * job.wall / arguments.tables:.1f} | {reference.wall:.2f} | {ratios[-1]:.2f} "
            f"| {reference.cpu / job.cpu:.2f} | {job.peak / 1e6:,.0f} |",
            flush=True,
        )
    print(f"median ratio: wall {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
