"""Times extraction, from source files to the commit in the change log, against DuckDB writing the same as Parquet.

The real job (Spark session, ledger, workers, Delta commit) and DuckDB take turns on the same files in the same run.
Each round gives one ratio, DuckDB's time over the job's. DuckDB checks nothing, the job checks everything.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import duckdb

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.generate import ROOT, Layout, key_of, source_folder, table_names
from benchmarks.measure import BUSY, Cost, measured, ready_and_go, versions

_DATA = (
    '{"eventsource":{"schema":"VARCHAR","tbl":"VARCHAR","cols":"JSON","pkkey":[{"columnname":"VARCHAR",'
    '"value":"VARCHAR"}]},"eventrow":{"old":"VARCHAR","current":"VARCHAR"}}'
)
_ENVELOPE = {"logicalid": "VARCHAR", "operation": "VARCHAR", "data": "VARCHAR"}


class Round(NamedTuple):
    """One turn of each."""

    job: Cost
    reference: Cost


def mirror_file(
    work: Path, source: Path, layout: Layout, tables: int, landing_zone: Mapping[str, str] | None = None
) -> Path:
    """The mirror file of a run in its own folder, which holds the landing zone too unless there is another."""
    transport = {"transport": "capture"} if layout == "capture" else {"transport": "files", "layout": layout}
    document = {
        "mirror": "bench",
        "source": {"format": "sqlserver-ces", "path": str(source), **transport},
        "landing_zone": landing_zone or {"store": "local", "path": str(work / "landing_zone")},
        "ledger": f"sqlite:///{work}/ledger.db",
        "change_log": str(work / "change_log"),
        "tables": [
            {"source": f"dbo.{name}", "target": f"dbo/{name}", "key": [key_of(name)]} for name in table_names(tables)
        ],
    }
    path = work / "mirrors" / "bench.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def decode_alone(source: Path, layout: Layout, target: Path) -> int:
    """DuckDB alone: the columns of the change log, from the same files to Parquet on two threads; the rows written."""
    files = f"{source}/*.jsonl"
    if layout == "wrapped":
        columns = {"topic": "VARCHAR", "partition": "BIGINT", "offset": "BIGINT", "value": "VARCHAR"}
        read = f"""SELECT unnest(from_json(value, '{json.dumps(_ENVELOPE)}')), topic || '/' || partition AS origin,
                          "offset" AS place FROM read_json('{files}', format='newline_delimited', columns={columns})"""
    else:
        read = f"""SELECT *, filename AS origin, 0 AS place
                   FROM read_json('{files}', format='newline_delimited', filename=true, columns={_ENVELOPE})"""
    query = f"""
        SELECT 1::BIGINT AS batch, 'change' AS kind, d.eventsource.schema || '.' || d.eventsource.tbl AS tbl,
               (hash(d.eventsource.pkkey[1].value) % 64)::SMALLINT AS bucket, logicalid[:36] AS epoch,
               logicalid[38:] || ':1' AS pos, operation[:1] AS op, '["' || d.eventsource.pkkey[1].value || '"]' AS key,
               d.eventsource.cols AS cols, true AS whole, origin, place,
               CASE WHEN operation <> 'DEL' THEN d.eventrow.current END AS row,
               CASE WHEN operation = 'DEL' THEN d.eventrow.old END AS before
        FROM (SELECT *, from_json(data, '{_DATA}') AS d FROM ({read}))"""
    with duckdb.connect(config={"threads": 2, "preserve_insertion_order": False}) as db:
        copied = db.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)").fetchone()
    return copied[0] if copied else 0


def run_reference(source: Path, layout: Layout) -> tuple[Cost, int]:
    """DuckDB in a process of its own, its start not counted."""
    target = ROOT / "reference.parquet"
    target.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--reference", str(source), "--layout", layout]
    cost, rows = ready_and_go(command)
    target.unlink(missing_ok=True)
    return cost, rows


def run_job(source: Path, layout: Layout, tables: int, name: str) -> tuple[Cost, dict[str, int]]:
    """One extraction into a fresh ledger and change log."""
    from open_mirroring.config import load_mirror
    from open_mirroring.ledger import open_ledger
    from spark_jobs.extract_changes import extract
    from spark_jobs.runtime.session import build_session

    work = ROOT / "work" / name
    shutil.rmtree(work, ignore_errors=True)
    mirror = load_mirror(mirror_file(work, source, layout, tables))
    ledger, spark = open_ledger(mirror.ledger_url()), build_session("bench", cores=2)
    with measured() as cost:
        extracted = extract(mirror, ledger, spark)
    shutil.rmtree(work)
    return cost, dict(extracted.counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=3_000_000)
    parser.add_argument("--layout", choices=("bare", "wrapped", "capture"), default="bare", help="how events arrive")
    parser.add_argument("--tables", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--reference", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.reference:
        print("ready", flush=True)
        sys.stdin.readline()
        print(decode_alone(arguments.reference, arguments.layout, ROOT / "reference.parquet"), flush=True)
        sys.stdin.readline()
        return
    logging.basicConfig(level=logging.WARNING)
    layout: Layout = arguments.layout
    source = source_folder(arguments.events, layout, arguments.tables)
    warm = source_folder(20_000, layout, arguments.tables)
    for turn in range(2):
        run_job(warm, layout, arguments.tables, f"warm-{turn}")
    print(f"{arguments.events:,} events, {layout}, {arguments.tables} tables; {versions()}")
    print("| round | job ev/s | DuckDB ev/s | ratio wall | ratio CPU | job CPU s | job peak MB | others |")
    print("|---|---|---|---|---|---|---|---|")
    rounds: list[Round] = []
    for number in range(arguments.rounds):
        reference, rows = run_reference(source, "bare" if layout == "capture" else layout)
        job, counts = run_job(source, layout, arguments.tables, f"round-{number}")
        if counts["changes"] != arguments.events or rows != arguments.events:
            raise SystemExit(f"the job read {counts}, DuckDB {rows} rows")
        rounds.append(Round(job, reference))
        busy = max(job.others, reference.others)
        print(
            f"| {number} | {arguments.events / job.wall:,.0f} | {arguments.events / reference.wall:,.0f} "
            f"| {reference.wall / job.wall:.2f} | {reference.cpu / job.cpu:.2f} | {job.cpu:.1f} "
            f"| {job.peak / 1e6:,.0f} | {busy:.2f}{' busy' if busy > BUSY else ''} |",
            flush=True,
        )
    wall = [one.reference.wall / one.job.wall for one in rounds]
    cpu = [one.reference.cpu / one.job.cpu for one in rounds]
    print(f"median ratio: wall {statistics.median(wall):.2f}, CPU {statistics.median(cpu):.2f}")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[1]))
    started = time.monotonic()
    main()
    print(f"{time.monotonic() - started:.0f} s in all", file=sys.stderr)
