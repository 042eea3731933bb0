"""Names the files of the change log, for those who write and read them: no more of the log is loaded for that."""

from __future__ import annotations

from collections.abc import Sequence

from open_mirroring.storage.arrow_files import arrow_path
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.schema import BATCHES_PER_BLOCK

BLOCK = "batch_block"
"""The column by which the log is partitioned."""


def file_path(batch: int, attempt: str, index: int, one_try: str) -> str:
    """Where one attempt writes its log file number *index*, relative to the log; a name is used once, by one try."""
    return f"{BLOCK}={batch // BATCHES_PER_BLOCK}/{batch:012d}-{attempt}-{index:05d}-{one_try}.parquet"


def paths_of(root: Place, files: Sequence[str]) -> list[str]:
    """Log files as Arrow names them in their file system."""
    return [arrow_path(root / file) for file in files]
