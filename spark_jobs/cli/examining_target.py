"""The command ``doctor --target``: the state of each table in Fabric, and the fix from Fabric's documents.

A table can be published completely and still not be mirrored: Fabric's mirroring may be paused, may have failed, or may
wait for a file. The command shows which of these is true.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from open_mirroring.codes import next_step_of
from open_mirroring.config import Mirror
from open_mirroring.fabric.target_status import TargetState
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.operate.exit_codes import Exit, UsageError
from open_mirroring.operate.words import age, amount, shown, size
from open_mirroring.protocols import verdicts as v
from open_mirroring.protocols.verdicts import Backlog, Finding
from open_mirroring.reconciliation.inspection import inspect_mirror
from open_mirroring.reconciliation.joined_tables import ledger_of
from spark_jobs.cli.checking import mirrors_of
from spark_jobs.cli.looking import never_run, not_begun
from spark_jobs.cli.reporting import WIDTH, json_text, wrapped

_USUAL = timedelta(minutes=15)
"""Files that wait for longer are reported. Users saw 3 to 15 minutes from a file to its rows."""
_PAGES = "https://learn.microsoft.com/fabric/mirroring/"
_RECOVERY = f"{_PAGES}open-mirroring-best-practices#plan-for-recovery"
_CAPACITY = f"{_PAGES}troubleshooting#changes-to-fabric-capacity"
_MONITOR = f"{_PAGES}monitor"


class Remedy(NamedTuple):
    """The meaning of a table's state, its fix, and Fabric's document about it; *waits*: the state ends by itself."""

    means: str
    next_step: str = ""
    page: str = ""
    waits: bool = False


_WELL, _UNLOOKED = "well", "not asked"
REMEDIES: Mapping[str, Remedy] = {
    "failed": Remedy(
        "the service reports an error, and applies nothing more",
        "read the error. If a file is broken or empty, delete it and run `open-mirroring repair`: later files wait for "
        "this number. If a column has another type, run `open-mirroring reload-table`",
        _RECOVERY,
    ),
    "stopped": Remedy(
        "replication was stopped at the target",
        "ask who stopped it. Select *Start replication* only if all tables may begin from scratch: it does that",
        f"{_PAGES}troubleshooting#stop-replication",
    ),
    "restarted": Remedy("the service began it from scratch", next_step_of(v.TARGET_RESTARTED), _RECOVERY),
    "blocked": Remedy("a number is missing, and all later files wait for it", next_step_of(v.FILE_MISSING), _RECOVERY),
    "stuck": Remedy(
        f"files wait for more than {age(_USUAL)}, and none was applied meanwhile",
        "compare *Last completed* of database and table in *Monitor replication*. If other tables go on, look for a "
        "broken file with the lowest number, or run `open-mirroring reload-table`",
        f"{_PAGES}troubleshooting#data-doesnt-appear-to-be-replicating",
    ),
    "empty": Remedy(
        "the folder has metadata and no file: the service waits for one, and fails at last",
        "publish its first file by a run. A valid Parquet file without rows is enough: `publish: {empty_tables: "
        "create}`",
        f"{_PAGES}open-mirroring-best-practices#choose-a-file-detection-strategy",
    ),
    "not started": Remedy(
        "mirroring was never started",
        "run `open-mirroring create`: it publishes the first files, then starts",
        f"{_PAGES}mirrored-database-rest-api",
    ),
    "paused": Remedy(
        "the capacity is or was paused",
        "resume the capacity, then select *Resume replication* at the mirrored database: it goes on where it was",
        _CAPACITY,
    ),
    "refused": Remedy("the login may not ask", next_step_of(v.STATUS_REFUSED), f"{_PAGES}share-and-manage-permissions"),
    "unknown": Remedy("the service gives no answer that is understood", next_step_of(v.STATUS_UNKNOWN), _MONITOR, True),
    "throttled": Remedy(
        "the service slows it down",
        "wait until the time that it names: a database takes 1 TB of changes on one day. Or enlarge the capacity",
        f"{_PAGES}troubleshooting#limits-error-messages",
        waits=True,
    ),
    "not ready": Remedy("the database is starting", next_step_of(v.TARGET_BUSY), _MONITOR, True),
    "behind": Remedy(
        f"files wait for more than {age(_USUAL)}, and others were applied meanwhile",
        "wait if their number falls. If not, look at `ReplicatorBatchLatency`, and whether the capacity is overloaded. "
        "The service is slowed down by many files: run less often",
        f"{_PAGES}monitor-logs",
        waits=True,
    ),
    _WELL: Remedy("nothing waits for long"),
    _UNLOOKED: Remedy("nothing waits for long in the landing zone; the service is not asked for this mirror"),
}
"""The states of a table at the target, the worst first."""


class TableThere(NamedTuple):
    """A table in Fabric: its state, the files that wait in its folder, and the message and figures of Fabric."""

    table: str
    state: str
    waiting: Backlog
    said: str
    processed_rows: int | None
    processed_bytes: int | None
    last_sync: datetime | None

    def document(self) -> dict[str, Any]:
        return {**self._asdict(), "waiting": self.waiting._asdict(), **REMEDIES[self.state]._asdict()}


def doctor_target(arguments: argparse.Namespace) -> Exit:
    """Print the state of each table in Fabric; exit code 3 if a table needs an operator, else 5 if a table waits."""
    if not arguments.mirrors:
        raise UsageError("--target needs a mirror", "name a mirror file, or a folder of them")
    documents, exits = [], {Exit.DONE}
    for mirror in mirrors_of(arguments.mirrors):
        is_new = never_run(mirror)
        tables = [] if is_new else _tables(mirror)
        exits |= {_exit(table) for table in tables}
        documents.append({"mirror": mirror.name, "tables": [one.document() for one in tables]})
        if not arguments.json:
            print(not_begun(mirror) if is_new else _text(mirror, tables))
    if arguments.json:
        print(json_text(documents))
    return min(exits - {Exit.DONE}, default=Exit.DONE)


def _exit(table: TableThere) -> Exit:
    remedy = REMEDIES[table.state]
    return Exit.DONE if not remedy.next_step else Exit.ON_HOLD if remedy.waits else Exit.TABLES_STOPPED


def _tables(mirror: Mirror) -> list[TableThere]:
    ledger = ledger_of(mirror)
    found, now = inspect_mirror(mirror, ledger, record=False), datetime.now(UTC)
    reader = LedgerReader(ledger, mirror.name)
    old = reader.newest_numbers(confirmed_before=now - _USUAL)
    has_old = {source: state.id in old for source, state in reader.tables().items()}
    return [_there(source, finding, now, has_old=has_old[source]) for source, finding in sorted(found.items())]


def _there(source: str, finding: Finding, now: datetime, *, has_old: bool) -> TableThere:
    target: Any = finding.evidence.get("target") or {}
    synced, waits = _moment(target.get("last_sync")), finding.backlog
    state = _shown_at_once(finding, str(target.get("state", "")))
    if state is None:
        state = _WELL if target else _UNLOOKED
        if waits.oldest is not None and now - waits.oldest > _USUAL:
            state = "behind" if synced is not None and synced > waits.oldest else "stuck"
        elif target and has_old and synced is None:
            state = "stuck"  # its last file stays in the folder, so nothing else shows that it was never applied (F-35)
    rows, total, said = target.get("processed_rows"), target.get("processed_bytes"), str(target.get("said", ""))
    return TableThere(source, state, waits, said.strip("'\""), rows, total, synced)


def _shown_at_once(finding: Finding, said: str) -> str | None:
    """The state that the service or the folder shows at once; None if it takes time to see."""
    also: Any = finding.evidence.get("also", ())
    codes = {finding.code, *also}
    if said in (TargetState.FAILED.value, TargetState.STOPPED.value):
        return said
    if v.TARGET_RESTARTED in codes:
        return "restarted"
    if v.FILE_MISSING in codes:
        return "blocked"
    if said in REMEDIES:
        return said
    return "empty" if not finding.evidence.get("confirmed") and finding.evidence.get("metadata_etag") else None


def _moment(text: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(text).strip("'"))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _text(mirror: Mirror, tables: Sequence[TableThere]) -> str:
    groups = {state: [table for table in tables if table.state == state] for state in REMEDIES}
    counted = [f"{len(there)} {state}" for state, there in groups.items() if there and REMEDIES[state].next_step]
    wrong = sum(bool(REMEDIES[table.state].next_step) for table in tables)
    answer = f"{wrong or 'none'} of {amount(len(tables), 'table')} {'needs' if wrong == 1 else 'need'} attention"
    lines = [wrapped(f"{mirror.name} at the target: {answer}{': ' if wrong else ''}{', '.join(counted)}.", 0)]
    for state, there in groups.items():
        remedy = REMEDIES[state]
        if there:
            lines += [wrapped(f"{state.capitalize()}: {remedy.means}"), *map(_line, there)]
        if there and remedy.next_step:
            lines += [wrapped(f"Fix: {remedy.next_step}", 4), f"    See {remedy.page}"]
    return "\n".join(lines)


def _line(table: TableThere) -> str:
    """What waits, the figures, and of the service's words as much as fits into the line."""
    now, waits, rows = datetime.now(UTC), table.waiting, table.processed_rows
    figures = [
        f"{amount(waits.files, 'file')} ({size(waits.bytes)}) waiting for {age(now - waits.oldest)}"
        if waits.oldest
        else "",
        "" if rows is None else amount(rows, "row"),
        "" if table.processed_bytes is None else size(table.processed_bytes),
        "" if table.last_sync is None else f"last sync {age(now - table.last_sync)} ago",
    ]
    head, said = f"    {shown(table.table)}: ", shown(table.said.removeprefix("database Running; table "))
    tail = ", ".join(filter(None, figures))
    room = max(0, WIDTH - len(head) - len(tail) - len("; "))
    said = said if len(said) <= room else f"{said[: room - 1]}…"
    return (head + "; ".join(filter(None, (said, tail))))[:WIDTH]
