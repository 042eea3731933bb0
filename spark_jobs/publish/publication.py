"""Prepares the tasks by which workers plan and stage tables.

The ledger knows rows, position bounds and files of every batch. So tasks are cut to size before any file is opened,
and older files are read only where their positions reach up to the new ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from open_mirroring.changes.horizon import BatchContents
from open_mirroring.changes.log_position import LogPosition, is_of_generation, not_below, position_order
from open_mirroring.config import Table
from open_mirroring.config.models import Publish
from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.data_file import Footer
from open_mirroring.landing_zone.schema import LandingColumn, TableSchema
from open_mirroring.landing_zone.text_format import TextFormat
from open_mirroring.ledger.reading import ColumnList, LedgerReader, TableState, Unpublished, unpublished
from open_mirroring.protocols.publishing import Intent
from spark_jobs.changelog.schema import bucket_ranges
from spark_jobs.plan.plan import Identity, PlanStop, TablePlan
from spark_jobs.plan.transaction_cut import Cut
from spark_jobs.publish.staging import StageTarget
from spark_jobs.sources.sql_server.typed_rows import landing_columns

ROWS_PER_TASK = 125_000
"""A worker holds at most about this many logged rows of a table at once."""


class Prepared(NamedTuple):
    """One table's publication: its plans (one per range of key buckets) and the schema its files will have.

    *rows* is how many log rows it reads; of new batches *waiting* more are not read, for their transactions go on.
    *appeared* are columns that rows which were there before did not have, each with the first position that has it.
    """

    plans: list[tuple[TablePlan, StageTarget]]
    schema: TableSchema
    rows: int
    waiting: int = 0
    appeared: Mapping[str, str] = MappingProxyType({})


class Preparation:
    """Prepares the publications of a mirror's tables with a few queries for all of them together."""

    def __init__(self, mirror: str, reader: LedgerReader, declared: Mapping[str, Table], settings: Publish) -> None:
        self._mirror = mirror
        self._reader = reader
        self._declared = declared
        self._settings = settings

    def prepare(self, tables: Sequence[tuple[TableState, Intent]]) -> dict[str, Prepared | PlanStop]:
        """What to stage for each table's intent, by table id; a :class:`PlanStop` where the table has to stop."""
        ids = [state.id for state, _ in tables]
        up_to = max(intent.work.batch_to for _, intent in tables)
        contents = self._reader.contents({s.source: i.batch_from for s, i in tables}, up_to)
        lists = self._reader.column_lists(ids)
        epochs, rejected = self._reader.epochs(ids), self._reader.rejected(ids)
        horizons = self._reader.horizons(state for state, _ in tables)
        highest = self._reader.highest_of({s.source: i.batch_from for s, i in tables if i.batch_from})
        prepared: dict[str, Prepared | PlanStop] = {}
        for state, intent in tables:
            ordinals = epochs.get(state.id, {})
            logged = [part for part in contents.get(state.source, []) if part.batch <= intent.work.batch_to]
            new = unpublished(self._reader, state, intent.work, logged, ordinals)
            try:
                schema, types = self._schema(state, lists.get(state.id, []))
                known = frozenset((r["epoch"], r["pos"], r["key"]) for r in rejected.get(state.id, []))
                plan = self._plan(state, intent, new, ordinals, highest.get(state.source, {}), schema, types, known)
                plan = replace(plan, horizon=horizons.get(state.id))
            except PlanStop as stop:
                prepared[state.id] = stop
                continue
            rows = sum(part.rows for part in (*new.arrived, *new.released))
            cut = self._cut(plan, state, intent, schema, rows)
            appeared = _appeared(lists.get(state.id, []), self._declared[state.source], _loaded(state))
            prepared[state.id] = cut._replace(waiting=sum(part.rows for part in new.waiting), appeared=appeared)
        return prepared

    def schema_from_log(self, state: TableState) -> TableSchema:
        """The schema that a table would have whose rows come from the log alone.

        Raises:
            PlanStop: as for the files of a publication.
        """
        lists = self._reader.column_lists([state.id]).get(state.id, [])
        text = self._declared[state.source].text_format
        return self._schema(state._replace(columns=TableSchema(()), text=text), lists)[0]

    def _schema(self, state: TableState, lists: Sequence[ColumnList]) -> tuple[TableSchema, dict[str, str]]:
        """The union of all columns, and each one's newest source type.

        Raises:
            PlanStop: ``SCHEMA_CHANGED``, ``COLUMN_NOT_STREAMED``, ``COLUMN_ADDED``,
                ``COLUMN_RESERVED``, ``COLUMN_CASE``, ``TYPE_UNKNOWN``,
                ``PARTIAL_ROWS``, ``ROW_INCOMPLETE``.
        """
        schema, types = state.columns, dict[str, str]()
        declared = self._declared[state.source]
        wanted = None if declared.columns is None else set(declared.columns)
        if wanted is not None:
            _refuse_left_out(schema, wanted | {*state.keys})
        try:
            for found in lists:
                columns = [c for c in landing_columns(found.cols) if wanted is None or c.name in wanted]
                schema = schema.extended(columns)
                types |= {name: sql_type for name, sql_type, _ in msgspec.json.decode(found.cols)}
        except TerminalError as error:
            raise PlanStop(error.code, error.what) from error
        if declared.complete_rows:
            _refuse_unknown_columns(lists)
        elif not declared.full_rows:
            _refuse_partial_rows(lists, schema, wanted)
        _refuse_dropped_columns(lists, wanted, full_rows=bool(declared.full_rows), loaded=_loaded(state))
        if self._requires_reload(declared):
            published = {column.name for column in state.columns.columns}
            appeared = _appeared(lists, declared, _loaded(state))
            _refuse_added_columns({name: at for name, at in appeared.items() if name not in published})
        if state.text is not None:
            return _columns_of_text(schema, state.text), types
        return _keys_first_known(schema, state.keys), types

    def _requires_reload(self, declared: Table) -> bool:
        chosen = declared.require_reload_on_add
        return self._settings.require_reload_on_add if chosen is None else chosen

    def _plan(
        self,
        state: TableState,
        intent: Intent,
        new: Unpublished,
        epochs: Mapping[str, int],
        highest: Mapping[str, str],
        schema: TableSchema,
        types: Mapping[str, str],
        rejected: frozenset[Identity],
    ) -> TablePlan:
        generation = state.row.generation
        # What the load of an earlier generation left in the log is read past, with the batch that holds it.
        arrived = [part for part in new.arrived if is_of_generation(part.epoch, generation)]
        unknown = sorted({part.epoch for part in arrived} - epochs.keys())
        if unknown:
            raise PlanStop("EPOCH_UNKNOWN", f"changes of an unknown stream incarnation arrived: {unknown}")
        completing = bool(self._declared[state.source].complete_rows)
        start, end = intent.work.position_from, intent.work.position_to
        batches = tuple(sorted({part.batch for part in new.arrived}))
        counting = new._replace(arrived=arrived)
        known = {epoch: ordinal for epoch, ordinal in epochs.items() if is_of_generation(epoch, generation)}
        published = {epoch: text for epoch, text in highest.items() if epoch in known}
        top, history = self._history(state.source, intent.batch_from, published, counting, known, start, completing)
        return TablePlan(
            table_id=state.id,
            source=state.source,
            keys=state.keys,
            batch_from=intent.batch_from,
            new_files=_files([*new.arrived, *new.released]),
            history_files=history,
            highest=top,
            epochs=epochs,
            stream_from=state.stream_from,
            stream_epoch=state.stream_epoch,
            rejected=rejected,
            columns=schema.columns,
            types=types,
            completing=completing,
            generation=generation,
            cut=None if start is None else Cut(start, end, batches),
            late_up_to=self._late_up_to(state, intent),
        )

    def _late_up_to(self, state: TableState, intent: Intent) -> str | None:
        """Up to which order a new change is late where every change is published in its order; None where it is not.

        An intent without a complete position was made by other settings, and is finished by them.
        """
        start, end = intent.work.position_from, intent.work.position_to
        if start is None or end is None or self._declared[state.source].history != "full":
            return None
        load = state.load_plan
        if load is not None and state.row.published_position is None and intent.batch_from == load["hand_over_batch"]:
            return ""  # nothing was published over the load yet: the load's position says what it holds already
        return start

    def _history(
        self,
        source: str,
        batch_from: int,
        highest: Mapping[str, str],
        new: Unpublished,
        epochs: Mapping[str, int],
        start: str | None,
        whole: bool,
    ) -> tuple[LogPosition | None, tuple[str, ...]]:
        """The highest position up to *batch_from*, and the log files that reach up to the oldest new transaction.

        *epochs* are those that count in the table's generation, *highest* what each reached up to *batch_from*.
        Changes of earlier transactions cannot matter: what is new is newer than all of them; nor can those above
        *start*, which the target does not have. The *whole* history is for rows that earlier changes complete.
        """
        if not highest or not (new.arrived or new.released):
            return None, ()
        lowest = min(_transactions(new, epochs, start))
        top = max(LogPosition.parse(epochs[epoch], text) for epoch, text in highest.items())
        asked = dict.fromkeys(highest, "") if whole else not_below(lowest, epochs)
        # Mostly all is newer than what was published, and the ledger need not be asked for each table.
        reached = {epoch: text for epoch, text in asked.items() if epoch in highest and text <= highest[epoch]}
        history = self._reader.history(source, batch_from, reached) if reached else []
        if start is not None:
            history = [part for part in history if position_order(epochs[part.epoch], part.lowest) <= start]
        return top, _files(history)

    def _cut(self, plan: TablePlan, state: TableState, intent: Intent, schema: TableSchema, rows: int) -> Prepared:
        footer = Footer(
            self._mirror,
            state.id,
            state.row.generation,
            intent.first_number,
            intent.batch_from,
            intent.work.batch_to,
            "changes" if plan.late_up_to is None else "history",
        )
        settings = self._settings
        target = StageTarget(state.folder, settings.max_rows_per_file, footer, settings.compression, state.text)
        # One order over all keys is one task's work.
        divisible = bool(plan.keys) and plan.late_up_to is None
        ranges = bucket_ranges(rows, ROWS_PER_TASK) if divisible else [plan.buckets]
        plans = [(replace(plan, buckets=buckets), target) for buckets in ranges]
        return Prepared(plans, schema, rows)


