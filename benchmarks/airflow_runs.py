"""Times replicate runs of the demo's Airflow, with changes and with nothing new: ``make bench-airflow``.

After the demo is proved, the shop trades before every other run. Of each run: the seconds from the first task queued to
the last one ended, and the seconds of each task. With ``--on-new-data`` Airflow watches the topic of the demo with
Kafka: the seconds from the newest message of the shop to the last file published. The tables in RESULTS.md are written
by this program.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.pairs import write_results
from benchmarks.small_runs import shown
from demo.place import MIRROR, DemoFolder, claim
from demo.source_formats import FORMATS
from demo.story import Story

TRANSACTIONS = 25
_BY_TIME, _ON_NEW_DATA = "schedule: 0 * * * *", "schedule: {on: new_data, at_most_every: 1s}"


def seconds_of(tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The seconds of a run as a whole, and of each of its tasks that ran."""
    ran = {name: task for name, task in tasks.items() if task["duration"] is not None}
    queued = min(datetime.fromisoformat(task["queued_when"]) for task in ran.values())
    ended = max(datetime.fromisoformat(task["end_date"]) for task in ran.values())
    return {"the whole run": (ended - queued).total_seconds(), **{name: task["duration"] for name, task in ran.items()}}


def measured(story: Story, place: DemoFolder, rounds: int, *, on_new_data: bool) -> Mapping[str, Sequence[float]]:
    """The seconds of each round, by what was measured."""
    story.prove()
    found: dict[str, list[float]] = {}
    if on_new_data:
        file = place.mirrors / f"{MIRROR}.yaml"
        file.write_text(file.read_text(encoding="utf-8").replace(_BY_TIME, _ON_NEW_DATA), encoding="utf-8")
        story.trade_and_wait(0)
    for _ in range(rounds):
        if on_new_data:
            sent = story.trade_and_wait(TRANSACTIONS)
            found.setdefault("newest message to last file published", []).append(published(place) - sent)
            continue
        for what, transactions in (("with changes", TRANSACTIONS), ("nothing new", 0)):
            for name, seconds in seconds_of(story.run_once_more(transactions)).items():
                found.setdefault(f"{what}: {name}", []).append(seconds)
    return found


def published(place: DemoFolder) -> float:
    """When the last file got its number in the landing zone, in seconds since 1970."""
    with sqlite3.connect(place.root / "ledger.db") as ledger:
        (text,) = ledger.execute("SELECT max(confirmed_at) FROM published_file").fetchone()
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@contextmanager
def _database() -> Iterator[str]:
    from tests.postgres import running_postgres

    with running_postgres() as server:
        login = f"{server.user}:{server.password}@127.0.0.1:{server.port}"
        yield f"postgresql+psycopg2://{login}/{server.database}"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo, measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--on-new-data", action="store_true")
    arguments = parser.parse_args(argv)
    on_new_data: bool = arguments.on_new_data
    source_format = FORMATS["qlik-kafka" if on_new_data else "ces"]
    with ExitStack() as ending:
        folder = ending.enter_context(tempfile.TemporaryDirectory(prefix="airflow-runs-"))
        place = ending.enter_context(claim(Path(folder, "demo")))
        # Airflow's scheduler and triggerer write at the same time: what SQLite may refuse (docs/how-to/airflow.md).
        database = ending.enter_context(_database()) if on_new_data else None
        story = Story(place, print, runs=2, seed=1, source_format=source_format, keep=on_new_data, database=database)
        try:
            found = measured(story, place, arguments.rounds, on_new_data=on_new_data)
        finally:
            story.end()
    rows = [f"| {name} | {shown(seconds)} | {len(seconds)} |" for name, seconds in sorted(found.items())]
    what = "Demo with Kafka, started by new data" if on_new_data else "Replicate run of the demo"
    lines = [f"| {what} | Median (lowest–highest) | Rounds |", "|---|---|---|", *rows]
    write_results("airflow new data" if on_new_data else "airflow runs", "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
