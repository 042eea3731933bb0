"""Reads the ledger for planning, reconciliation, status and Airflow; nothing here writes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy import Engine

from open_mirroring.changes.column_history import FormerColumn, Word
from open_mirroring.changes.column_notes import UNVERIFIED, ColumnNote, NoteKind, decided, former_columns
from open_mirroring.changes.complete_position import Completeness
from open_mirroring.changes.horizon import BatchContents, LoggedBatch, MirrorHorizon, TableHorizon
from open_mirroring.changes.log_position import is_load_epoch, not_below, position_order
from open_mirroring.changes.manifest import Manifest, counts_of
from open_mirroring.changes.source_reloads import NewestLoad
from open_mirroring.errors import TerminalError
from open_mirroring.facts.column_lists import ColumnList
from open_mirroring.landing_zone.layout import PARQUET
from open_mirroring.landing_zone.schema import TableSchema
from open_mirroring.landing_zone.text_format import TextFormat
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.columns import column_notes
from open_mirroring.ledger.declaring import ResetRecord
from open_mirroring.ledger.documents import COLUMN_LISTS, EPOCHS, STARTS
from open_mirroring.ledger.horizon import MIRROR_HORIZON, TABLE_HORIZON, newest_dropped
from open_mirroring.ledger.load_ledger import LoadPlan
from open_mirroring.ledger.publish_ledger import table_row
from open_mirroring.protocols.publishing import TableRow, Work

R = TypeVar("R", bound=tuple[Any, ...])
V = TypeVar("V", bound=Hashable)
_TABLES_PER_QUERY = 200
"""SQLite bounds the depth of a condition; it grows with every table that is asked for."""
_STATES_KEPT = 10_000
"""A run reads all tables several times, and few of their rows have changed meanwhile."""


class MirrorState(NamedTuple):
    """The ledger row of a mirror.

    *committed* is the newest batch in the change log. *open_batch* is the batch under way since *open_since*.
    *unnamed_rejects* counts dead letters that name no table. The change log may lack the batches up to *dropped*.
    """

    committed: int
    open_batch: int | None
    stop_code: str | None
    stop_what: str | None
    unnamed_rejects: int
    dropped: int
    open_since: datetime | None = None

    def refuse_stopped(self, mirror: str) -> None:
        """If the mirror's reading is stopped, raise an error with the code of the stop."""
        if self.stop_code is not None:
            next_step = "do what the runbook describes for this code, then run `open-mirroring resume-extraction`"
            raise TerminalError(self.stop_code, f"mirror {mirror!r} is stopped: {self.stop_what}", next_step=next_step)


class GenerationStart(NamedTuple):
    """How a table began after its last reset; if it was never reset, how it began at first.

    *load_refused* is why the last attempt to begin the initial load failed. Changes below *stream_from* in the stream
    *stream_epoch* (one enabling of streaming or one Qlik full load) are in the initial load. Batches up to *log_from*
    do not count. *newest_load* is the full load by the Qlik task, in the change log, with which the table began
    (G-125). *accepted* is who accepted a later full load.
    """

    load_state: str = "none"
    load_plan: LoadPlan | None = None
    load_refused: str | None = None
    stream_from: str | None = None
    stream_epoch: int = 0
    log_from: int = 0
    newest_load: NewestLoad | None = None
    accepted: Reason | None = None