def _loaded(state: TableState) -> list[str]:
    """The columns that the table's initial load brought."""
    return [name for name, *_ in (state.load_plan or {}).get("columns", ())]


def _appeared(lists: Sequence[ColumnList], declared: Table, loaded: Sequence[str]) -> dict[str, str]:
    """The columns that some row before them did not have, each with the first position that has it (G-07).

    *lists* come in the order of their first position. Of a list that may be a part of its row nobody can tell what the
    row lacks; where rows are completed, that is every list which no row proved to be whole.
    """
    known, has_rows, found = set(loaded), bool(loaded), dict[str, str]()
    for one in lists:
        carried = {name for name, _, _ in msgspec.json.decode(one.cols)}
        if declared.columns is not None:
            carried &= {*declared.columns, *declared.key}
        if has_rows:
            found |= {name: one.first_pos for name in sorted(carried - known)}
        known |= carried
        has_rows = has_rows or one.whole or not declared.complete_rows
    return found


def _refuse_added_columns(added: Mapping[str, str]) -> None:
    if added:
        column, position = next(iter(added.items()))
        more = f", and {len(added) - 1} more" if len(added) > 1 else ""
        raise PlanStop("COLUMN_ADDED", f"the column {column!r} is there from position {position} on{more}")


def _transactions(new: Unpublished, epochs: Mapping[str, int], start: str | None) -> Iterator[str]:
    """Where the first new transaction of each part begins."""
    for part in new.arrived:
        yield position_order(epochs[part.epoch], LogPosition.parse(0, part.lowest).major)
    if new.released and start is not None:
        # What is released lies above the start, whatever else its batch holds.
        epoch, major, *_ = start.split(":")
        yield f"{epoch}:{major}"


