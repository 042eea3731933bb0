"""Joins split messages: pieces that this batch read, and pieces of earlier batches that wait for others.

The pieces are rows of the change log; the ledger knows which messages are incomplete, and since when. Messages that
wait for a message with their table's structure are handled like incomplete messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from open_mirroring.changes.manifest import OpenedFragment, OpenFragment
from open_mirroring.ledger.extract_ledger import ExtractLedger
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.reading import logged
from spark_jobs.changelog.schema import CHANGE, REJECTED
from spark_jobs.changelog.writing import WaitingPieces
from spark_jobs.extract.part import Part
from spark_jobs.extract.read_task import JoinTask, LogTarget, RowSummary, join_pieces, read_pieces
from spark_jobs.runtime.tasks import run_job
from spark_jobs.sources.contract.decoded import LoggedHalf, MirroredTable, SourceSchema
from spark_jobs.sources.contract.source import Format

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IDENTITIES_PER_TASK = 5_000
_IDENTITY_BYTES = 2**18


def is_overdue(fragment: OpenFragment, timeout: timedelta) -> bool:
    """Whether a message has waited for its other pieces longer than *timeout*."""
    return fragment.since < datetime.now(UTC) - timeout


@dataclass(frozen=True)
class FragmentJoining:
    """Joins split messages that are complete; messages that waited longer than *timeout* become dead letters."""

    spark: SparkSession
    ledger: ExtractLedger
    root: Place
    format: Format
    tables: Mapping[str, MirroredTable]
    timeout: timedelta

    def join(
        self,
        batch: int,
        attempt: str,
        first_task: int,
        parts: Sequence[Part],
        schemas: Sequence[SourceSchema],
        *,
        announced: bool,
    ) -> list[Part]:
        """Join the messages that are complete; returns the parts that the joined messages add to the manifest.

        *parts* are the results of reading, *first_task* is the first unused task number. *schemas* are all known table
        structures. If this batch *announced* a structure, all messages that wait are tried again.
        """
        known = {fragment.identity: fragment for fragment in self.ledger.open_fragments()}
        fresh: dict[str, WaitingPieces] = {}
        for part in parts:
            for identity, found in part.written.fragments.items():
                fresh[identity] = found.with_others(fresh.get(identity))
        overdue = {identity for identity, fragment in known.items() if is_overdue(fragment, self.timeout)}
        tried = known.keys() if announced else {*fresh, *overdue} & known.keys()
        for identity in tried:
            fragment = known[identity]
            split = WaitingPieces(fragment.epoch, fragment.pos, list(fragment.files))
            fresh[identity] = split.with_others(fresh.get(identity))
        idle = {i: WaitingPieces(f.epoch, f.pos, list(f.files)) for i, f in known.items() if i not in fresh}
        # What waits for its structure is several changes, and rows of a load share their positions between partitions
        # (K-18): a position can never prove that all of it is logged.
        finds_repeated = self.format.joins_pieces
        logged_now = (
            self._logged(idle, self._files_now(idle, parts)) if finds_repeated else dict[str, set[LoggedHalf]]()
        )
        if not fresh and not logged_now:
            return []
        identities = sorted(fresh)
        chunks = [identities[at : at + _IDENTITIES_PER_TASK] for at in range(0, len(identities), _IDENTITIES_PER_TASK)]
        tasks = [
            JoinTask(
                {identity: tuple(fresh[identity].files) for identity in chunk},
                self.format,
                self.tables,
                tuple(schemas),
                LogTarget(self.root, batch, attempt, first_task + index),
            )
            for index, chunk in enumerate(chunks)
        ]
        size = _IDENTITY_BYTES * len(identities)
        joined = run_job(self.spark, f"join split messages of batch {batch}", join_pieces, tasks, size)
        waiting = {identity for part in joined for identity in part.waiting}
        unsettled = {identity: fresh[identity] for identity in waiting} if finds_repeated else {}
        # Files that may contain the complete change of a waiting piece.
        files = self._files_now(unsettled, [*parts, *joined])
        for split in unsettled.values():
            files |= {*self.ledger.files_of_position(split.epoch, *split.halves, before_batch=batch)}
        repeated = self._logged(unsettled, files)
        expired = (waiting - repeated.keys()) & overdue
        target = LogTarget(self.root, batch, attempt, first_task + len(tasks))
        settled = self._settle(target, idle | fresh, repeated=repeated | logged_now, expired=expired)
        left = waiting - repeated.keys() - expired
        opened = [
            OpenedFragment(
                identity=i,
                epoch=fresh[i].epoch,
                # Messages that wait for a description are any number: one place would not stand for the next of them.
                pos=fresh[i].pos if self.format.joins_pieces else "",
                files=sorted(set(fresh[i].files)),
            )
            for i in sorted(left)
        ]
        closed = sorted(known.keys() & (fresh.keys() | logged_now.keys()) - left)
        return [*joined, replace(settled, opened=opened, closed=closed)]

    def _files_now(self, waiting: Mapping[str, WaitingPieces], parts: Sequence[Part]) -> set[str]:
        """Files of this batch that may contain the complete change of a waiting piece."""
        found = set()
        for file in (file for part in parts for file in part.written.files):
            bounds = [
                (epoch, low, high) for epochs in file["tables"].values() for epoch, (_, low, high) in epochs.items()
            ]
            for split in waiting.values():
                first, second = split.halves
                if any(epoch == split.epoch and low <= second and high >= first for epoch, low, high in bounds):
                    found.add(file["path"])
                    break
        return found

    def _logged(self, waiting: Mapping[str, WaitingPieces], files: Collection[str]) -> dict[str, set[LoggedHalf]]:
        """Waiting pieces whose complete change is already logged: they are repetitions, and would wait for ever."""
        if not files:
            return {}
        wanted = {identity: f"{split.epoch} {split.pos[:-2]}" for identity, split in waiting.items()}
        query = """SELECT DISTINCT epoch || ' ' || pos[:-3], tbl, op, key FROM logged
                   WHERE kind = $kind AND (epoch || ' ' || pos[:-3]) IN (SELECT unnest($wanted))"""
        places = sorted(set(wanted.values()))
        with logged(self.root, sorted(files)) as db:
            rows_there = db.execute(query, {"kind": CHANGE, "wanted": places}).fetchall()
        near = {place for place, *_ in rows_there}
        pieces = read_pieces(self.root, {i: waiting[i].files for i, place in wanted.items() if place in near})
        found: dict[str, set[LoggedHalf]] = {}
        for identity, rows in pieces.items():
            for place, table, operation, key in rows_there:
                # Another table's change at the position, of a task that counts on its own, is another change.
                if place == wanted[identity] and rows[0].tbl in (None, table):
                    found.setdefault(identity, set()).add((operation, key))
        return found

    def _settle(
        self,
        target: LogTarget,
        splits: Mapping[str, WaitingPieces],
        *,
        repeated: Mapping[str, Collection[LoggedHalf]],
        expired: set[str],
    ) -> Part:
        """Log pieces that came too late, and dead letters for messages that stayed incomplete; count both."""
        chosen = {identity: splits[identity].files for identity in repeated.keys() | expired}
        pieces = read_pieces(target.root, chosen)
        writer, summary = target.writer(), RowSummary(self.tables, self.format)
        decoder = self.format.decoder(self.tables)
        counts = Counter[str]()
        for identity, halves in sorted(repeated.items()):
            rows = decoder.late_rows(pieces[identity], halves)
            refused = any(row.kind == REJECTED for row in rows)
            counts["refused" if refused else "joined" if rows else "repeated"] += len(pieces[identity])
            summary.take(rows)
            writer.add(rows)
        for identity in sorted(expired):
            seen = sorted({p.piece for p in pieces[identity] if p.piece is not None})
            reason = f"the pieces {seen} of {identity} waited longer than {self.timeout} for the others"
            rows = decoder.incomplete(pieces[identity], reason)
            summary.take(rows)
            writer.add(rows)
            counts["expired"] += len(pieces[identity])
        return Part(writer.finish(), summary.facts, counts=dict(counts), letters=summary.letters)
