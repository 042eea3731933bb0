"""The record of a batch: a JSON file next to the change log, from which a lost ledger can be re-created."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

RECORDS = "_batches"
"""The folder of the change log that holds the records of batches."""


class BatchRecord(NamedTuple):
    """A batch as the ledger recorded it: its number, source ranges and manifest as JSON, and when it was written."""

    number: int
    at: datetime
    ranges: str
    manifest: str


def record_name(number: int) -> str:
    """Return the path of a batch's record, relative to the change log."""
    return f"{RECORDS}/{number // 10_000:08d}/{number:012d}.json"
