"""Times what an operator and Airflow wait for with many tables: `check`, `status`, and the parse of the DAGs.

``make bench-tables``. Each command runs in a process of its own, for a mirror of a few tables and one of many in turns:
what the first one takes is the start of Python, the rest is the tables. The mirror files are written by `init` from a
sample of events, and one tick has published a row of every table. The targets for 1,000 tables: `check` below 5 s,
`status` below 1 s, the DAGs below 2 s.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FEW = 10
_LINE = "import sys; from spark_jobs.cli.command_line import main; sys.exit(main(sys.argv[1:]))"
_PARSE = "import runpy, sys; runpy.run_path(sys.argv[1])"


def event_of(number: int) -> str:
    """An insert into the table of this number, as a change event and its line break."""
    columns = [("id", "int"), ("name", "nvarchar(50)"), ("price", "decimal(18,4)"), ("at", "datetime2(7)")]
    row = {"id": "1", "name": "Ada", "price": "1.5000", "at": "2026-01-05 10:00:00.0000000"}
    source = {
        "db": "shop",
        "schema": "sales",
        "tbl": f"table_{number:04d}",
        "cols": [{"name": name, "type": kind, "index": at} for at, (name, kind) in enumerate(columns)],
        "pkkey": [{"columnname": "id", "value": "1"}],
    }
    data = {"eventsource": source, "eventrow": {"old": "{}", "current": json.dumps(row)}}
    event = {
        "specversion": "1.0",
        "type": "com.microsoft.SQL.CES.DML.V1",
        "source": "/",
        "id": f"{number:08x}-d13b-4902-86d4-17bdb5edb872",
        "logicalid": f"9c8d4ad2-bf54-4f10-a96f-038af496997f:0000002C000000100001:{number + 1:020d}",
        "time": "2026-01-05T10:00:00Z",
        "datacontenttype": "application/json",
        "operation": "INS",
        "segmentindex": 0,
        "finalsegment": True,
        "data": json.dumps(data),
    }
    return json.dumps(event) + "\n"


class Took(NamedTuple):
    """Seconds of one process: on the clock, and of CPU, which says more on a busy machine."""

    wall: float
    cpu: float


def _run(command: Sequence[str], home: Path) -> Took:
    environment = {**os.environ, "OPEN_MIRRORING_HOME": str(home), "OPEN_MIRRORING_MIRRORS": str(home / "mirrors")}
    environment |= {"AIRFLOW_HOME": str(home / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "false"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "plugins")])
    began, before = time.monotonic(), _cpu()
    done = subprocess.run([sys.executable, "-c", *command], env=environment, cwd=ROOT, capture_output=True, text=True)
    took = Took(time.monotonic() - began, _cpu() - before)
    if done.returncode:
        raise SystemExit(f"{command[1:3]} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return took


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _made(home: Path, tables: int) -> Mapping[str, Sequence[str]]:
    """A mirror of so many tables that has run once; the commands to be timed."""
    (home / "source").mkdir(parents=True)
    (home / "source" / "a.jsonl").write_text("".join(map(event_of, range(tables))), encoding="utf-8")
    file = str(home / "mirrors" / "many.yaml")
    source = "format: sqlserver-ces, transport: files, path: source, layout: bare"
    init = _run([_LINE, "init", file, "--source", source], home)
    tick = _run([_LINE, "tick", file], home)
    print(f"{tables} tables: init {init.wall:.1f} s, the first tick {tick.wall:.1f} s", flush=True)
    return {
        "python": ["import yaml, pydantic, sqlalchemy"],
        "check": [_LINE, "check", file],
        "check --sample": [_LINE, "check", file, "--sample"],
        "status": [_LINE, "status", file],
        "dags": [_PARSE, str(ROOT / "dags" / "open_mirroring_dags.py")],
    }


def main() -> None:
    """Measure, and print a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="many-tables-") as folder:
        few, many = _made(Path(folder, "few"), FEW), _made(Path(folder, "many"), given.tables)
        for name in few:
            pairs = [
                (_run(few[name], Path(folder, "few")), _run(many[name], Path(folder, "many")))
                for _ in range(given.rounds)
            ]
            for at, kind in enumerate(Took._fields):
                small, large = (statistics.median(one[at] for one in side) for side in zip(*pairs, strict=True))
                each = (large - small) * 1000 / (given.tables - FEW)
                seconds = f"{FEW} tables {small:5.2f} s, {given.tables} tables {large:5.2f} s"
                print(f"{name:15} {kind:4} {seconds}: {each:5.2f} ms a table", flush=True)


if __name__ == "__main__":
    main()
