"""Times publishing, from the change log to confirmed files, beside DuckDB on the same log.

The real job (gate, plan, typing, digests, staging, seals, renames, confirmations) and DuckDB are complete processes, in
turns on the same batch. DuckDB takes the newest change of each key, types it and writes Parquet; it checks nothing.
``--per-table`` measures what one more small table costs, in its first run and in a run without changes.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import subprocess
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

from benchmarks.generate import ROOT, TABLES, key_of, source_folder, table_names
from benchmarks.measure import Cost, measured, versions
from benchmarks.mirrors import mirror_file
from benchmarks.pairs import CHECKOUT, Program, compare

_TYPES = {"datetime2(7)": "TIMESTAMP", "bit": "BOOLEAN", "real": "REAL", "float": "DOUBLE", "tinyint": "SMALLINT"}


def publish_alone(log: Path, tables: int, target: Path) -> int:
    """DuckDB alone: per table the newest change of each key, typed, to one Parquet file; the rows written.

    The log is read once, into memory: with many tables twice as fast as reading each table's part. A delete carries
    its key, the marker comes last.
    """
    written = 0
    with duckdb.connect(config={"threads": 2, "preserve_insertion_order": False}) as db:
        target.mkdir(parents=True, exist_ok=True)
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


def extracted(changes: int, tables: int) -> Path:
    """A mirror of which a batch is in the log and nothing is published."""
    work = ROOT / "work" / "extracted"
    shutil.rmtree(work, ignore_errors=True)
    file = mirror_file(work, source_folder(changes, "bare", tables), "bare", tables)
    subprocess.run(command("extract_changes", file), capture_output=True, check=True)
    return work


def job(before: Path) -> list[str]:
    """The command that publishes the batch of a copy of this mirror."""
    work = before.with_name("publish")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(before, work)
    return command("publish_changes", work / "mirrors" / "bench.yaml")


def command(program: str, file: Path) -> list[str]:
    """The command of one of the jobs."""
    return [sys.executable, str(CHECKOUT / "spark_jobs" / f"{program}.py"), str(file)]


def _published(output: str) -> int:
    """The rows of all published files; the report names no rows."""
    import pyarrow.parquet as pq

    files = (ROOT / "work" / "publish" / "zone").rglob("0*.parquet")
    return sum(int(pq.read_metadata(file).num_rows) for file in files if "_stage" not in str(file.parent))


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
    """Measure in turns, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=1_000_000)
    parser.add_argument("--tables", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--per-table", action="store_true", help="the cost of one more small table instead")
    parser.add_argument("--other", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    if given.other:
        print(publish_alone(given.other, given.tables, ROOT / "work" / "reference"))
        return
    if given.per_table:
        cost_of_a_table(given.rounds)
        return
    before = extracted(given.changes, given.tables)
    other = [sys.executable, __file__, "--other", str(before / "log"), "--tables", str(given.tables)]
    rows = int(subprocess.run(other, capture_output=True, text=True, check=True).stdout)
    programs = {"`publish_changes`": Program(lambda: job(before), _published), "DuckDB": Program(lambda: other)}
    what = f"{given.changes:,} changes of {given.tables} tables from the log, {rows:,} rows to Parquet"
    compare(f"publish {given.tables} tables", what, programs, given.rounds, of=rows, unit="rows")


if __name__ == "__main__":
    main()
