"""Stages in a worker: reads changes from the change log, plans them, and creates staged files.

Each staged file has a name that is never used again. Fabric sees a staged file only after the driver recorded its name,
ETag and digest in the ledger and renamed the file to its number.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
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
from open_mirroring.landing_zone.schema import LandingColumn, landed
from open_mirroring.landing_zone.store import LandingZoneStore, ObjectInfo
from open_mirroring.landing_zone.text_format import TextFormat
from open_mirroring.protocols.publishing import StagedFile
from open_mirroring.storage.arrow_files import arrow_files
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.reading import (
    CHANGES_SCHEMA,
    DATED_SCHEMA,
    Wanted,
    paths_of,
    read_changes,
    read_history,
    read_keys,
)
from spark_jobs.plan.plan import plan_table
from spark_jobs.plan.selection import CountingChanges, place_of_key
from spark_jobs.plan.table_plan import PlannedRows, PlanStop, TablePlan
from spark_jobs.sources.sql_server.target_columns import landed_rows

_NAMES = 3
_CREATIONS_AT_ONCE = 16
_FEW_KEYS = 10_000
"""More keys are in most row groups, which are then read as a whole at once."""


@dataclass(frozen=True)
class StageTarget:
    """Where a table's staged files are created, how they are written, and the content of their Parquet footers."""

    folder: str
    max_rows: int
    footer: Footer
    compression: layout.Compression = layout.DEFAULT_COMPRESSION
    text: TextFormat | None = None
    append_only: bool = False

    @property
    def has_markers(self) -> bool:
        """Whether the table's files have a row marker column; without this column Fabric inserts every row (F-57)."""
        return self.footer.kind != "load" and not self.append_only

    def object_name(self, attempt: str) -> str:
        """A staging name that is never used again; its number is the first file number of the publication."""
        folder = layout.staging_folder(self.folder, self.footer.generation)
        return f"{folder}/{self.footer.first_number:020d}.{attempt}"

    def write(self, path: Path, rows: pa.Table, schema: pa.Schema, lowest: str, highest: str) -> WrittenFile:
        """Write one file with the changes in *rows*, whose positions are between *lowest* and *highest*."""
        if self.text is not None:
            return write_text_file(path, rows, schema, self.text)
        footer = replace(self.footer, first_position=lowest, last_position=highest)
        return write_data_file(path, rows, schema, footer, self.compression)


StageTask = tuple[tuple[TablePlan, StageTarget], ...]
"""Some tables, or some key buckets of one table, to be planned and staged by one worker."""


class StagedTable(NamedTuple):
    """What a task staged of one table: files in order, counts and dead letters; or *stop*: why the table must stop.

    *unverified* is the position from which on only a before image proves that a delete removed the right row (G-115).
    """

    table_id: str
    files: tuple[StagedFile, ...] = ()
    counts: Mapping[str, int] = MappingProxyType({})
    rejected: Sequence[Mapping[str, Any]] = ()
    stop: tuple[str, str] | None = None
    unverified: str | None = None


def stage(log_root: Place, zone: ZoneAddress, salt: Salt | None, task: StageTask) -> list[StagedTable]:
    """Plan and stage every table of the task; a table that has to stop does not affect the others.

    *salt* is a secret, which is sent with the function and not in *task*, because Spark keeps tasks in a file for a
    moment. A table's files are uploaded while the next tables are planned.
    """
    # Names are used once: a task that Spark repeats, for its worker died, finds those of the first try taken.
    attempt, store, log = uuid4().hex, open_store(zone), _Log(log_root, task)
    staged: list[StagedTable] = []
    creations: list[list[Future[StagedFile]]] = []
    with (
        tempfile.TemporaryDirectory(prefix="open_mirroring-") as scratch,
        ThreadPoolExecutor(_CREATIONS_AT_ONCE) as pool,
    ):
        for position, (plan, target) in enumerate(task):
            table_id, name = target.footer.table_id, f"{attempt}.{position:04d}"
            try:
                planned = plan_table(plan, log.new(plan, target.footer), log.counting(plan))
            except PlanStop as stop:
                staged.append(StagedTable(table_id, stop=(stop.code, stop.what)))
                creations.append([])
                continue
            files = _written(plan, target, planned, Path(scratch) / name, salt)
            creations.append([pool.submit(file, store) for file in files])
            staged.append(StagedTable(table_id, (), planned.counts, planned.rejected, None, planned.unverified))
        return [
            table._replace(files=tuple(created.result() for created in files))
            for table, files in zip(staged, creations, strict=True)
        ]


