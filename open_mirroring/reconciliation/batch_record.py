"""The record of a batch: the change log's folder keeps it beside the log, for a ledger that is lost."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

RECORDS = "_batches"
"""The folder of the change log that holds the records of batches."""


class BatchRecord(NamedTuple):
    """What the log's folder keeps of a batch: scope and manifest as the ledger had them, and when it was written."""

    number: int
    at: datetime
    ranges: str
    manifest: str


def record_name(number: int) -> str:
    """Where the record of a batch is, relative to the change log."""
    return f"{RECORDS}/{number // 10_000:08d}/{number:012d}.json"