class TableState(NamedTuple):
    """A mirrored table as the ledger has it; *keys* and *columns* are names at the source.

    *waiting_rows* counts changes of published batches whose transactions are not complete. *text* is the format of
    delimited text files; None for Parquet. *key_names* are the names of key columns at the target, if they differ
    (G-120). *types* is the setting `types` with which the table was last published or compared (G-129).
    """

    id: str
    source: str
    folder: str
    keys: tuple[str, ...]
    row: TableRow
    columns: TableSchema
    start: GenerationStart = GenerationStart()
    stop_what: str | None = None
    waiting_rows: int = 0
    reset: ResetRecord | None = None
    text: TextFormat | None = None
    key_names: Mapping[str, str] = MappingProxyType({})
    types: str | None = None

    @property
    def stop_code(self) -> str | None:
        """The code of the table's stop; None if the table is not stopped."""
        return self.row.stop

    @property
    def landed_keys(self) -> tuple[str, ...]:
        """The key columns under their names at the target."""
        return tuple(self.key_names.get(key, key) for key in self.keys)

    @property
    def extension(self) -> str:
        """The extension of the table's data files, without the dot."""
        return PARQUET if self.text is None else self.text.extension

    @property
    def metadata_properties(self) -> Mapping[str, object] | None:
        """The properties of delimited text for the table's ``_metadata.json``; None for Parquet."""
        return None if self.text is None else self.text.properties(self.landed_keys)

    @property
    def is_beginning(self) -> bool:
        """Whether the target has nothing of a table since its last reset, or only a part of its initial load."""
        if self.start.load_state == "none":
            return not (self.row.published_batch or self.row.confirmed)
        return self.start.load_state == "pending" or not self.row.confirmed


class ColumnRecords(NamedTuple):
    """What the ledger has of one table's columns: its column lists by first position, and operators' decisions.

    *epochs* are the numbers of the table's streams (one enabling of streaming or one Qlik full load each). *former* are
    renamed and dropped columns, which decide how earlier rows are read since the last reset.
    """

    lists: Sequence[ColumnList] = ()
    epochs: Mapping[str, int] = MappingProxyType({})
    decided: Sequence[Word] = ()
    former: Sequence[FormerColumn] = ()


class PublishedFile(NamedTuple):
    """A data file of a table that was seen in the landing zone since the table's last reset."""

    number: int
    etag: str
    digest: str
    rows: int
    size: int
    first_position: str
    last_position: str
    kind: str
    batch_from: int
    batch_to: int
    confirmed_at: datetime


class Publication(NamedTuple):
    """A completed publication of a table: its batches of the change log, and its changes by outcome.

    The batches are those above *batch_from*, up to *batch_to*. *position_to* is the position up to which transactions
    were complete; None if no change was held back.
    """

    version: int
    kind: str
    batch_from: int
    batch_to: int
    counts: dict[str, int]
    confirmed_at: datetime
    position_to: str | None = None


CommittedBatch = tuple[int, Mapping[str, int], datetime]
"""Number of a batch of the change log, its messages by outcome, and when it was committed."""


class Waiting(NamedTuple):
    """The logged but unpublished changes of a table.

    *since* is when the oldest batch with such a change was committed.
    """

    batches: int = 0
    changes: int = 0
    since: datetime | None = None