class _Log:
    """Reads the change log for all tables of one task together."""

    def __init__(self, root: Place, task: StageTask) -> None:
        plans = [plan for plan, _ in task]
        self._root, self._storage, self._plans = root, arrow_files(root), Counter(plan.source for plan in plans)
        self._schema = DATED_SCHEMA if any(plan.columns.with_transaction for plan in plans) else CHANGES_SCHEMA
        files = sorted({file for plan in plans for file in plan.new_files})
        wanted = Wanted(sorted({plan.source for plan in plans}), *plans[0].buckets)
        self._new = read_changes(paths_of(root, files), wanted, self._storage, self._schema)

    def new(self, plan: TablePlan, footer: Footer) -> pa.Table:
        """The new changes of a plan's table; their memory is freed once the last plan that needs them is made."""
        # A table and its history have the same changes.
        self._plans[plan.source] -= 1
        take = self._new.get if self._plans[plan.source] else self._new.pop
        new = take(plan.source, self._schema.empty_table())
        if plan.cut is not None:
            return new.filter(plan.cut.rows(footer.batch_from))
        is_new = pc.and_(pc.greater(new["batch"], footer.batch_from), pc.less_equal(new["batch"], footer.batch_to))
        return new.filter(is_new) if pc.all(is_new).as_py() is False else new

    def counting(self, plan: TablePlan) -> CountingChanges:
        """A reader for those earlier changes of a table that count for its plan."""
        known = sorted({*plan.history_files, *plan.new_files})

        def read(files: Sequence[str], chosen: pc.Expression) -> pa.Table:
            return read_history(paths_of(self._root, files), plan.source, chosen, self._storage, self._schema)

        def of_keys(keys: Sequence[str]) -> pa.Table:
            if plan.keys and len(keys) <= _FEW_KEYS:
                files = paths_of(self._root, plan.history_files)
                return read_keys(files, plan.source, keys, self._storage, self._schema)
            # A table without key is decided by position, with which its keys begin: `epoch ordinal:position`.
            at_place = pc.field("pos").isin([place_of_key(key) for key in keys])
            return read(plan.history_files, pc.field("key").isin(keys) if plan.keys else at_place)

        def older(condition: pc.Expression) -> pa.Table:
            from spark_jobs.changelog.delta_log import log_files  # loads delta-rs, which few tasks need

            others = sorted({*log_files(self._root)}.difference(known))
            return read(others, condition & (pc.field("batch") <= plan.batch_from))

        return CountingChanges(plan, of_keys, partial(read, known), older)


def _written(
    plan: TablePlan, target: StageTarget, planned: PlannedRows, scratch: Path, salt: Salt | None
) -> Iterator[Callable[[LandingZoneStore], StagedFile]]:
    """Write the table's files, each with at most ``max_rows`` rows; yields a function that uploads each file."""
    landing = plan.columns.landing
    schema, keys = landed_file_schema(landing, plan.keys, marker=target.has_markers), landed(landing, plan.keys)[1]
    rows = landed_rows(planned.rows.select(range(len(schema))), landing, schema.names, salt)
    for index, start in enumerate(range(0, rows.num_rows, target.max_rows)):
        local = scratch.with_name(f"{scratch.name}.{index:04d}")
        yield _file(local, target, rows.slice(start, target.max_rows), schema, keys, planned.positions)


def _file(
    local: Path,
    target: StageTarget,
    rows: pa.Table,
    schema: pa.Schema,
    keys: Sequence[str],
    positions: tuple[str, str],
) -> Callable[[LandingZoneStore], StagedFile]:
    """Write one file; returns a function that creates its staged object and removes the file."""
    written = target.write(local, rows, schema, *positions)

    def create(store: LandingZoneStore) -> StagedFile:
        name, is_text = target.object_name(local.name), target.text is not None
        created = create_staged(store, name, local, written, schema, keys, *positions, is_text=is_text)
        local.unlink()
        return created

    return create


def stage_no_rows(
    zone: ZoneAddress,
    target: StageTarget,
    columns: Sequence[LandingColumn],
    keys: Sequence[str],
    positions: tuple[str, str] = ("", ""),
) -> StagedFile:
    """Stage one file without rows, from which Fabric creates an empty table (F-41)."""
    schema = landed_file_schema(columns, keys, marker=target.has_markers)
    with tempfile.TemporaryDirectory(prefix="open_mirroring-") as scratch:
        local, landed_keys = Path(scratch) / uuid4().hex, landed(columns, keys)[1]
        return _file(local, target, schema.empty_table(), schema, landed_keys, positions)(open_store(zone))


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
    """Upload a file under a staging name that is never used again, and read the object back to check it.

    If the outcome of an upload is unknown, the file is uploaded again under another name (``.1`` and so on): the first
    object may still appear, but nothing refers to it (O-08). Raises ``CHANGED_MEANWHILE`` if the name is taken, or if
    the object is gone or has another size; ``FILE_UNFIT`` if the object has other content; and the errors of the
    landing zone.
    """
    created = _created(store, path, local)
    with store.fetch(created.path) as back:
        if back is None or created.size != written.size:
            what = f"the staged object {created.path!r} is not there as created"
            raise TransientError("CHANGED_MEANWHILE", what, next_step="run again")
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
            raise TransientError("CHANGED_MEANWHILE", f"the staging name {name!r} is taken", next_step="run again")
        return created
    raise AssertionError("the last name returns or raises")
