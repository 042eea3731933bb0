"""Decides the columns of a table's next files, from column lists and decisions in the ledger; no row is read.

This module gathers what is known of each column; :mod:`open_mirroring.changes.column_history` and
:mod:`open_mirroring.protocols.column_verdicts` judge what happened to the columns. If the target table cannot follow a
change of a column, the table stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property, reduce
from itertools import chain

import msgspec

from open_mirroring.changes.column_choice import ALL_COLUMNS, ColumnChoice
from open_mirroring.changes.column_history import (
    BELOW_CHANGES,
    Column,
    ColumnHistory,
    FormerColumn,
    ListOfColumns,
    Structure,
    Word,
    clipped,
    column_history,
    commit_text,
    lists_as_now,
    other_columns,
    renamed_columns,
    spelled_otherwise,
)
from open_mirroring.changes.log_position import is_load_epoch, position_order
from open_mirroring.changes.places_seen import PlacesSeen, joined
from open_mirroring.config import Table
from open_mirroring.errors import TerminalError
from open_mirroring.facts.column_lists import ColumnList
from open_mirroring.landing_zone.schema import (
    LandingColumn,
    TableSchema,
    extra_columns,
    is_exact_number,
    refuse_reserved,
    wider,
)
from open_mirroring.landing_zone.text_format import TextFormat
from open_mirroring.ledger.reading import ColumnRecords, TableState
from open_mirroring.protocols.column_verdicts import (
    ColumnVerdict,
    Fate,
    SourceColumns,
    TypeOfChanges,
    added,
    first_place,
    judge_lives,
    judge_parts,
    judge_returns,
    judge_spelling,
    judge_types,
    judge_unstreamed,
    moved,
    types_of_changes,
)
from open_mirroring.protocols.table_stops import HASH_UNMATCHED, ROW_INCOMPLETE, unhashed_text
from spark_jobs.plan.loaded_columns import LoadedColumn, doubt, is_streamed_for_sure, loaded_columns, may_lack_digits
from spark_jobs.plan.table_plan import PlanStop
from spark_jobs.publish.published_settings import refuse_other_settings
from spark_jobs.sources.sql_server.chosen_types import keeps_key, keeps_spelling, keeps_values, landed_as
from spark_jobs.sources.sql_server.type_text import is_known, landing_type
from spark_jobs.sources.sql_server.types import type_of_landed_key


def landing_of(column: LandingColumn, chosen: ColumnChoice, salted: str | None) -> LandingColumn:
    """Add the target name and the hash setting of the mirror file to a column (G-120, G-121).

    *salted* identifies the salt of the hashes.
    """
    refuse_reserved(column.name)
    hashes = chosen.hashes(column.name)
    if hashes and salted is None:
        raise ValueError(f"the column {column.name!r} is to be hashed, and there is no salt")
    return column._replace(renamed=chosen.new_name_of(column.name), salted=salted if hashes else None)


def source_columns(
    chosen: ColumnChoice, *, renames: bool, asks: bool, structures: Callable[[], Sequence[Structure]]
) -> SourceColumns:
    """The rules for one table's columns, by the source format, the mirror file and the announced *structures*."""

    @cache
    def announced() -> Sequence[ListOfColumns]:
        return [
            ListOfColumns(
                {
                    name.casefold(): _column(name, kind, one.places.get(name), chosen)
                    for name, kind in one.types.items()
                },
                BELOW_CHANGES,
            )
            for one in structures()
        ]

    return SourceColumns(renames, asks, not chosen.is_all, announced)


