"""Prepares the tasks with which workers plan changes and stage files of tables.

The ledger knows the files of every batch, with their number of rows and their lowest and highest positions. So the size
of tasks is known before any file is opened, and an older file is read only if its positions reach the positions of new
changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from open_mirroring.changes.column_history import FormerColumn
from open_mirroring.changes.column_notes import ColumnNote
from open_mirroring.changes.history_names import LOGGED_GENERATION, logged_as
from open_mirroring.changes.horizon import BatchContents, TableHorizon
from open_mirroring.changes.log_position import LogPosition, is_of_generation, load_epoch, not_below, position_order
from open_mirroring.config import Mirror, Table
from open_mirroring.landing_zone.data_file import Footer
from open_mirroring.landing_zone.schema import TableSchema
from open_mirroring.landing_zone.standing import Standing
from open_mirroring.ledger.columns import note_types
from open_mirroring.ledger.extract_ledger import ExtractLedger
from open_mirroring.ledger.reading import ColumnRecords, LedgerReader, TableState, Unpublished, unpublished
from open_mirroring.protocols.publishing import CannotStage, Intent, Work
from spark_jobs.changelog.schema import bucket_ranges
from spark_jobs.plan.loaded_columns import loaded_columns
from spark_jobs.plan.table_plan import Beginning, Cut, Identity, PlanColumns, PlanStop, TablePlan
from spark_jobs.publish.published_settings import (
    refuse_other_settings,
    refuse_other_where,
    refuse_text_no_more,
)
from spark_jobs.publish.staging import StageTarget
from spark_jobs.publish.table_columns import TableColumns, source_columns
from spark_jobs.sources.registry import format_of, structures_of

ROWS_PER_TASK = 125_000
"""A worker holds about so many logged rows of a table at once, not more."""


class Prepared(NamedTuple):
    """One table's publication: a plan per range of key buckets, the schema of its files, the number of rows to read.

    *waiting* is the number of further rows, whose transactions are incomplete. *unverified* are columns that may differ
    from the source in rows that have not changed since a position; *gone* are columns that rows lack from a position
    on. *former* describes how columns of earlier rows are read from now on; None if the ledger recorded this with the
    first files.
    """

    plans: list[tuple[TablePlan, StageTarget]]
    schema: TableSchema
    rows: int
    waiting: int = 0
    unverified: Mapping[str, str] = MappingProxyType({})
    gone: Mapping[str, str] = MappingProxyType({})
    former: Sequence[FormerColumn] | None = None


@dataclass(frozen=True)
class _Known:
    """What the ledger knows of a table that is staged; *logged* are its batches above the published one."""

    state: TableState
    intent: Intent
    records: ColumnRecords
    logged: Sequence[BatchContents]
    highest: Mapping[str, str]
    horizon: TableHorizon | None
    rejected: frozenset[Identity]
    unverified: Sequence[ColumnNote]
    taken: Sequence[str]


class Preparation:
    """Prepares the publications of many tables with a few ledger queries for all tables together."""

    def __init__(self, mirror: Mirror, reader: LedgerReader) -> None:
        self._mirror, self._reader = mirror, reader
        self._declared = {table.source: table for table in mirror.targets}
        salt = mirror.salt()
        self._salted = None if salt is None else salt.check
        self._renames = format_of(mirror).renames_columns
        self._announced = cache(lambda: structures_of(mirror, ExtractLedger(reader.engine, mirror.name).schemas()))

    def prepare(self, tables: Sequence[tuple[TableState, Intent]]) -> dict[str, Prepared | PlanStop]:
        """What to stage for each table's intent (open publication), by table id; PlanStop if the table has to stop."""
        prepared: dict[str, Prepared | PlanStop] = {}
        for known in self._known(tables):
            try:
                prepared[known.state.id] = self._prepared(known)
            except PlanStop as stop:
                prepared[known.state.id] = stop
        return prepared

    def _known(self, tables: Sequence[tuple[TableState, Intent]]) -> Iterator[_Known]:
        reader, states, ids = self._reader, [state for state, _ in tables], [state.id for state, _ in tables]
        up_to = max(intent.work.batch_to for _, intent in tables)
        contents = reader.contents({s.source: i.batch_from for s, i in tables}, up_to)
        highest = reader.highest_of({s.source: i.batch_from for s, i in tables if i.batch_from})
        records, horizons, rejected = reader.column_records(states), reader.horizons(states), reader.rejected(ids)
        unverified, taken = reader.unverified_columns(states), reader.taken_columns(states)
        for state, intent in tables:
            yield _Known(
                state,
                intent,
                records=records[state.id],
                logged=[p for p in contents.get(state.source, ()) if p.batch <= intent.work.batch_to],
                highest=highest.get(state.source, {}),
                horizon=horizons.get(state.id),
                rejected=frozenset((r["epoch"], r["pos"], r["key"]) for r in rejected.get(state.id, ())),
                unverified=unverified.get(state.id, ()),
                taken=taken.get(state.id, ()),
            )

    def _prepared(self, known: _Known) -> Prepared:
        state, work, declared = known.state, known.intent.work, self._declared[known.state.source]
        columns = self._columns(state, known.records, work.position_to)
        schema, types = columns.schema(reload_on_add=self._requires_reload(declared))
        gone, names = columns.history.gone, {name for one in known.records.lists for name in one.names}
        plan_columns = PlanColumns(
            schema.columns,
            types,
            former=(*columns.spellings, *columns.former),
            gone={column: one.after for column, one in gone.items()},
            unread=declared.chosen.unread(names, known.taken),
            completing=bool(declared.complete_rows),
            of_reading=self._mirror.source.spells_by_reading,
            null_text=None if state.text is None else state.text.null,
            where=declared.row_filter,
        )
        new = unpublished(self._reader, state, work, known.logged, known.records.epochs)
        plan, rows = self._plan(known, new, plan_columns), sum(part.rows for part in (*new.arrived, *new.released))
        target = self._target(known, _standing(known, schema, len(columns.former), declared.chosen.where))
        is_cut = plan.keys or plan.keys_of_rows is not None
        ranges = bucket_ranges(rows, ROWS_PER_TASK) if is_cut else [plan.buckets]
        return Prepared(
            [(replace(plan, buckets=buckets), target) for buckets in ranges],
            schema,
            rows,
            waiting=sum(part.rows for part in new.waiting),
            unverified={} if declared.keys_of_rows is not None else columns.unverified,
            gone={column: one.since for column, one in gone.items()},
            former=None if state.row.confirmed else tuple(columns.former),
        )

    def _plan(self, known: _Known, new: Unpublished, columns: PlanColumns) -> TablePlan:
        state, epochs = known.state, known.records.epochs
        keys_of_rows = self._declared[state.source].keys_of_rows
        generation = state.row.generation if keys_of_rows is None else LOGGED_GENERATION
        # Rows that an initial load of an earlier generation left in the change log are skipped, with their batch.
        arrived = [part for part in new.arrived if is_of_generation(part.epoch, generation)]
        unknown = sorted({part.epoch for part in arrived} - epochs.keys())
        if unknown:
            raise PlanStop("EPOCH_UNKNOWN", f"changes of an unknown stream arrived: {unknown}")
        start, end = known.intent.work.position_from, known.intent.work.position_to
        loaded = loaded_columns(state.start.load_plan, state.keys)
        highest = {e: text for e, text in known.highest.items() if e in epochs and is_of_generation(e, generation)}
        lowest = min(_transactions(new._replace(arrived=arrived), epochs, start), default=None) if highest else None
        top, history = None, tuple[str, ...]()
        if lowest is not None:
            top = max(LogPosition.parse(epochs[epoch], text) for epoch, text in highest.items())
            is_whole = columns.completing or columns.keeping or (keys_of_rows is not None and bool(state.keys))
            history = self._history(known, highest, "" if is_whole else lowest)
        is_loaded = state.start.load_state == "loaded" and load_epoch(generation) not in epochs
        return TablePlan(
            logged_as(state.source),
            state.keys,
            known.intent.batch_from,
            epochs,
            columns,
            new_files=_files([*new.arrived, *new.released]),
            history_files=history,
            highest=top,
            begins=Beginning(
                generation,
                state.start.stream_from,
                state.start.stream_epoch,
                state.start.newest_load,
                loaded=is_loaded,
                loaded_keys={name: one for name, one in loaded.items() if one.is_key},
            ),
            cut=None if start is None else Cut(start, end, tuple(sorted({part.batch for part in new.arrived}))),
            horizon=known.horizon,
            rejected=known.rejected,
            lacks_rows=columns.keeping and (is_loaded or self._reader.mirror().dropped > state.start.log_from),
            keys_of_rows=keys_of_rows,
        )

    def _history(self, known: _Known, highest: Mapping[str, str], lowest: str) -> tuple[str, ...]:
        """The files of the change log with published changes that are as new as the oldest new transaction, *lowest*.

        Older changes cannot matter, because every new change is newer than them.
        """
        epochs, start = known.records.epochs, known.intent.work.position_from
        asked = not_below(lowest, epochs) if lowest else dict.fromkeys(highest, "")
        # Mostly all is newer than what was published, and the ledger need not be asked for each table.
        reached = {epoch: text for epoch, text in asked.items() if epoch in highest and text <= highest[epoch]}
        history = self._reader.history(known.state.source, known.intent.batch_from, reached) if reached else []
        return _files(
            part for part in history if start is None or position_order(epochs[part.epoch], part.lowest) <= start
        )

    def _target(self, known: _Known, standing: Standing) -> StageTarget:
        state, intent, settings = known.state, known.intent, self._mirror.publish
        footer = Footer(
            self._mirror.name,
            state.id,
            state.row.generation,
            intent.first_number,
            intent.batch_from,
            intent.work.batch_to,
            "changes",
            standing=standing.to_json(),
        )
        append_only = self._declared[state.source].append_only
        written = settings.max_rows_per_file, footer, settings.compression, state.text, append_only
        return StageTarget(state.folder, *written)

    def limits(self, tables: Mapping[str, tuple[TableState, Work]], *, complete_transactions: bool) -> dict[str, str]:
        """By table id, the position up to which its changes may be published before a change of structure stops it."""
        records = self._reader.column_records(state for state, _ in tables.values())
        found: dict[str, str] = {}
        for id_, (state, work) in tables.items():
            columns = self._columns(state, records[id_], work.position_to)
            try:
                columns.schema(reload_on_add=self._requires_reload(self._declared[state.source]))
            except PlanStop as stop:
                if stop.at is not None:
                    # Without its half, or as its transaction alone, a place sorts below all that is in it.
                    parts = stop.at.split(":")[: 2 if complete_transactions else 3]
                    found[id_] = stop.at if stop.at.endswith("~") and not complete_transactions else ":".join(parts)
        return found

    def refused(self, tables: Iterable[TableState], busy: Collection[str]) -> dict[str, CannotStage]:
        """Tables without new changes whose settings contradict their published files, by table id (G-129).

        Tables in *busy* have new changes: only their `where` is judged here, the other settings when the changes are
        published. New `types` and `where` in the mirror file are recorded before changes are published with them, so
        that after a crash no file depends on a setting that is not recorded.
        """
        tables = [*tables]
        found = self.unfit([state for state in tables if state.source not in busy])
        found |= self._chosen_otherwise(tables)
        retyped = {s.id: text for s in tables if s.types != (text := self._declared[s.source].chosen.types_text)}
        if noted := {table_id: text for table_id, text in retyped.items() if table_id not in found}:
            note_types(self._reader.engine, noted)
        return found

    def _chosen_otherwise(self, tables: Sequence[TableState]) -> Mapping[str, CannotStage]:
        """Tables whose published rows were chosen by another `where`, by table id (G-193)."""
        found = dict[str, CannotStage]()
        for state in tables:
            try:
                refuse_other_where(state, self._declared[state.source])
            except PlanStop as stop:
                found[state.id] = CannotStage(stop.code, stop.what)
        # A run that publishes several times knows what it has noted from the ledger only.
        if found and tables != (noted := [self._reader.tables()[state.source] for state in tables]):
            return self._chosen_otherwise(noted)
        return found

    def unfit(self, tables: Sequence[TableState]) -> dict[str, CannotStage]:
        """Tables whose settings in the mirror file contradict their published files, by table id; records nothing.

        The lists of logged columns are read only for tables with new `types` in the mirror file, so that a run without
        changes reads no list.
        """
        found = dict[str, CannotStage]()
        retyped = {s.id for s in tables if s.types != self._declared[s.source].chosen.types_text}
        lists = self._reader.column_lists(retyped) if retyped else {}
        for state in tables:
            declared = self._declared[state.source]
            try:
                refuse_other_settings(state, declared, self._salted)
                if state.id in retyped:
                    refuse_text_no_more(state, declared, lists.get(state.id, ()))
            except PlanStop as stop:
                found[state.id] = CannotStage(stop.code, stop.what)
        return found

    def schema_from_log(self, state: TableState) -> TableSchema:
        """The schema that a table would have if built from the change log alone.

        Raises PlanStop if the change log gives the table no schema that can be published.
        """
        declared = self._declared[state.source]
        records = self._reader.column_records([state])[state.id]._replace(former=())
        row = replace(state.row, published_batch=0, confirmed=0)
        start = state.start._replace(load_state="none")
        empty = state._replace(columns=TableSchema(()), text=declared.text_format, row=row, start=start)
        columns = self._columns(empty, records)
        return columns.schema(reload_on_add=self._requires_reload(declared))[0]

    def _columns(self, state: TableState, records: ColumnRecords, up_to: str | None = None) -> TableColumns:
        declared = self._declared[state.source]
        source = source_columns(
            declared.chosen,
            renames=self._renames,
            asks=(declared.on_possible_rename or self._mirror.publish.on_possible_rename) != "dropped",
            structures=lambda: self._announced().get(".".join(declared.source_name), ()),
        )
        is_of_task = self._mirror.loads_of_task(declared)
        return TableColumns(state, declared, records, source, lists_all=is_of_task, up_to=up_to, salted=self._salted)

    def _requires_reload(self, declared: Table) -> bool:
        chosen = declared.require_reload_on_add
        return self._mirror.publish.require_reload_on_add if chosen is None else chosen


