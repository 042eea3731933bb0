"""Makes the dead letters of change tables: of single rows, and of halves that never found each other."""

from __future__ import annotations

from collections.abc import Sequence

from open_mirroring.changes.row_key import NO_BUCKET, key_bucket
from spark_jobs.changelog.schema import REJECTED, LogRow
from spark_jobs.sources.contract.decoded import Refusal
from spark_jobs.sources.qlik.change_table.rows import ChangeRow, RowLayout, read_row, row_bytes

_OF_OTHER_ROWS = ("OLD_KEY_MISSING", "TABLE_TRUNCATED")
"""Dead letters that leave other rows out of date than the one that they name, and nobody knows which."""
_IMAGES = (
    "set `On update: Store before and after image` in the Store Changes settings of the task, then reload the table"
)
_KEEP = (
    "look for rows or files missing at the source, let only the task's own retention remove any, and reload the table"
)


def missing_half(pieces: Sequence[LogRow], reason: str) -> Refusal:
    """Why the pieces of one pair are of no use alone; *reason* says how long they waited."""
    if any(piece.piece == 1 for piece in pieces):
        what = f"{reason}: the key may have changed, and the before image of the UPDATE did not come; {_IMAGES}"
        return Refusal("BEFORE_IMAGE_MISSING", what)
    return Refusal("UPDATE_MISSING", f"{reason}: the UPDATE of a before image did not come; {_KEEP}")


def rejected_row(row: ChangeRow, refusal: Refusal) -> LogRow:
    """The dead letter of a row of which nothing is known."""
    return LogRow(REJECTED, row.origin, row.place, code=refusal.code, reason=refusal.reason, raw=row_bytes(row))


def refused_row(row: ChangeRow, layout: RowLayout, refusal: Refusal) -> LogRow:
    """The dead letter of a row, with its table, and its key where that can be told and no other row is concerned."""
    if refusal.code in _OF_OTHER_ROWS:
        return rejected_row(row, refusal)._replace(tbl=layout.source, bucket=NO_BUCKET)
    key = refusal.key
    try:
        key = key or layout.key(row.values)
    except Refusal:
        key = None
    return rejected_row(row, refusal)._replace(tbl=layout.source, key=key, bucket=key_bucket(key))


def restored(piece: LogRow) -> ChangeRow:
    """The row that a fragment holds."""
    return read_row(piece.origin, piece.place, piece.raw or b"")


def in_order(pieces: Sequence[LogRow]) -> list[LogRow]:
    """Pieces by their coordinates, the last one first."""
    return sorted(pieces, key=lambda piece: (piece.origin, piece.place), reverse=True)


def letter_of_pieces(pieces: Sequence[LogRow], refusal: Refusal) -> LogRow:
    """One dead letter for all pieces, at the coordinates of the first; the others are in the log as they came."""
    first = in_order(pieces)[-1]
    return first._replace(kind=REJECTED, piece=None, code=refusal.code, reason=refusal.reason)
