"""Decides the columns of a table's next files, from the ledger's column lists alone; no row is read.

:mod:`open_mirroring.changes.column_history` judges which columns are new, gone, back or renamed. A change that the
target cannot follow stops the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from open_mirroring.changes.column_history import (
    ColumnHistory,
    Dropped,
    ListOfColumns,
    Seen,
    column_history,
    place_text,
)
from open_mirroring.changes.log_position import is_load_epoch, position_order
from open_mirroring.config import Table
from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.schema import LandingColumn, TableSchema
from open_mirroring.landing_zone.text_format import TextFormat
from open_mirroring.ledger.reading import ColumnDecision, ColumnList, TableState
from spark_jobs.plan.plan import PlanStop
from spark_jobs.sources.sql_server.typed_rows import landing_columns


class TableColumns:
    """The columns of one table, as its column lists and the decisions of operators give them.

    Args:
        state: the table.
        declared: as the mirror file has it.
        lists: its column lists, in the order of their first position.
        epochs: the ordinal of every stream incarnation.
        decided: what operators said of its columns.
        renames: whether the source can rename a column while its changes are read.
        up_to: only what stands up to this place is looked at; None: all.
    """

    def __init__(
        self,
        state: TableState,
        declared: Table,
        lists: Sequence[ColumnList],
        epochs: Mapping[str, int],
        decided: Sequence[ColumnDecision] = (),
        *,
        renames: bool,
        up_to: str | None = None,
    ) -> None:
        self._state, self._declared, self._up_to = state, declared, up_to
        self._epochs, self._decided, self._renames = epochs, decided, renames
        # What only loaded rows have stands below every change.
        self._lists = [one for one in lists if self._seen(one) or any(map(is_load_epoch, one.seen))]
        self._wanted = None if declared.columns is None else {*declared.columns}
        self._loaded = [name for name, *_ in (state.load_plan or {}).get("columns", ())]

    @cached_property
    def history(self) -> ColumnHistory:
        """What became of the columns that changes carried.

        Raises:
            PlanStop: ``TYPE_UNKNOWN``, ``TYPE_UNSUPPORTED``.
        """
        return column_history(
            self._placed,
            [Dropped(one.column, one.up_to) for one in self._decided],
            loaded=[name for name in self._loaded if self._wanted is None or name in self._wanted],
            renames=self._renames,
        )

    @cached_property
    def _placed(self) -> list[ListOfColumns]:
        found = []
        for one in self._lists:
            try:
                columns = landing_columns(one.cols)
            except TerminalError as error:
                raise PlanStop(error.code, error.what) from error
            seen = self._seen(one)
            if seen is not None:
                kept = {c.name: c.type for c in columns if self._wanted is None or c.name in self._wanted}
                found.append(ListOfColumns(kept, seen))
        return found

    def _seen(self, one: ColumnList) -> Seen | None:
        """Where rows of changes with this list stand, as far as they are looked at; None where there are none."""
        beyond = max(self._epochs.values(), default=-1) + 1
        places = []
        for epoch, seen in one.seen.items():
            if is_load_epoch(epoch):
                continue
            # A stream that nobody accepted yet stops the table by itself; before 0014 no incarnation was kept.
            ordinal = self._epochs.get(epoch, beyond if epoch else 0)
            places.append(Seen(*(text and position_order(ordinal, text) for text in seen)))
        if not one.seen:
            first = position_order(0, one.first_pos)
            places.append(Seen(first, first, *((first, first) if one.whole else ())))
        if self._up_to is not None:
            places = [_clipped(place, self._up_to) for place in places if place.first <= self._up_to]
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
            PlanStop: ``SCHEMA_CHANGED``, ``COLUMN_NOT_STREAMED``, ``COLUMN_ADDED``, ``COLUMN_RESERVED``,
                ``COLUMN_CASE``, ``COLUMN_RENAMED``, ``RENAME_POSSIBLE``, ``COLUMN_BACK``, ``TYPE_UNKNOWN``,
                ``PARTIAL_ROWS``, ``ROW_INCOMPLETE``.
        """
        state, declared = self._state, self._declared
        schema, types = state.columns, dict[str, str]()
        if self._wanted is not None:
            _refuse_left_out(schema, self._wanted | {*state.keys})
        at: str | None = None
        try:
            for found in self._lists:
                at = self._first(found)
                columns = [c for c in landing_columns(found.cols) if self._wanted is None or c.name in self._wanted]
                schema = schema.extended(columns)
                types |= {name: sql_type for name, sql_type, _ in msgspec.json.decode(found.cols)}
        except TerminalError as error:
            raise PlanStop(error.code, error.what, at) from error
        if declared.complete_rows:
            _refuse_unknown_columns(self._lists)
        elif not declared.full_rows:
            self._refuse_partial_rows(schema)
        self._refuse_never_streamed()
        self._refuse_doubtful()
        if reload_on_add:
            published = {column.name for column in state.columns.columns}
            self._refuse_added({name: at for name, at in self.appeared.items() if name not in published})
        if state.text is not None:
            return _columns_of_text(schema, state.text), types
        return _keys_first_known(schema, state.keys), types

    @cached_property
    def appeared(self) -> dict[str, str]:
        """The columns that some row before them did not have, each with the first position that has it (G-07).

        Of a list that may be a part of its row nobody can tell what the row lacks; where rows are completed, that is
        every list which no row proved to be whole.
        """
        known, has_rows, found = set(self._loaded), bool(self._loaded), dict[str, str]()
        for one in self._lists:
            carried = {name for name, _, _ in msgspec.json.decode(one.cols)}
            if self._wanted is not None:
                carried &= {*self._wanted, *self._declared.key}
            if has_rows:
                found |= {name: one.first_pos for name in sorted(carried - known)}
            known |= carried
            has_rows = has_rows or one.whole or not self._declared.complete_rows
        return found

    def _refuse_partial_rows(self, schema: TableSchema) -> None:
        """Stop at updates that may carry only what changed (C-44, C-70): a full row is needed (F-55).

        A list is whole if a row proved it. Without proof it must lack no column that is known, nor (unless the mirror
        file selects columns) a place in the table. A column that is gone counts no more behind its last row.
        """
        names = [column.name for column in schema.columns]
        names += sorted(name for name in self._wanted or () if name not in names)
        for found in self._lists:
            columns, seen = msgspec.json.decode(found.cols), self._seen(found)
            carried = {name for name, _, _ in columns}
            gone = {name for name in self.history.gone if seen is not None and self.history.lacks(name, seen.first)}
            absent = [name for name in names if name not in carried and name not in gone]
            places = sorted(index for _, _, index in columns)
            has_gap = self._wanted is None and not gone and places != list(range(len(columns)))
            if (absent or has_gap) and not found.whole:
                lacking = f"without {absent[:5]}" if absent else "with gaps between their places in the table"
                raise PlanStop(
                    "PARTIAL_ROWS",
                    f"updates carry {len(carried)} of {max(len(names), len(carried))} known columns, {lacking}; set "
                    "@include_all_columns = 1 at the source, or `full_rows: true` if these updates do carry whole rows",
                )

    def _refuse_never_streamed(self) -> None:
        """Stop where the load brought a column that no change carries: changed rows would lose its value (C-77)."""
        never = {name for name in self._loaded if self._wanted is None or name in self._wanted}
        never -= {*self.history.gone, *(name for one in self._placed for name in one.types)}
        proofs = [one.seen.whole_first for one in self._placed if one.seen.whole_first]
        if never and proofs:
            raise PlanStop(
                "COLUMN_NOT_STREAMED",
                f"the initial load brought {sorted(never)[:5]}, and no change carries them: changed rows would lose "
                "them",
                min(proofs),
            )

    def _refuse_doubtful(self) -> None:
        """Stop at a column that was renamed, or may have been, and at one that came back (G-60)."""
        for column, found in self.history.gone.items():
            said = [one for one in self._decided if one.column == column and one.up_to > found.after]
            if said and said[-1].renamed_to is not None:
                raise PlanStop(
                    "COLUMN_RENAMED",
                    f"{column!r} is {said[-1].renamed_to!r} from position {place_text(found.since)} on: the values of "
                    "rows that did not change since stand under the old name",
                    self._begin([said[-1].renamed_to], found.since),
                )
            if found.renamed_to:
                raise PlanStop(
                    "RENAME_POSSIBLE",
                    f"from position {place_text(found.since)} on, rows lack {column!r} and have "
                    f"{list(found.renamed_to)[:5]}, which they did not have before: dropped, or renamed",
                    self._begin(found.renamed_to, found.since),
                )
        for column, back in self.history.back.items():
            raise PlanStop(
                "COLUMN_BACK",
                f"{column!r} is there again from position {place_text(back.since)} on, after rows lacked it up to "
                f"{place_text(back.gone_at)}: rows that did not change since have values of the column that was "
                "dropped",
                f"{back.gone_at}~",  # which of the rows behind it have the column is not known
            )

    def _refuse_added(self, added: Mapping[str, str]) -> None:
        if added:
            column, position = next(iter(added.items()))
            more = f", and {len(added) - 1} more" if len(added) > 1 else ""
            what = f"the column {column!r} is there from position {position} on{more}"
            raise PlanStop("COLUMN_ADDED", what, self._begin(added) if self._placed else None)

    def _first(self, one: ColumnList) -> str | None:
        seen = self._seen(one)
        return None if seen is None else seen.first

    def _begin(self, columns: Iterable[str], *places: str) -> str:
        """The first place of a row with one of the columns, or of *places*."""
        wanted = {*columns}
        return min([*places, *(one.seen.first for one in self._placed if wanted & one.types.keys())])


