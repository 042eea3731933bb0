"""Detects a ledger that knows less than landing zone and change log contain: it was lost, emptied or restored.

Without this check, a run with such a ledger would publish everything again. If no ledger exists, the check uses an
empty temporary ledger (G-31).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from open_mirroring.codes import next_step_of
from open_mirroring.config import Mirror
from open_mirroring.config.problems import Problem
from open_mirroring.config.storage import log_place
from open_mirroring.errors import MirroringError, TerminalError
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.opening import ledger_to_look
from open_mirroring.protocols.verdicts import FOREIGN_WRITER, LEDGER_LOST, LOG_DAMAGED, Finding
from open_mirroring.reconciliation.inspection import inspect_mirror
from open_mirroring.reconciliation.owning import MIRROR_CLASH
from spark_jobs.changelog.newest_batch import newest_in_log


def log_ahead(mirror: Mirror, ledger: Engine) -> TerminalError | None:
    """An error if the change log has a batch that the ledger does not know, else None."""
    newest = newest_in_log(log_place(mirror), mirror.name)
    with ledger.connect() as db:
        return _ahead(mirror, newest, _bound(db, mirror.name))


def refuse_lost_ledger(mirror: Mirror, ledger: Engine) -> None:
    """Raise an error if the ledger or the change log has lost data.

    ``LEDGER_LOST``: the ledger does not know batches that are in the change log, or knows no batch although files are
    published. ``LOG_DAMAGED``: the change log lacks batches that the ledger knows and tables need. These tables are
    stopped before the error is raised.
    """
    if lost := log_ahead(mirror, ledger):
        raise lost
    c = t.mirror.c
    with ledger.connect() as db:
        row = db.execute(sa.select(c.committed, c.open_number).where(c.name == mirror.name)).one_or_none()
    if row is None or not (row.committed or row.open_number):
        lost_tables = {s: f for s, f in inspect_mirror(mirror, ledger, record=False).items() if f.code == LEDGER_LOST}
        for source, finding in lost_tables.items():
            raise _lost(mirror, f"{source}: {finding.what}")
    elif needing := _missing_in_log(mirror, ledger, row.committed):
        from open_mirroring.ledger.extract_ledger import ExtractLedger  # no status waits for it

        what = f"the change log ends before batch {row.committed}, the newest one that the ledger knows"
        for source in needing:
            # Kept in the ledger: only a load builds such a table again.
            ExtractLedger(ledger, mirror.name).stop_table(source, LOG_DAMAGED, what)
        raise _log_behind(mirror, what, needing)


def log_behind(mirror: Mirror, ledger: Engine) -> TerminalError | None:
    """An error, which the caller may raise, if the change log lacks batches that tables need; else None."""
    m = t.mirror.c
    committed = t.first(ledger, sa.select(m.committed).where(m.name == mirror.name)) or 0
    if not (needing := _missing_in_log(mirror, ledger, committed)):
        return None
    return _log_behind(mirror, f"the change log ends before batch {committed}", needing)


def _missing_in_log(mirror: Mirror, ledger: Engine, committed: int) -> list[str]:
    """The tables whose present generation needs changes from the change log, if it ends before *committed*."""
    if newest_in_log(log_place(mirror), mirror.name) >= committed:
        return []
    b, c = t.batch_table.c, t.mirrored_table.c
    rests = (b.mirror == c.mirror) & (b.source == c.source) & (b.batch > c.log_from)
    query = sa.select(c.source).distinct().join_from(t.mirrored_table, t.batch_table, rests)
    return sorted(source for (source,) in t.rows(ledger, query.where(c.mirror == mirror.name)))


def _log_behind(mirror: Mirror, what: str, needing: list[str]) -> TerminalError:
    next_step, more = next_step_of(LOG_DAMAGED), f" and {len(needing) - 3} more" if len(needing) > 3 else ""
    what += f". Tables that need it: {', '.join(needing[:3])}{more}"
    return TerminalError(LOG_DAMAGED, what, where=str(log_place(mirror)), next_step=next_step)


@contextmanager
def empty_ledger() -> Iterator[Engine]:
    """A temporary, empty ledger, with which a landing zone is inspected if the mirror has no ledger."""
    with tempfile.TemporaryDirectory() as folder:
        yield open_ledger(f"sqlite:///{folder}/ledger.db")


def found_without_ledger(mirror: Mirror) -> dict[str, Finding]:
    """What an inspection without a ledger finds for each table that has published files."""
    zone = mirror.landing_zone
    if zone.store == "local" and not mirror.resolve(zone.path).exists():
        return {}  # opening it would create it
    with empty_ledger() as ledger:
        findings = inspect_mirror(mirror, ledger, record=False)
    return {source: finding for source, finding in findings.items() if finding.code in (LEDGER_LOST, FOREIGN_WRITER)}


def check_ledger_knows(mirror: Mirror) -> list[Problem]:
    """The problems found: published files or logged batches that the ledger does not know. Changes nothing."""
    try:
        # The log first, and the tables again at the end: a run that is under way must not look like a lost ledger.
        newest = newest_in_log(log_place(mirror), mirror.name)
        bound, known = _look(mirror)
        problems = [] if (ahead := _ahead(mirror, newest, bound)) is None else [ahead]
        is_known = known.issuperset(table.source for table in mirror.tables)
        for source, finding in () if is_known else found_without_ledger(mirror).items():
            if source not in _look(mirror)[1]:
                problems.append(TerminalError(finding.code, f"{source}: {finding.what}", next_step=finding.next_step))
    except (MirroringError, DBAPIError, OSError) as error:
        problems = [error] if isinstance(error, TerminalError) and error.code == MIRROR_CLASH else []
    return [mirror.problem_of(("mirror",) if e.code == MIRROR_CLASH else ("ledger",), e) for e in problems]


def _look(mirror: Mirror) -> tuple[int, set[str]]:
    """The newest batch and the tables that the ledger knows."""
    ledger = ledger_to_look(mirror.ledger_url())
    if ledger is None:
        return 0, set()
    with ledger.connect() as db:
        c = t.mirrored_table.c
        begun = c.established.is_(True) | c.reset.is_not(None) | (c.generation > 1)
        return _bound(db, mirror.name), set(db.scalars(sa.select(c.source).where(begun, c.mirror == mirror.name)))


def _bound(db: sa.Connection, mirror: str) -> int:
    c = t.mirror.c
    row = db.execute(sa.select(c.committed, c.open_number).where(c.name == mirror)).one_or_none()
    return 0 if row is None else max(row.committed, row.open_number or 0)


def _ahead(mirror: Mirror, newest: int, known: int) -> TerminalError | None:
    what = f"the change log contains batches of this mirror up to {newest}, the ledger knows {known or 'none'}"
    return None if newest <= known else _lost(mirror, what)


def _lost(mirror: Mirror, what: str) -> TerminalError:
    return TerminalError(LEDGER_LOST, what, where=f"mirror {mirror.name}", next_step=next_step_of(LEDGER_LOST))
