"""The change log: a Delta table to which each batch adds its finished files in one commit.

The driver adds exactly the files that the ledger sealed for the batch. The commit names the batch (Delta's application
transaction), and fails if the table has changed since the driver opened it. So two drivers never commit one batch
twice. The driver checks each file before the commit, because Delta does not check added files. The table keeps the
oldest Delta protocol version, because workers read its files directly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from open_mirroring.changes.manifest import Manifest
from open_mirroring.errors import TerminalError
from open_mirroring.protocols.extracting import CommitRefused, Committed, LogOpened
from open_mirroring.storage.object_path import ObjectPath, ObjectStatus, Place, delta_address
from spark_jobs.changelog.arrow_schema import LOG_SCHEMA
from spark_jobs.changelog.delta_log import log_error, opened_log, our_log_errors, refuse_foreign, upgraded
from spark_jobs.changelog.newest_batch import app_id
from spark_jobs.changelog.schema import BATCHES_PER_BLOCK, BLOCK

_PROBE = "_created_once"
"""An object next to the table that stays there. A storage that creates it twice could also commit a version twice."""
_OPENED_AT_ONCE = 8
_CONFIGURATION = {"delta.checkpointInterval": "20", "delta.appendOnly": "false", "delta.enableDeletionVectors": "false"}


class ChangeLog:
    """The change log of one mirror."""

    def __init__(self, root: Place, mirror: str) -> None:
        self.root = root
        self._mirror, self._app_id = mirror, app_id(mirror)
        self._opened: DeltaTable | None = None

    def open(self, batch: int, manifest: Manifest, document: str) -> LogOpened:
        """Open the newest version of the change log, or create it, and find out whether it contains the batch.

        The manifest in the result is None if the change log does not have the batch. The manifest is *document* if the
        change log has exactly the files of *manifest* for the batch, else an empty string.
        """
        table = self._newest()
        if (table.transaction_version(self._app_id) or 0) < batch:
            return LogOpened(table.version(), None)
        prefix = f"{batch:012d}-"
        block = f"{BLOCK} = {batch // BATCHES_PER_BLOCK}"
        uris = table.file_uris(file_pruning_predicate=block) if manifest.files else []
        names = {Path(uri).name for uri in uris}
        found = {name for name in names if name.startswith(prefix)}
        sealed = {Path(file["path"]).name for file in manifest.files}
        return LogOpened(table.version(), document if found == sealed else "")

    def claim(self) -> None:
        """Create the change log if there is none; raises ``MIRROR_CLASH`` if it is the change log of another mirror."""
        self._open()
        self._opened = None

    def commit(self, batch: int, manifest: Manifest) -> Committed | CommitRefused:
        """Add the manifest's files in one commit, based on the version of the change log that :meth:`open` read last.

        Raises ``LOG_DAMAGED`` if the size or content of a file does not match the manifest.
        """
        table, self._opened = self._opened, None
        if table is None:
            raise ValueError("open the log before committing to it")
        # Opening a file mostly waits for the storage.
        with ThreadPoolExecutor(_OPENED_AT_ONCE) as pool:
            actions: list[AddAction | RemoveAction] = [*pool.map(partial(self._checked, batch), manifest.files)]
        properties = CommitProperties(
            custom_metadata={"userMetadata": json.dumps({"batch": batch})},
            app_transactions=[Transaction(self._app_id, batch)],
            max_commit_retries=0,
        )
        try:
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                partition_by=[BLOCK],
                commit_properties=properties,
                # The clean-up hook lists the log folder on every commit; maintenance does that once a day.
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
            )
        except CommitFailedError:
            return CommitRefused()
        except (DeltaError, OSError) as error:
            raise log_error(self.root, f"it did not take batch {batch}", error) from None
        self._opened = table
        return Committed()

    def _newest(self) -> DeltaTable:
        """The newest state of the log; after an own commit only that is read, and not the names of all files again."""
        if self._opened is not None:
            try:
                self._opened.update_incremental()
                return self._opened
            except (DeltaError, OSError):
                pass  # a token expires
        return self._open()

    def _open(self) -> DeltaTable:
        table = opened_log(self.root)
        if table is None:
            self._create()
            table = opened_log(self.root)
            assert table is not None
        refuse_foreign(table, self.root, self._mirror)
        if what := upgraded(table):
            raise TerminalError(
                "LOG_DAMAGED",
                what,
                where=str(self.root),
                next_step="its files are read directly, so deletion vectors and column mapping must stay off; "
                "restore the table's protocol or start a new log",
            )
        self._opened = table
        return table

    def _create(self) -> None:
        if isinstance(self.root, Path):
            self.root.mkdir(parents=True, exist_ok=True)
        else:
            check_conditional(self.root)
        with our_log_errors(self.root, "it cannot be created"):
            uri, options = delta_address(self.root)
            DeltaTable.create(
                uri,
                pa.schema([*LOG_SCHEMA, pa.field(BLOCK, pa.int32())]),
                mode="ignore",
                name=self._mirror,  # the creator of the change log owns it: only one of two creates version 0
                partition_by=[BLOCK],
                configuration=_CONFIGURATION,
                storage_options=options,
            )

    def _checked(self, batch: int, file: Mapping[str, Any]) -> AddAction:
        path = self.root / file["path"]
        try:
            stat = path.stat()
            with pq.ParquetFile(path if isinstance(path, Path) else path.open()) as parquet:
                schema, rows = parquet.schema_arrow, parquet.metadata.num_rows
        except (OSError, ValueError) as error:
            raise _invalid(path, f"cannot be read: {error}") from error
        size = stat.st_size
        if (size, rows) != (file["size"], file["rows"]):
            raise _invalid(path, f"has {size} bytes and {rows} rows, sealed were {file['size']} and {file['rows']}")
        if isinstance(stat, ObjectStatus) and stat.version != f"{size}:{file['etag']}":
            raise _invalid(path, "is another object than was sealed: its ETag differs")
        if not schema.equals(LOG_SCHEMA, check_metadata=False):
            raise _invalid(path, "has another schema than the change log")
        stats = {
            "numRecords": rows,
            "minValues": {"batch": batch},
            "maxValues": {"batch": batch},
            "nullCount": {"batch": 0},
        }
        modified = int(datetime.now(UTC).timestamp() * 1000)
        block = {BLOCK: str(batch // BATCHES_PER_BLOCK)}
        return AddAction(file["path"], size, block, modified, True, json.dumps(stats))


def check_conditional(root: ObjectPath) -> None:
    """Check that the storage refuses to create an object twice (S-10); raises ``STORE_UNFIT`` if it does not."""
    probe = root / _PROBE
    for _ in range(2):
        try:
            probe.create(b"")
        except FileExistsError:
            return
    raise TerminalError(
        "STORE_UNFIT",
        "the storage creates an object although it exists: two drivers could both commit a batch",
        where=str(root),
        next_step="use a storage that keeps If-None-Match on PUT, as Azure Blob Storage and Amazon S3 do",
    )


def _invalid(path: Path | ObjectPath, what: str) -> TerminalError:
    return TerminalError(
        "LOG_DAMAGED",
        f"the log file {path.name} {what}",
        where=str(path.parent),
        next_step="nothing was committed: restore the file from a backup, then run again",
    )


_NOT_MAINTAINED = "it could not be maintained; what is below the horizon is only not gone yet"


def drop_blocks(root: Place, dropped: int) -> None:
    """Remove the partitions of the change log with only batches up to *dropped*, without rewriting files."""
    table = opened_log(root)
    first_kept = (dropped + 1) // BATCHES_PER_BLOCK
    if table is None or not table.file_uris(file_pruning_predicate=f"{BLOCK} < {first_kept}"):
        return
    with our_log_errors(root, _NOT_MAINTAINED):
        # Only by the partition: files are removed unchanged, and none is written.
        table.delete(f"{BLOCK} < {first_kept}", commit_properties=CommitProperties(max_commit_retries=5))


def vacuum(root: Place, age: timedelta) -> int:
    """Remove files older than *age* that are not part of the change log; return the number of removed files.

    Old entries of the Delta log are removed too. Call this only while no batch is open: files of a batch that is not
    committed yet would be removed.
    """
    table = opened_log(root)
    if table is None:
        return 0
    hours = max(1, int(age.total_seconds() // 3600))
    with our_log_errors(root, _NOT_MAINTAINED):
        removed = table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        table = opened_log(root) or table  # a token expires
        table.create_checkpoint()
        table.cleanup_metadata()
    return len(removed)
