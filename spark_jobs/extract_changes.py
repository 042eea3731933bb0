"""Spark job: reads everything new at the source into the change log, as one batch in one commit.

``spark-submit spark_jobs/extract_changes.py MIRROR.yaml``, or :func:`extract` in a running Spark session. The next run
finishes the batch that a killed run left open, so no message is read twice or left out.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Engine

from open_mirroring.changes.manifest import BoundRange, Scope, is_of_source
from open_mirroring.config import Mirror
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.operate.arguments import argument
from open_mirroring.operate.operations import BEGIN, END, REREAD
from open_mirroring.protocols.backfilling import Backfill, parse_interval, refuse_below_horizon
from open_mirroring.protocols.table_losses import ANY_TABLE, FILE_UNKNOWN
from open_mirroring.reconciliation.inspection import declare_tables
from open_mirroring.reconciliation.losses import look
from open_mirroring.reconciliation.source_reports import record_source_report, signals_of
from spark_jobs.dead_letters.open_letters import ensure_counted, read_open_letters
from spark_jobs.extract.driver import ExtractionDriver, Point
from spark_jobs.reconcile.lost_ledger import refuse_lost_ledger
from spark_jobs.runtime.job import Job
from spark_jobs.sources.contract.source import Found, Transport, unread_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


class Extracted(NamedTuple):
    """The result of a run: the newest completed batch (None: nothing to read), and its messages by outcome.

    *waiting_files* are source files that are still incomplete, *withheld* the incomplete files that already contain
    messages, *overdue* the incomplete files that nothing was written to for long. *joined* are tables that joined by a
    pattern such as ``dbo.*`` (G-70). *gone* is what a backfill should have read again, but the source no longer has.
    The job fills *losses* (by table), *loss_report* (dead letters and ignored tables) and *published*; :func:`extract`
    leaves these three empty.
    """

    batch: int | None
    counts: Mapping[str, int]
    waiting_files: Sequence[str]
    batches: Sequence[int] = ()
    gone: Sequence[str] = ()
    losses: Mapping[str, str] = MappingProxyType({})
    loss_report: Mapping[str, Any] = MappingProxyType({})
    withheld: Sequence[str] = ()
    overdue: Sequence[str] = ()
    joined: Mapping[str, str] = MappingProxyType({})
    published: Mapping[str, Any] | None = None


def extract(mirror: Mirror, ledger: Engine, spark: SparkSession, backfill: Backfill | None = None) -> Extracted:
    """Read one batch from the source into the change log; a batch that an earlier run left open is finished first.

    Up to three more batches come before the batch of new messages: dead letters of tables whose key was corrected in
    the mirror file are decoded again (G-69); then the messages in the interval of the *backfill* that were never read,
    and then those in its interval that are read a second time.
    """
    declare_tables(mirror, ledger)
    refuse_lost_ledger(mirror, ledger)
    ensure_counted(mirror, ledger)
    return _Points(mirror, ledger, spark).read(backfill)


class _Points:
    """Decides what each batch reads: first the ranges of a backfill, then everything new."""

    def __init__(self, mirror: Mirror, ledger: Engine, spark: SparkSession) -> None:
        self._mirror, self._ledger = mirror, ledger
        self._driver = ExtractionDriver(mirror, ledger, spark)
        self._letters = partial(read_open_letters, mirror, ledger)
        self._horizon = LedgerReader(ledger, mirror.name).mirror_horizon
        self._found = Found([], [])
        self._gone: Sequence[str] = ()

    def read(self, backfill: Backfill | None) -> Extracted:
        agenda: list[Point] = [self._new]
        if backfill is not None:
            self._batch_below(backfill)
            again: list[Point] = [lambda: self._bound_before(backfill)] if backfill.reread else []
            agenda = [lambda: self._new_within(backfill), *again, self._new]
        self._read_corrected()
        driver = self._driver
        driver.drive(agenda)
        self._listen()
        found = self._found
        return Extracted(
            driver.completed[-1] if driver.completed else None,
            driver.counts,
            found.waiting,
            tuple(driver.completed),
            self._gone,
            withheld=sorted({*found.waiting} - {*found.empty}),
            overdue=found.overdue,
            joined=driver.joined,
        )

    def _read_corrected(self) -> None:
        """Decode dead letters again after a table's key was corrected; stop it again if one is still unreadable."""
        tables = self._driver.ledger.corrected_tables()
        if not tables:
            return

        def rejected() -> Scope:
            return Scope("replay", letters=[x.at for x in self._letters() if x.table in tables and x.is_message])

        self._driver.drive([rejected])
        left = {*tables} & {*self._driver.ledger.corrected_tables()}
        hiding = {x.table: x for x in reversed(self._letters()) if x.hides_key} if left else {}
        for source in sorted(left):
            found, what = hiding.get(source), "no dead letter of a change that was rejected is left to be read again"
            if found is not None:
                at = f"{found.at.origin}:{found.at.place}"
                what = f"a change without a readable key: {found.code}: {found.reason} at {at}"
            self._driver.ledger.refuse_corrected(source, what)

    def _new(self) -> Scope:
        # Before anything can be found to be lost: how near it came is worth seeing then, too.
        if retained := self._driver.source.transport.retained():
            self._driver.ledger.record_offsets(retained)
        self._driver.look_for_tables()
        self._found = found = self._find()
        for name in found.waiting:
            log.warning("%r is not ready yet: it is read once it is complete", name)
        if not found.ranges and self._driver.has_overdue:
            return Scope("overdue")
        return _of(found, found.ranges)

    def _new_within(self, backfill: Backfill) -> Scope:
        # An operator asked for the interval: all of it is bound, however much one run may read otherwise.
        transport = self._driver.source.transport.unlimited()
        _, found = self._look_into(transport)
        return _of(found, transport.within(found.ranges, backfill.interval))

    def _batch_below(self, backfill: Backfill) -> int:
        """The batch of the horizon; only later batches may be read again."""
        horizon = self._horizon()
        refuse_below_horizon(backfill.interval, None if horizon is None else horizon.at)
        return 0 if horizon is None else horizon.batch

    def _bound_before(self, backfill: Backfill) -> Scope:
        # Read again for each attempt to bind: a horizon that moves meanwhile raises the version that binding compares.
        above = self._driver.ledger.bound_above(self._batch_below(backfill))
        bound = [b for b in above if is_of_source(b.name)]
        chosen = self._driver.source.transport.bound_before(bound, backfill.interval)
        self._gone = chosen.gone
        for name in chosen.gone:
            log.warning("%r is not read again: it is gone from the source, or has changed since it was read", name)
        return Scope("reread", sorted(chosen.ranges))

    def _look_into(self, transport: Transport) -> tuple[Mapping[str, int], Found]:
        """The offsets bound so far, and what the source has beyond them."""
        ledger = self._driver.ledger
        bound = ledger.bound()
        return bound, transport.find(self._driver.spark, bound, partial(ledger.seen_versions, bound=bound))

    def _find(self) -> Found:
        source, ledger = self._driver.source, self._driver.ledger
        # What was not read at the last look may be where the next one would not look.
        with self._ledger.connect() as db:
            has_unread = FILE_UNKNOWN in signals_of(db, self._mirror.name).get(ANY_TABLE, {})
        transport = source.transport.unlimited() if has_unread else source.transport
        bound, found = self._look_into(transport)
        read = {one.name for one in found.ranges}
        ledger.remember_versions({n: (bound[n], seen) for n, seen in found.versions.items() if n not in read})
        for name, refused in found.refused.items():
            ledger.stop_table(source.tables[name].source, refused.code, refused.what)
        return found

    def _listen(self) -> None:
        """Record what the source's control tables report, after its changes were read so that both can be compared."""
        source = self._driver.source
        from_source = source.transport.report(self._driver.spark)
        known = {name: table.source for name, table in source.tables.items()}
        signals = {(known.get(name, name), code): what for (name, code), what in from_source.signals.items()}
        if self._found.unread:
            signals[ANY_TABLE, FILE_UNKNOWN] = unread_text(self._found.unread)
        statements = from_source.statements
        if statements is not None:
            statements = {known[name]: of_one for name, of_one in statements.items() if name in known}
        from_source = from_source._replace(signals=signals, statements=statements)
        new = record_source_report(
            self._ledger, self._mirror.name, source.format.load, from_source, self._driver.completed
        )
        for (name, code), what in new.items():
            log.warning("%s: %s: %s", code, name, what)