class TableColumns:
    """The columns of one table, from the column lists of its changes (*records*) and operators' decisions.

    *source* are the rules of source and mirror file. *lists_all* is whether changes have every loaded column, because
    one Qlik task sent the loaded rows and the changes. Only rows with positions *up_to* the given one count. *salted*
    identifies the salt of hashes (G-121).
    """

    def __init__(
        self,
        state: TableState,
        declared: Table,
        records: ColumnRecords,
        source: SourceColumns,
        *,
        lists_all: bool = False,
        up_to: str | None = None,
        salted: str | None = None,
    ) -> None:
        self._state, self._declared, self._records, self._source = state, declared, records, source
        self._lists_all, self._salted = lists_all, salted
        self._load = loaded_columns(state.start.load_plan, state.keys)
        places = {name: at for at, name in enumerate(self._load)}
        # A load's text may be of any type of the source.
        self._loaded = {
            name: Column("", self._load[name].column.type, places[name]) for name in declared.chosen.of(self._load)
        }
        self._logged = self._lists(up_to)
        # How a table that begins reads its rows is noted once: rows behind the place count, too.
        self._known = self._lists(None) if state.is_beginning else self._logged
        self.spellings = spelled_otherwise(self._known, self._spelled, state.keys)
        """Columns that differ from those of the table's files in case only."""
        self._same_case = lists_as_now(self._logged, self.spellings)

    @cached_property
    def former(self) -> Sequence[FormerColumn]:
        """How columns of earlier rows are read (G-66).

        The ledger records this with the first publication; before the first publication, the logged rows show it.
        """
        state = self._state
        if not state.is_beginning or state.start.load_state != "none" or self._declared.complete_rows:
            return self._records.former
        keys, known = {*self._declared.key}, lists_as_now(self._known, self.spellings)
        history = self._history(_of_changes(known))
        renamed = renamed_columns(_of_changes(known), history, self._decided)
        renamed = [one for one in renamed if not keys & {one.column, one.now}]
        # A column that was dropped under its new name is not there under its old one either.
        now = self._history(_of_changes(lists_as_now(known, renamed))) if renamed else history
        return [*renamed, *(one for one in other_columns(now) if one.column not in keys)]

    @cached_property
    def history(self) -> ColumnHistory:
        """Which columns were dropped or were added again, under their present names."""
        return self._history(self._changes) if self.former else self._logged_history

    @cached_property
    def _logged_history(self) -> ColumnHistory:
        """Which columns were dropped or were added again, under the names with which rows were logged."""
        return self._history(_of_changes(self._same_case))

    @property
    def unverified(self) -> dict[str, str]:
        """Columns that may differ from the source in rows that did not change since a position, with this position."""
        retyped = {name: one for one in self._retyped for name in one.columns}
        verdicts = {**moved(_of_changes(self._same_case), self._state.keys), **retyped, **self._added}
        # Without the number of the epoch.
        return {name: (verdict.at or "").partition(":")[2] for name, verdict in verdicts.items()}

    def schema(self, *, reload_on_add: bool) -> tuple[TableSchema, dict[str, str]]:
        """The union of all columns, and each column's newest source type; raises PlanStop if the table must stop."""
        refuse_other_settings(self._state, self._declared, self._salted)
        schema = self._union()
        types = self._types(schema)
        for verdict in self._stops(schema, reload_on_add=reload_on_add):
            raise PlanStop(verdict.code, verdict.what, verdict.at)
        if self._state.text is not None:
            return _columns_of_text(schema, self._state.text, self._declared, self._salted), types
        missing = [key for key in self._state.keys if key not in {column.name for column in schema.columns}]
        # No column at all is known while only deletes were seen: the target has no row that they could remove.
        if missing and schema.columns:
            raise PlanStop("KEY_INVALID", f"no change contains the key columns {missing}")
        return schema, types

    def _union(self) -> TableSchema:
        """The columns of all lists, each as wide as its widest type."""
        chosen, schema = self._declared.chosen, self._state.columns
        at: str | None = None
        try:
            for one in self._read:
                at = one.seen.first or None
                columns = [LandingColumn(name, _landed(name, c.sql_type, chosen)) for name, c in one.columns.items()]
                schema = schema.extended(landing_of(column, chosen, self._salted) for column in columns)
            # Behind all known columns of the source; of a table without any, nothing is published.
            at = None
            return schema.extended(extra_columns(chosen.extra)) if schema.columns else schema
        except TerminalError as error:
            raise PlanStop(error.code, error.what, at) from error

    def _stops(self, schema: TableSchema, *, reload_on_add: bool) -> Iterator[ColumnVerdict]:
        """Yield the verdicts that stop the table."""
        declared = self._declared
        yield from self._widened(schema)
        yield from (one for one in self._retyped if one.code)
        if declared.complete_rows:
            if self._logged and not any(one.whole for one in self._logged):
                what = "no row is known to contain all columns yet, so it is unknown which columns updates lack"
                yield ColumnVerdict(Fate.RELOAD, (), None, ROW_INCOMPLETE, what)
        elif not declared.full_rows:
            names = [column.name for column in schema.columns if not column.content]
            names += declared.chosen.absent(names)
            # What proves that a column is gone may lie above the end.
            beyond = lists_as_now(lists_as_now(self._lists(None), self.spellings), self.former)
            history = self._history(_of_changes(beyond))
            yield from judge_parts(self._read, history, names, self.former, is_all=declared.chosen.is_all)
        yield from self._unhashed()
        yield from judge_unstreamed(self._changes, self.history, self._loaded)
        yield from judge_spelling(_of_changes(self._known), self.spellings)
        yield from judge_lives(self._changes, self.history, self._decided, self._source)
        logged = _of_changes(self._same_case)
        of_logged, is_noted = self._logged_history, self.former is self._records.former
        yield from judge_returns(logged, of_logged, self._decided, self._source, self.former, is_noted=is_noted)
        published = {column.name for column in self._state.columns.columns}
        new = {name: verdict.at or "" for name, verdict in self._added.items() if name not in published}
        if reload_on_add and new:
            column, at = next(iter(new.items()))
            more = f", and {len(new) - 1} more" if len(new) > 1 else ""
            what = f"column {column!r} was added at {commit_text(at)}{more}"
            yield ColumnVerdict(Fate.ADD, (*new,), first_place(new, self._changes), "COLUMN_ADDED", what)

    def _widened(self, schema: TableSchema) -> Iterator[ColumnVerdict]:
        """Yield published columns that are too narrow for new values: the target cannot change a type (F-87)."""
        union = {column.name: column.type for column in schema.columns}
        for name, kind, *_ in self._state.columns.columns:
            if union[name] != kind:
                with_it = [one for one in self._read if name in one.columns]
                since = min(one.seen.first for one in with_it if wider(kind, one.columns[name].lands) != kind)
                what = f"column {name!r} changed its type from {kind} to {union[name]}"
                yield ColumnVerdict(Fate.WIDEN, (name,), since or None, "SCHEMA_CHANGED", what)

    @cached_property
    def _retyped(self) -> list[ColumnVerdict]:
        types = types_of_changes(self._changes)
        found = [self._loaded_otherwise(name, one, types[name]) for name, one in self._load.items() if name in types]
        return [*chain.from_iterable(found), *judge_types(types, self._state.keys, self._keeps)]

    def _loaded_otherwise(
        self, name: str, loaded: LoadedColumn, types: Mapping[str, TypeOfChanges]
    ) -> Iterator[ColumnVerdict]:
        """Judge whether loaded values may mean something else than those in changes (G-65, G-86, G-114)."""
        kind, lands = loaded.column.type, sorted({one.lands for one in types.values()})
        if kind not in lands and not all(map(is_exact_number, (kind, *lands))):
            what = f"the initial load contained column {name!r} as {kind}, but changes contain it as {lands}"
            since = min(one.first for one in types.values())
            yield ColumnVerdict(Fate.RELOAD, (name,), since, "SCHEMA_CHANGED", what)
        for sql_type, one in types.items():
            if what := doubt(loaded, sql_type):
                yield ColumnVerdict(Fate.RELOAD, (name,), one.first, "VALUE_INVALID", what)
            elif may_lack_digits(loaded.column, sql_type):
                yield ColumnVerdict(Fate.SAME, (name,), one.first)

    def _keeps(self, name: str, old: str, new: str) -> bool:
        """Whether a type change keeps all values; for keys and columns made text, also how they are written."""
        if is_known(old) and landing_type(old) != "string" == _landed_or_own(name, old, self._declared.chosen):
            return keeps_spelling(old, new)
        return keeps_key(old, new) if name in self._state.keys else keeps_values(old, new)

    @cached_property
    def _added(self) -> dict[str, ColumnVerdict]:
        return added(self._read, self._loaded, completes=bool(self._declared.complete_rows))

    def _unhashed(self) -> Iterator[ColumnVerdict]:
        """Yield names under `hash` that match no column: the real column would be published in clear (G-122).

        It is checked after the rows are proved complete, so that all of their columns are known.
        """
        known = {name for one in self._records.lists for name in one.names}
        known |= {*self._load, *(column.name for column in self._state.columns.columns)}
        if known and (lost := self._declared.unhashed(known)):
            yield ColumnVerdict(Fate.RELOAD, tuple(lost), None, HASH_UNMATCHED, unhashed_text(lost))

    def _types(self, schema: TableSchema) -> dict[str, str]:
        """Each column's newest source type; for a key column the newest that fits all its values (G-02)."""
        types = {name: column.sql_type for one in self._read for name, column in one.columns.items()}
        lands = {column.name: column.type for column in schema.columns}
        for name in self._state.keys:
            of_key = [one.columns[name] for one in self._read if name in one.columns]
            if of_key and of_key[-1].lands != lands.get(name):
                fitting = [column.sql_type for column in of_key if column.lands == lands.get(name)]
                types[name] = fitting[-1] if fitting else type_of_landed_key(lands[name])
        return types

    def _history(self, changes: Sequence[ListOfColumns]) -> ColumnHistory:
        missing = self._loaded.keys() - {name for one in changes for name in one.columns}
        proved = any(one.seen.whole_last for one in changes)
        return column_history(
            changes,
            self._decided,
            loaded=[ListOfColumns(self._loaded, BELOW_CHANGES)] if self._loaded else [],
            carried=[name for name in missing if proved and self._is_carried(name)],
            renames=self._source.renames,
        )

    def _is_carried(self, name: str) -> bool:
        """Whether changes certainly contain a loaded column as long as the source has it (C-77)."""
        by_type = not self._source.renames and is_streamed_for_sure(self._load[name].column)
        return self._lists_all or by_type or any(name.casefold() in one.columns for one in self._source.structures())

    @cached_property
    def _decided(self) -> list[Word]:
        """The decisions of operators, with columns spelled as at the target."""
        spelled = {one.column: one.now or one.column for one in self.spellings}
        return [
            Word(spelled.get(column, column), up_to, now and spelled.get(now, now))
            for column, up_to, now in self._records.decided
        ]

    @cached_property
    def _read(self) -> list[ListOfColumns]:
        """The column lists under the present names."""
        return lists_as_now(self._same_case, self.former)

    @cached_property
    def _changes(self) -> list[ListOfColumns]:
        return _of_changes(self._read)

    @property
    def _spelled(self) -> dict[str, str]:
        """The spelling of each column by its folded name: as published, or for a new table the newest."""
        spelled: dict[str, str] = {}
        if self._state.start.load_state == "none":
            for one in sorted(_of_changes(self._known), key=lambda one: one.seen.last):
                spelled |= {name.casefold(): name for name in one.columns}
        return spelled | {column.name.casefold(): column.name for column in self._state.columns.columns}

    def _lists(self, up_to: str | None) -> list[ListOfColumns]:
        """The column lists of rows up to a position, as logged; loaded rows are below every change."""
        chosen, found = self._declared.chosen, list[ListOfColumns]()
        for one in self._records.lists:
            seen = self._seen(one, up_to)
            if seen is None and any(map(is_load_epoch, one.seen)):
                seen = BELOW_CHANGES
            if seen is not None:
                listed = {name: (sql_type, place) for name, sql_type, place in msgspec.json.decode(one.cols)}
                columns = {name: _column(name, *listed[name], chosen) for name in chosen.of(listed)}
                found.append(ListOfColumns(columns, seen, one.whole))
        return found

    def _seen(self, one: ColumnList, up_to: str | None) -> PlacesSeen | None:
        """The positions of changes with this column list, up to *up_to*; None if there are none."""
        epochs = self._records.epochs
        # A stream that no one accepted yet stops the table by itself.
        beyond = max(epochs.values(), default=-1) + 1
        places = []
        for epoch, seen in one.seen.items():
            if not is_load_epoch(epoch):
                places.append(PlacesSeen(*(text and position_order(epochs.get(epoch, beyond), text) for text in seen)))
        if up_to is not None:
            places = [clipped(place, up_to) for place in places if place.first <= up_to]
        if not places:
            return None
        together = reduce(joined, places)
        return PlacesSeen(*together[:2], *together[:2]) if self._declared.full_rows else together


