"""Writes one batch of the change log: workers read its ranges, split messages are joined, a manifest lists files."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

from sqlalchemy import Engine

from open_mirroring.changes.manifest import (
    SENT_BY,
    BoundRange,
    CorrectionRange,
    Facts,
    LoadChunk,
    Manifest,
    Scope,
    SeenLetter,
    SettledLetter,
)
from open_mirroring.codes import Trait, having
from open_mirroring.config import Mirror
from open_mirroring.errors import TerminalError
from open_mirroring.facts.foreign_tables import FOREIGN
from open_mirroring.facts.full_loads import FULL_LOADS, LoadPlaces
from open_mirroring.facts.kind import NewFacts, merged
from open_mirroring.facts.read_places import READ_PLACES, SHOWN, UNCOUNTED, Run
from open_mirroring.facts.senders import senders_in
from open_mirroring.facts.unreadable import KEYLESS, READING_STOPS, Stop
from open_mirroring.ledger.extract_ledger import ExtractLedger
from open_mirroring.protocols.table_stops import LOAD_REPEATED, RELOAD_SEEN
from open_mirroring.storage.object_path import Place
from spark_jobs.beginning.joining import fitting
from spark_jobs.changelog.schema import LOAD_MAJOR
from spark_jobs.dead_letters.open_letters import OpenLetter, covered_by, healed_tables, read_open_letters
from spark_jobs.extract.fragment_joining import FragmentJoining
from spark_jobs.extract.load_rows import judge_loads, repeated_load
from spark_jobs.extract.mixed_tables import misread, new_senders, stops_of_shared, unrelated_senders
from spark_jobs.extract.new_tables import NewTablesSeen
from spark_jobs.extract.part import Part, facts_of, merge
from spark_jobs.extract.read_task import LogTarget, ReadTask, begin_log, read
from spark_jobs.extract.replay_task import ReplayTask, replay
from spark_jobs.runtime.tasks import own_processes, run_job, tasks_wanted
from spark_jobs.sources.contract.decoded import BY_HAND, Dispositions, MirroredTable, SourceSchema
from spark_jobs.sources.contract.source import Format, MessageTransport, QueriedTransport, SchemaLookup, Transport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logging.getLogger(__name__)

_TASK_BYTES = 256 * 1024 * 1024
"""So much of a source fills about one log file. Of smaller ones publishing reads most row groups several times."""
_LETTER_BYTES = 4096
"""The approximate size of a dead letter in bytes."""
_LETTERS_AT_ONCE = 20_000
_Watched = frozenset[tuple[str, int]]


@dataclass(frozen=True)
class BatchWriting:
    """Writes the files of batches; the files of a batch count only once their manifest is sealed in the ledger.

    *given* are the table structures in the mirror file, *registry* looks up structures in a schema registry.
    """

    mirror: Mirror
    engine: Engine
    ledger: ExtractLedger
    spark: SparkSession
    root: Place
    transport: Transport
    format: Format
    tables: Mapping[str, MirroredTable]
    registry: SchemaLookup | None
    given: Sequence[SourceSchema]

    def write(self, batch: int, scope: Scope) -> Manifest:
        """Read what *scope* names into files of a new attempt, and return the manifest of these files (G-142).

        Raises NewTablesSeen if messages name tables that may join the mirror: the attempt is then discarded (G-70).
        Raises ``COUNTS_DIFFER`` if the outcomes do not add up to the number of messages, and the errors of the
        transport.
        """
        manifest, begun_empty = self._written(batch, scope), NewFacts()
        if isinstance(self.transport, MessageTransport) and self.transport.numbering == "bound":
            for one in scope.ranges:
                # A partition that had nothing at the first look: its next message is not its first (G-143).
                if 0 < one.start == one.end:
                    READ_PLACES.add(begun_empty, [Run(one.start, one.start - 1)], name=one.name)
        return replace(manifest, facts=merged((manifest.facts, begun_empty)), reads=self.mirror.reads)

    def _written(self, batch: int, scope: Scope) -> Manifest:
        attempt = uuid4().hex
        if any(LoadChunk.of(bound.name) for bound in scope.ranges):
            from spark_jobs.extract.logged_loads import log_loads

            loaded = log_loads(self.mirror, self.engine, self.spark, batch, attempt, scope.ranges)
            return merge(loaded, (), self.format.partitions)
        if any(CorrectionRange.of(bound.name) for bound in scope.ranges):
            from spark_jobs.extract.correction_rows import log_corrections

            corrected = log_corrections(self.mirror, self.engine, self.spark, batch, attempt, scope.ranges)
            return merge(corrected, (), self.format.partitions)
        kept = [SourceSchema(*schema) for schema in self.ledger.schemas()]
        # Structures that the mirror file gave earlier are kept to find the new ones among them, and are not used.
        known = [*self.given, *(schema for schema in kept if schema.topic not in (BY_HAND, SENT_BY))]
        untried = sorted(set(self.given) - set(kept))
        open_before = read_open_letters(self.mirror, self.engine) if scope.purpose in ("reread", "replay") else []
        if scope.purpose == "replay":
            parts, used = self._replay(batch, attempt, scope, known)
            announced = self._new_schemas(parts, known)
        else:
            watched = frozenset((letter.at.origin, letter.at.place) for letter in open_before)
            parts, announced, used = self._read_ranges(batch, attempt, scope, known, watched)
        timeout = timedelta(hours=self.mirror.source.fragment_timeout_hours)
        joining = FragmentJoining(self.spark, self.ledger, self.root, self.format, self.tables, timeout)
        schemas = [*known, *announced]
        joined = joining.join(batch, attempt, used, parts, schemas, announced=bool(announced or untried))
        parts += joined
        seen = facts_of(parts)
        if new := {name for name in FOREIGN.of_mirror(seen) if fitting(self.mirror, name) is not None}:
            raise NewTablesSeen(new, schemas)
        senders, other_senders = new_senders(kept, senders_in(seen))
        described = {schema for part in joined for schema in part.schemas}
        fresh = [*schemas[len(known) :], *sorted(described - {*schemas}), *untried, *senders]
        manifest = self._judging_loads(batch, merge(parts, fresh, self.format.partitions))
        shared = misread([*known, *announced], announced) - misread(known, known)
        stops = _stops({**other_senders, **stops_of_shared(shared, self.tables)}, manifest.facts)
        manifest = replace(manifest, facts=stops, lists_of_reading=self.transport.lists_of_reading)
        self._check_partitions(manifest)
        self._check_order(manifest.facts, [*kept, *senders])
        _account(manifest.counts, batch)
        return self._settling(manifest, scope, open_before, parts)

    def _judging_loads(self, batch: int, manifest: Manifest) -> Manifest:
        """Judge rows of a full load in the batch: count repeated ones, and stop tables that were loaded again."""
        seen = FULL_LOADS.of(manifest.facts)
        came = [t for t, places in sorted(seen.items()) if any(at.last_loaded is not None for at in places.values())]
        if not came:
            return manifest
        changed, epoch = self.ledger.tables_with_changes(), self.format.load
        earlier = self.ledger.files_of_position(epoch, LOAD_MAJOR, f"{LOAD_MAJOR};", before_batch=batch)
        newest = self.ledger.newest_loads(epoch)
        stops, repeated, whole = dict[str, Stop](), 0, list[str]()
        for table in came:
            fresh = [str(file["path"]) for file in manifest.files if table in file["tables"]]
            if table in changed or any(at.is_reload for at in seen[table].values()):
                last, times, other = judge_loads(self.root, table, fresh, earlier, newest.get(table))
                seen[table] = {o: LoadPlaces(last.get(o), at.first_change) for o, at in seen[table].items()}
                repeated += times
                if other is not None and table in changed:
                    what = f"a row of a full load came at {other}, after changes of this table"
                    stops[table] = RELOAD_SEEN, f"{what}, and an earlier one of its key differs"
            again = repeated_load(self.root, table, fresh, earlier, newest.get(table))
            if again:
                stops.setdefault(table, (LOAD_REPEATED, again))
            elif again is not None:
                whole.append(table)
        facts = {**manifest.facts, FULL_LOADS.name: seen}
        counts = {**manifest.counts, "loads_repeated": repeated} if repeated else manifest.counts
        return replace(manifest, facts=_stops(stops, facts), counts=counts, loads_whole=whole)

    def _read_ranges(
        self, batch: int, attempt: str, scope: Scope, known: Sequence[SourceSchema], watched: _Watched
    ) -> tuple[list[Part], list[SourceSchema], int]:
        """Read the ranges; returns parts, structures announced in them, and the first unused task number."""
        keeps_empty = self.transport.empty_range_is_damage
        full = [bound for bound in scope.ranges if keeps_empty or bound.end > bound.start]
        tasks = self._cut(full)
        parts = self._read(batch, attempt, tasks, known, watched, first_task=0)
        announced = self._new_schemas(parts, known)
        if announced:
            # A structure may come after its messages, in another task: tasks that missed it are read again.
            # So may one that its topic announces for another table than the one whose its messages were taken for.
            wrong = {note for note, _ in misread(announced, announced)}
            again = [i for i, part in enumerate(parts) if part.written.fragments or wrong.intersection(part.schemas)]
            announced = [schema for schema in announced if schema not in wrong]
            schemas = [*known, *announced]
            repeated = self._read(batch, attempt, [tasks[i] for i in again], schemas, watched, first_task=len(tasks))
            for index, part in zip(again, repeated, strict=True):
                parts[index] = part
            # Only now is it known which topics used ids that another topic had announced (K-85).
            announced += sorted({schema for part in repeated for schema in part.schemas} - {*schemas})
        return parts, announced, 2 * max(len(tasks), len(full))

    def _replay(self, batch: int, attempt: str, scope: Scope, known: Sequence[SourceSchema]) -> tuple[list[Part], int]:
        """Decode dead letters again; returns parts and the first unused task number."""
        files = self.ledger.files_of_batches({letter.batch for letter in scope.letters})
        chunks = [scope.letters[at : at + _LETTERS_AT_ONCE] for at in range(0, len(scope.letters), _LETTERS_AT_ONCE)]
        tasks = [
            ReplayTask(
                tuple(chunk),
                tuple(files),
                ReadTask((), self.format, self.tables, tuple(known), LogTarget(self.root, batch, attempt, at)),
            )
            for at, chunk in enumerate(chunks)
        ]
        size = _LETTER_BYTES * len(scope.letters)
        return run_job(self.spark, f"replay dead letters into batch {batch}", replay, tasks, size), len(tasks)

    def _settling(
        self, manifest: Manifest, scope: Scope, open_before: Sequence[OpenLetter], parts: Sequence[Part]
    ) -> Manifest:
        """Add to the manifest the dead letters that this batch settles, and the tables that have all their keys now."""
        if scope.purpose in ("new", "overdue"):
            settled_files = list(self._read_whole(manifest, scope))
            return replace(manifest, settled=settled_files) if settled_files else manifest
        if scope.purpose == "replay":
            replayed = {at for part in parts for at in part.replayed}
            settled = [letter for letter in open_before if letter.at in replayed]
        else:
            met = {at for part in parts for at in part.met}
            covered = {x.at for x in covered_by(scope.ranges, open_before, self.transport.counts_as_bound)}
            settled = [x for x in open_before if x.at in covered or (x.at.origin, x.at.place) in met]
        outcome: Literal["replayed", "reread"] = "replayed" if scope.purpose == "replay" else "reread"
        gone = {letter.at for letter in settled}
        left = [letter for letter in open_before if letter.at not in gone]
        return replace(
            manifest,
            counts={**manifest.counts, outcome: len(settled)} if settled else manifest.counts,
            settled=[SettledLetter(*x.at, outcome, x.rows if x.table is None else 0) for x in settled],
            healed=healed_tables(settled, left, KEYLESS.of(manifest.facts).keys()),
            facts={**manifest.facts, FOREIGN.name: {}},  # these were counted when they were read for the first time
        )

    def _read_whole(self, manifest: Manifest, scope: Scope) -> Iterator[SettledLetter]:
        """Yield dead letters of damaged files that were read again from the beginning, and are complete now."""
        again = {bound.name for bound in scope.ranges if bound.start == 0}
        damaged = [x for x in (SeenLetter(*entry) for entry in manifest.letters) if x.code in having(Trait.OF_A_FILE)]
        for at, names_no_table in self.ledger.open_damage(again):
            # One entry may stand for many files.
            if not any(x.place < 0 or x.origin == at.origin for x in damaged):
                yield SettledLetter(*at, "reread", int(names_no_table))

    def _read(
        self,
        batch: int,
        attempt: str,
        tasks: Sequence[tuple[BoundRange, ...]],
        schemas: Sequence[SourceSchema],
        watched: _Watched,
        *,
        first_task: int,
    ) -> list[Part]:
        """Read and decode; one part for each task in order, or for each range if the transport is queried."""
        log.info("batch %d: reading %d ranges in %d tasks", batch, sum(map(len, tasks)), len(tasks))
        if isinstance(self.transport, QueriedTransport):
            ranges = [bound for task in tasks for bound in task]
            begin = partial(begin_log, self.format, self.tables, LogTarget(self.root, batch, attempt, first_task))
            return self.transport.read(self.spark, ranges, begin, f"extract batch {batch}")
        assert isinstance(self.transport, MessageTransport)
        names = {bound.name for task in tasks for bound in task}
        source = self.transport.pinned(self.ledger.bound, lambda: self.ledger.seen_files(names))
        reads = [
            ReadTask(
                task,
                self.format,
                self.tables,
                tuple(schemas),
                LogTarget(self.root, batch, attempt, at),
                watched,
            )
            for at, task in enumerate(tasks, first_task)
        ]
        size = self.format.work(self.transport, (bound for task in tasks for bound in task))
        work = partial(read, source)
        return run_job(self.spark, f"extract batch {batch}", work, reads, size, own_processes=own_processes(size))

    def _check_partitions(self, manifest: Manifest) -> None:
        """Refuse more partitions than the mirror file names: transactions could be published in part."""
        known = (
            self.ledger.shown_partitions(self.mirror.reads) | SHOWN.of_mirror(manifest.facts).keys()
            if manifest.partitions
            else set()
        )
        if len(known) > manifest.partitions:
            counted = f"{len(known)} partitions carry changes, `partition_count` says {manifest.partitions}"
            raise TerminalError(
                "TRANSACTION_UNBOUNDED",
                f"{counted}: {sorted(known)[:10]}",
                next_step="set `partition_count` to their number, or `consistency: key`; nothing of this batch is lost",
            )

    def _check_order(self, facts: Facts, schemas: Iterable[SourceSchema]) -> None:
        """Refuse changes that do not show which transactions are complete, if only those are published (K-80)."""
        if not (self.format.partitions and self.format.first_place):
            return
        next_step = "or set `consistency: key`; nothing of this batch is lost"
        for at in UNCOUNTED.of_mirror(facts).values():
            raise TerminalError(
                "TRANSACTION_UNBOUNDED",
                "a change does not show its place in its transaction (transactionEventCounter)",
                where=at,
                next_step=f"let the task send the header `transactionEventCounter`; {next_step}",
            )
        tasks = unrelated_senders(schemas)
        if len(tasks) > 1:
            raise TerminalError(
                "TRANSACTION_UNBOUNDED",
                f"changes come from several tasks, whose positions cannot be compared: {tasks[:10]}",
                next_step=f"make a mirror for the tables of each task; {next_step}",
            )

    def _new_schemas(self, parts: Sequence[Part], known: Sequence[SourceSchema]) -> list[SourceSchema]:
        """Structures that messages announced, and awaited ones that the schema registry knows."""
        structures = {schema for part in parts for schema in part.schemas}
        if self.registry is not None:
            waiting = {identity for part in parts for identity in part.written.fragments}
            waiting.update(fragment.identity for fragment in self.ledger.open_fragments())
            structures |= set(self.registry.schemas(waiting))
        return sorted(structures - set(known))

    def _cut(self, ranges: Sequence[BoundRange]) -> list[tuple[BoundRange, ...]]:
        """Group the ranges into tasks of about equal size, at least one per core; queried ranges are a task each."""
        if isinstance(self.transport, QueriedTransport):
            return [(bound,) for bound in ranges]
        total = sum(r.end - r.start for r in ranges)
        size = self.format.work(self.transport, ranges)
        wanted = tasks_wanted(self.spark, size, own_processes=own_processes(size))
        limit = max(1, min(_TASK_BYTES, -(-total // wanted)))
        tasks: list[tuple[BoundRange, ...]] = []
        current: list[BoundRange] = []
        size = 0
        for bound in ranges:
            current.append(bound)
            size += bound.end - bound.start
            if size >= limit:
                tasks.append(tuple(current))
                current, size = [], 0
        return [*tasks, tuple(current)] if current else tasks


def _stops(stops: Mapping[str, Stop], facts: Facts) -> Facts:
    """Add stops of tables to the facts; a stop that a task found itself is kept."""
    own = READING_STOPS.of(facts)
    fresh = {table: {"": stop} for table, stop in stops.items() if table not in own}
    return merged((facts, {READING_STOPS.name: fresh}))


def _account(counts: Mapping[str, int], batch: int) -> None:
    messages, *kinds = Dispositions(**{kind: counts.get(kind, 0) for kind in Dispositions._fields})
    if messages != sum(kinds):
        raise TerminalError(
            "COUNTS_DIFFER",
            f"{messages} messages were read, but {sum(kinds)} were counted: {dict(counts)}",
            where=f"batch {batch}",
            next_step="this is a defect of the decoder; nothing was committed: report it with the source files",
        )