def _standing(known: _Known, schema: TableSchema, former: int, where: str) -> Standing:
    """The state of the table for the files' footers, from which a lost ledger is re-created."""
    state, work, load = known.state, known.intent.work, known.state.start.load_plan
    return Standing(
        published_position=state.row.published_position,
        position_from=work.position_from,
        position_to=work.position_to,
        waiting_rows=state.waiting_rows,
        stream_from=state.start.stream_from,
        stream_epoch=state.start.stream_epoch,
        log_from=state.start.log_from,
        newest_load=None if state.start.newest_load is None else state.start.newest_load.to_json(),
        loaded_columns=None if load is None else len(load.columns),
        hand_over_batch=0 if load is None else load.hand_over_batch,
        untyped=len(known.rejected),
        former=former,
        epochs=known.records.epochs,
        decided=tuple((one.column, one.up_to, one.now) for one in known.records.decided),
        unverified=tuple((one.kind.value, one.column, one.since) for one in known.unverified),
        renamed=schema.renamed,
        salted=schema.salted,
        where=where,
    )


def _transactions(new: Unpublished, epochs: Mapping[str, int], start: str | None) -> Iterator[str]:
    """Where the oldest new transaction of each part begins."""
    for part in new.arrived:
        yield position_order(epochs[part.epoch], LogPosition.parse(0, part.lowest).major)
    if new.released and start is not None:
        # What is released is above the start, whatever else its batch holds.
        epoch, major, *_ = start.split(":")
        yield f"{epoch}:{major}"


def _files(contents: Iterable[BatchContents]) -> tuple[str, ...]:
    return tuple(sorted({file for part in contents for file in part.files}))