class LedgerReader:
    """Read-only access to the ledger of one mirror."""

    def __init__(self, engine: Engine, mirror: str) -> None:
        self.engine = self._engine = engine
        self._mirror = mirror

    def _rows(self, query: sa.Select[R]) -> Sequence[R]:
        return t.rows(self._engine, query)

    def mirror(self) -> MirrorState:
        """The mirror's ledger row; all numbers are zero and the other members None before the first run."""
        c = t.mirror.c
        of_batch, of_stop = (c.committed, c.open_number), (c.stop_code, c.stop_what)
        query = sa.select(*of_batch, *of_stop, c.unnamed_rejects, c.dropped, c.open_bound_at)
        return MirrorState(*next(iter(self._rows(query.where(c.name == self._mirror))), (0, None, None, None, 0, 0)))

    def tables(self, source: str | None = None) -> dict[str, TableState]:
        """The tables of the mirror by source name; if *source* is given, only this table."""
        c = t.mirrored_table.c
        query = sa.select(t.mirrored_table).where(c.mirror == self._mirror).order_by(c.source)
        rows = self._rows(query if source is None else query.where(c.source == source))
        return {row.source: _table_state(row) for row in rows}

    def starts(self, table_id: str) -> dict[str, int]:
        """By partition, the offset or line where a table's changes begin, after its Qlik full load (K-67)."""
        with self._engine.connect() as db:
            return STARTS.of(db, table_id)

    def contents(self, after: Mapping[str, int], up_to: int) -> dict[str, list[BatchContents]]:
        """By source table, the contents of its batches above the number in *after*, up to the batch *up_to*.

        Tables without such batches are left out.
        """
        if not after:
            return {}
        c = t.batch_table.c
        query = sa.select(t.batch_table).where(
            c.mirror == self._mirror, c.batch > min(after.values()), c.batch <= up_to
        )
        wanted = (row for row in self._rows(query.order_by(c.batch)) if row.batch > after.get(row.source, row.batch))
        return t.grouped((row.source, _contents(row)) for row in wanted)

    def waiting(self) -> dict[str, Waiting]:
        """By source table, its logged but unpublished changes; tables without such changes are left out.

        The cost depends on how many changes wait, not on the size of the change log.
        """
        m, b = t.mirrored_table.c, t.batch_table.c
        above = (b.mirror == m.mirror) & (b.source == m.source) & (b.batch > m.published_batch)
        counted = (m.source, sa.func.count(b.batch.distinct()), sa.func.sum(b.rows), sa.func.min(b.batch))
        query = sa.select(*counted).join_from(t.mirrored_table, t.batch_table, above).group_by(m.source)
        found = self._rows(query.where(m.mirror == self._mirror))
        times = self.committed_at({first for *_, first in found})
        return {source: Waiting(batches, int(rows), times.get(first)) for source, batches, rows, first in found}

    def newest_batches(self) -> dict[str, int]:
        """By source table, the newest batch with changes of this table; tables without changes are left out."""
        m, b = t.mirrored_table.c, t.batch_table.c
        newest = sa.select(sa.func.max(b.batch)).where(b.mirror == m.mirror, b.source == m.source).scalar_subquery()
        found = self._rows(sa.select(m.source, newest).where(m.mirror == self._mirror))
        return {source: batch for source, batch in found if batch is not None}

    def highest(self, source: str, up_to: int) -> dict[str, str]:
        """The highest position of a table in each stream, in the batches up to *up_to*."""
        return self.highest_of({source: up_to}).get(source, {})

    def highest_of(self, up_to: Mapping[str, int]) -> dict[str, dict[str, str]]:
        """By source table, its highest position in each stream; *up_to* has, by table, the newest batch to look at."""
        c = t.batch_table.c
        query = sa.select(c.source, c.epoch, sa.func.max(c.max_pos)).group_by(c.source, c.epoch)
        found: dict[str, dict[str, str]] = {}
        for some in _alike(up_to):
            asked = sa.or_(*(c.source.in_(sources) & (c.batch <= batch) for batch, sources in some.items()))
            for source, epoch, highest in self._rows(query.where(c.mirror == self._mirror, asked)):
                found.setdefault(source, {})[epoch] = highest
        return found

    def highest_in(self, epochs: Collection[str]) -> str:
        """The highest position of any table in these streams; empty if there is no position."""
        c = t.batch_table.c
        query = sa.select(sa.func.max(c.max_pos)).where(c.mirror == self._mirror, c.epoch.in_(list(epochs)))
        return str(t.first(self._engine, query) or "")

    def history(self, source: str, up_to: int, reaching: Mapping[str, str]) -> list[BatchContents]:
        """What the batches up to *up_to* that are still in the change log contain of a table.

        *reaching* maps streams to positions: only batches with a change at or above the position of its stream are
        included.
        """
        c = t.batch_table.c
        reached = sa.or_(sa.false(), *((c.epoch == epoch) & (c.max_pos >= text) for epoch, text in reaching.items()))
        query = sa.select(t.batch_table).where(c.mirror == self._mirror, c.source == source, c.batch <= up_to, reached)
        query = query.where(c.batch > newest_dropped(self._mirror))
        return [_contents(row) for row in self._rows(query.order_by(c.batch))]

    def completeness(self, batch: int) -> Completeness | None:
        """The completeness of the change log after a batch; None if the mirror keeps no complete position."""
        c = t.log_batch.c
        query = sa.select(c.completeness).where(c.mirror == self._mirror, c.number == batch)
        text = t.first(self._engine, query)
        return None if text is None else Completeness.from_json(text)

    def column_lists(self, table_ids: Iterable[str]) -> dict[str, list[ColumnList]]:
        """By table id, the sets of columns that the table's rows had, sorted by the position of the first such row."""
        with self._engine.connect() as db:
            found = COLUMN_LISTS.of_each(db, table_ids)
        return {table: sorted(lists.values(), key=attrgetter("first_pos")) for table, lists in found.items()}

    def streamed_types(self, table_id: str) -> dict[str, str]:
        """The SQL type of each column of a table; only columns that had the same type in all changes ever logged."""
        return {name: types.pop() for name, types in self.logged_types(table_id).items() if len(types) == 1}

    def logged_types(self, table_id: str) -> dict[str, set[str]]:
        """All SQL types that each column of a table had in the changes that were ever logged."""
        found: dict[str, set[str]] = {}
        for one in self.column_lists([table_id]).get(table_id, ()):
            if not all(map(is_load_epoch, one.seen)):
                for name, sql_type, _ in json.loads(one.cols):
                    found.setdefault(name, set()).add(sql_type)
        return found

    def column_records(self, tables: Iterable[TableState]) -> dict[str, ColumnRecords]:
        """By table id, column lists, operators' decisions on columns, and former columns, as the ledger has them."""
        tables = [*tables]
        ids = [table.id for table in tables]
        lists, epochs = self.column_lists(ids), self.epochs(ids)
        noted = self._notes(tables, NoteKind.DECIDED, NoteKind.FORMER)
        return {
            id_: ColumnRecords(lists.get(id_, ()), epochs.get(id_, {}), decided(notes), former_columns(notes))
            for id_, notes in ((id_, noted.get(id_, ())) for id_ in ids)
        }

    def gone_columns(self, tables: Iterable[TableState]) -> dict[str, list[ColumnNote]]:
        """By table id, the columns that publishing found to be dropped at the source (G-60)."""
        return self._notes(tables, NoteKind.GONE)

    def unverified_columns(self, tables: Iterable[TableState]) -> dict[str, list[ColumnNote]]:
        """By table id, notes on columns in which rows may differ from the source until a proof compares them.

        Rule G-07.
        """
        noted = self._notes(tables, *UNVERIFIED)
        found = {table: [one for one in notes if not one.verified] for table, notes in noted.items()}
        return {table: notes for table, notes in found.items() if notes}

    def taken_columns(self, tables: Iterable[TableState]) -> dict[str, list[str]]:
        """By table id, the names and patterns that were added to `columns` in the mirror file.

        Rows that were read earlier lack these columns. Columns whose rows a proof has verified since are included.
        """
        found = self._notes(tables, NoteKind.TAKEN)
        return {table: [one.column for one in notes] for table, notes in found.items()}

    def _notes(self, tables: Iterable[TableState], *kinds: NoteKind) -> dict[str, list[ColumnNote]]:
        with self._engine.connect() as db:
            return column_notes(db, {table.id: table.row.generation for table in tables}, *kinds)

    def epochs(self, table_ids: Iterable[str]) -> dict[str, dict[str, int]]:
        """By table id, the number of each stream in the order of the table's streams, by stream name.

        A stream is one enabling of streaming or one Qlik full load.
        """
        with self._engine.connect() as db:
            return EPOCHS.of_each(db, table_ids)

    def rejected(self, table_ids: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
        """By table id, the changes whose values do not fit their types, as rows of ``rejected_change``."""
        c = t.rejected_change.c
        query = sa.select(t.rejected_change).where(c.table_id.in_(list(table_ids)))
        return t.grouped((row.table_id, dict(row._mapping)) for row in self._rows(query))

    def mirror_horizon(self) -> MirrorHorizon | None:
        """The horizon of the mirror, up to which changes are final; None if maintenance has not set a horizon yet."""
        with self._engine.connect() as db:
            return MIRROR_HORIZON.one(db, self._mirror)

    def horizons(self, tables: Iterable[TableState]) -> dict[str, TableHorizon]:
        """By table id, the horizon of the table; only tables whose horizon maintenance has set since the last reset."""
        lives = {table.id: table.row.generation for table in tables}
        with self._engine.connect() as db:
            found = {table: kept[""] for table, kept in TABLE_HORIZON.of_each(db, lives).items()}
        return {table: horizon for table, (generation, horizon) in found.items() if generation == lives[table]}

    def published(self, table_id: str, generation: int, above: int = 0) -> list[PublishedFile]:
        """The published files of a table with numbers above *above*, in order.

        *generation* counts the resets of the table.
        """
        return self.published_above({table_id: (generation, above)}).get(table_id, [])

    def published_above(self, numbers: Mapping[str, tuple[int, int]]) -> dict[str, list[PublishedFile]]:
        """By table id, the table's published files in order.

        *numbers* has, by table id, the generation (number of resets) and a file number; only files with a higher number
        are returned.
        """
        c = t.published_file.c
        found: dict[str, list[PublishedFile]] = {}
        wanted = sa.select(c.table_id, *(c[name] for name in PublishedFile._fields)).order_by(c.table_id, c.number)
        for some in _alike(numbers):
            parts = (c.table_id.in_(ids) & (c.generation == g) & (c.number > n) for (g, n), ids in some.items())
            asked = sa.or_(*parts)
            found |= t.grouped((id_, PublishedFile(*file)) for id_, *file in self._rows(wanted.where(asked)))
        return found

    def publications(self, generations: Mapping[str, int]) -> dict[str, list[Publication]]:
        """By table id, the table's completed publications in order.

        *generations* has the generation (number of resets) by table.
        """
        c = t.publication.c
        found: dict[str, list[Publication]] = {}
        wanted = sa.select(c.table_id, *(c[name] for name in Publication._fields)).order_by(c.table_id, c.version)
        for some in _alike(generations):
            asked = sa.or_(*(c.table_id.in_(ids) & (c.generation == number) for number, ids in some.items()))
            rows = [(id_, Publication(*row)) for id_, *row in self._rows(wanted.where(asked))]
            found |= t.grouped((id_, one._replace(counts=json.loads(str(one.counts)))) for id_, one in rows)
        return found

    def totals(self, tables: Mapping[str, TableState]) -> dict[str, Counter[str]]:
        """By source table, sums over the table's publications since the last reset.

        Each counter has ``publications``, their number, and changes by outcome, such as ``upserts`` and ``duplicates``.
        """
        c, lives = t.publication.c, {table.id: source for source, table in tables.items()}
        query = sa.select(c.table_id, c.counts).join(t.mirrored_table, self._of_life(c)).where(c.table_id.in_(lives))
        found = {source: Counter(publications=0) for source in tables}
        for table_id, counts in self._rows(query) if tables else ():
            found[lives[table_id]].update({**json.loads(counts), "publications": 1})
        return found

    def published_at(self) -> dict[str, datetime]:
        """By table id, when the table's newest publication was confirmed."""
        c, newer = t.publication.c, t.publication.alias().c
        newest = sa.select(sa.func.max(newer.version)).where(
            newer.table_id == t.mirrored_table.c.id, newer.generation == t.mirrored_table.c.generation
        )
        is_newest = self._of_life(c) & (c.version == newest.scalar_subquery())
        query = sa.select(c.table_id, c.confirmed_at).join_from(t.mirrored_table, t.publication, is_newest)
        return dict(self._rows(query.where(t.mirrored_table.c.mirror == self._mirror)))

    @staticmethod
    def _of_life(c: Any) -> sa.ColumnElement[bool]:
        m = t.mirrored_table.c
        return sa.and_(c.table_id == m.id, c.generation == m.generation)

    def newest_numbers(self, confirmed_before: datetime) -> dict[str, int]:
        """By table id, the highest file number that was confirmed before a moment; only tables with such a file."""
        c = t.published_file.c
        ours = (t.mirrored_table.c.mirror == self._mirror) & (c.confirmed_at < confirmed_before)
        query = sa.select(c.table_id, sa.func.max(c.number)).join(t.mirrored_table, self._of_life(c))
        return dict(self._rows(query.where(ours).group_by(c.table_id)))

    def published_bytes(self, since: datetime) -> int:
        """The bytes of all files confirmed since a moment, including files from before a reset of their table."""
        c, m = t.published_file.c, t.mirrored_table.c
        query = sa.select(sa.func.sum(c.size)).join(t.mirrored_table, c.table_id == m.id)
        ours = (m.mirror == self._mirror) & (c.confirmed_at >= since)
        return int(t.first(self._engine, query.where(ours)) or 0)

    def batches(self, above: int = 0) -> list[CommittedBatch]:
        """The committed batches with numbers above *above*, in order."""
        c = t.log_batch.c
        query = sa.select(c.number, c.manifest, c.committed_at).where(c.mirror == self._mirror, c.number > above)
        found = self._rows(query.order_by(c.number))
        return [(number, counts_of(manifest), at) for number, manifest, at in found]

    def batch_times(self) -> list[LoggedBatch]:
        """The times at which each committed batch was bound and committed, in order."""
        c = t.log_batch.c
        query = sa.select(c.number, c.bound_at, c.committed_at).where(c.mirror == self._mirror).order_by(c.number)
        return [LoggedBatch(*row) for row in self._rows(query)]

    def committed_at(self, batches: Collection[int]) -> dict[int, datetime]:
        """The time at which each of these batches was committed."""
        c, wanted = t.log_batch.c, sorted(batches)
        found: dict[int, datetime] = {}
        for start in range(0, len(wanted), _TABLES_PER_QUERY):
            some = c.number.in_(wanted[start : start + _TABLES_PER_QUERY])
            found |= dict(self._rows(sa.select(c.number, c.committed_at).where(c.mirror == self._mirror, some)))
        return found

    def manifests(self) -> dict[int, Manifest]:
        """By number, the manifest of each committed batch."""
        c = t.log_batch.c
        query = sa.select(c.number, c.manifest).where(c.mirror == self._mirror)
        return {number: Manifest.from_json(text) for number, text in self._rows(query.order_by(c.number))}

    def bound(self, up_to: int | None = None) -> dict[str, int]:
        """By source file or partition, the first byte or offset that does not belong to a batch yet.

        With *up_to*, only files and partitions whose last range is in a batch up to this number are included.
        """
        c = t.bound_range.c
        query = sa.select(c.name, c.bound_to).where(c.mirror == self._mirror).order_by(c.name)
        query = query if up_to is None else query.where(c.batch <= up_to)
        return dict(self._rows(query))


@lru_cache(_STATES_KEPT)
def _table_state(row: Any) -> TableState:
    return TableState(
        row.id,
        row.source,
        row.folder,
        tuple(json.loads(row.keys)),
        table_row(row),
        TableSchema.from_json(row.columns),
        GenerationStart(
            row.load_state,
            None if row.load_plan is None else LoadPlan.from_json(row.load_plan),
            row.load_refused,
            row.stream_from,
            row.stream_epoch,
            row.log_from,
            NewestLoad.of(row.newest_load),
            Reason.of(row.reload_accepted),
        ),
        row.stop_what,
        row.waiting_rows or 0,
        ResetRecord.of(row.reset),
        None if row.text_format is None else TextFormat.from_json(row.text_format),
        json.loads(row.key_names or "{}"),
        row.types,
    )


def _contents(row: Any) -> BatchContents:
    return BatchContents(row.batch, row.epoch, row.rows, row.min_pos, row.max_pos, tuple(json.loads(row.files)))


NOTHING = ""
"""Sorts below every position."""
LOADED = position_order(0, "")
"""Sorts below every change, and above the rows of an initial load, which need not wait for complete transactions."""


class Unpublished(NamedTuple):
    """The contents of the batches that a publication reads, and of those that have to wait.

    *arrived* are new batches with something to publish. *released* are batches that were published in part: their other
    changes waited for the end of their transactions, and can be published now. *waiting* are new batches of which every
    change still waits for the end of its transaction. A batch is read entirely or not at all.
    """

    arrived: Sequence[BatchContents]
    released: Sequence[BatchContents] = ()
    waiting: Sequence[BatchContents] = ()


def next_changes(
    reader: LedgerReader, tables: Mapping[str, TableState], committed: int, *, complete_transactions: bool
) -> dict[str, Work]:
    """By source table, the changes to publish next; tables without such changes are left out.

    Needs a few queries for all tables together. With *complete_transactions*, only changes up to the complete position
    are published.
    """
    contents = reader.contents({source: state.row.published_batch for source, state in tables.items()}, committed)
    cut = [s for s in tables.values() if complete_transactions or s.row.published_position is not None]
    epochs = reader.epochs(state.id for state in cut) if cut else {}
    complete = reader.completeness(committed) if complete_transactions else None
    found = {source: Work("changes", committed) for source in contents}
    for state in cut:
        found.pop(state.source, None)
        ordinals = epochs.get(state.id, {})
        start = published_position(reader, state, ordinals)
        end = (complete.position(ordinals) if complete else None) or LOADED if complete_transactions else None
        if end is not None and end < start:
            continue  # the target was ahead before transactions were held back: it waits until they catch up
        work = Work("changes", committed, position_from=start, position_to=end)
        there = unpublished(reader, state, work, contents.get(state.source, ()), ordinals)
        if there.arrived or there.released:
            found[state.source] = work
    return found


def changes_up_to(reader: LedgerReader, state: TableState, work: Work, limit: str) -> Work | None:
    """Limit the next publication of a table to changes up to the position *limit*; None if no change is left.

    *limit* is a position over all streams of the table.
    """
    ordinals = reader.epochs([state.id]).get(state.id, {})
    start = published_position(reader, state, ordinals)
    if limit <= start:
        return None
    part = replace(work, position_from=start, position_to=limit)
    contents = reader.contents({state.source: state.row.published_batch}, work.batch_to).get(state.source, ())
    there = unpublished(reader, state, part, contents, ordinals)
    return part if there.arrived or there.released else None


def published_position(reader: LedgerReader, state: TableState, ordinals: Mapping[str, int]) -> str:
    """The position, over all streams of a table, up to which the target has the changes of the published batches.

    If the ledger has no such position, the highest position in the published batches is returned.
    """
    if state.row.published_position is not None:
        return state.row.published_position
    highest = reader.highest(state.source, state.row.published_batch) if state.row.published_batch else {}
    return max((position_order(ordinals[e], text) for e, text in highest.items() if e in ordinals), default=NOTHING)


def unpublished(
    reader: LedgerReader,
    state: TableState,
    work: Work,
    contents: Sequence[BatchContents],
    ordinals: Mapping[str, int],
) -> Unpublished:
    """Select the batches that a publication reads.

    *contents* are those of the table's batches above its published batch.
    """
    start, end = work.position_from, work.position_to

    def begins_within(part: BatchContents) -> bool:
        # A stream without a place in the order is for the plan to refuse.
        ordinal = ordinals.get(part.epoch)
        return end is None or ordinal is None or position_order(ordinal, part.lowest) <= end

    # Contents of one batch may share their files: it is read entirely or not at all.
    opened = {part.batch for part in contents if begins_within(part)}
    released: list[BatchContents] = []
    if start and (end is None or end > start):
        for part in reader.history(state.source, state.row.published_batch, not_below(start, ordinals)):
            if position_order(ordinals[part.epoch], part.highest) > start and begins_within(part):
                released.append(part)
    return Unpublished(
        [part for part in contents if part.batch in opened],
        released,
        [part for part in contents if part.batch not in opened],
    )


def _alike(asked: Mapping[str, V]) -> Iterator[dict[V, list[str]]]:
    """Tables by what is asked of them, so many in each part as one query may name: most are asked the same."""
    names = sorted(asked, key=lambda name: str(asked[name]))
    for start in range(0, len(names), _TABLES_PER_QUERY):
        part: dict[V, list[str]] = {}
        for name in names[start : start + _TABLES_PER_QUERY]:
            part.setdefault(asked[name], []).append(name)
        yield part
