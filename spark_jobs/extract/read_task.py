"""Runs in a worker: reads ranges of the source, decodes messages, joins split ones, writes the change log's files.

If the transport numbers its messages, the task notes the numbers of the messages that it read, so that a missing
message is noticed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.manifest import LETTERS_SHOWN, REASON, BoundRange, Facts, SeenLetter, bounded_letters
from open_mirroring.facts.full_loads import FULL_LOADS, LoadPlaces
from open_mirroring.facts.kind import NewFacts, add_all, merged
from open_mirroring.facts.read_places import READ_PLACES, SHOWN, UNCOUNTED, Numbering, Run, joined
from open_mirroring.facts.unreadable import KEYLESS, WITHOUT_TABLE, KeylessReject
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.origins import partition_of
from spark_jobs.changelog.reading import log_rows, paths_of
from spark_jobs.changelog.schema import CHANGE, FRAGMENT, LOAD_MAJOR, REJECTED, LogRow
from spark_jobs.changelog.writing import LogWriter
from spark_jobs.extract.part import Part
from spark_jobs.runtime.collector import spare_the_imports
from spark_jobs.sources.contract.decoded import (
    Damage,
    Dispositions,
    MirroredTable,
    SourceSchema,
    TableDamage,
    Unjoinable,
    Waiting,
)
from spark_jobs.sources.contract.fast_decoder import FastDecoder, Taken
from spark_jobs.sources.contract.message_blocks import Block, Message, MessageBlock, Places, RowBlock
from spark_jobs.sources.contract.source import Format, MessageTransport

_AT_ONCE = 20_000
_BY_MESSAGE = ("rising", "unbroken")


class PlacesRead:
    """Collects the message numbers that one task reads, by partition.

    A damaged message whose number is readable counts as read: the message becomes a dead letter, and is not reported as
    missing too.
    """

    def __init__(self) -> None:
        self._runs: dict[str, list[Run]] = {}

    def begin(self, bound: BoundRange, numbering: Numbering) -> None:
        """Note all numbers of the range *bound* as read, if its borders are message numbers."""
        if numbering == "bound" and bound.start < bound.end:
            self._runs.setdefault(bound.name, []).append(Run(bound.start, bound.end - 1))

    def noting(self, messages: Iterable[Message], numbering: Numbering) -> Iterator[Message]:
        """Yield *messages* unchanged, and note the number of each."""
        held = list[Message]()
        for message in messages:
            held.append(message)
            if len(held) >= _AT_ONCE:
                self._note(held, numbering)
                held = []
            yield message
        self._note(held, numbering)

    def note(self, block: Block, numbering: Numbering) -> None:
        """Note the numbers of the messages of a block; a block of lines without numbers is skipped."""
        if isinstance(block, MessageBlock):
            self._note(block.each, numbering)

    def _note(self, messages: Sequence[Message], numbering: Numbering) -> None:
        if numbering not in _BY_MESSAGE:
            return
        places = dict[str, list[int]]()
        for message in messages:
            if not isinstance(message, Damage):
                places.setdefault(message.origin, []).append(message.place)
            elif message.claims is not None:
                places.setdefault(message.claims[0], []).append(message.claims[1])
        for origin, found in places.items():
            known = self._runs.setdefault(partition_of(origin), [])
            if numbering == "unbroken":
                known += _runs(np.unique(np.array(found, np.int64)))
                if len(known) >= _AT_ONCE:
                    known[:] = joined(known)
            else:
                known.append(Run(min(found), max(found)))
                known[:] = [Run(min(run.first for run in known), max(run.last for run in known))]

    def facts(self) -> Facts:
        """The noted numbers as facts for the manifest."""
        found: NewFacts = {}
        for partition, runs in self._runs.items():
            READ_PLACES.add(found, joined(runs), name=partition)
        return found


def _runs(places: Places) -> list[Run]:
    """Rising numbers as ranges without gaps."""
    breaks = np.flatnonzero(np.diff(places) > 1)
    firsts = places[np.append(0, breaks + 1)]
    lasts = places[np.append(breaks, len(places) - 1)]
    return [Run(*run) for run in zip(firsts.tolist(), lasts.tolist(), strict=True)]


_MESSAGES_AT_ONCE = 20_000
_BYTES_AT_ONCE = 64 * 2**20


@dataclass(frozen=True)
class LogTarget:
    """Where a task writes: the change log's folder, the batch, the unique name of the attempt, the task's number."""

    root: Place
    batch: int
    attempt: str
    task: int

    def writer(self) -> LogWriter:
        """A writer for this task's files of the change log."""
        return LogWriter(self.root, self.batch, self.attempt, self.task)


