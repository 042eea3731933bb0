"""Spark job: carry everything new at the source into the change log, as one batch in one commit.

``spark-submit spark_jobs/extract_changes.py MIRROR.yaml``, or :func:`extract` in a running session. The batch is
idempotent: whatever a killed run left behind, the next one adopts and finishes.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from pyspark.sql import SparkSession
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from open_mirroring import extracting as protocol
from open_mirroring.config import Mirror
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fault_points import reach
from open_mirroring.inspection import declare_tables
from open_mirroring.ledger.extract_ledger import BoundRange, ExtractLedger, Manifest
from open_mirroring.ledger.reading import LedgerReader
from spark_jobs.batch_writing import BatchWriting
from spark_jobs.change_log import ChangeLog
from spark_jobs.job import job_main
from spark_jobs.logged_loads import LoggedLoads
from spark_jobs.sources import qlik_change_jdbc
from spark_jobs.sources.opening import source_of
from spark_jobs.sources.qlik_change_jdbc import ChangeTablePlace
from spark_jobs.sources.transports import Found, find_ranges

log = logging.getLogger(__name__)

_MAX_UNKNOWN = 5


class Extracted(NamedTuple):
    """What a run did: the batch it completed (None: nothing new) and its messages by disposition."""

    batch: int | None
    counts: Mapping[str, int]
    waiting_files: Sequence[str]


def extract(mirror: Mirror, ledger: Engine, spark: SparkSession) -> Extracted:
    """Bind, write, seal and commit one batch; finish a batch that an earlier run left open first.

    Raises:
        TerminalError: the source or the log is not as it must be; the code says which.
        TransientError: ``LEDGER_UNREACHABLE``, ``LOG_COMMIT_FAILED``: try again.
    """
    declare_tables(mirror, ledger)
    run = _drive(_Extraction(mirror, ledger, spark), mirror)
    return Extracted(run.completed, run.counts, run.waiting_files)


def log_ranges(
    mirror: Mirror, ledger: Engine, spark: SparkSession, find: Callable[[dict[str, int]], Sequence[BoundRange]]
) -> Manifest | None:
    """Carry the ranges that *find* names, given what is bound, into the log as one batch; None when it names none.

    A batch that another run left open is finished before, whatever it holds.

    Raises:
        TerminalError: as :func:`extract`.
        TransientError: as :func:`extract`.
    """
    run = _drive(_Extraction(mirror, ledger, spark, find), mirror)
    return run.written if run.has_bound else None


def _drive(run: _Extraction, mirror: Mirror) -> _Extraction:
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
    return run


class _Extraction:
    """Answers the protocol's requests with the real ledger, source, workers and log.

    *find* names the ranges of a new batch; by default it is what is new at the source.
    """

    def __init__(
        self,
        mirror: Mirror,
        ledger: Engine,
        spark: SparkSession,
        find: Callable[[dict[str, int]], Sequence[BoundRange]] | None = None,
    ) -> None:
        self._ledger = ExtractLedger(ledger, mirror.name)
        self._log = ChangeLog(mirror.resolve(mirror.change_log), mirror.name)
        self._source = source_of(mirror)
        timeout = timedelta(hours=mirror.source.fragment_timeout_hours)
        loads = LoggedLoads(mirror, LedgerReader(ledger, mirror.name), spark)
        self._writing = BatchWriting(spark, self._ledger, self._log.root, *self._source, timeout, loads)
        self._find_others = find
        self.has_bound = False
        self._current: tuple[int, Manifest] | None = None
        self.completed: int | None = None
        self.counts: Mapping[str, int] = {}
        self.waiting_files: Sequence[str] = ()
        self.written: Manifest | None = None

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
                # One new batch per run; what an earlier run left open is finished before.
                self.has_bound = True
                bound = self._ledger.bind(version, batch, _ranges_of(batch.ranges))
                reach("extract.bound")
                return bound
            case protocol.Write(batch):
                manifest = self._writing.write(batch.number, _ranges_of(batch.ranges))
                reach("extract.written")
                return protocol.Written(manifest.to_json())
            case protocol.Seal(version, manifest):
                sealed = self._ledger.seal(version, manifest)
                reach("extract.sealed")
                return sealed
            case protocol.OpenLog(batch):
                document = batch.manifest or ""
                self._current = (batch.number, Manifest.from_json(document))
                return self._log.open(*self._current, document)
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
        if self.has_bound:
            return protocol.RangesFound(None)
        found = self._find()
        self.waiting_files = found.waiting
        for name in found.waiting:
            log.warning("%r is not ready yet: it is read once it is whole", name)
        if not found.ranges:
            return protocol.RangesFound(None)
        return protocol.RangesFound(json.dumps(sorted(found.ranges)))

    def _find(self) -> Found:
        place, bound = self._source.place, self._ledger.bound()
        if self._find_others is not None:
            return Found(list(self._find_others(bound)), [])
        if not isinstance(place, ChangeTablePlace):
            return find_ranges(place, bound)
        tables = qlik_change_jdbc.find_ranges(self._writing.spark, place, bound)
        for source, refused in tables.refused.items():
            self._ledger.stop_table(self._source.tables[source].source, refused.code, refused.what)
        return Found(tables.ranges, tables.waiting)

    def _complete(self, version: int) -> protocol.Reply:
        reply = self._ledger.complete(version)
        if isinstance(reply, protocol.Owned) and self._current is not None:
            self.completed, manifest = self._current
            self.counts, self.written = manifest.counts, manifest
        return reply


def _ranges_of(document: str) -> list[BoundRange]:
    return [BoundRange(*entry) for entry in json.loads(document)]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry for ``spark-submit``: the exit code tells the scheduler whether trying again makes sense."""
    return job_main("extract_changes", argv, lambda mirror, ledger, spark, _: extract(mirror, ledger, spark))


if __name__ == "__main__":
    sys.exit(main())
