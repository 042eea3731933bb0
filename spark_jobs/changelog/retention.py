"""Removes from the change log whole blocks of batches below the horizon, and files that no commit refers to."""

from __future__ import annotations

from datetime import timedelta

from deltalake import CommitProperties

from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.change_log import BLOCK
from spark_jobs.changelog.delta_log import opened_log, our_log_errors
from spark_jobs.changelog.schema import BATCHES_PER_BLOCK

_NOT_MAINTAINED = "it could not be maintained; what is below the horizon is only not gone yet"


def drop_blocks(root: Place, dropped: int) -> None:
    """Take the blocks whose batches are all up to *dropped* out of the log; nothing is rewritten.

    Raises:
        TransientError: ``LOG_COMMIT_FAILED``.
    """
    table = opened_log(root)
    first_kept = (dropped + 1) // BATCHES_PER_BLOCK
    if table is None or not table.file_uris(file_pruning_predicate=f"{BLOCK} < {first_kept}"):
        return
    with our_log_errors(root, _NOT_MAINTAINED):
        # On the partition alone: files are removed as they are, and none is written.
        table.delete(f"{BLOCK} < {first_kept}", commit_properties=CommitProperties(max_commit_retries=5))


def vacuum(root: Place, age: timedelta) -> int:
    """Remove files older than *age* that are no part of the log, and old entries of its history; how many files.

    Call it only while no batch is bound: files of a sealed batch that is not committed yet would be removed.

    Raises:
        TransientError: ``LOG_COMMIT_FAILED``.
    """
    table = opened_log(root)
    if table is None:
        return 0
    hours = max(1, int(age.total_seconds() // 3600))
    with our_log_errors(root, _NOT_MAINTAINED):
        removed = table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        table = opened_log(root) or table  # a token does not hold for ever
        table.create_checkpoint()
        table.cleanup_metadata()
    return len(removed)
