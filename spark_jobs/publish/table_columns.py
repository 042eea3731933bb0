"""Decides the columns of a table's next files, from the ledger's column lists alone; no row is read.

:mod:`open_mirroring.changes.column_history` judges which columns are new, gone, back or renamed. A change that the
target cannot follow stops the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, permutations
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.changes.column_history import (
    ColumnHistory,
    Dropped,
    FormerColumn,
    Gone,
    ListOfColumns,
    Seen,
    Structure,
    clipped,
    column_history,
    divided,
    moved_behind,
    names_before_return,
    names_by_structures,
    other_columns,
    place_text,
    renamed_columns,
)
from open_mirroring.changes.log_position import is_load_epoch, position_order
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
from open_mirroring.ledger.reading import ColumnDecision, TableState
from open_mirroring.protocols.table_stops import HASH_UNMATCHED, PARTIAL_ROWS, ROW_INCOMPLETE, unhashed_text
from spark_jobs.plan.loaded_columns import doubt, is_streamed_for_sure, loaded_columns, may_lack_digits
from spark_jobs.plan.table_plan import PlanStop
from spark_jobs.sources.sql_server.chosen_types import keeps_spelling, landed_as
from spark_jobs.sources.sql_server.type_changes import keeps_key, keeps_values
from spark_jobs.sources.sql_server.types import landing_type, type_of_landed_key

_EVERYWHERE = "~"
"""Above every place."""
_BELOW = Seen("", "")
"""Below every change."""


class SourceColumns(NamedTuple):
    """What a source and its mirror file say of the columns of one table.

    Attributes:
        renames: whether the source can rename a column while its changes are read.
        asks: whether an operator is asked for columns that may have been renamed; else they count as dropped.
        lists_all: whether changes carry every column that the initial load contains, as both come from one task.
        structures: looks up the structures that the source announced, in the order in which they held.
    """

    renames: bool = True
    asks: bool = True
    lists_all: bool = False
    structures: Callable[[], Sequence[Structure]] = tuple


def landing_of(column: LandingColumn, chosen: ColumnChoice, salted: str | None) -> LandingColumn:
    """A column of the source with what the mirror file says of its name at the target, and of hashes (G-120, G-121).

    Raises:
        TerminalError: ``COLUMN_NAME_INVALID``.
    """
    refuse_reserved(column.name)
    hashes = chosen.hashes(column.name)
    if hashes and salted is None:
        raise ValueError(f"the column {column.name!r} is to be hashed, and there is no salt")
    return column._replace(renamed=chosen.new_name_of(column.name), salted=salted if hashes else None)


class _Part(NamedTuple):
    """A column list, or what is left of it where rows are read otherwise than they were logged.

    *types* has each column's type at the source, *seen* is None where only loaded rows have it. *places* are those of
    the columns in the table.
    """

    types: Mapping[str, str]
    seen: Seen | None
    places: Mapping[str, int] = MappingProxyType({})


class TableColumns:
    """The columns of one table, as its column lists and the decisions of operators give them.

    Args:
        state: the table.
        declared: as the mirror file has it.
        lists: its column lists, in the order of their first position.
        epochs: the ordinal of every stream incarnation.
        decided: what operators said of its columns.
        former: how columns of earlier rows are read in this generation, as its first publication noted it.
        source: what the source and the mirror file say of its columns.
        up_to: only what stands up to this place is looked at; None: all.
        salted: what tells the salt of hashes from another one (G-121); None where nothing is hashed.
    """

    def __init__(
        self,
        state: TableState,
        declared: Table,
        lists: Sequence[ColumnList],
        epochs: Mapping[str, int],
        decided: Sequence[ColumnDecision] = (),
        former: Sequence[FormerColumn] = (),
        *,
        source: SourceColumns,
        up_to: str | None = None,
        salted: str | None = None,
    ) -> None:
        self._state, self._declared, self._up_to = state, declared, up_to
        self._beyond: TableColumns | None = None
        if up_to is not None:
            self._beyond = TableColumns(state, declared, lists, epochs, decided, former, source=source)
        self._epochs, self._given, self._source = epochs, decided, source
        self._noted, self._salted = former, salted
        self._ever = [one.cols for one in lists]
        # What only loaded rows have stands below every change.
        below = state.columns_above is None
        self._lists = [one for one in lists if self._seen(one) or (below and any(map(is_load_epoch, one.seen)))]
        self._load = loaded_columns(state.load_plan, state.keys)
        self._loaded = declared.chosen.of(self._load)

    @cached_property
    def history(self) -> ColumnHistory:
        """What became of the columns that changes carried.

        Raises:
            PlanStop: ``TYPE_UNSUPPORTED``.
        """
        return self._history(self._placed)

    @cached_property
    def _history_beyond(self) -> ColumnHistory:
        """As *history*, from all rows, also those above *up_to*: what proves something may stand anywhere."""
        try:
            return self.history if self._beyond is None else self._beyond.history
        except PlanStop:  # for what lies beyond the end
            return self.history

    @cached_property
    def former(self) -> Sequence[FormerColumn]:
        """How columns of earlier rows are read: as noted, or, where nothing is published yet, as the log tells (G-66).

        Raises:
            PlanStop: ``TYPE_UNSUPPORTED``.
        """
        state = self._state
        if not state.is_beginning or state.load_state != "none" or self._declared.complete_rows:
            return self._noted
        keys = {*self._declared.key}
        said = [FormerColumn(one.column, one.up_to, one.renamed_to) for one in self._decided]
        placed = self._placed_parts(self._spelled)
        renamed = renamed_columns(placed, self._history(placed), said)
        renamed = [one for one in renamed if not keys & {one.column, one.now}]
        # A column that was dropped under its new name is not there under its old one either.
        now = self._history(self._placed_parts(_read_as(self._spelled, renamed)))
        return [*renamed, *(one for one in other_columns(now) if one.column not in keys)]

    def _history(self, placed: Sequence[ListOfColumns]) -> ColumnHistory:
        loaded = self._loaded_lists
        missing = {name for one in loaded for name in one.types} - {name for one in placed for name in one.types}
        if not any(one.seen.whole_last for one in placed):
            missing = set()  # no row proves that changes lack them
        return column_history(
            placed,
            [Dropped(one.column, one.up_to) for one in self._decided],
            loaded=loaded,
            carried=[name for name in missing if self._is_carried(name)],
            renames=self._source.renames,
        )

    @cached_property
    def _loaded_lists(self) -> list[ListOfColumns]:
        """The columns of the initial load, if there is one; its texts may be of any type of the source."""
        kinds = {name: self._load[name].column.type for name in self._loaded}
        places = {name: at for at, name in enumerate(self._load)}
        return [ListOfColumns(kinds, _BELOW, places)] if kinds else []

    def _is_carried(self, name: str) -> bool:
        """Whether changes carry a loaded column for sure as long as the source has it (C-77)."""
        by_type = not self._source.renames and is_streamed_for_sure(self._load[name].column)
        return self._source.lists_all or by_type or any(name.casefold() in one.types for one in self._structures)

    @cached_property
    def _structures(self) -> Sequence[Structure]:
        """The announced structures, with names in folded case and with types as lists have them."""
        found = []
        for one in self._source.structures():
            types = {name.casefold(): self._kind(name, sql_type) for name, sql_type in one.types.items()}
            found.append(Structure(types, {name.casefold(): at for name, at in one.places.items()}))
        return found

    def _kind(self, name: str, sql_type: str) -> str:
        """A type by which a renamed column is known again; texts also have that of the source."""
        try:
            lands = self._lands(name, sql_type)
        except TerminalError:
            lands = sql_type
        return f"string {sql_type.partition('(')[0].strip()}" if lands == "string" else lands

    @cached_property
    def _placed(self) -> list[ListOfColumns]:
        return self._placed_parts(self._parts)

    @cached_property
    def _logged(self) -> list[_Part]:
        """The lists as they were logged."""
        found = []
        for one in self._lists:
            types = {name: sql_type for name, sql_type, _ in msgspec.json.decode(one.cols)}
            places = {name: at for name, _, at in msgspec.json.decode(one.cols)}
            part = _Part({name: types[name] for name in self._declared.chosen.of(types)}, self._seen(one), places)
            try:
                for name, sql_type in part.types.items():
                    self._lands(name, sql_type)
            except TerminalError as error:
                at = None if part.seen is None else part.seen.first
                raise PlanStop(error.code, error.what, at) from error
            found.append(part)
        return found

    def _lands(self, name: str, sql_type: str) -> str:
        """What a column lands as: its source's type, or what the mirror file says (G-110).

        Raises:
            TerminalError: ``TYPE_UNSUPPORTED``.
        """
        try:
            return landed_as(sql_type, self._declared.chosen.type_of(name))
        except TerminalError as error:
            raise TerminalError(error.code, f"column {name!r}: {error.what}", way_out=error.way_out) from error

    @cached_property
    def spellings(self) -> Sequence[FormerColumn]:
        """Columns that are spelled otherwise than in the table's files, in case only: they are the same (G-67).

        What is published stays; a table that begins takes the newest spelling. No list that has both spellings is read
        so: then they are two columns, which the target cannot tell apart.
        """
        spelled = dict(self._newest_spelling) if self._state.load_state == "none" else dict[str, str]()
        spelled |= {column.name.casefold(): column.name for column in self._state.columns.columns}
        keys, found = {*self._state.keys}, list[FormerColumn]()
        together = [{*part.types} for part in self._logged]
        for name in dict.fromkeys(name for part in self._logged for name in part.types):
            first = spelled.setdefault(name.casefold(), name)
            if first != name and name not in keys and not any({first, name} <= names for names in together):
                found.append(FormerColumn(name, _EVERYWHERE, first))
        return found

    @cached_property
    def _newest_spelling(self) -> dict[str, str]:
        placed = sorted((part.seen.last, at) for at, part in enumerate(self._logged) if part.seen is not None)
        return {name.casefold(): name for _, at in placed for name in self._logged[at].types}

    @cached_property
    def _decided(self) -> list[ColumnDecision]:
        """What operators said, in the target's spelling."""
        spelled = self._spelling
        return [
            one._replace(
                column=spelled.get(one.column) or one.column,
                renamed_to=spelled.get(one.renamed_to or "") or one.renamed_to,
            )
            for one in self._given
        ]

    @cached_property
    def _spelling(self) -> dict[str, str | None]:
        return {one.column: one.now for one in self.spellings}

    @cached_property
    def _spelled(self) -> list[_Part]:
        return _read_as(self._logged, self.spellings)

    @cached_property
    def _parts(self) -> list[_Part]:
        """The lists as they are read."""
        return _read_as(self._spelled, self.former)

    def _seen(self, one: ColumnList) -> Seen | None:
        """Where rows of changes with this list stand, as far as they are looked at; None where there are none.

        What stands below every row that lives is not looked at: no row has those columns any more (G-106).
        """
        beyond = max(self._epochs.values(), default=-1) + 1
        places = []
        for epoch, seen in one.seen.items():
            if is_load_epoch(epoch):
                continue
            # A stream that nobody accepted yet stops the table by itself.
            ordinal = self._epochs.get(epoch, beyond)
            places.append(Seen(*(text and position_order(ordinal, text) for text in seen)))
        if not one.seen:
            first = position_order(0, one.first_pos)
            places.append(Seen(first, first, *((first, first) if one.whole else ())))
        if self._up_to is not None:
            places = [clipped(place, self._up_to) for place in places if place.first <= self._up_to]
        begin = self._state.columns_above
        if begin is not None and one.seen:
            # Of a list without places only the place of its first row is known.
            above = [divided(place, begin)[1] for place in places]
            places = [place for place in above if place is not None]
        if not places:
            return None
        first, last = min(seen.first for seen in places), max(seen.last for seen in places)
        if self._declared.full_rows:
            return Seen(first, last, first, last)
        whole = [seen for seen in places if seen.whole_last]
        if not whole:
            return Seen(first, last)
        return Seen(first, last, min(seen.whole_first for seen in whole), max(seen.whole_last for seen in whole))

    def schema(self, *, reload_on_add: bool) -> tuple[TableSchema, dict[str, str]]:
        """The union of all columns, and each one's newest source type.

        Raises:
            PlanStop: ``SCHEMA_CHANGED``, ``COLUMN_NOT_STREAMED``, ``COLUMN_ADDED``, ``COLUMN_NAME_INVALID``,
                ``COLUMN_RENAMED``, ``RENAME_POSSIBLE``, ``TYPE_UNSUPPORTED``,
                ``PARTIAL_ROWS``, ``ROW_INCOMPLETE``, ``HASH_UNMATCHED``, ``VALUE_INVALID``.
        """
        state, declared = self._state, self._declared
        schema, published = state.columns, {column.name for column in state.columns.columns}
        extra = extra_columns(declared.chosen.extra)
        refuse_other_settings(state, declared, self._salted)
        at: str | None = None
        try:
            for part in self._parts:
                at = None if part.seen is None else part.seen.first
                columns = [self._column(name, sql_type) for name, sql_type in part.types.items()]
                schema = schema.extended(columns, published)
            # Behind all columns of the source that are known; of a table without any, nothing is published.
            at, schema = None, schema.extended(extra) if schema.columns else schema
        except TerminalError as error:
            raise PlanStop(error.code, error.what, at) from error
        self._refuse_converted()
        types = self._types(schema)
        if declared.complete_rows:
            _refuse_unknown_columns(self._lists)
        elif not declared.full_rows:
            self._refuse_partial_rows(schema)
        self._refuse_unhashed()
        self._refuse_never_streamed()
        self._refuse_other_loaded_values()
        self._refuse_doubtful()
        if reload_on_add:
            self._refuse_added({name: at for name, at in self.appeared.items() if name not in published})
        if state.text is not None:
            return _columns_of_text(schema, state.text, declared, self._salted), types
        return _keys_first_known(schema, state.keys), types

    def _column(self, name: str, sql_type: str) -> LandingColumn:
        chosen = self._declared.chosen
        return landing_of(LandingColumn(name, self._lands(name, sql_type)), chosen, self._salted)

    @cached_property
    def appeared(self) -> dict[str, str]:
        """The columns that came after some row, each with the first position that has it (G-07).

        A list that may be only a part of its row does not show what the row lacks. Where rows are completed, that is
        every list that no row proved to be whole.
        """
        known, has_rows, found = set(self._loaded), bool(self._loaded), dict[str, str]()
        for one in self._lists:
            names = [name for name, _, _ in msgspec.json.decode(one.cols)]
            listed = {*self._declared.chosen.of(names), *self._declared.key} & {*names}
            carried = {self._spelling.get(name) or name for name in listed}
            if has_rows:
                found |= {name: one.first_pos for name in sorted(carried - known)}
            known |= carried
            has_rows = has_rows or one.whole or not self._declared.complete_rows
        for former in self.former:
            firsts = [one.seen.first for one in self._placed if former.column in one.types]
            if former.now is None and firsts:
                found[former.column] = _position(min(firsts))
        return found

    @cached_property
    def converted(self) -> dict[str, str]:
        """The columns of which the source may have changed the values with their type, and since which position.

        The target takes the type as it is; rows that did not change since may have another value at the source. So may
        those of a load whose times had fewer digits than the source's (G-114).
        """
        coarse = {
            name: since
            for name, loaded in self._load.items()
            for sql_type, since in self._changed_types(name).items()
            if may_lack_digits(loaded.column, sql_type)
        }
        changed = {name: since for name, (_, _, since) in self._conversions().items()}
        return {name: _position(since) for name, since in {**coarse, **changed}.items()}

    @cached_property
    def moved(self) -> dict[str, str]:
        """The columns that were dropped and added again between two rows, as their places say, since which position.

        Rows that did not change since lost what they had, and no change says so. Lists that alternate say nothing.
        """
        placed = [(seen, one) for one in self._lists if one.whole and (seen := self._seen(one)) is not None]
        placed.sort(key=lambda at: at[0].first)
        found: dict[str, str] = {}
        for (before, one), (after, other) in pairwise(placed):
            if before.last < after.first:
                moved = moved_behind(_in_order(one.cols), _in_order(other.cols))
                found |= {name: _position(after.first) for name in moved if name not in self._state.keys}
        return {self._spelling.get(name) or name: since for name, since in found.items()}

    def _conversions(self, *, landing: bool = False) -> dict[str, tuple[str, str, str]]:
        """Changes of type that may have changed values, or the spelling of keys: from, to, since.

        With *landing* those that land as another type, or concern a key; else all others.
        """
        found: dict[str, tuple[str, str, str]] = {}
        by_column: dict[str, dict[str, Seen]] = {}
        for part in self._parts:
            for name, sql_type in part.types.items() if part.seen is not None else ():
                assert part.seen is not None
                seen = by_column.setdefault(name, {}).setdefault(sql_type, part.seen)
                first, last = min(seen.first, part.seen.first), max(seen.last, part.seen.last)
                by_column[name][sql_type] = Seen(first, last)
        for name, kinds in by_column.items():
            is_key = name in self._state.keys
            for (old, one), (new, other) in permutations(kinds.items(), 2):
                lands = self._lands(name, old)
                stops = is_key or lands != self._lands(name, new)
                keeps = keeps_key(old, new) if is_key else keeps_values(old, new)
                if lands == "string" != landing_type(old):
                    keeps = keeps_spelling(old, new)
                # Late rows have the old type: only where rows of it come first did it change to the new one.
                if stops is landing and not keeps and one.first < other.last:
                    found[name] = old, new, max(one.first, other.first)
        return found

    def _refuse_converted(self) -> None:
        """Stop where rows that no change tells of have values of another type (G-65)."""
        for name, loaded in ((name, one.column.type) for name, one in self._load.items()):
            changed = {self._lands(name, part.types[name]) for part in self._parts if part.seen and name in part.types}
            if changed and loaded not in changed and not all(map(is_exact_number, (loaded, *changed))):
                raise PlanStop(
                    "SCHEMA_CHANGED",
                    f"the initial load brought column {name!r} as {loaded}, and changes carry it as {sorted(changed)}",
                    self._begin([name]),
                )
        for name, (old, new, since) in self._conversions(landing=True).items():
            raise PlanStop(
                "SCHEMA_CHANGED",
                f"column {name!r} changed its type from {old} to {new} at position {place_text(since)}, which may have "
                "changed the values of rows that no change tells of",
                since,
            )

    def _types(self, schema: TableSchema) -> dict[str, str]:
        """Each column's newest source type; of a key the newest that all its values have (G-02)."""
        types: dict[str, str] = {}
        for part in self._parts:
            types |= part.types
        lands = {column.name: column.type for column in schema.columns}
        for name in self._state.keys:
            if name in types and self._lands(name, types[name]) != lands.get(name):
                wide = [part.types[name] for part in self._parts if name in part.types]
                fitting = [sql_type for sql_type in wide if self._lands(name, sql_type) == lands.get(name)]
                types[name] = fitting[-1] if fitting else type_of_landed_key(lands[name])
        return types

    def _refuse_partial_rows(self, schema: TableSchema) -> None:
        """Stop at updates that may carry only what changed (C-44, C-70): a full row is needed (F-55).

        A list is whole if a row proved it. Without proof it must lack no column that is known, nor (unless the mirror
        file selects columns) a place in the table. A column that is gone counts no more behind its last row.
        """
        names = [column.name for column in schema.columns if not column.tells]
        names += self._declared.chosen.absent(names)
        history = self._history_beyond
        for found in self._lists:
            columns, seen = msgspec.json.decode(found.cols), self._seen(found)
            carried = {self._spelling.get(name, name) for name, _, _ in columns}
            gone = {name for name in history.gone if seen is not None and history.lacks(name, seen.first)}
            if seen is not None:
                gone |= {
                    name for one in self.former if seen.first <= one.up_to for name in (one.column, one.now) if name
                }
            absent = [name for name in names if name not in carried and name not in gone]
            places = sorted(index for _, _, index in columns)
            has_gap = self._declared.chosen.is_all and not gone and places != list(range(len(columns)))
            if (absent or has_gap) and not found.whole:
                lacking = f"without {absent[:5]}" if absent else "with gaps between their places in the table"
                raise PlanStop(
                    PARTIAL_ROWS,
                    f"updates carry {len(carried)} of {max(len(names), len(carried))} known columns, {lacking}; set "
                    "@include_all_columns = 1 at the source, or `full_rows: true` if these updates do carry whole rows",
                )

    def _refuse_unhashed(self) -> None:
        """Stop where `hash` names what never was a column: one that is spelled otherwise would land in clear (G-122).

        It comes behind the proof that the rows are whole, so that no column of theirs is unknown.
        """
        known = {name for cols in self._ever for name, _, _ in msgspec.json.decode(cols)}
        known |= {*self._load, *(column.name for column in self._state.columns.columns)}
        if known and (lost := self._declared.unhashed(known)):
            raise PlanStop(HASH_UNMATCHED, unhashed_text(lost))

    def _refuse_never_streamed(self) -> None:
        """Stop where the load brought a column that no change carries: changed rows would lose its value (C-77)."""
        never = {*self._loaded} - {*self.history.gone, *(name for one in self._placed for name in one.types)}
        proofs = [one.seen.whole_first for one in self._placed if one.seen.whole_first]
        if never and proofs:
            raise PlanStop(
                "COLUMN_NOT_STREAMED",
                f"the initial load contains {named_columns(never)}, but changes do not: changed rows would lose the "
                "loaded values",
                min(proofs),
            )

    def _refuse_other_loaded_values(self) -> None:
        """Stop where the load may have brought other values than the source's, by the types of changes (G-86, G-114).

        As a key such a value is another one than the stream's: the loaded row would stay beside the changed one.
        """
        for name, loaded in self._load.items():
            for sql_type, since in self._changed_types(name).items():
                if found := doubt(loaded, sql_type):
                    raise PlanStop(found.code, found.what, since)

    def _changed_types(self, name: str) -> dict[str, str]:
        """The types of a column that changes carry, and the first place of each."""
        found: dict[str, str] = {}
        for part in self._parts:
            if part.seen is not None and name in part.types:
                sql_type = part.types[name]
                found[sql_type] = min(part.seen.first, found.get(sql_type, part.seen.first))
        return found

    def _refuse_doubtful(self) -> None:
        """Stop at a column that was renamed, or may have been, and at one that came back (G-60, G-67)."""
        for one in self.spellings:
            if self._newest_spelling.get(one.column.casefold()) == one.column:
                since = min(part.seen.first for part in self._logged if part.seen and one.column in part.types)
                raise PlanStop(
                    "COLUMN_RENAMED",
                    f"{one.now!r} is spelled {one.column!r} from position {place_text(since)} on",
                    since,
                )
        questions: dict[str, tuple[Gone, Sequence[str]]] = {}
        for column, found in self.history.gone.items():
            said = [one for one in self._decided if one.column == column and one.up_to > found.after]
            if said and said[-1].renamed_to is not None:
                raise PlanStop(
                    "COLUMN_RENAMED",
                    f"{column!r} is {said[-1].renamed_to!r} from position {place_text(found.since)} on: the values of "
                    "rows that did not change since stand under the old name",
                    self._begin([said[-1].renamed_to], found.since),
                )
            if not said and (names := self._possible_names(column, found)) is not None:
                questions[column] = found, names
        if questions:
            since = min(found.since for found, _ in questions.values())
            new = sorted({name for _, names in questions.values() for name in names})
            which = "dropped, or renamed"
            if new:
                which = f"have {named_columns(new)}, which they did not have before: {which}"
            else:
                which = f"have no new one: {which} to a name that `columns` leaves out, and that so was not logged"
            raise PlanStop(
                "RENAME_POSSIBLE",
                f"from position {place_text(since)} on, rows lack {named_columns(questions)} and {which}",
                self._begin(new, since),
            )
        self._refuse_doubtful_returns()
        for former in self.former:
            if former.now is None and (again := self._gone_again(former)):
                raise PlanStop(
                    "SCHEMA_CHANGED",
                    f"{former.column!r} was gone up to {place_text(again)}, behind {place_text(former.up_to)}, up to "
                    "which its values were left out: which rows between have values of the column that was dropped is "
                    "not known",
                )
        for column, back in self.history.back.items():
            raise PlanStop(
                "SCHEMA_CHANGED",
                f"{column!r} is there again from position {place_text(back.since)} on, after rows lacked it up to "
                f"{place_text(back.gone_at)}: rows that did not change since have values of the column that was "
                "dropped",
                f"{back.gone_at}~",  # which of the rows behind it have the column is not known
            )

    def _possible_names(self, column: str, gone: Gone) -> Sequence[str] | None:
        """The names that a column may have now, empty where it may be one that `columns` leaves out; None: it is gone.

        As for columns that are mirrored, any source may have renamed it between two stream incarnations (G-12).
        """
        is_other_stream = bool(gone.after) and gone.since.partition(":")[0] != gone.after.partition(":")[0]
        is_all = self._declared.chosen.is_all
        is_hidden = not is_all and (self._source.renames or is_other_stream)
        is_loaded_only = not gone.after and self._source.renames
        if not self._source.asks or not (gone.renamed_to or is_hidden or is_loaded_only):
            return None
        shown = names_by_structures(column.casefold(), self._structures)
        if shown is None or column.casefold() in self._structures[-1].types:
            return gone.renamed_to if gone.renamed_to or is_hidden else None
        mirrored = {name for one in self._logged for name in one.types}
        # The types of a load may be others than those that are announced.
        names = [name for name in (mirrored if is_loaded_only else gone.renamed_to) if name.casefold() in shown]
        return sorted(names) if names or shown - {name.casefold() for name in mirrored} else None

    def _refuse_doubtful_returns(self) -> None:
        """Stop where a column whose earlier values are left out may have been renamed before another one took its name.

        The table stops as a whole: values that were published once would stand in the way of the other column.
        """
        placed = self._placed_parts(self._spelled)
        history = self._history(placed)
        if not self._source.asks:
            return
        # Where something is published, one that is back stops the table anyhow, until all is read anew.
        again = history.returned if self.former is self._noted else {**history.back, **history.returned}
        for column, back in again.items():
            known = max((one.up_to for one in self._decided if one.column == column), default="")
            names = names_before_return(column, back, placed, self._source.renames)
            shown = names_by_structures(column.casefold(), self._structures) if names else None
            possible = names if shown is None else [name for name in names if name.casefold() in shown]
            open_ones = {name: names[name] for name in possible if names[name] > known}
            if open_ones:
                raise PlanStop(
                    "RENAME_POSSIBLE",
                    f"up to position {place_text(back.gone_at)} rows lacked {column!r} for a time and have "
                    f"{named_columns(open_ones)}, which they did not have before: dropped, or renamed",
                )

    def _gone_again(self, former: FormerColumn) -> str:
        """The last place of a whole row that lacks a column again, between rows that have it, behind its known gap."""
        around = [
            part.seen.last
            for part in self._spelled
            if former.column in part.types and part.seen and part.seen.first <= former.up_to < part.seen.last
        ]
        places = [
            place
            for part in self._spelled
            if former.column not in part.types and part.seen
            for place in (part.seen.whole_first, part.seen.whole_last)
            if former.up_to < place < max(around, default="")
        ]
        return max(places, default="")

    def _refuse_added(self, added: Mapping[str, str]) -> None:
        if added:
            column, position = next(iter(added.items()))
            more = f", and {len(added) - 1} more" if len(added) > 1 else ""
            what = f"the column {column!r} is there from position {position} on{more}"
            raise PlanStop("COLUMN_ADDED", what, self._begin(added) if self._placed else None)

    def _placed_parts(self, parts: Iterable[_Part]) -> list[ListOfColumns]:
        return [
            ListOfColumns(
                {name: self._kind(name, sql_type) for name, sql_type in part.types.items()}, part.seen, part.places
            )
            for part in parts
            if part.seen is not None
        ]

    def _begin(self, columns: Iterable[str], *places: str) -> str:
        """The first place of a row with one of the columns, or of *places*."""
        wanted = {*columns}
        return min([*places, *(one.seen.first for one in self._placed if wanted & one.types.keys())])


