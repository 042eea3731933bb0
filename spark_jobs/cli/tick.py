"""Runs one tick of a mirror without a scheduler: extract, gate, publish, reconcile, as Airflow's tasks do."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Engine

from open_mirroring.changes.history_names import is_chosen
from open_mirroring.config import Mirror
from open_mirroring.config.source import InCapture
from open_mirroring.errors import MirroringError
from open_mirroring.ledger.extract_ledger import ExtractLedger
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.operate.exit_codes import Exit, exit_of, exit_of_report
from open_mirroring.operate.words import waiting_pieces
from open_mirroring.protocols.backfilling import Backfill
from open_mirroring.protocols.verdicts import LOAD_AHEAD, Verdict
from open_mirroring.reconciliation.inspection import inspect_mirror
from open_mirroring.reconciliation.losses import look
from spark_jobs.extract_changes import Extracted, extract
from spark_jobs.publish_changes import publish_and_follow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_READ = ("batch", "counts", "waiting_files", "overdue", "joined")


class Ticked(NamedTuple):
    """The result of a tick: what was *read*, new file numbers by table, and tables *held* or *stopped* with the reason.

    *waiting* are tables with changes or an initial load still to be published. *losses* describes what each table
    lacks; *loss_report* has the dead letters and ignored tables. *awaited* describes messages that wait for other
    messages or files, and *lacking* is whether tables lack rows because of such messages. *reloading* are tables in a
    reset. *failed* is an error of reading; publishing continued after the error.
    """

    read: Extracted
    files: Mapping[str, Sequence[int]]
    held: Mapping[str, str]
    stopped: Mapping[str, str]
    waiting: Sequence[str]
    failed: MirroringError | None = None
    losses: Mapping[str, str] = MappingProxyType({})
    loss_report: Mapping[str, Any] = MappingProxyType({})
    awaited: Sequence[str] = ()
    lacking: bool = False
    reloading: Sequence[str] = ()

    @property
    def did_nothing(self) -> bool:
        """Whether nothing was read or published, without an error."""
        return self.read.batch is None and not self.files and self.failed is None

    @property
    def exit(self) -> Exit:
        """The exit code: an error of reading comes first, then stopped tables, losses, and tables that wait.

        A table in a reset or an initial load waits, and so does a table that lacks rows because of *awaited* messages.
        A file that may still be written counts as waiting only if nothing else was read, or if the file is overdue.
        """
        if self.failed is not None:
            return exit_of(self.failed)
        done = exit_of_report(self.stopped, self.losses)
        if done is not Exit.DONE:
            return done
        if self.read.overdue or any(why.startswith(f"{LOAD_AHEAD}:") for why in self.held.values()):
            return Exit.ON_HOLD
        if self.reloading or any(source in self.held for source in self.waiting):
            return Exit.ON_HOLD
        return Exit.ON_HOLD if self.lacking or (self.awaited and self.read.batch is None) else Exit.DONE

    def document(self) -> dict[str, Any]:
        failed = None if self.failed is None else str(self.failed)
        read = {name: getattr(self.read, name) for name in _READ}
        plain = {**read, **self._asdict(), **self.loss_report}
        del plain["loss_report"], plain["read"]
        return {**plain, "failed": failed, "did_nothing": self.did_nothing, "exit": int(self.exit)}


def tick(
    mirror: Mirror,
    ledger: Engine,
    spark: SparkSession,
    only: Sequence[str] | None = None,
    backfill: Backfill | None = None,
) -> Ticked:
    """Read what is new at the source (a *backfill* first), publish (only the tables in *only*), and check the result.

    After an error of reading, changes that the change log already has are still published, and the error decides the
    exit code. Nothing is published if reading is stopped, for example because change log and ledger do not match.
    """
    reader = LedgerReader(ledger, mirror.name)
    read, failed = Extracted(None, {}, ()), None
    log.info("reading the source")
    try:
        read = extract(mirror, ledger, spark, backfill)
    except MirroringError as error:
        if reader.mirror().stop_code is not None:
            raise
        log.error("reading failed, publishing goes on with what the log has: %s", error)
        failed = error
    log.info("publishing what the log has")
    before = reader.tables()
    published, reloads = publish_and_follow(mirror, ledger, spark, only)
    log.info("reconciling ledger and landing zone")
    report = look(mirror, ledger, has_read=failed is None)
    after = reader.tables()
    tables = {source: table for source, table in after.items() if is_chosen(source, only)}
    # Publishing has inspected them, and nothing was done with them since.
    reported = {*report.losses, *published.held, *published.stopped}
    passing = {s for s in tables if after[s] == before.get(s) and s not in reported}
    findings = inspect_mirror(mirror, ledger, losses=report, everything=False, besides=passing)
    logged = reader.contents({s: t.row.published_batch for s, t in tables.items()}, reader.mirror().committed)
    stopped = {s: f"{f.code}: {f.what}" for s, f in findings.items() if f.verdict is Verdict.STOP and s in tables}
    fragments = len(ExtractLedger(ledger, mirror.name).open_fragments())
    return Ticked(
        read=read,
        files=published.files,
        held={**published.held, **{s: one.hold for s, one in reloads.items() if one.hold}},
        stopped={**stopped, **{s: what for s, what in published.stopped.items() if s not in reloads or s in stopped}},
        waiting=[s for s, t in tables.items() if s in logged or t.start.load_state == "pending" or t.waiting_rows],
        failed=failed,
        losses=report.lost,
        loss_report=report.document(),
        awaited=_awaited(fragments, read.withheld),
        lacking=bool(fragments or (read.withheld and isinstance(mirror.source, InCapture))),
        reloading=[s for s, t in tables.items() if t.reset is not None and not t.reset.drops],
    )


def _awaited(fragments: int, withheld: Sequence[str]) -> list[str]:
    """Texts about what waits for other messages or files."""
    found = []
    if fragments:
        found.append(waiting_pieces(fragments))
    if withheld:
        more = " and others" if len(withheld) > 3 else ""
        found.append(f"{len(withheld)} at the source cannot be read yet: {', '.join(withheld[:3])}{more}")
    return found