def _files(contents: Sequence[BatchContents]) -> tuple[str, ...]:
    return tuple(sorted({file for part in contents for file in part.files}))


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


def _refuse_left_out(published: TableSchema, wanted: set[str]) -> None:
    """Stop where `columns` leaves out a published column: changed rows would lose it, all others keep it (G-12)."""
    out = [column.name for column in published.columns if column.name not in wanted]
    if out:
        raise PlanStop("SCHEMA_CHANGED", f"`columns` does not list {out[:5]}, which are published already")


def _refuse_partial_rows(lists: Sequence[ColumnList], schema: TableSchema, wanted: set[str] | None) -> None:
    """Stop at updates that may carry only what changed (C-44, C-70): a full row is needed (F-55).

    A list is whole if a row proved it. Without proof it must lack no column that is known, nor (unless the mirror
    file selects the *wanted* ones) a place in the table.
    """
    names = [column.name for column in schema.columns]
    names += sorted(name for name in wanted or () if name not in names)
    for found in lists:
        columns = msgspec.json.decode(found.cols)
        carried = {name for name, _, _ in columns}
        absent = [name for name in names if name not in carried]
        has_gap = wanted is None and sorted(index for _, _, index in columns) != list(range(len(columns)))
        if (absent or has_gap) and not found.whole:
            lacking = f"without {absent[:5]}" if absent else "with gaps between their places in the table"
            raise PlanStop(
                "PARTIAL_ROWS",
                f"updates carry {len(carried)} of {max(len(names), len(carried))} known columns, {lacking}; set "
                "@include_all_columns = 1 at the source, or `full_rows: true` if these updates do carry whole rows",
            )


