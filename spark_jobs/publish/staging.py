"""Publishes in a worker: reads its row groups of the log, plans, types, and creates staged objects.

Staged objects have names that are used once. The target sees nothing before the driver has sealed their names, ETags
and digests and renamed them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.errors import TransientError
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.arrow_schema import landed_file_schema
from open_mirroring.landing_zone.data_file import Footer, WrittenFile, check_data_file, invalid_file, write_data_file
from open_mirroring.landing_zone.delimited_text import bytes_digest, write_text_file
from open_mirroring.landing_zone.opening import ZoneAddress, open_store
from open_mirroring.landing_zone.salt import Salt
from open_mirroring.landing_zone.schema import landed
from open_mirroring.landing_zone.store import LandingZoneStore, ObjectInfo
from open_mirroring.landing_zone.text_format import TextFormat
from open_mirroring.protocols.publishing import StagedFile
from open_mirroring.storage.arrow_files import arrow_files
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.log_paths import paths_of
from spark_jobs.changelog.reading import CHANGES_SCHEMA, DATED_SCHEMA, Wanted, read_changes, read_history
from spark_jobs.plan.plan import PlannedRows, PlanStop, TablePlan, plan_table
from spark_jobs.plan.transaction_cut import rows_of
from spark_jobs.sources.sql_server.hashed_columns import landed_rows

_NAMES = 3
_CREATIONS_AT_ONCE = 16


@dataclass(frozen=True)
class StageTarget:
    """Where a table's staged objects go, how they are written, and what their footers say."""

    folder: str
    max_rows: int
    footer: Footer
    compression: layout.Compression = layout.DEFAULT_COMPRESSION
    text: TextFormat | None = None

    def write(self, path: Path, rows: pa.Table, schema: pa.Schema, lowest: str, highest: str) -> WrittenFile:
        """Write one file with changes between two positions."""
        if self.text is not None:
            return write_text_file(path, rows, schema, self.text)
        footer = replace(self.footer, first_position=lowest, last_position=highest)
        return write_data_file(path, rows, schema, footer, self.compression)


@dataclass(frozen=True)
class StageTask:
    """Some tables, or some key buckets of one, to be planned and staged by one worker."""

    log_root: Place
    tables: tuple[tuple[TablePlan, StageTarget], ...]


class StagedTable(NamedTuple):
    """What a task staged of a table: files in order, counts and dead letters; or the stop it found.

    *unverified* is that of :class:`PlannedRows`.
    """

    table_id: str
    files: tuple[StagedFile, ...]
    counts: dict[str, int]
    rejected: tuple[dict[str, object], ...]
    stop: tuple[str, str] | None
    unverified: str | None = None


def stage(zone: ZoneAddress, salt: Salt | None, task: StageTask) -> list[StagedTable]:
    """Plan and stage every table of the task; a table that has to stop does not hinder the others.

    The salt comes with the function, as the zone's login does: Spark keeps tasks in a file for a moment.
    A table's files are created while the next tables are planned: creating mostly waits for the store.
    """
    # Names are used once: a task that Spark repeats, for its worker died, finds those of the first try taken.
    attempt = uuid4().hex
    store = open_store(zone)
    plans = [plan for plan, _ in task.tables]
    new_files = paths_of(task.log_root, sorted({file for plan in plans for file in plan.new_files}))
    wanted = Wanted(sorted(plan.source for plan in plans), *plans[0].buckets)
    dated = any(plan.logs_transactions for plan in plans)
    by_table = read_changes(new_files, wanted, arrow_files(task.log_root), DATED_SCHEMA if dated else CHANGES_SCHEMA)
    staged: list[StagedTable] = []
    creations: list[list[Future[StagedFile]]] = []
    with (
        tempfile.TemporaryDirectory(prefix="open_mirroring-") as scratch,
        ThreadPoolExecutor(_CREATIONS_AT_ONCE) as pool,
    ):
        for position, (plan, target) in enumerate(task.tables):
            new = by_table.pop(plan.source, DATED_SCHEMA.empty_table()).select(_schema_of(plan).names)
            footer = target.footer
            is_new = pc.and_(pc.greater(new["batch"], footer.batch_from), pc.less_equal(new["batch"], footer.batch_to))
            try:
                if plan.cut is not None:
                    new = new.filter(rows_of(plan.cut, footer.batch_from))
                elif pc.all(is_new).as_py() is False:
                    new = new.filter(is_new)
                history = _History(task.log_root, plan)
                planned = plan_table(plan, new, history, history.any, history.older)
            except PlanStop as stop:
                staged.append(StagedTable(plan.table_id, (), {}, (), (stop.code, stop.what)))
                creations.append([])
                continue
            name = f"{footer.first_number:020d}.{attempt}.{position:04d}"
            files = _written(plan, target, planned, name, Path(scratch), salt)
            creations.append([pool.submit(_create, store, file) for file in files])
            rejected = tuple(planned.rejected)
            staged.append(StagedTable(plan.table_id, (), planned.counts, rejected, None, planned.unverified))
        return [
            table._replace(files=tuple(created.result() for created in files))
            for table, files in zip(staged, creations, strict=True)
        ]