def _read_as(parts: list[_Part], former: Sequence[FormerColumn]) -> list[_Part]:
    """Lists as they are read, one former column after the other."""
    for one in former:
        parts = [piece for part in parts for piece in _pieces(part, one)]
    return parts


def _pieces(part: _Part, former: FormerColumn) -> list[_Part]:
    """A list as it is read up to the place of a former column, and behind it."""
    if former.column not in part.types or former.now in part.types:
        return [part]
    now = [(former.now if name == former.column else name, sql_type) for name, sql_type in part.types.items()]
    types = {name: sql_type for name, sql_type in now if name is not None}
    places = {former.now if name == former.column else name: at for name, at in part.places.items()}
    as_now = _Part(types, None, {name: at for name, at in places.items() if name is not None})
    if part.seen is None:  # what only loaded rows have stands below every change
        return [as_now]
    low, high = divided(part.seen, former.up_to)
    return [*([as_now._replace(seen=low)] if low else []), *([part._replace(seen=high)] if high else [])]


def named_columns(names: Iterable[str]) -> str:
    """``'a', 'b'``, in the order of their names; of many the first ten."""
    found = sorted(names)
    more = f" and {len(found) - 10} more" if len(found) > 10 else ""
    return ", ".join(map(repr, found[:10])) + more


