"""Spark job: carry everything new at the source into the change log, as one batch in one commit.

``spark-submit spark_jobs/extract_changes.py MIRROR.yaml``, or :func:`extract` in a running session. The batch is
idempotent: whatever a killed run left behind, the next one adopts and finishes.
"""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import uuid4

import duckdb
from pyspark.sql import SparkSession
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from open_mirroring import extracting as protocol
from open_mirroring.config import Mirror
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fault_points import reach
from open_mirroring.inspection import declare_tables
from open_mirroring.ledger.extract_ledger import BoundRange, ExtractLedger, Manifest
from spark_jobs.change_log import ChangeLog, paths_of
from spark_jobs.change_log_schema import CHANGE
from spark_jobs.job import job_main, run_job
from spark_jobs.read_task import JoinTask, LogTarget, ReadTask, join_pieces, read, read_pieces
from spark_jobs.sources.ces_fragments import incomplete
from spark_jobs.sources.decoded import MirroredTable
from spark_jobs.sources.transports import SourcePlace, find_ranges

log = logging.getLogger(__name__)

_TASK_BYTES = 64 * 1024 * 1024
_IDENTITIES_PER_TASK = 5_000
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
    run = _Extraction(mirror, ledger, spark)
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
    return Extracted(run.completed, run.counts, run.waiting_files)


