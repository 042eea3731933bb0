"""Times replicate runs of the demo's Airflow, with changes and with nothing new: ``make bench-airflow``.

After the demo is proved, the shop trades before every other run. Of each run: the seconds from the first task queued to
the last one ended, and the seconds of each task. The table in RESULTS.md is written by this program.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.pairs import write_results
from benchmarks.small_runs import shown
from demo.place import claim
from demo.source_formats import FORMATS
from demo.story import Story

TRANSACTIONS = 25


def seconds_of(tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The seconds of a run as a whole, and of each of its tasks that ran."""
    ran = {name: task for name, task in tasks.items() if task["duration"] is not None}
    queued = min(datetime.fromisoformat(task["queued_when"]) for task in ran.values())
    ended = max(datetime.fromisoformat(task["end_date"]) for task in ran.values())
    return {"the whole run": (ended - queued).total_seconds(), **{name: task["duration"] for name, task in ran.items()}}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo, measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args(argv).rounds
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="airflow-runs-") as folder, claim(Path(folder, "demo")) as place:
        story = Story(place, print, runs=2, seed=1, source_format=FORMATS["ces"], keep=False)
        try:
            story.prove()
            for _ in range(rounds):
                for what, transactions in (("with changes", TRANSACTIONS), ("nothing new", 0)):
                    for name, seconds in seconds_of(story.run_once_more(transactions)).items():
                        found.setdefault(f"{what}: {name}", []).append(seconds)
        finally:
            story.end()
    rows = [f"| {name} | {shown(seconds)} | {len(seconds)} |" for name, seconds in sorted(found.items())]
    lines = ["| Replicate run of the demo | Median (lowest–highest) | Rounds |", "|---|---|---|", *rows]
    write_results("airflow runs", "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