@dataclass(frozen=True)
class ReadTask:
    """Some of the ranges of the source that a batch consists of, to be read and decoded by one worker."""

    ranges: tuple[BoundRange, ...]
    format: Format
    tables: Mapping[str, MirroredTable]
    schemas: tuple[SourceSchema, ...]
    target: LogTarget
    watched: frozenset[tuple[str, int]] = frozenset()
    """Coordinates of messages; the task returns which of them it read."""


@dataclass(frozen=True)
class JoinTask:
    """Split messages that may be complete now, each with the files of the change log that contain its pieces."""

    pieces: Mapping[str, tuple[str, ...]]
    format: Format
    tables: Mapping[str, MirroredTable]
    schemas: tuple[SourceSchema, ...]
    target: LogTarget


class Decoding:
    """Decodes messages into one task's files of the change log, and collects counts and facts for the driver."""

    def __init__(
        self,
        format: Format,
        tables: Mapping[str, MirroredTable],
        schemas: Sequence[SourceSchema],
        target: LogTarget,
        watched: Collection[tuple[str, int]] = (),
    ) -> None:
        self._watched, self._met = watched, set[tuple[str, int]]()
        self._format, self._tables, self._known = format, tables, list(schemas)
        self._decoder, self._writer = format.decoder(tables, schemas), target.writer()
        self._fast = format.fast_decoder(tables, schemas)
        self._rows, self._counts, self._schemas = RowSummary(tables, format), Counter[str](), set[SourceSchema]()
        self._facts, self._places = NewFacts(), PlacesRead()

    def take(self, messages: Iterable[Any]) -> None:
        """Decode messages in order, and write their rows."""
        for chunk in self._decoder.cut(messages, _MESSAGES_AT_ONCE):
            self._decode(chunk)

    def _decode(self, messages: list[Any]) -> None:
        decoded = self._decoder.decode(messages)
        self._counts.update(decoded.counts._asdict())
        add_all(self._facts, decoded.facts)
        self._learn(decoded.schemas)
        self._rows.take(decoded.rows)
        self._writer.add(decoded.rows)

    def take_block(self, block: RowBlock) -> None:
        """Decode rows of a change table and write them; the fast decoder handles most of the rows as columns."""
        if self._watched or self._fast is None:
            self.take(self._watching(block.messages(np.arange(block.size))))
            return
        left = np.delete(np.arange(block.size), self._take_fast(self._fast, block).taken)
        if len(left):
            self._decode(block.messages(left))

    def take_range(self, source: MessageTransport, bound: BoundRange) -> None:
        """Decode the messages in one range of the source and write their rows."""
        self._places.begin(bound, source.numbering)
        blocks = None if self._fast is None or self._watched else source.blocks(bound)
        if self._fast is None or blocks is None:
            messages = source.read(bound)
            if source.numbering in _BY_MESSAGE:
                messages = self._places.noting(messages, source.numbering)
            self.take(self._watching(messages))
            return
        left, size = list[Any](), 0
        for block in blocks:
            if isinstance(block, RowBlock):
                self.take_block(block)
                continue
            if isinstance(block, TableDamage):
                self.take([block])
                continue
            self._places.note(block, source.numbering)
            found = self._take_fast(self._fast, block)
            numbers = np.delete(np.arange(len(block.starts)), found.taken)
            left += block.messages(numbers)
            size += int((block.ends - block.starts)[numbers].sum())
            # What a left message announces counts from the next block on; else they can wait for company.
            if found.announces or len(left) >= _MESSAGES_AT_ONCE or size >= _BYTES_AT_ONCE:
                self.take(left)
                left, size = [], 0
        self.take(left)

    def _watching(self, messages: Iterable[Any]) -> Iterable[Any]:
        return self._meeting(messages) if self._watched else messages

    def _meeting(self, messages: Iterable[Any]) -> Iterator[Any]:
        for message in messages:
            at = (getattr(message, "origin", ""), getattr(message, "place", -1))
            if at in self._watched:
                self._met.add(at)
            yield message

    def _take_fast(self, fast: FastDecoder, block: Block | RowBlock) -> Taken:
        """Log and count those messages of a block that the fast decoder can decode."""
        found = fast.take(block)
        messages, changes = len(found.taken), found.rows.num_rows
        if changes:
            self._writer.add_table(found.rows)
            self._rows.take_table(found.rows)
        ignored = messages - changes - found.images
        self._counts.update(Dispositions(messages, changes, metadata=found.images, ignored=ignored)._asdict())
        add_all(self._facts, found.facts)
        self._learn(found.schemas)
        return found

    def _learn(self, announced: Iterable[SourceSchema]) -> None:
        fresh = set(announced) - self._schemas
        if fresh:
            self._schemas |= fresh
            self._known += sorted(fresh)
            self._decoder = self._format.decoder(self._tables, self._known)
            if self._fast is not None:
                self._fast.learn(fresh)

    def finish(self) -> Part:
        """Write the remaining rows, and return the result of the task."""
        return Part(
            self._writer.finish(),
            merged((self._facts, self._rows.facts, self._places.facts())),
            counts=dict(self._counts),
            letters=self._rows.letters,
            schemas=sorted(self._schemas),
            met=frozenset(self._met),
        )


