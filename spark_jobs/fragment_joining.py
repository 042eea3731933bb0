"""The second stage of a batch: messages that waited for others, of this batch and of earlier ones.

Pieces of split messages lie in the log as rows; the ledger knows which identities are open and since when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
from pyspark.sql import SparkSession

from open_mirroring.ledger.extract_ledger import ExtractLedger
from spark_jobs.change_log import paths_of
from spark_jobs.change_log_schema import CHANGE
from spark_jobs.job import run_job
from spark_jobs.read_task import JoinTask, LogTarget, Notes, join_pieces, read_pieces
from spark_jobs.sources.decoded import MirroredTable, SourceSchema
from spark_jobs.sources.formats import Reading, decoder_of

_IDENTITIES_PER_TASK = 5_000


class _Split(NamedTuple):
    """A message that waits: where it belongs in the log, and the log files that hold pieces of it."""

    epoch: str
    pos: str
    files: list[str]


@dataclass(frozen=True)
class FragmentJoining:
    """Joins what is complete, gives up what waited longer than *timeout*."""

    spark: SparkSession
    ledger: ExtractLedger
    root: Path
    reading: Reading
    tables: Mapping[str, MirroredTable]
    timeout: timedelta

    def join(
        self,
        batch: int,
        attempt: str,
        first_task: int,
        parts: Sequence[dict[str, Any]],
        schemas: Sequence[SourceSchema],
        *,
        announced: bool,
    ) -> list[dict[str, Any]]:
        """The parts of the manifest that joining adds to those of reading.

        Args:
            batch: the batch's number.
            attempt: the attempt's unique name.
            first_task: the first number that no task of this attempt has.
            parts: what the reading tasks returned.
            schemas: every structure known by now.
            announced: whether one of them is new, so that everything that waits is tried again.
        """
        known = {fragment.identity: fragment for fragment in self.ledger.open_fragments()}
        fresh: dict[str, _Split] = {}
        for part in parts:
            for identity, (epoch, pos, files) in part["fragments"].items():
                split = fresh.setdefault(identity, _Split(epoch or "", pos or "", []))
                split.files.extend(files)
        overdue = {i for i, f in known.items() if _aware(f.since) < datetime.now(UTC) - self.timeout}
        tried = known.keys() if announced else {*fresh, *overdue} & known.keys()
        for identity in tried:
            fragment = known[identity]
            split = fresh.setdefault(identity, _Split(fragment.epoch, fragment.pos, []))
            split.files.extend(fragment.files)
        if not fresh:
            return []
        identities = sorted(fresh)
        chunks = [identities[at : at + _IDENTITIES_PER_TASK] for at in range(0, len(identities), _IDENTITIES_PER_TASK)]
        tasks = [
            JoinTask(
                {identity: tuple(fresh[identity].files) for identity in chunk},
                self.reading,
                self.tables,
                tuple(schemas),
                LogTarget(self.root, batch, attempt, first_task + index),
            )
            for index, chunk in enumerate(chunks)
        ]
        joined = run_job(self.spark, f"join split messages of batch {batch}", join_pieces, tasks)
        waiting = {i for part in joined for i, outcome in part["outcomes"].items() if outcome == "waiting"}
        repeated = self._already_logged(batch, {identity: fresh[identity] for identity in waiting})
        expired = (waiting - repeated) & overdue
        target = LogTarget(self.root, batch, attempt, first_task + len(tasks))
        rest = self._settle(target, fresh, repeated=repeated, expired=expired)
        rest["opened"] = [
            {"identity": i, "epoch": fresh[i].epoch, "pos": fresh[i].pos, "files": sorted(set(fresh[i].files))}
            for i in sorted(waiting - repeated - expired)
        ]
        rest["closed"] = sorted(known.keys() & (fresh.keys() - (waiting - repeated - expired)))
        return [*joined, rest]

    def _already_logged(self, batch: int, waiting: Mapping[str, _Split]) -> set[str]:
        """Pieces whose event is logged already: they were delivered again and would wait for ever."""
        by_file: dict[str, list[str]] = {}
        for identity, split in waiting.items():
            for file in self.ledger.files_of_position(split.epoch, split.pos, batch):
                by_file.setdefault(file, []).append(identity)
        if not by_file:
            return set()
        query = """SELECT DISTINCT epoch || ' ' || pos[:-3] FROM read_parquet($files)
                   WHERE kind = $kind AND (epoch || ' ' || pos[:-3]) IN (SELECT unnest($wanted))"""
        wanted = {f"{s.epoch} {s.pos[:-2]}": identity for identity, s in waiting.items()}
        with duckdb.connect() as db:
            files = paths_of(self.root, sorted(by_file))
            found = db.execute(query, {"files": files, "kind": CHANGE, "wanted": list(wanted)}).fetchall()
        return {wanted[line[0]] for line in found}

    def _settle(
        self, target: LogTarget, splits: Mapping[str, _Split], *, repeated: set[str], expired: set[str]
    ) -> dict[str, Any]:
        """Dead letters for what never became complete; counts for both."""
        chosen = {identity: splits[identity].files for identity in repeated | expired}
        pieces = read_pieces(target.root, chosen) if chosen else {}
        writer, notes, decoder = (
            target.writer(),
            Notes(self.tables, self.reading),
            decoder_of(self.reading, self.tables),
        )
        for identity in sorted(expired):
            seen = sorted({p.piece for p in pieces[identity] if p.piece is not None})
            reason = f"the pieces {seen} of {identity} waited longer than {self.timeout} for the others"
            rows = decoder.incomplete(pieces[identity], reason)
            notes.take(rows)
            writer.add(rows)
        counts = {
            "repeated": sum(len(pieces[identity]) for identity in repeated),
            "expired": sum(len(pieces[identity]) for identity in expired),
        }
        return {**writer.finish(), "counts": counts, **notes.to_dict()}


def _aware(moment: datetime) -> datetime:
    # SQLite gives back what was stored in UTC without its zone.
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
