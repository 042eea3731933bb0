"""What leaves the change log: whole blocks of batches below the horizon, and files that no commit refers to."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError

from open_mirroring.errors import TransientError
from spark_jobs.changelog.change_log import BLOCK
from spark_jobs.changelog.schema import BATCHES_PER_BLOCK


def drop_blocks(root: Path, dropped: int) -> None:
    """Take the blocks whose batches are all up to *dropped* out of the log; nothing is rewritten.

    Raises:
        TransientError: ``LOG_COMMIT_FAILED``.
    """
    if not DeltaTable.is_deltatable(str(root)):
        return
    table = DeltaTable(str(root))
    first_kept = (dropped + 1) // BATCHES_PER_BLOCK
    if not table.file_uris(file_pruning_predicate=f"{BLOCK} < {first_kept}"):
        return
    try:
        # On the partition alone: files are removed as they are, and none is written.
        table.delete(f"{BLOCK} < {first_kept}", commit_properties=CommitProperties(max_commit_retries=5))
    except DeltaError as error:
        raise _failed(root, error) from error


def vacuum(root: Path, age: timedelta) -> int:
    """Remove files older than *age* that are no part of the log, and old entries of its history; how many files.

    Call it only while no batch is bound: files of a sealed batch that is not committed yet would be removed.

    Raises:
        TransientError: ``LOG_COMMIT_FAILED``.
    """
    if not DeltaTable.is_deltatable(str(root)):
        return 0
    hours = max(1, int(age.total_seconds() // 3600))
    try:
        table = DeltaTable(str(root))
        removed = table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        table = DeltaTable(str(root))
        table.create_checkpoint()
        table.cleanup_metadata()
    except DeltaError as error:
        raise _failed(root, error) from error
    return len(removed)


def _failed(root: Path, error: DeltaError) -> TransientError:
    return TransientError(
        "LOG_COMMIT_FAILED",
        f"the change log could not be maintained: {error}",
        where=str(root),
        way_out="try again later; nothing is lost: what is below the horizon is only not gone yet",
    )