def begin_log(format: Format, tables: Mapping[str, MirroredTable], target: LogTarget, at: int) -> Decoding:
    """Begin to write range number *at* of a batch; each try of the task writes under different file names."""
    return Decoding(format, tables, (), replace(target, attempt=uuid4().hex, task=target.task + at))


def read(source: MessageTransport, task: ReadTask) -> Part:
    """Read and decode all messages of the task's ranges.

    *source* may hold secrets, so Spark sends it with the function and not in *task*: Spark keeps tasks in a file for a
    moment.
    """
    spare_the_imports()
    decoding = Decoding(task.format, task.tables, task.schemas, task.target, task.watched)
    for bound in task.ranges:
        decoding.take_range(source, bound)
    return decoding.finish()


def join_pieces(task: JoinTask) -> Part:
    """Join the task's split messages that are complete."""
    decoder, writer = task.format.decoder(task.tables, task.schemas), task.target.writer()
    summary, counts, facts = RowSummary(task.tables, task.format), Counter[str](), list[Facts]()
    waiting, schemas = set[str](), set[SourceSchema]()
    pieces = read_pieces(task.target.root, task.pieces)
    for identity in task.pieces:
        outcome = decoder.join(pieces[identity])
        if isinstance(outcome, Waiting):
            waiting.add(identity)
            continue
        if isinstance(outcome, Unjoinable):
            rows, refused = [outcome.row], len(pieces[identity])
        else:
            rows, refused = outcome.rows, outcome.counts.rejected
            facts.append(outcome.facts)
            schemas.update(outcome.schemas)
        counts.update(refused=refused, joined=len(pieces[identity]) - refused)
        summary.take(rows)
        writer.add(rows)
    return Part(
        writer.finish(),
        merged((*facts, summary.facts)),
        counts=dict(counts),
        letters=summary.letters,
        schemas=sorted(schemas),
        waiting=frozenset(waiting),
    )


def read_pieces(root: Place, wanted: Mapping[str, Iterable[str]]) -> dict[str, list[LogRow]]:
    """The pieces of split messages; *wanted* names the files of the change log to read for each message.

    Other files are left out: they may contain pieces of the message that were joined before, and must not be joined
    again.
    """
    if not wanted:
        return {}
    names = sorted({file for of_one in wanted.values() for file in of_one})
    files = dict(zip(paths_of(root, names), names, strict=True))
    dataset = log_rows(root, names)
    chosen = (pc.field("kind") == FRAGMENT) & pc.field("fragment_of").isin(list(wanted))
    found: dict[str, list[LogRow]] = {identity: [] for identity in wanted}
    rows = dataset.to_table(columns=[*LogRow._fields, "__filename"], filter=chosen)
    for line in rows.to_pylist():
        file = files[line.pop("__filename")]
        if file in wanted[line["fragment_of"]]:
            found[line["fragment_of"]].append(LogRow(**line))
    return found


