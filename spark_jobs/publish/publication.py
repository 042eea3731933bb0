"""Prepares the tasks by which workers plan and stage tables.

The ledger knows rows, position bounds and files of every batch. So tasks are cut to size before any file is opened,
and older files are read only where their positions reach up to the new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from msgspec import structs

from open_mirroring.changes.column_history import FormerColumn, Structure, Word
from open_mirroring.changes.column_notes import ColumnNote
from open_mirroring.changes.horizon import BatchContents
from open_mirroring.changes.log_position import LogPosition, is_of_generation, load_epoch, not_below, position_order
from open_mirroring.config import Mirror, Table
from open_mirroring.config.models import Publish
from open_mirroring.landing_zone.data_file import Footer
from open_mirroring.landing_zone.salt import Salt
from open_mirroring.landing_zone.schema import TableSchema
from open_mirroring.landing_zone.standing import Standing
from open_mirroring.ledger.columns import note_types
from open_mirroring.ledger.extract_ledger import ExtractLedger
from open_mirroring.ledger.reading import ColumnRecords, LedgerReader, TableState, Unpublished, unpublished
from open_mirroring.protocols.publishing import CannotStage, Intent, Work
from spark_jobs.changelog.schema import bucket_ranges
from spark_jobs.plan.loaded_columns import loaded_columns
from spark_jobs.plan.plan import Identity, PlanStop, TablePlan
from spark_jobs.plan.transaction_cut import Cut
from spark_jobs.publish.published_settings import refuse_other_settings, refuse_text_no_more
from spark_jobs.publish.staging import StageTarget
from spark_jobs.publish.table_columns import TableColumns, source_columns
from spark_jobs.sources.registry import format_of, structures_of

ROWS_PER_TASK = 125_000
"""A worker holds at most about this many logged rows of a table at once."""


class Prepared(NamedTuple):
    """One table's publication: its plans (one per range of key buckets) and the schema its files will have.

    *rows* is how many log rows it reads; of new batches *waiting* more are not read, for their transactions go on.
    *unverified* are columns of which rows that no change tells of may have other values, each with the position since
    which that is so; *gone* those that newer rows lack, each with the first place without it. *former* says how columns
    of earlier rows are read from now on; None where that was noted with the first files.
    """

    plans: list[tuple[TablePlan, StageTarget]]
    schema: TableSchema
    rows: int
    waiting: int = 0
    unverified: Mapping[str, str] = MappingProxyType({})
    gone: Mapping[str, str] = MappingProxyType({})
    former: Sequence[FormerColumn] | None = None


class Preparation:
    """Prepares the publications of a mirror's tables with a few queries for all of them together.

    *renames* says whether the source can rename a column while its changes are read, *salt* is that of hashes,
    *of_reading* says whether rows have the columns of the time when they were read (T-33). *loads_of_task* are the
    tables whose initial load and changes come from one task, *structures* looks up what the source announced of each.
    """

    @classmethod
    def of(cls, mirror: Mirror, reader: LedgerReader, declared: Mapping[str, Table]) -> Preparation:
        """That of a mirror; *declared* are the tables which are published."""
        form = format_of(mirror)

        def structures() -> Mapping[str, Sequence[Structure]]:
            return structures_of(mirror, ExtractLedger(reader.engine, mirror.name).schemas())

        return cls(
            mirror.name,
            reader,
            declared,
            mirror.publish,
            renames=form.renames_columns,
            salt=mirror.salt(),
            of_reading=mirror.source.spells_by_reading,
            loads_of_task={one.source for one in declared.values() if mirror.loads_of_task(one)},
            structures=structures,
        )

    def __init__(
        self,
        mirror: str,
        reader: LedgerReader,
        declared: Mapping[str, Table],
        settings: Publish,
        *,
        renames: bool = True,
        salt: Salt | None = None,
        of_reading: bool = False,
        loads_of_task: Collection[str] = (),
        structures: Callable[[], Mapping[str, Sequence[Structure]]] = dict,
    ) -> None:
        self._mirror = mirror
        self._loads_of_task, self._announced = loads_of_task, cache(structures)
        self._salted = None if salt is None else salt.check
        self._renames, self._of_reading = renames, of_reading
        self._reader = reader
        self._declared = declared
        self._settings = settings

    def prepare(self, tables: Sequence[tuple[TableState, Intent]]) -> dict[str, Prepared | PlanStop]:
        """What to stage for each table's intent, by table id; a :class:`PlanStop` where the table has to stop."""
        ids = [state.id for state, _ in tables]
        up_to = max(intent.work.batch_to for _, intent in tables)
        contents = self._reader.contents({s.source: i.batch_from for s, i in tables}, up_to)
        records, rejected = self._reader.column_records(state for state, _ in tables), self._reader.rejected(ids)
        unverified = self._reader.unverified_columns(state for state, _ in tables)
        taken = self._reader.taken_columns(state for state, _ in tables)
        horizons = self._reader.horizons(state for state, _ in tables)
        highest = self._reader.highest_of({s.source: i.batch_from for s, i in tables if i.batch_from})
        prepared: dict[str, Prepared | PlanStop] = {}
        for state, intent in tables:
            kept = records[state.id]
            ordinals = kept.epochs
            logged = [part for part in contents.get(state.source, []) if part.batch <= intent.work.batch_to]
            new = unpublished(self._reader, state, intent.work, logged, ordinals)
            declared = self._declared[state.source]
            columns = self._columns(state, kept, intent.work.position_to)
            try:
                schema, types = columns.schema(reload_on_add=self._requires_reload(declared))
                known = frozenset((r["epoch"], r["pos"], r["key"]) for r in rejected.get(state.id, []))
                plan = self._plan(state, intent, new, ordinals, highest.get(state.source, {}), schema, types, known)
                plan = replace(
                    plan, horizon=horizons.get(state.id), gone={c: one.after for c, one in columns.history.gone.items()}
                )
                names = {name for one in kept.lists for name in one.names}
                unread = declared.chosen.unread(names, taken.get(state.id, ()))
                plan = replace(plan, former=(*columns.spellings, *columns.former), unread=unread)
            except PlanStop as stop:
                prepared[state.id] = stop
                continue
            rows = sum(part.rows for part in (*new.arrived, *new.released))
            standing = _standing(state, intent, ordinals, len(known), kept.decided, unverified.get(state.id, ()))
            named = {"renamed": schema.renamed, "salted": schema.salted}
            standing = structs.replace(standing, former=len(columns.former), **named)
            cut = self._cut(plan, state, intent, schema, rows, standing)
            prepared[state.id] = cut._replace(
                waiting=sum(part.rows for part in new.waiting),
                unverified=columns.unverified,
                former=None if state.row.confirmed else tuple(columns.former),
                gone={column: one.since for column, one in columns.history.gone.items()},
            )
        return prepared

    def limits(self, tables: Mapping[str, tuple[TableState, Work]], *, whole_transactions: bool) -> dict[str, str]:
        """Where the work of tables has to stop for their columns, as the place up to which it may go, by table id.

        What comes before a change of structure that stops a table is published first.
        """
        records = self._reader.column_records(state for state, _ in tables.values())
        found: dict[str, str] = {}
        for id_, (state, work) in tables.items():
            columns = self._columns(state, records[id_], work.position_to)
            try:
                columns.schema(reload_on_add=self._requires_reload(self._declared[state.source]))
            except PlanStop as stop:
                if stop.at is not None:
                    # Without its half, or as its transaction alone, a place sorts below all that is in it.
                    parts = stop.at.split(":")[: 2 if whole_transactions else 3]
                    found[id_] = stop.at if stop.at.endswith("~") and not whole_transactions else ":".join(parts)
        return found

    def refused(self, tables: Iterable[TableState], busy: Collection[str]) -> dict[str, CannotStage]:
        """Quiet tables of which the mirror file says something else than their files have, by table id (G-129).

        Those that are *busy* have changes, and are judged when these are published. What `types` says is noted before
        changes are published by it, so that no crash leaves files by types that no one noted.
        """
        tables = [*tables]
        found = self.unfit([state for state in tables if state.source not in busy])
        anew = {s.id: text for s in tables if s.types != (text := self._declared[s.source].chosen.types_text)}
        if noted := {table_id: text for table_id, text in anew.items() if table_id not in found}:
            note_types(self._reader.engine, noted)
        return found

    def unfit(self, tables: Sequence[TableState]) -> dict[str, CannotStage]:
        """Tables of which the mirror file says something else than their files have, by table id; notes nothing.

        Only where `types` says something new are a table's column lists read: a run without changes reads none.
        """
        found = dict[str, CannotStage]()
        anew = {s.id for s in tables if s.types != self._declared[s.source].chosen.types_text}
        lists = self._reader.column_lists(anew) if anew else {}
        for state in tables:
            declared = self._declared[state.source]
            try:
                refuse_other_settings(state, declared, self._salted)
                if state.id in anew:
                    refuse_text_no_more(state, declared, lists.get(state.id, ()))
            except PlanStop as stop:
                found[state.id] = CannotStage(stop.code, stop.what)
        return found

    def schema_from_log(self, state: TableState) -> TableSchema:
        """The schema that a table would have whose rows come from the log alone.

        Raises:
            PlanStop: as for the files of a publication.
        """
        declared = self._declared[state.source]
        records = self._reader.column_records([state])[state.id]._replace(former=())
        row = replace(state.row, published_batch=0, confirmed=0)
        empty = state._replace(columns=TableSchema(()), text=declared.text_format, row=row, load_state="none")
        columns = self._columns(empty, records)
        return columns.schema(reload_on_add=self._requires_reload(declared))[0]

    def ends_of_lists(self, state: TableState) -> list[str]:
        """The places at which lists of columns end that changes of a table carried, ascending."""
        ids = [state.id]
        lists, ordinals = self._reader.column_lists(ids).get(state.id, []), self._reader.epochs(ids).get(state.id, {})
        seen = ((epoch, places.last) for one in lists for epoch, places in one.seen.items())
        return sorted({position_order(ordinals[epoch], last) for epoch, last in seen if epoch in ordinals})

    def _columns(self, state: TableState, records: ColumnRecords, up_to: str | None = None) -> TableColumns:
        declared = self._declared[state.source]
        source = source_columns(
            declared.chosen,
            renames=self._renames,
            asks=(declared.on_possible_rename or self._settings.on_possible_rename) != "dropped",
            structures=lambda: self._announced().get(".".join(declared.source_name), ()),
        )
        is_of_task = declared.source in self._loads_of_task
        return TableColumns(state, declared, records, source, lists_all=is_of_task, up_to=up_to, salted=self._salted)

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
        loaded = loaded_columns(state.load_plan, state.keys)
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
            lives_above=state.lives_above,
            newest_load=state.newest_load,
            rejected=rejected,
            columns=schema.columns,
            types=types,
            completing=completing,
            generation=generation,
            cut=None if start is None else Cut(start, end, batches),
            loaded_keys={name: one for name, one in loaded.items() if one.is_key},
            loaded=state.load_state == "loaded" and load_epoch(generation) not in epochs,
            null_text=None if state.text is None else state.text.null,
            of_reading=self._of_reading,
        )

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

    def _cut(
        self, plan: TablePlan, state: TableState, intent: Intent, schema: TableSchema, rows: int, standing: Standing
    ) -> Prepared:
        footer = Footer(
            self._mirror,
            state.id,
            state.row.generation,
            intent.first_number,
            intent.batch_from,
            intent.work.batch_to,
            "changes",
            standing=standing.to_json(),
        )
        settings = self._settings
        target = StageTarget(state.folder, settings.max_rows_per_file, footer, settings.compression, state.text)
        ranges = bucket_ranges(rows, ROWS_PER_TASK) if plan.keys else [plan.buckets]
        plans = [(replace(plan, buckets=buckets), target) for buckets in ranges]
        return Prepared(plans, schema, rows)


def _standing(
    state: TableState,
    intent: Intent,
    epochs: Mapping[str, int],
    untyped: int,
    decided: Sequence[Word],
    unverified: Sequence[ColumnNote],
) -> Standing:
    """What the files' footers say of the table, should the ledger get lost."""
    load = state.load_plan
    return Standing(
        published_position=state.row.published_position,
        position_from=intent.work.position_from,
        position_to=intent.work.position_to,
        waiting_rows=state.waiting_rows,
        stream_from=state.stream_from,
        stream_epoch=state.stream_epoch,
        log_from=state.log_from,
        lives_above=state.lives_above,
        newest_load=None if state.newest_load is None else state.newest_load.to_json(),
        loaded_columns=None if load is None else len(load.columns),
        hand_over_batch=0 if load is None else load.hand_over_batch,
        untyped=untyped,
        epochs=epochs,
        decided=tuple((one.column, one.up_to, one.now) for one in decided),
        unverified=tuple((one.kind.value, one.column, one.since) for one in unverified),
    )


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
