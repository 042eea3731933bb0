"""What a worker does for publishing: read its row groups of the log, plan, type, and create staged objects.

Workers create staged objects under names used once; nothing is visible to the target before the driver has sealed
their names, ETags and digests and renamed them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.errors import TransientError
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.data_file import Footer, Written, check_data_file, write_data_file
from open_mirroring.landing_zone.opening import ZoneAddress, open_store
from open_mirroring.landing_zone.schema import file_schema
from open_mirroring.landing_zone.store import LandingZoneStore
from open_mirroring.publishing import StagedFile
from spark_jobs.log_reading import CHANGES_SCHEMA, Wanted, read_changes, read_history
from spark_jobs.planning import PlannedRows, PlanStop, TablePlan, plan_table
from spark_jobs.transaction_cut import rows_of


@dataclass(frozen=True)
class StageTarget:
    """Where a table's staged objects go, and what their footers say."""

    folder: str
    max_rows: int
    footer: Footer


@dataclass(frozen=True)
class StageTask:
    """Some tables, or some key buckets of one, to be planned and staged by one worker."""

    log_root: Path
    zone: ZoneAddress
    attempt: str
    index: int
    tables: tuple[tuple[TablePlan, StageTarget], ...]


class StagedTable(NamedTuple):
    """What a task staged of a table: files in order, counts and dead letters; or the stop it found."""

    table_id: str
    files: tuple[StagedFile, ...]
    counts: dict[str, int]
    rejected: tuple[dict[str, object], ...]
    stop: tuple[str, str] | None


def stage(task: StageTask) -> list[StagedTable]:
    """Plan and stage every table of the task; a table that has to stop does not hinder the others."""
    store = open_store(task.zone)
    plans = [plan for plan, _ in task.tables]
    files = sorted({str(task.log_root / file) for plan in plans for file in plan.new_files})
    by_table = read_changes(files, Wanted(sorted(plan.source for plan in plans), *plans[0].buckets))
    staged: list[StagedTable] = []
    for position, (plan, target) in enumerate(task.tables):
        new = by_table.pop(plan.source, CHANGES_SCHEMA.empty_table())
        footer = target.footer
        is_new = pc.and_(pc.greater(new["batch"], footer.batch_from), pc.less_equal(new["batch"], footer.batch_to))
        try:
            if plan.cut is not None:
                new = new.filter(rows_of(plan.cut, footer.batch_from))
            elif pc.all(is_new).as_py() is False:
                new = new.filter(is_new)
            history = _History(task.log_root, plan)
            planned = plan_table(plan, new, history, history.any)
        except PlanStop as stop:
            staged.append(StagedTable(plan.table_id, (), {}, (), (stop.code, stop.what)))
            continue
        name = f"{footer.first_number:020d}.{task.attempt}.{task.index:04d}{position:04d}"
        objects = _create(store, plan, target, planned, name)
        staged.append(StagedTable(plan.table_id, objects, planned.counts, tuple(planned.rejected), None))
    return staged


class _History:
    """Reads the earlier changes of some keys of one table."""

    def __init__(self, log_root: Path, plan: TablePlan) -> None:
        self._files = [str(log_root / file) for file in plan.history_files]
        self._plan = plan
        self._all = sorted({str(log_root / file) for file in (*plan.history_files, *plan.new_files)})

    def any(self, condition: pc.Expression) -> pa.Table:
        """The changes that fulfil a condition, new ones included, whatever their key bucket."""
        return read_history(self._all, self._plan.source, condition)

    def __call__(self, keys: Sequence[str]) -> pa.Table:
        if self._plan.keys:
            chosen = pc.field("key").isin(keys)
        else:
            # A table without key is decided by position; the key stands for `epoch ordinal:position`.
            chosen = pc.field("pos").isin([key.partition(":")[2] for key in keys])
        return read_history(self._files, self._plan.source, chosen)


def _create(
    store: LandingZoneStore, plan: TablePlan, target: StageTarget, planned: PlannedRows, name: str
) -> tuple[StagedFile, ...]:
    """Create and read back the table's staged objects, none longer than ``max_rows``; nothing planned, no object."""
    schema = file_schema(plan.columns, plan.keys, marker=True)
    lowest, highest = planned.positions
    footer = replace(target.footer, first_position=lowest, last_position=highest)
    files: list[StagedFile] = []
    with tempfile.TemporaryDirectory(prefix="open_mirroring-") as scratch:
        for start in range(0, planned.rows.num_rows, target.max_rows):
            local = Path(scratch) / f"{start}.parquet"
            written = write_data_file(local, planned.rows.slice(start, target.max_rows), schema, footer)
            path = f"{layout.staging_folder(target.folder, footer.generation)}/{name}.{len(files):04d}"
            files.append(create_staged(store, path, local, written, schema, plan.keys, lowest, highest))
    return tuple(files)


def create_staged(
    store: LandingZoneStore,
    path: str,
    local: Path,
    written: Written,
    schema: pa.Schema,
    keys: Sequence[str],
    lowest: str = "",
    highest: str = "",
) -> StagedFile:
    """Upload a finished file under a staging name used once, and read it back before anybody relies on it.

    Raises:
        TransientError: ``STAGED_NAME_TAKEN``, ``STAGED_GONE``: somebody swept or reset meanwhile; run again.
        TerminalError: ``DATA_FILE_INVALID``: what came back is not what was written.
    """
    created = store.create(path, local)
    if created is None:
        raise TransientError("STAGED_NAME_TAKEN", f"the staging name {path!r} is taken", way_out="run again")
    back = store.fetch(path)
    if back is None or created.size != written.size:
        raise TransientError("STAGED_GONE", f"the staged object {path!r} is not there as created", way_out="run again")
    check_data_file(back, schema, keys)
    return StagedFile(path, created.etag, written.digest, written.rows, written.size, lowest, highest)
