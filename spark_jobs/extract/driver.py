"""Drives the extract protocol: connects :mod:`open_mirroring.protocols.extracting` with ledger, source and change log.

A job passes an agenda: functions that return what to read next. The driver first finishes the batch that an earlier run
left open, then reads what each function returns as at most one batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from open_mirroring.changes.manifest import BoundRange, Manifest, Scope
from open_mirroring.config import Mirror
from open_mirroring.config.storage import log_place
from open_mirroring.errors import TerminalError
from open_mirroring.fault_points import reach
from open_mirroring.ledger.declaring import JoinedTable, Joining, join
from open_mirroring.ledger.extract_ledger import ExtractLedger
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.protocols import extracting as protocol
from open_mirroring.protocols.driving import drive_one
from open_mirroring.protocols.table_stops import NEW_TABLE
from open_mirroring.reconciliation.inspection import declaration, declare_tables
from open_mirroring.reconciliation.joined_tables import refused
from spark_jobs.beginning.announcements import AnnouncedTable, together
from spark_jobs.beginning.joining import joining
from spark_jobs.extract.new_tables import NewTablesSeen, announced_tables
from spark_jobs.runtime.giving_way import CHANGED_MEANWHILE, GivingWay
from spark_jobs.sources.contract.source import MessageTransport
from spark_jobs.sources.registry import source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.changelog.change_log import ChangeLog
    from spark_jobs.extract.batch_writing import BatchWriting

log = logging.getLogger(__name__)

_RANGES_AHEAD = 1_000
"""How many later ranges are searched for the key of a new table, in each run until it is found."""

Point = Callable[[], Scope]
"""An entry of the agenda: returns what to read next, or an empty scope."""


class ExtractionDriver:
    """Carries out the extract protocol for one mirror.

    *completed* are the batches that this run completed, *manifest* is the manifest of the newest completed batch.
    *joined* are tables that joined by a pattern in this run, each with a description of its key and columns.
    """

    def __init__(self, mirror: Mirror, ledger: Engine, spark: SparkSession) -> None:
        self._mirror, self._engine = mirror, ledger
        self._see_tables()
        self.spark = spark
        self._name = mirror.name
        self._timeout = timedelta(hours=mirror.source.fragment_timeout_hours)
        self._giving_way = GivingWay()
        self._agenda: list[Point] = []
        self._asked: str | None = None
        self._current: tuple[str, int, Manifest] | None = None
        self.completed: list[int] = []
        self.joined: dict[str, str] = {}
        self.manifest: Manifest | None = None

    def _see_tables(self) -> None:
        mirror = self._mirror
        keys = {table.source: table.key for table in mirror.tables}
        types = {table.source: text for table in mirror.tables if (text := declaration(table).fixed["key_types"])}
        self.ledger = ExtractLedger(self._engine, mirror.name, keys, types, mirror.writes["change_log"])
        self.source = source_of(mirror)
        self.__dict__.pop("_writing", None)

    @cached_property
    def _log(self) -> ChangeLog:
        from spark_jobs.changelog.change_log import ChangeLog

        return ChangeLog(log_place(self._mirror), self._name)

    @cached_property
    def _writing(self) -> BatchWriting:
        # Imported when there is something to write: most ticks find nothing new, and are done before it is loaded.
        from spark_jobs.extract.batch_writing import BatchWriting

        return BatchWriting(self._mirror, self._engine, self.ledger, self.spark, self._log.root, *self.source)

    def look_for_tables(self) -> None:
        """Let new tables join the mirror if the transport reads their messages only after they joined (G-70)."""
        transport = self.source.transport
        if self._mirror.has_patterns and transport.reads_named_tables:
            announced = together(transport.announced(self.source.format, 0, lambda: self.spark))
            self._join(announced.values(), LedgerReader(self._engine, self._mirror.name).mirror().committed + 1)

    def _write(self, batch: protocol.Batch) -> Manifest:
        """Write the batch, and return its manifest.

        If messages name tables that match a pattern, these join the mirror first. Then the same ranges are read again,
        so that none of their changes is missed.
        """
        scope = Scope.from_json(batch.ranges)
        while True:
            try:
                return self._writing.write(batch.number, scope)
            except NewTablesSeen as seen:
                log.info("batch %d names tables that are new: %s", batch.number, sorted(seen.names))
                self._join(self._announced(scope, seen), batch.number)
                known = {".".join(table.source_name) for table in self._mirror.tables}
                if left := sorted(seen.names - known):
                    raise refused(self._mirror, left[0], "the source reports no table that is spelled so") from None

    def _announced(self, scope: Scope, seen: NewTablesSeen) -> list[AnnouncedTable]:
        transport, form = self.source.transport, self.source.format

        def announced(ranges: Sequence[BoundRange]) -> list[AnnouncedTable]:
            return announced_tables(self.spark, transport, form, seen.names, ranges, seen.schemas)

        if not isinstance(transport, MessageTransport):
            return announced(())
        names = {one.name for one in scope.ranges}
        transport = transport.pinned(self.ledger.bound, lambda: self.ledger.seen_files(names))
        found = announced([one for one in scope.ranges if one.end > one.start])
        if any(one.key is None for one in found):
            # What describes a table may have come behind the messages that were bound.
            later = [one for one in transport.find(self.spark, self.ledger.bound()).ranges if one.end > one.start]
            found = announced([*(one for one in scope.ranges if one.end > one.start), *later[:_RANGES_AHEAD]])
        return found

    def _join(self, announced: Iterable[AnnouncedTable], batch: int) -> None:
        """Register tables that join, and go on with them. On ``CONFIG_INVALID`` nothing of the batch is sealed."""
        found = joining(self._mirror, announced)
        said: dict[str, str] = {}
        tables: list[Joining] = []
        for table, pattern, one in ((one.table, one.pattern, one.announced) for one in found):
            columns = ", ".join(f"{name} {kind}".strip() for name, kind in one.columns.items())
            what = f"first seen in batch {batch}, with the key {list(table.key)} and the columns {columns or 'unknown'}"
            what += f"; it fits {pattern.source!r}"
            asks = pattern.new_tables == "ask"
            said[table.source] = what + (", which asks: nothing is published yet" if asks else "")
            joined = JoinedTable(table.source, one.schema, one.table, tuple(table.key), one.columns, batch)
            tables.append(Joining(joined, declaration(table), what if asks else ""))
        for source in join(self._engine, self._mirror.name, tables):
            self.joined[source] = said[source]
            log.warning("%s: %s joined: %s", NEW_TABLE, source, said[source])
        reach("extract.joined")
        if found:
            declare_tables(self._mirror, self._engine)
            self._see_tables()

    @property
    def counts(self) -> Mapping[str, int]:
        """How many messages of the newest completed batch had each outcome."""
        return {} if self.manifest is None else self.manifest.counts

    @property
    def has_overdue(self) -> bool:
        """Whether a split message has waited for its other pieces longer than allowed."""
        fragments = self.ledger.open_fragments()
        if not fragments:
            return False
        from spark_jobs.extract.fragment_joining import is_overdue

        return any(is_overdue(fragment, self._timeout) for fragment in fragments)

    def drive(self, agenda: Sequence[Point]) -> None:
        """Run the extract protocol to its end; raises TerminalError if reading is stopped or cannot continue."""
        self._agenda = list(agenda)
        request = drive_one(protocol.start(), protocol.step, self.answer, protocol.Finished).request
        if isinstance(request, protocol.Finished) and request.stopped:
            raise TerminalError(
                request.stopped,
                f"extraction of mirror {self._name!r} is stopped",
                next_step="do what the runbook describes for this code, then run `open-mirroring resume-extraction`",
            )

    def answer(self, request: protocol.Request) -> protocol.Reply:
        """Carry out one request of the extract protocol; the reply is "unknown" if the ledger does not answer."""
        try:
            reply = self._answer(request)
            if isinstance(reply, protocol.Lost):
                what = "another run reads this mirror; this one waits, and goes on from what that one did"
                log.warning("%s: %s", CHANGED_MEANWHILE, what)
                reader = LedgerReader(self._engine, self._name)
                self._giving_way.wait(lambda: reader.mirror().open_batch is not None)
            return reply
        except OperationalError as error:
            log.warning("the ledger did not answer: %s", type(error.orig).__name__)
            return protocol.Unknown()

    def _answer(self, request: protocol.Request) -> protocol.Reply:
        match request:
            case protocol.Acquire():
                return self.ledger.acquire()
            case protocol.FindRanges():
                return self._find()
            case protocol.Bind(version, batch):
                scope = Scope.from_json(batch.ranges)
                self._log.claim()
                bound = self.ledger.bind(version, batch, scope.new, scope.versions)
                if isinstance(bound, protocol.Owned):
                    self._settle_point()
                reach("extract.bound")
                return bound
            case protocol.Write(batch):
                manifest = self._write(batch)
                reach("extract.written")
                return protocol.Written(manifest.to_json())
            case protocol.Seal(version, manifest):
                sealed = self.ledger.seal(version, manifest)
                reach("extract.sealed")
                return sealed
            case protocol.OpenLog(batch):
                document = batch.manifest or ""
                self._current = (batch.ranges, batch.number, Manifest.from_json(document))
                return self._log.open(*self._current[1:], document)
            case protocol.CommitLog(batch, _):
                from spark_jobs.changelog.batch_records import write_record

                write_record(self._log.root, batch.number, batch.ranges, batch.manifest or "")
                committed = self._log.commit(batch.number, Manifest.from_json(batch.manifest or ""))
                reach("extract.committed")
                return committed
            case protocol.Complete(version):
                return self._complete(version)
            case protocol.Stop(version, code, what):
                return self.ledger.stop(version, code, what)
            case _:
                raise ValueError(f"{request} is not a request")

    def _find(self) -> protocol.RangesFound:
        while self._agenda:
            scope = self._agenda[0]()
            if not scope.is_empty:
                self._asked = scope.to_json()
                return protocol.RangesFound(self._asked)
            self._agenda.pop(0)
        return protocol.RangesFound(None)

    def _settle_point(self) -> None:
        self._agenda.pop(0)
        self._asked = None

    def _complete(self, version: int) -> protocol.Reply:
        reply = self.ledger.complete(version)
        if isinstance(reply, protocol.Owned) and self._current is not None:
            scope, number, manifest = self._current
            self.completed.append(number)
            self.manifest = manifest
            if scope == self._asked:
                self._settle_point()  # the answer to binding it was lost
        return reply


def log_ranges(
    mirror: Mirror, ledger: Engine, spark: SparkSession, find: Callable[[dict[str, int]], Sequence[BoundRange]]
) -> Manifest | None:
    """Read the ranges that *find* returns into the change log as one batch; None if *find* returns no range.

    *find* gets the offset up to which each partition or file is read already. A batch that another run left open is
    finished first.
    """
    driver = ExtractionDriver(mirror, ledger, spark)
    named: list[BoundRange] = []

    def point() -> Scope:
        named[:] = sorted(find(driver.ledger.bound()))
        return Scope("new", named)

    driver.drive([point])
    return driver.manifest if named else None