def _refuse_unknown_columns(lists: Sequence[ColumnList]) -> None:
    """Stop at updates of a table where no row proved the full list of columns: all of them may lack one (G-04)."""
    if lists and not any(found.whole for found in lists):
        raise PlanStop("ROW_INCOMPLETE", "no row proved to carry all columns yet: which ones updates lack is not known")


def _refuse_dropped_columns(
    lists: Sequence[ColumnList], wanted: set[str] | None, *, full_rows: bool, loaded: Iterable[str] = ()
) -> None:
    """Stop at a column (of *wanted*, if given) that whole rows had and newer ones lack: dropped, renamed (G-07, C-75).

    *lists* come in the order of their first position, so that a late row with an old list is no newer one. What was
    *loaded* comes before all of them: a change without it would set NULL over the loaded value (C-77).
    """
    never = {name for name in loaded if wanted is None or name in wanted}
    never -= {name for found in lists for name, _, _ in msgspec.json.decode(found.cols)}
    before = {name for name in loaded if wanted is None or name in wanted} - never
    for found in lists:
        if not (found.whole or full_rows):
            continue
        carried = {name for name, _, _ in msgspec.json.decode(found.cols) if wanted is None or name in wanted}
        gone = sorted(before - carried)
        if never:
            raise PlanStop(
                "COLUMN_NOT_STREAMED",
                f"the initial load brought {sorted(never)[:5]}, and no change carries them: changed rows would lose "
                "them",
            )
        if gone:
            raise PlanStop(
                "SCHEMA_CHANGED", f"from position {found.first_pos} on, rows lack {gone[:5]}: dropped or renamed"
            )
        before |= carried