class RowSummary:
    """Collects facts about written rows (positions, full loads, unreadable keys), and dead letters among the rows."""

    def __init__(self, tables: Mapping[str, MirroredTable], format: Format) -> None:
        self._has_loads, self._keeps_positions = format.has_loads, format.partitions > 0
        self._ordered_in, self._first_place = format.ordered_in, format.first_place
        self._has_key = {table.source: bool(table.key) for table in tables.values()}
        self.facts: NewFacts = {}
        self.letters: list[SeenLetter] = []

    def take(self, rows: Iterable[LogRow]) -> None:
        """Collect facts about *rows*, which are about to be written."""
        for row in rows:
            if self._keeps_positions and row.epoch and row.pos:
                self._see_position(row.origin, row.epoch, row.pos, row.place)
            if row.kind == CHANGE and self._has_loads:
                is_load = (row.pos or "").startswith(LOAD_MAJOR)
                self._see_place(row.tbl or "", row.origin, row.place, is_load=is_load)
            if row.kind != REJECTED:
                continue
            self._see_letter(row)
            if row.tbl is None:
                WITHOUT_TABLE.add(self.facts, 1)
            elif row.key is None and self._has_key.get(row.tbl, False):
                reject = KeylessReject(row.code or "", row.reason or "", row.origin, row.place)
                KEYLESS.add(self.facts, reject, table=row.tbl)

    def _see_letter(self, row: LogRow) -> None:
        if self.letters and (self.letters[-1].origin, self.letters[-1].place) == (row.origin, row.place):
            # Another row of the same message: no single later row settles both.
            self.letters[-1] = self.letters[-1]._replace(key=None)
            return
        reason = (row.reason or "")[:REASON]
        letter = SeenLetter(row.origin, row.place, row.tbl, row.code or "", reason, row.key, row.epoch, row.pos)
        self.letters.append(letter)
        if len(self.letters) >= 2 * LETTERS_SHOWN:
            self.letters = bounded_letters(self.letters, LETTERS_SHOWN)

    def _see_position(self, origin: str, epoch: str, pos: str, place: int) -> None:
        partition = self._ordered_in(origin)
        if not partition:
            return
        major, minor, _ = pos.split(":")
        shown = major
        if self._first_place:
            if major != LOAD_MAJOR and minor.endswith("0" * len(self._first_place)):
                UNCOUNTED.add(self.facts, f"{origin}:{place}")
            begins = major != LOAD_MAJOR and minor.endswith(self._first_place)
            shown = f"{major}:{minor}" if begins else ""
        SHOWN.add(self.facts, {epoch: shown}, name=partition)

    def _telling(self, rows: pa.Table) -> Iterator[pa.Table]:
        """The rows, then those parts of them whose highest position is a fact of its own."""
        yield rows
        if self._first_place:
            minors = pc.utf8_slice_codeunits(rows["pos"], 0, stop=-2)
            yield rows.filter(pc.ends_with(minors, self._first_place))
            yield rows.filter(pc.ends_with(minors, "0" * len(self._first_place)))

    def _see_place(self, table: str, origin: str, place: int, *, is_load: bool) -> None:
        found = LoadPlaces(last_loaded=place) if is_load else LoadPlaces(first_change=place)
        FULL_LOADS.add(self.facts, found, table=table, name=partition_of(origin))

    def take_table(self, rows: pa.Table) -> None:
        """Collect facts about changes from one file or partition, given as an Arrow table."""
        if self._keeps_positions:
            for part in self._telling(rows):
                highest = part.group_by(["origin", "epoch"]).aggregate([("pos", "max"), ("place", "max")])
                for line in highest.to_pylist():
                    self._see_position(line["origin"], line["epoch"], line["pos_max"], line["place_max"])
        if not self._has_loads:
            return
        loaded = pc.starts_with(rows["pos"], LOAD_MAJOR)
        for is_load, bound in ((True, "max"), (False, "min")):
            part = rows.filter(loaded if is_load else pc.invert(loaded))
            for line in part.group_by(["tbl", "origin"]).aggregate([("place", bound)]).to_pylist():
                self._see_place(line["tbl"], line["origin"], line[f"place_{bound}"], is_load=is_load)