def _in_order(cols: str) -> list[str]:
    """The columns of a list by their places in the table."""
    return [name for name, _, _ in sorted(msgspec.json.decode(cols), key=itemgetter(2))]


def _position(place: str) -> str:
    """A place without the ordinal of its stream incarnation."""
    return place.partition(":")[2]


def refuse_other_settings(state: TableState, declared: Table, salted: str | None) -> None:
    """Stop where the mirror file says something else of the published columns than their files have (G-129).

    It needs no changes: a table to which none come would keep what was to be hashed in clear, and say nothing.

    Raises:
        PlanStop: ``SCHEMA_CHANGED``, ``TABLE_REDECLARED``.
    """
    of_source, chosen = (
        TableSchema(tuple(column for column in state.columns.columns if not column.tells)),
        declared.chosen,
    )
    _refuse_left_out(of_source, chosen, state.keys)
    _refuse_other_types(of_source, chosen)
    _refuse_other_names(of_source, chosen)
    _refuse_other_hashes(of_source, chosen, salted)
    _refuse_other_extra(state.columns, extra_columns(chosen.extra))


def refuse_text_no_more(state: TableState, declared: Table, lists: Iterable[ColumnList]) -> None:
    """Stop where `types` landed a published column as text and does so no more, as far as its source's types tell.

    Any other word of `types` that is taken away leaves the values as they are.

    Raises:
        PlanStop: ``SCHEMA_CHANGED``.
    """
    texts = [c for c in state.columns.columns if c.type == "string" and not c.tells]
    at_source = {c.name.casefold(): c.name for c in texts if declared.chosen.type_of(c.name) is None}
    if not at_source:
        return
    told = [(name, sql_type) for one in lists for name, sql_type, _ in msgspec.json.decode(one.cols)]
    told += [(name, one.column.sql_type) for name, one in loaded_columns(state.load_plan, state.keys).items()]
    kinds: dict[str, set[str]] = {}
    for name, sql_type in told:
        if sql_type is not None and (published := at_source.get(name.casefold())):
            kinds.setdefault(published, set()).add(sql_type)
    for name, sql_types in kinds.items():
        if not any(map(_is_text_or_unknown, sql_types)):
            what = f"`types` lands {name!r} no more as string, as which it is published: it is {sorted(sql_types)[0]}"
            raise PlanStop("SCHEMA_CHANGED", what)