def _of_changes(lists: Sequence[ListOfColumns]) -> list[ListOfColumns]:
    return [one for one in lists if one.seen != BELOW_CHANGES]


def _column(name: str, sql_type: str, place: int | None, chosen: ColumnChoice) -> Column:
    lands, own = (_landed_or_own(name, sql_type, one) for one in (chosen, ALL_COLUMNS))
    return Column(sql_type, lands, place, "" if own == lands else own)


def _landed(name: str, sql_type: str, chosen: ColumnChoice) -> str:
    """A column's type at the target, by its source or the mirror file (G-110); raises ``TYPE_UNSUPPORTED``."""
    try:
        return landed_as(sql_type, chosen.type_of(name))
    except TerminalError as error:
        raise TerminalError(error.code, f"column {name!r}: {error.what}", next_step=error.next_step) from error


def _landed_or_own(name: str, sql_type: str, chosen: ColumnChoice) -> str:
    """The same as :func:`_landed`; a type that cannot be mirrored is returned unchanged."""
    try:
        return landed_as(sql_type, chosen.type_of(name))
    except TerminalError:
        return sql_type


def _columns_of_text(schema: TableSchema, text: TextFormat, declared: Table, salted: str | None) -> TableSchema:
    """The columns declared for delimited text, which a table never changes (F-23, F-90)."""
    listed = () if declared.delimited_text is None else declared.delimited_text.columns
    at_source = {declared.chosen.landed_name(name): name for name in listed}
    extra = {column.landed_name: column for column in extra_columns(declared.chosen.extra)}
    columns = tuple(
        extra.get(name) or landing_of(LandingColumn(at_source.get(name, name), kind), declared.chosen, salted)
        for name, kind in text.columns
    )
    other = [f"{column.name!r} {column.type}" for column in schema.columns if column not in columns]
    if other:
        raise PlanStop(
            "SCHEMA_CHANGED",
            f"delimited text contains the declared columns only, and rows carry {', '.join(other[:5])}: declare "
            "them, list `columns` without them, or, for decimals, leave `delimited_text` out",
        )
    return TableSchema(columns)