def stage_no_rows(zone: ZoneAddress, plan: TablePlan, target: StageTarget) -> StagedFile:
    """One staged file without rows, so that the target creates an empty table (F-41)."""
    schema, (_, keys) = landed_file_schema(plan.columns, plan.keys, marker=True), landed(plan.columns, plan.keys)
    path = f"{layout.staging_folder(target.folder, target.footer.generation)}/{target.footer.first_number:020d}"
    with tempfile.TemporaryDirectory(prefix="open_mirroring-") as scratch:
        local = Path(scratch) / "0"
        written = target.write(local, schema.empty_table(), schema, "", "")
        store, is_text = open_store(zone), target.text is not None
        return create_staged(store, f"{path}.{uuid4().hex}.0000", local, written, schema, keys, is_text=is_text)


class _History:
    """Reads the earlier changes of some keys of one table."""

    def __init__(self, log_root: Place, plan: TablePlan) -> None:
        self._files = paths_of(log_root, plan.history_files)
        self._root, self._plan, self._storage = log_root, plan, arrow_files(log_root)
        self._all = sorted({*plan.history_files, *plan.new_files})

    def any(self, condition: pc.Expression) -> pa.Table:
        """The changes that fulfil a condition, new ones included, whatever their key bucket."""
        return self._read(paths_of(self._root, self._all), condition)

    def older(self, condition: pc.Expression) -> pa.Table:
        """The published changes that fulfil a condition in all other files of the log, which mostly nobody reads."""
        from spark_jobs.changelog.delta_log import log_files  # brings delta-rs, which few tasks wait for

        others = paths_of(self._root, sorted({*log_files(self._root)} - {*self._all}))
        older = condition & (pc.field("batch") <= self._plan.batch_from)
        return self._read(others, older)

    def __call__(self, keys: Sequence[str]) -> pa.Table:
        if self._plan.keys:
            chosen = pc.field("key").isin(keys)
        else:
            # A table without key is decided by position; the key stands for `epoch ordinal:position`.
            chosen = pc.field("pos").isin([key.partition(":")[2] for key in keys])
        return self._read(self._files, chosen)

    def _read(self, files: Sequence[str], chosen: pc.Expression) -> pa.Table:
        return read_history(files, self._plan.source, chosen, self._storage, _schema_of(self._plan))


def _schema_of(plan: TablePlan) -> pa.Schema:
    return DATED_SCHEMA if plan.logs_transactions else CHANGES_SCHEMA


class _LocalFile(NamedTuple):
    """A finished file, and the staged object that it becomes."""

    path: str
    local: Path
    written: WrittenFile
    schema: pa.Schema
    keys: Sequence[str]
    lowest: str
    highest: str
    is_text: bool


def _written(
    plan: TablePlan, target: StageTarget, planned: PlannedRows, name: str, scratch: Path, salt: Salt | None
) -> Iterator[_LocalFile]:
    """Write the table's files, none longer than ``max_rows``; nothing planned, no file."""
    schema, (_, keys) = landed_file_schema(plan.columns, plan.keys, marker=True), landed(plan.columns, plan.keys)
    lowest, highest = planned.positions
    planned_rows = landed_rows(planned.rows, plan.columns, schema.names, salt)
    for index, start in enumerate(range(0, planned.rows.num_rows, target.max_rows)):
        local = scratch / f"{name}.{index:04d}"
        rows = planned_rows.slice(start, target.max_rows)
        written = target.write(local, rows, schema, lowest, highest)
        path = f"{layout.staging_folder(target.folder, target.footer.generation)}/{name}.{index:04d}"
        yield _LocalFile(path, local, written, schema, keys, lowest, highest, target.text is not None)


def _create(store: LandingZoneStore, file: _LocalFile) -> StagedFile:
    created = create_staged(store, *file)
    file.local.unlink()
    return created


def create_staged(
    store: LandingZoneStore,
    path: str,
    local: Path,
    written: WrittenFile,
    schema: pa.Schema,
    keys: Sequence[str],
    lowest: str = "",
    highest: str = "",
    is_text: bool = False,
) -> StagedFile:
    """Upload a finished file under a staging name that is used once, and read it back to check it.

    A creation of which the outcome is unknown is not repeated: the next name is tried, ``.1`` and so on appended. What
    may come of the first one late is an object that nothing refers to (O-08).

    Raises:
        TransientError: ``CHANGED_MEANWHILE``: somebody swept or reset meanwhile; run again. What the
            store raises, when none of some names could be created.
        TerminalError: ``FILE_UNFIT``: what came back is not what was written.
    """
    created = _created(store, path, local)
    with store.fetch(created.path) as back:
        if back is None or created.size != written.size:
            what = f"the staged object {created.path!r} is not there as created"
            raise TransientError("CHANGED_MEANWHILE", what, way_out="run again")
        if not is_text:
            check_data_file(back, schema, keys)
        elif bytes_digest(back) != written.digest:
            raise invalid_file(back, "it holds other bytes than were written")
    return StagedFile(created.path, created.etag, written.digest, written.rows, written.size, lowest, highest)


def _created(store: LandingZoneStore, path: str, local: Path) -> ObjectInfo:
    names = [path, *(f"{path}.{attempt}" for attempt in range(1, _NAMES))]
    for name in names:
        try:
            created = store.create(name, local)
        except TransientError:
            if name == names[-1]:
                raise
            continue
        if created is None:
            raise TransientError("CHANGED_MEANWHILE", f"the staging name {name!r} is taken", way_out="run again")
        return created
    raise AssertionError("the last name returns or raises")
