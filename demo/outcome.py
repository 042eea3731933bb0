"""The result of a demo: whether every table is equal, has met every kind of event, and how far it is behind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from demo.failures import DemoFailed
from demo.place import MIRROR, DemoFolder
from demo.shop import run_python
from demo.source_formats import LATE_ACROSS_RUNS, SourceFormat


class Outcome(NamedTuple):
    """The end of a demo: text to print, and every reason why it is not good."""

    text: str
    objections: list[str]


class Logged(NamedTuple):
    """One change in the change log; *position* sorts within its *epoch*."""

    table: str
    batch: int
    epoch: str
    position: str
    key: str | None


def judge(place: DemoFolder) -> list[dict[str, Any]]:
    """The verdicts of ``demo/judge.py``, which shares no code with what it judges; one for each table.

    Raises:
        DemoFailed: when it could not judge.
    """
    folders = ["--tables", str(place.tables), "--landing-zone", str(place.landing_zone)]
    answer = run_python(["demo/judge.py", "--state", str(place.source), *folders, "--json"])
    if answer.returncode not in (0, 1):
        raise DemoFailed(f"the judge could not judge: {answer.stderr.strip()}")
    return list(json.loads(answer.stdout)["tables"])


def proofs(place: DemoFolder, connections: Mapping[str, str]) -> dict[str, str]:
    """For each table the verdict of the product's own proof, against an export of the source after the last run.

    Raises:
        DemoFailed: when it could not prove.
    """
    file = str(place.mirrors / f"{MIRROR}.yaml")
    command = ["-m", "spark_jobs.cli.command_line", "prove", file, "--export", str(place.last_export), "--settle", "0"]
    variables = {f"AIRFLOW_CONN_{name.upper()}": content for name, content in connections.items()}
    answer = run_python([*command, "--json"], **variables)
    if answer.returncode not in (0, 5, 7):
        raise DemoFailed(f"`open-mirroring prove` failed: {answer.stderr.strip()}")
    found = json.loads(answer.stdout)["tables"]
    return {table: " ".join([one["verdict"], *one["reasons"]]) for table, one in found.items()}


def lags(place: DemoFolder, tables: Iterable[str], last_delivery: float) -> dict[str, float | None]:
    """By table, seconds from the last delivery of events to the last change of its mirrored table.

    None where the mirrored table is missing, or has not changed since that delivery.
    """
    found: dict[str, float | None] = {}
    for name in tables:
        folder = str(place.tables / name.replace(".", "/", 1))
        if not DeltaTable.is_deltatable(folder):
            found[name] = None
            continue
        changed = DeltaTable(folder).history(1)[0]["timestamp"] / 1000
        found[name] = changed - last_delivery if changed >= last_delivery else None
    return found


def read_changes(place: DemoFolder) -> list[Logged]:
    """Every change in the change log."""
    columns = ["tbl", "batch", "epoch", "pos", "key"]
    log = pa.table(DeltaTable(str(place.change_log)).scan(columns, "kind = 'change'"))
    return [Logged(*(row[name] for name in columns)) for row in log.to_pylist()]


def late_across_batches(changes: Iterable[Logged]) -> dict[str, int]:
    """For each table the number of changes that were read by a later run than a newer change of that table.

    A change that was read again counts with its first time only.
    """
    first: dict[tuple[str, str, str, str | None], int] = {}
    for one in changes:
        identity = (one.table, one.epoch, one.position, one.key)
        first[identity] = min(one.batch, first.get(identity, one.batch))
    late: dict[str, int] = {}
    earliest: dict[tuple[str, str], int] = {}
    # From the newest position down: late is what has a newer one in an earlier batch.
    for (table, epoch, _, _), batch in sorted(first.items(), key=lambda item: item[0][2], reverse=True):
        before = earliest.get((table, epoch), batch)
        late[table] = late.get(table, 0) + (before < batch)
        earliest[table, epoch] = min(batch, before)
    return late


def assess(
    source_format: SourceFormat,
    verdicts: Sequence[Mapping[str, Any]],
    lag: Mapping[str, float | None],
    report: Mapping[str, Any],
    late: Mapping[str, int],
    proved: Mapping[str, str] | None = None,
) -> Outcome:
    """Builds the demo's result: the table to print, and every reason why the demo failed.

    Args:
        source_format: says what every table must have seen, and what cannot be seen.
        verdicts: from :func:`judge`.
        lag: from :func:`lags`.
        report: from the workload generator.
        late: from :func:`late_across_batches`.
        proved: from :func:`proofs`; None if no proof was run.
    """
    objections = []
    equality = [("table", "rows at source", "rows mirrored", "equal", "proved", "files", "lag")]
    for one in verdicts:
        name, mirrored, seconds = one["table"], one["mirrored_rows"], lag.get(one["table"])
        equality.append(
            (
                name,
                str(one["source_rows"]),
                "missing" if mirrored is None else str(mirrored),
                "yes" if one["equal"] else "NO",
                "-" if proved is None else proved.get(name, "NO").partition(" ")[0],
                str(one["files"]),
                "-" if seconds is None else f"{seconds:.0f} s",
            )
        )
        if not one["equal"]:
            objections.append(f"{name} is not equal: {'; '.join(one['differences'])}")
        if proved is not None and proved.get(name) != "EQUAL":
            objections.append(f"`open-mirroring prove` shows for {name}: {proved.get(name, 'nothing')}")
    columns = source_format.columns
    events = [("table", *(column.replace("_", " ") for column in columns))]
    for name, counts in report["tables"].items():
        numbers = {**counts, LATE_ACROSS_RUNS: late.get(name, 0)}
        events.append((name, *(str(numbers[column]) for column in columns)))
        missing = [column.replace("_", " ") for column in columns if not numbers[column]]
        if missing:
            objections.append(f"{name} has seen no {', '.join(missing)}: its equality proves too little")
    unjudged = sorted(set(report["tables"]) - {one["table"] for one in verdicts})
    objections += [f"{name} was not judged" for name in unjudged]
    if report["withheld"]:
        objections.append(f"the source has withheld {report['withheld']} messages: the end is not the end")
    absent = "".join(f"\nin this format {reason}" for reason in source_format.absent)
    return Outcome(f"{_table(equality)}\n\n{_table(events)}{absent}", objections)


def _table(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
