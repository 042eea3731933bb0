"""A change log that an earlier version made goes on, with the columns that this one has (G-118)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from open_mirroring.changes.manifest import Manifest
from open_mirroring.protocols.extracting import Committed
from spark_jobs.changelog.arrow_schema import LOG_SCHEMA
from spark_jobs.changelog.change_log import ChangeLog
from spark_jobs.changelog.delta_log import log_error
from spark_jobs.changelog.log_paths import BLOCK, file_path
from spark_jobs.changelog.reading import DATED_SCHEMA, Wanted, read_changes, read_history
from spark_jobs.changelog.schema import CHANGE, TRANSACTION_COLUMNS, LogRow
from spark_jobs.changelog.writing import LogWriter, log_table

EARLIER = pa.schema([field for field in LOG_SCHEMA if field.name not in TRANSACTION_COLUMNS])


def change(place: int, **given: str) -> LogRow:
    return LogRow(
        CHANGE, "f", place, "dbo.t", 0, "guid", f"A{place}:1:1", "I", f'["{place}"]', "[]", True, "{}", **given
    )


def test_a_log_without_the_columns_gets_them_and_its_files_tell_nothing_g118(tmp_path: Path) -> None:
    """G-118: an earlier file that was sealed and not committed is committed, too."""
    DeltaTable.create(str(tmp_path), pa.schema([*EARLIER, pa.field(BLOCK, pa.int32())]), partition_by=[BLOCK])
    earlier = tmp_path / file_path(1, "a", 0, "x")
    earlier.parent.mkdir()
    pq.write_table(log_table([change(1)], 1).select(EARLIER.names).cast(EARLIER), earlier)
    sealed = {"path": str(earlier.relative_to(tmp_path)), "rows": 1, "size": earlier.stat().st_size, "tables": {}}
    writer = LogWriter(tmp_path, 2, "b", 0)
    writer.add([change(2, committed="2026-08-07T16:30:10Z", transaction="T")])
    for batch, files in ((1, [sealed]), (2, writer.finish().files)):
        log, manifest = ChangeLog(tmp_path, "m"), Manifest(files=tuple(files), counts={}, columns={})
        log.open(batch, manifest, "")
        assert isinstance(log.commit(batch, manifest), Committed)
    table = DeltaTable(str(tmp_path))
    assert {*TRANSACTION_COLUMNS} <= {field.name for field in table.schema().fields}
    paths = sorted(table.file_uris())
    (read,) = read_changes(paths, Wanted(["dbo.t"], -1, 64), schema=DATED_SCHEMA).values()
    again = read_history(paths, "dbo.t", pc.scalar(True), schema=DATED_SCHEMA)
    for found in (read, again):
        assert sorted(found["transaction"].to_pylist(), key=str) == [None, "T"]


def test_what_the_log_s_library_draws_is_told_in_one_line_s26(tmp_path: Path) -> None:
    """It draws causes in lines and colours."""
    drawn = DeltaError("it failed\n  \x1b[31m↳\x1b[0m No space left on device")
    told = log_error(tmp_path, "it did not take batch 2", drawn)
    assert told.what == "the change log: it did not take batch 2: it failed ↳ No space left on device"
    assert (told.code, log_error(tmp_path, "x", DeltaError("else")).code) == ("DISK_FULL", "LOG_COMMIT_FAILED")