def _of(found: Found, ranges: Iterable[BoundRange]) -> Scope:
    """A batch of ranges that were found at the source."""
    chosen = sorted(ranges)
    versions = {one.name: found.versions[one.name] for one in chosen if one.name in found.versions}
    return Scope("new", chosen, versions=versions)


def _extract(mirror: Mirror, ledger: Engine, spark: SparkSession, arguments: argparse.Namespace) -> Extracted:
    extracted = extract(mirror, ledger, spark, backfill_of(arguments))
    report = look(mirror, ledger, has_read=True)
    extracted = extracted._replace(losses=report.lost, loss_report=report.document())
    if arguments.publish is None:
        return extracted
    # Not at the top: publishing may reset a table, whose job needs this one.
    from spark_jobs.publish_changes import publish_little

    published = publish_little(mirror, ledger, spark, arguments.publish.split(",") if arguments.publish else None)
    job = {"job": "publish_changes", "mirror": mirror.name}
    return extracted._replace(published=None if published is None else {**job, **published._asdict()})


def backfill_of(arguments: argparse.Namespace) -> Backfill | None:
    """The backfill that the arguments ask for, or None if the arguments name no interval.

    Raises ``ARGUMENT_INVALID`` if an argument of the interval is wrong.
    """
    if not (arguments.start or arguments.end or arguments.reread):
        return None
    return Backfill(parse_interval(arguments.start or "", arguments.end or ""), arguments.reread)


_PUBLISH = argument(
    "--publish",
    "publish as well, where that is little; of all tables, or only of these source tables",
    nargs="?",
    const="",
    metavar="TABLES",
)

main = Job("extract_changes", _extract, (BEGIN, END, REREAD, _PUBLISH))

if __name__ == "__main__":
    sys.exit(main())
