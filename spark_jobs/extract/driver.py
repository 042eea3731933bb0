"""Drives the extract protocol with the real ledger, source, workers and log.

A job gives an agenda: functions that say what to bind next. The driver first finishes what an earlier run left open,
then binds each point of the agenda as at most one batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from open_mirroring.config import Mirror
from open_mirroring.config.storage import log_place
from open_mirroring.errors import TerminalError
from open_mirroring.fault_points import reach
from open_mirroring.ledger.extract_ledger import BoundRange, ExtractLedger, Manifest, Scope
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.protocols import extracting as protocol
from open_mirroring.protocols.driving import drive_one
from spark_jobs.changelog.batch_records import write_record
from spark_jobs.changelog.change_log import ChangeLog
from spark_jobs.letters.open_letters import read_open_letters
from spark_jobs.sources.registry import source_of

if TYPE_CHECKING:
    from spark_jobs.extract.batch_writing import BatchWriting

log = logging.getLogger(__name__)

Point = Callable[[], Scope]
"""What to bind next; an empty scope when there is nothing."""


class ExtractionDriver:
    """Answers the protocol's requests.

    Attributes:
        ledger: the mirror's ledger, as extraction sees it.
        source: its source.
        completed: the batches that this run completed.
        manifest: what was sealed for the newest of them; None when there is none.
    """

    def __init__(self, mirror: Mirror, ledger: Engine, spark: SparkSession) -> None:
        self.ledger = ExtractLedger(ledger, mirror.name, {table.source: table.key for table in mirror.tables})
        self.source = source_of(mirror)
        self.spark = spark
        self._name = mirror.name
        self._log = ChangeLog(log_place(mirror), mirror.name)
        self._timeout = timedelta(hours=mirror.source.fragment_timeout_hours)
        self._mirror, self._engine = mirror, ledger
        self._agenda: list[Point] = []
        self._asked: str | None = None
        self._current: tuple[str, int, Manifest] | None = None
        self.completed: list[int] = []
        self.manifest: Manifest | None = None

    @cached_property
    def _writing(self) -> BatchWriting:
        # Imported when there is something to write: most ticks find nothing new, and are done before it is loaded.
        from spark_jobs.extract.batch_writing import BatchWriting
        from spark_jobs.extract.correction_rows import LoggedCorrections
        from spark_jobs.extract.logged_loads import LoggedLoads

        mirror, ledger, spark = self._mirror, self._engine, self.spark
        letters = partial(read_open_letters, mirror, ledger)
        loads = LoggedLoads(mirror, LedgerReader(ledger, mirror.name), spark)
        corrections = LoggedCorrections(mirror, ledger, spark)
        root = self._log.root
        return BatchWriting(spark, self.ledger, root, *self.source, self._timeout, letters, loads, corrections)

    @property
    def counts(self) -> Mapping[str, int]:
        """The messages of the newest completed batch by disposition."""
        return {} if self.manifest is None else self.manifest.counts

    @property
    def has_overdue(self) -> bool:
        """Whether a message has waited for others longer than it may."""
        fragments = self.ledger.open_fragments()
        if not fragments:
            return False
        from spark_jobs.extract.fragment_joining import is_overdue

        return any(is_overdue(fragment, self._timeout) for fragment in fragments)

    def drive(self, agenda: Sequence[Point]) -> None:
        """Run the protocol to its end.

        Raises:
            TerminalError: the source or the log is not as it must be; the code says which.
            TransientError: ``LEDGER_UNREACHABLE``, ``LOG_COMMIT_FAILED``: try again.
        """
        self._agenda = list(agenda)
        request = drive_one(protocol.start(), protocol.step, self.answer, protocol.Finished).request
        if isinstance(request, protocol.Finished) and request.stopped:
            raise TerminalError(
                request.stopped,
                f"extraction of mirror {self._name!r} is stopped",
                way_out="see the runbook's section of this code, then `open-mirroring resume-extraction`",
            )

    def answer(self, request: protocol.Request) -> protocol.Reply:
        """The reply to one request; a ledger that is silent leaves its outcome unknown."""
        try:
            return self._answer(request)
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
                bound = self.ledger.bind(version, batch, scope.new, scope.versions)
                if isinstance(bound, protocol.Owned):
                    self._settle_point()
                reach("extract.bound")
                return bound
            case protocol.Write(batch):
                manifest = self._writing.write(batch.number, Scope.from_json(batch.ranges))
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
                write_record(self._log.root, batch.number, batch.ranges, batch.manifest or "")
                committed = self._log.commit(batch.number, Manifest.from_json(batch.manifest or ""))
                reach("extract.committed")
                return committed
            case protocol.Complete(version):
                return self._complete(version)
            case protocol.Stop(version, code, what):
                return self.ledger.stop(version, code, what)
            case _:
                raise ValueError(f"{request} is no request")

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
    """Carry the ranges that *find* names, given what is bound, into the log as one batch; None when it names none.

    A batch that another run left open is finished before, whatever it holds.

    Raises:
        TerminalError: as :meth:`ExtractionDriver.drive`.
        TransientError: as :meth:`ExtractionDriver.drive`.
    """
    driver = ExtractionDriver(mirror, ledger, spark)
    named: list[BoundRange] = []

    def point() -> Scope:
        named[:] = sorted(find(driver.ledger.bound()))
        return Scope("new", named)

    driver.drive([point])
    return driver.manifest if named else None
