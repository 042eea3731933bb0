"""Spark job: carry everything new at the source into the change log, as one batch in one commit.

``spark-submit spark_jobs/extract_changes.py MIRROR.yaml``, or :func:`extract` in a running session. The batch is
idempotent: whatever a killed run left behind, the next one adopts and finishes.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from pyspark.sql import SparkSession
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from open_mirroring import extracting as protocol
from open_mirroring.backfilling import Backfill, parse_interval, refuse_below_horizon
from open_mirroring.config import Mirror
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fault_points import reach
from open_mirroring.inspection import declare_tables
from open_mirroring.ledger.extract_ledger import ExtractLedger, Manifest, Scope
from open_mirroring.ledger.horizon import MirrorHorizon, mirror_horizon
from spark_jobs.batch_writing import BatchWriting
from spark_jobs.change_log import ChangeLog
from spark_jobs.job import job_main
from spark_jobs.sources import intervals, qlik_change_jdbc
from spark_jobs.sources.kafka_place import KafkaPlace
from spark_jobs.sources.opening import source_of
from spark_jobs.sources.qlik_change_jdbc import ChangeTablePlace
from spark_jobs.sources.transports import Found, find_ranges

log = logging.getLogger(__name__)

_MAX_UNKNOWN = 5


class Extracted(NamedTuple):
    """What a run did.

    Attributes:
        batch: the newest batch that it completed; None when there was nothing to read.
        counts: its messages by disposition.
        waiting_files: source files that are not whole yet.
        batches: all batches that it completed.
        gone: what a backfill was to read again and the source no longer has.
    """

    batch: int | None
    counts: Mapping[str, int]
    waiting_files: Sequence[str]
    batches: Sequence[int] = ()
    gone: Sequence[str] = ()


def extract(mirror: Mirror, ledger: Engine, spark: SparkSession, backfill: Backfill | None = None) -> Extracted:
    """Bind, write, seal and commit one batch; finish a batch that an earlier run left open first.

    A *backfill* goes before: a batch of what was never bound of its interval, and one of what is to be read again.

    Raises:
        TerminalError: ``BELOW_HORIZON``; the source or the log is not as it must be: the code says which.
        TransientError: ``LEDGER_UNREACHABLE``, ``LOG_COMMIT_FAILED``: try again.
    """
    declare_tables(mirror, ledger)
    horizon = mirror_horizon(ledger, mirror.name)
    if backfill is not None:
        refuse_below_horizon(backfill.interval, None if horizon is None else horizon.at)
    run = _Extraction(mirror, ledger, spark)
    run.plan(backfill, horizon)
    state, unknowns = protocol.start(), 0
    while not isinstance(state.request, protocol.Finished):
        reply = run.answer(state.request)
        unknowns += isinstance(reply, protocol.Unknown)
        if unknowns > _MAX_UNKNOWN:
            raise TransientError("LEDGER_UNREACHABLE", "the ledger does not answer", way_out="try again later")
        state = protocol.step(state, reply)
    if state.request.stopped:
        raise TerminalError(
            state.request.stopped,
            f"extraction of mirror {mirror.name!r} is stopped",
            way_out="see the runbook's section of this code, then `open-mirroring resume-extraction`",
        )
    batch = run.completed[-1] if run.completed else None
    return Extracted(batch, run.counts, run.waiting_files, tuple(run.completed), run.gone)


class _Extraction:
    """Answers the protocol's requests with the real ledger, source, workers and log."""

    def __init__(self, mirror: Mirror, ledger: Engine, spark: SparkSession) -> None:
        self._ledger = ExtractLedger(ledger, mirror.name)
        self._log = ChangeLog(mirror.resolve(mirror.change_log), mirror.name)
        self._source = source_of(mirror)
        timeout = timedelta(hours=mirror.source.fragment_timeout_hours)
        self._writing = BatchWriting(spark, self._ledger, self._log.root, *self._source, timeout)
        self._agenda: list[Callable[[], Scope]] = []
        self._asked: str | None = None
        self._current: tuple[str, int, Manifest] | None = None
        self.completed: list[int] = []
        self.counts: Mapping[str, int] = {}
        self.waiting_files: Sequence[str] = ()
        self.gone: Sequence[str] = ()

    def plan(self, backfill: Backfill | None, horizon: MirrorHorizon | None) -> None:
        """Say what this run binds: at most one batch for each point, in this order."""
        if backfill is not None:
            self._agenda.append(lambda: self._new_within(backfill))
            if backfill.reread:
                self._agenda.append(lambda: self._bound_before(backfill, 0 if horizon is None else horizon.batch))
        self._agenda.append(self._new)

    def answer(self, request: protocol.Request) -> protocol.Reply:
        try:
            return self._answer(request)
        except OperationalError as error:
            log.warning("the ledger did not answer: %s", type(error.orig).__name__)
            return protocol.Unknown()

    def _answer(self, request: protocol.Request) -> protocol.Reply:
        match request:
            case protocol.Acquire():
                return self._ledger.acquire()
            case protocol.FindRanges():
                return self._find_ranges()
            case protocol.Bind(version, batch):
                bound = self._ledger.bind(version, batch, Scope.from_json(batch.ranges).new)
                if isinstance(bound, protocol.Owned):
                    self._settle_point()
                reach("extract.bound")
                return bound
            case protocol.Write(batch):
                manifest = self._writing.write(batch.number, Scope.from_json(batch.ranges))
                reach("extract.written")
                return protocol.Written(manifest.to_json())
            case protocol.Seal(version, manifest):
                sealed = self._ledger.seal(version, manifest)
                reach("extract.sealed")
                return sealed
            case protocol.OpenLog(batch):
                document = batch.manifest or ""
                self._current = (batch.ranges, batch.number, Manifest.from_json(document))
                return self._log.open(*self._current[1:], document)
            case protocol.CommitLog(batch, _):
                committed = self._log.commit(batch.number, Manifest.from_json(batch.manifest or ""))
                reach("extract.committed")
                return committed
            case protocol.Complete(version):
                return self._complete(version)
            case protocol.Stop(version, code, what):
                return self._ledger.stop(version, code, what)
            case _:
                raise ValueError(f"{request} is no request")

    def _find_ranges(self) -> protocol.RangesFound:
        """What the first point of the agenda has to bind, if any; what an earlier run left open is finished by now."""
        while self._agenda:
            scope = self._agenda[0]()
            if scope.ranges:
                self._asked = scope.to_json()
                return protocol.RangesFound(self._asked)
            self._agenda.pop(0)
        return protocol.RangesFound(None)

    def _settle_point(self) -> None:
        self._agenda.pop(0)
        self._asked = None

    def _new(self) -> Scope:
        found = self._find()
        self.waiting_files = found.waiting
        for name in found.waiting:
            log.warning("%r is not ready yet: it is read once it is whole", name)
        return Scope("new", sorted(found.ranges))

    def _new_within(self, backfill: Backfill) -> Scope:
        place = self._source.place
        if isinstance(place, ChangeTablePlace):
            return Scope()  # reading goes up to the newest row in any case
        if isinstance(place, KafkaPlace):
            # Somebody asked for the interval: all of it is bound, whatever one run may take otherwise.
            place = place._replace(max_messages_per_run=sys.maxsize)
        found = find_ranges(place, self._ledger.bound())
        return Scope("new", sorted(intervals.within(place, found.ranges, backfill.interval)))

    def _bound_before(self, backfill: Backfill, above: int) -> Scope:
        chosen = intervals.bound_before(self._source.place, self._ledger.bound_above(above), backfill.interval)
        self.gone = chosen.gone
        for name in chosen.gone:
            log.warning("%r cannot be read again: the source no longer has it as it was bound", name)
        return Scope("reread", sorted(chosen.ranges))

    def _find(self) -> Found:
        place, bound = self._source.place, self._ledger.bound()
        if not isinstance(place, ChangeTablePlace):
            return find_ranges(place, bound)
        tables = qlik_change_jdbc.find_ranges(self._writing.spark, place, bound)
        for source, refused in tables.refused.items():
            self._ledger.stop_table(self._source.tables[source].source, refused.code, refused.what)
        return Found(tables.ranges, tables.waiting)

    def _complete(self, version: int) -> protocol.Reply:
        reply = self._ledger.complete(version)
        if isinstance(reply, protocol.Owned) and self._current is not None:
            scope, number, manifest = self._current
            self.completed.append(number)
            self.counts = manifest.counts
            if scope == self._asked:
                self._settle_point()  # the answer to binding it was lost
        return reply


def main(argv: Sequence[str] | None = None) -> int:
    """Entry for ``spark-submit``: the exit code tells the scheduler whether trying again makes sense."""

    def work(mirror: Mirror, ledger: Engine, spark: SparkSession, arguments: argparse.Namespace) -> Extracted:
        return extract(mirror, ledger, spark, backfill_of(arguments))

    return job_main("extract_changes", argv, work, add_backfill_arguments)


def add_backfill_arguments(parser: argparse.ArgumentParser) -> None:
    """``--from``, ``--to`` and ``--reread``."""
    parser.add_argument("--from", dest="start", metavar="MOMENT", help="begin of the interval to backfill, in ISO form")
    parser.add_argument("--to", dest="end", metavar="MOMENT", help="its end, excluded")
    parser.add_argument("--reread", action="store_true", help="read again what was read of the interval before")


def backfill_of(arguments: argparse.Namespace) -> Backfill | None:
    """The backfill that arguments ask for; None when they name no interval.

    Raises:
        TerminalError: ``INTERVAL_INVALID``.
    """
    if not (arguments.start or arguments.end or arguments.reread):
        return None
    return Backfill(parse_interval(arguments.start or "", arguments.end or ""), arguments.reread)


if __name__ == "__main__":
    sys.exit(main())
