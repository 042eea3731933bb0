"""Names of the files of the change log; a module of its own, because importing the change log's code is slow."""

from __future__ import annotations

from collections.abc import Sequence

from open_mirroring.storage.arrow_files import arrow_path
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.schema import BATCHES_PER_BLOCK

BLOCK = "batch_block"
"""The partition column of the change log."""


def file_path(batch: int, attempt: str, index: int, one_try: str) -> str:
    """The path of file *index* of an attempt to write *batch*, relative to the change log's folder.

    *one_try* makes the names of each repetition of a task different.
    """
    return f"{BLOCK}={batch // BATCHES_PER_BLOCK}/{batch:012d}-{attempt}-{index:05d}-{one_try}.parquet"


def paths_of(root: Place, files: Sequence[str]) -> list[str]:
    """The paths of files of the change log as Arrow's file system expects them."""
    return [arrow_path(root / file) for file in files]