def _refuse_left_out(published: TableSchema, wanted: set[str]) -> None:
    """Stop where `columns` leaves out a published column: changed rows would lose it, all others keep it (G-12)."""
    out = [column.name for column in published.columns if column.name not in wanted]
    if out:
        raise PlanStop("SCHEMA_CHANGED", f"`columns` does not list {out[:5]}, which are published already")


def _refuse_unknown_columns(lists: Sequence[ColumnList]) -> None:
    """Stop at updates of a table where no row proved the full list of columns: all of them may lack one (G-04)."""
    if lists and not any(found.whole for found in lists):
        raise PlanStop("ROW_INCOMPLETE", "no row proved to carry all columns yet: which ones updates lack is not known")


def _keys_first_known(schema: TableSchema, keys: Sequence[str]) -> TableSchema:
    missing = [key for key in keys if key not in {column.name for column in schema.columns}]
    # No column at all is known while only deletes were seen: the target has no row that they could remove.
    if missing and schema.columns:
        raise PlanStop("KEY_MISSING", f"no change carries the key columns {missing}")
    return schema


def _columns_of_text(schema: TableSchema, text: TextFormat) -> TableSchema:
    """The declared columns; a table of delimited text never changes them (F-23, F-90)."""
    declared = TableSchema(tuple(LandingColumn(name, kind) for name, kind in text.columns))
    other = [f"{column.name!r} {column.type}" for column in schema.columns if column not in declared.columns]
    if other:
        raise PlanStop(
            "SCHEMA_CHANGED",
            f"delimited text takes no columns but the declared ones, and rows carry {', '.join(other[:5])}: declare "
            "them, list `columns` without them, or, for decimals, leave `delimited_text` out",
        )
    return declared


def _clipped(place: Seen, up_to: str) -> Seen:
    """A place that begins at *up_to* or before, as far as that; of what reaches beyond it the begin is known."""
    last = place.last if place.last <= up_to else place.first
    if not place.whole_first or place.whole_first > up_to:
        return Seen(place.first, last)
    whole_last = place.whole_last if place.whole_last <= up_to else place.whole_first
    return Seen(place.first, last, place.whole_first, whole_last)