def _is_text_or_unknown(sql_type: str) -> bool:
    try:
        return landing_type(sql_type) == "string"
    except TerminalError:
        return True


def _refuse_left_out(published: TableSchema, chosen: ColumnChoice, keys: Sequence[str]) -> None:
    """Stop where `columns` leaves out a published column: changed rows would lose it, all others keep it (G-12)."""
    names = [column.name for column in published.columns]
    kept = {*chosen.of(names), *keys}
    out = [name for name in names if name not in kept]
    if out:
        raise PlanStop("SCHEMA_CHANGED", f"`columns` leaves out {out[:5]}, which are published already")


def _refuse_other_types(published: TableSchema, chosen: ColumnChoice) -> None:
    """Stop where `types` says another type than a column is published as: the target cannot change it (F-87, G-110)."""
    for name, kind, *_ in published.columns:
        wanted = chosen.type_of(name)
        if wanted is not None and wider(kind, wanted) != kind:
            raise PlanStop("SCHEMA_CHANGED", f"`types` lands {name!r} as {wanted}, which is published as {kind}")


def _refuse_other_names(published: TableSchema, chosen: ColumnChoice) -> None:
    """Stop where `rename` says another name than a column is published under: the target would keep both (G-120)."""
    for column in published.columns:
        wanted = chosen.landed_name(column.name)
        if wanted != column.landed_name:
            what = f"`rename` lands {column.name!r} as {wanted!r}, which is published as {column.landed_name!r}"
            raise PlanStop("SCHEMA_CHANGED", what)