class _Extraction:
    """Answers the protocol's requests with the real ledger, source, workers and log."""

    def __init__(self, mirror: Mirror, ledger: Engine, spark: SparkSession) -> None:
        self._ledger = ExtractLedger(ledger, mirror.name)
        self._spark = spark
        self._log = ChangeLog(mirror.resolve(mirror.change_log), mirror.name)
        self._timeout = timedelta(hours=mirror.source.fragment_timeout_hours)
        self._source = SourcePlace(
            mirror.source.transport, mirror.resolve(mirror.source.path), mirror.source.layout or "wrapped"
        )
        # By the name in events, where nothing is quoted. A table with a period in its name is never streamed (C-74),
        # and must not stand in the way of one that is spelled alike: [a.b].c goes before a.[b.c].
        by_period = sorted(mirror.tables, key=lambda table: "." not in table.source_name.table)
        self._tables = {".".join(t.source_name): MirroredTable(t.source, tuple(t.key), t.columns) for t in by_period}
        self._bound = False
        self._current: tuple[int, Manifest] | None = None
        self.completed: int | None = None
        self.counts: Mapping[str, int] = {}
        self.waiting_files: Sequence[str] = ()

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
                self._bound = True
                bound = self._ledger.bind(version, batch, _ranges_of(batch.ranges))
                reach("extract.bound")
                return bound
            case protocol.Write(batch):
                written = self._write(batch)
                reach("extract.written")
                return written
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
        if self._bound:
            return protocol.RangesFound(None)
        found = find_ranges(self._source, self._ledger.bound())
        self.waiting_files = found.waiting
        for name in found.waiting:
            log.warning("the source file %r is empty: it is read once it has content", name)
        if not found.ranges:
            return protocol.RangesFound(None)
        return protocol.RangesFound(json.dumps(sorted(found.ranges)))

    def _complete(self, version: int) -> protocol.Reply:
        reply = self._ledger.complete(version)
        if isinstance(reply, protocol.Owned) and self._current is not None:
            self.completed, manifest = self._current
            self.counts = manifest.counts
        return reply

    def _write(self, batch: protocol.Batch) -> protocol.Written:
        attempt, tasks = uuid4().hex, self._cut(_ranges_of(batch.ranges))
        targets = [LogTarget(self._log.root, batch.number, attempt, index) for index in range(len(tasks))]
        reads = [
            ReadTask(self._source, ranges, self._tables, target) for ranges, target in zip(tasks, targets, strict=True)
        ]
        log.info("batch %d: reading %d ranges in %d tasks", batch.number, sum(map(len, tasks)), len(tasks))
        parts = run_job(self._spark, f"extract batch {batch.number}", read, reads)
        parts += self._join(batch.number, attempt, len(tasks), parts)
        manifest = merge(parts)
        counts = manifest.counts
        dispositions = sum(counts.get(kind, 0) for kind in ("changes", "fragments", "metadata", "ignored", "rejected"))
        if counts.get("messages", 0) != dispositions:
            raise TerminalError(
                "COUNTS_DIFFER",
                f"{counts.get('messages', 0)} messages were read, {dispositions} have a disposition: {dict(counts)}",
                where=f"batch {batch.number}",
                way_out="this is a defect of the decoder; nothing was committed: report it with the source files",
            )
        return protocol.Written(manifest.to_json())

    def _cut(self, ranges: Sequence[BoundRange]) -> list[tuple[BoundRange, ...]]:
        """Tasks of about equal bytes, at least one per core while there are ranges enough."""
        total = sum(r.end - r.start for r in ranges)
        cores = self._spark.sparkContext.defaultParallelism
        limit = max(1, min(_TASK_BYTES, -(-total // (3 * cores))))
        tasks: list[tuple[BoundRange, ...]] = []
        current: list[BoundRange] = []
        for bound in ranges:
            current.append(bound)
            if sum(r.end - r.start for r in current) >= limit:
                tasks.append(tuple(current))
                current = []
        return [*tasks, tuple(current)] if current else tasks

    def _join(self, batch: int, attempt: str, used: int, parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Second stage: join split messages that may be complete now, give up those that waited too long."""
        known = {fragment.identity: fragment for fragment in self._ledger.open_fragments()}
        fresh: dict[str, _Split] = {}
        for part in parts:
            for identity, (epoch, pos, files) in part["fragments"].items():
                split = fresh.setdefault(identity, _Split(epoch, pos, []))
                split.files.extend(files)
        overdue = {i for i, f in known.items() if _aware(f.since) < datetime.now(UTC) - self._timeout}
        for identity in {*fresh, *overdue} & known.keys():
            fragment = known[identity]
            split = fresh.setdefault(identity, _Split(fragment.epoch, fragment.pos, []))
            split.files.extend(fragment.files)
        if not fresh:
            return []
        identities = sorted(fresh)
        tasks = [
            JoinTask(
                {identity: tuple(fresh[identity].files) for identity in identities[at : at + _IDENTITIES_PER_TASK]},
                self._tables,
                LogTarget(self._log.root, batch, attempt, used + index),
            )
            for index, at in enumerate(range(0, len(identities), _IDENTITIES_PER_TASK))
        ]
        joined = run_job(self._spark, f"join split messages of batch {batch}", join_pieces, tasks)
        waiting = {i for part in joined for i, outcome in part["outcomes"].items() if outcome == "waiting"}
        repeated = self._already_logged(batch, {identity: fresh[identity] for identity in waiting})
        expired = (waiting - repeated) & overdue
        target = LogTarget(self._log.root, batch, attempt, used + len(tasks))
        rest = self._settle(target, fresh, repeated=repeated, expired=expired)
        rest["opened"] = [
            {"identity": i, "epoch": fresh[i].epoch, "pos": fresh[i].pos, "files": sorted(set(fresh[i].files))}
            for i in sorted(waiting - repeated - expired)
        ]
        rest["closed"] = sorted(known.keys() & (fresh.keys() - (waiting - repeated - expired)))
        return [*joined, rest]

    def _already_logged(self, batch: int, waiting: Mapping[str, _Split]) -> set[str]:
        """Pieces whose event was joined in an earlier batch: they were delivered again and would wait for ever."""
        by_file: dict[str, list[str]] = {}
        for identity, split in waiting.items():
            for file in self._ledger.files_of_position(split.epoch, split.pos, batch):
                by_file.setdefault(file, []).append(identity)
        if not by_file:
            return set()
        query = """SELECT DISTINCT epoch || ' ' || pos[:-3] FROM read_parquet($files)
                   WHERE kind = $kind AND (epoch || ' ' || pos[:-3]) IN (SELECT unnest($wanted))"""
        wanted = {f"{s.epoch} {s.pos[:-2]}": identity for identity, s in waiting.items()}
        with duckdb.connect() as db:
            files = paths_of(self._log.root, sorted(by_file))
            found = db.execute(query, {"files": files, "kind": CHANGE, "wanted": list(wanted)}).fetchall()
        return {wanted[line[0]] for line in found}

    def _settle(
        self, target: LogTarget, splits: Mapping[str, _Split], *, repeated: set[str], expired: set[str]
    ) -> dict[str, Any]:
        """Dead letters for what never became complete; counts for both."""
        chosen = {identity: splits[identity].files for identity in repeated | expired}
        pieces = read_pieces(target.root, chosen) if chosen else {}
        writer = target.writer()
        for identity in sorted(expired):
            seen = sorted({p.piece for p in pieces[identity] if p.piece is not None})
            reason = f"the pieces {seen} of {identity} waited longer than {self._timeout} for the others"
            writer.add([incomplete(pieces[identity], reason)])
        counts = {
            "repeated": sum(len(pieces[identity]) for identity in repeated),
            "expired": sum(len(pieces[identity]) for identity in expired),
        }
        return {**writer.finish(), "counts": counts, "homeless_rejects": len(expired), "keyless_rejects": {}}


class _Split(NamedTuple):
    """A split message: where it belongs in the log, and the log files that hold pieces of it."""

    epoch: str
    pos: str
    files: list[str]


def merge(parts: Sequence[dict[str, Any]]) -> Manifest:
    """One manifest from the parts that the tasks returned."""
    counts: Counter[str] = Counter()
    columns: dict[str, dict[str, tuple[bool, str]]] = {}
    keyless: dict[str, Mapping[str, Any]] = {}
    for part in parts:
        counts.update(part["counts"])
        for table, lists in part["columns"].items():
            merged = columns.setdefault(table, {})
            for cols, whole, first in lists:
                before = merged.get(cols, (False, first))
                merged[cols] = (whole or before[0], min(first, before[1]))
        for table, reject in part["keyless_rejects"].items():
            keyless.setdefault(table, reject)
    return Manifest(
        files=[file for part in parts for file in part["files"]],
        counts=dict(counts),
        columns={table: [(c, *seen) for c, seen in sorted(lists.items())] for table, lists in columns.items()},
        opened=[fragment for part in parts for fragment in part.get("opened", ())],
        closed=[identity for part in parts for identity in part.get("closed", ())],
        homeless_rejects=sum(part["homeless_rejects"] for part in parts),
        keyless_rejects=keyless,
    )


def _ranges_of(document: str) -> list[BoundRange]:
    return [BoundRange(*entry) for entry in json.loads(document)]


def _aware(moment: datetime) -> datetime:
    # SQLite gives back what was stored in UTC without its zone.
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry for ``spark-submit``: the exit code tells the scheduler whether trying again makes sense."""
    return job_main("extract_changes", argv, lambda mirror, ledger, spark, _: extract(mirror, ledger, spark))


if __name__ == "__main__":
    sys.exit(main())