def _refuse_other_extra(published: TableSchema, extra: Sequence[LandingColumn]) -> None:
    """Stop where an extra column is published that the mirror file has no more, or otherwise (G-118)."""
    for column in published.columns:
        if column.tells and column not in extra:
            named = {one.tells: one.landed_name for one in extra}.get(column.tells)
            what = f"names the {column.tells} {named!r}" if named else f"leaves out the {column.tells}"
            raise PlanStop("SCHEMA_CHANGED", f"`extra_columns` {what}, which is published as {column.landed_name!r}")


def _refuse_other_hashes(published: TableSchema, chosen: ColumnChoice, salted: str | None) -> None:
    """Stop where files have a column in clear that is to be hashed, or otherwise, or by another salt (G-121)."""
    for column in published.columns:
        is_hashed = chosen.hashes(column.name)
        if is_hashed != (column.salted is not None):
            what = f"`hash` lands {column.name!r} {'as a hash' if is_hashed else 'in clear'}, which is published "
            raise PlanStop("SCHEMA_CHANGED", what + ("in clear" if is_hashed else "as a hash"))
        if is_hashed and column.salted != salted:
            what = f"the hashes of column {column.name!r} are published with another salt than the connection has now"
            raise PlanStop("TABLE_REDECLARED", what)


def _refuse_unknown_columns(lists: Sequence[ColumnList]) -> None:
    """Stop at updates of a table where no row proved the full list of columns: all of them may lack one (G-04)."""
    if lists and not any(found.whole for found in lists):
        raise PlanStop(ROW_INCOMPLETE, "no row proved to carry all columns yet: which ones updates lack is not known")


def _keys_first_known(schema: TableSchema, keys: Sequence[str]) -> TableSchema:
    missing = [key for key in keys if key not in {column.name for column in schema.columns}]
    # No column at all is known while only deletes were seen: the target has no row that they could remove.
    if missing and schema.columns:
        raise PlanStop("KEY_INVALID", f"no change carries the key columns {missing}")
    return schema


def _columns_of_text(schema: TableSchema, text: TextFormat, declared: Table, salted: str | None) -> TableSchema:
    """The declared columns; a table of delimited text never changes them (F-23, F-90)."""
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
            f"delimited text takes no columns but the declared ones, and rows carry {', '.join(other[:5])}: declare "
            "them, list `columns` without them, or, for decimals, leave `delimited_text` out",
        )
    return TableSchema(columns)
