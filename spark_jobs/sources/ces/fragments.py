"""Joins the pieces of split events once all of them are there (C-50 to C-56).

Pieces lie in any partition, file and batch, in any order and more than once. :func:`join` looks at a set of pieces and
nothing else, so order and repetitions change nothing.

Public source: Microsoft Learn, *JSON Message format - change event streaming*: pieces share ``logicalid``, are
ordered by ``segmentindex`` and end with ``finalsegment``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from spark_jobs.changelog.schema import REJECTED, LogRow
from spark_jobs.sources.ces.decoder import CesDecoder
from spark_jobs.sources.ces.envelope import UNSPLIT, Event, is_complete
from spark_jobs.sources.ces.unreadable import NamedTable, table_in_data
from spark_jobs.sources.contract.decoded import Notices, Refusal, Refused, Waiting


class Joined(NamedTuple):
    """All pieces were there: what the event became, at the coordinates of its last piece.

    Without rows its table, *foreign*, is not mirrored. A dead letter holds the joined payload as ``raw`` and names its
    pieces by ``fragment_of``.
    """

    rows: list[LogRow]
    notices: Notices
    foreign: str = ""
    sender: str = ""


class _Piece(NamedTuple):
    row: LogRow
    event: Event


def join(pieces: Sequence[LogRow], decoder: CesDecoder) -> Joined | Waiting | Refused:
    """Join the pieces of one event: rows of kind ``fragment`` with one ``fragment_of``, as *decoder* made them."""
    try:
        by_index = _by_index(pieces, decoder)
        run, is_proven = _run(by_index)
    except Refusal as refusal:
        return _refused(pieces, refusal, decoder)
    if isinstance(run, str):
        return Waiting(run)
    size, limit = sum(len(piece.row.raw or b"") for piece in run), decoder.settings.max_event_bytes
    if size > limit:
        reason = f"{size} bytes in {len(run)} pieces exceed {limit}"
        return _refused(pieces, Refusal("TOO_LARGE", reason), decoder)
    last = run[-1]
    try:
        data = _concatenated(run)
    except UnicodeError as error:
        if not is_proven:
            return Waiting("piece 0")
        return _refused(pieces, Refusal("DATA_MALFORMED", f"half a character is missing: {error}"), decoder)
    if not is_proven and not is_complete(data):
        return Waiting("piece 0")
    whole = msgspec.structs.replace(last.event, data=data, split=UNSPLIT)
    raw = data.encode() if isinstance(data, str) else data
    outcome = decoder.decode_event(whole, last.row.origin, last.row.place, raw)
    if outcome.rows and outcome.rows[0].kind == REJECTED:
        return Joined([outcome.rows[0]._replace(fragment_of=last.row.fragment_of)], outcome.notices)
    return Joined(list(outcome.rows), outcome.notices, outcome.foreign, outcome.sender)


def incomplete(pieces: Sequence[LogRow], reason: str, decoder: CesDecoder) -> list[LogRow]:
    """The dead letter of an event whose other pieces did not come in time; *reason* says what was waited for.

    None, where its first piece tells that its table is not mirrored (C-95).
    """
    outcome = _refused(pieces, Refusal("FRAGMENTS_INCOMPLETE", reason), decoder)
    return [outcome.row] if isinstance(outcome, Refused) else outcome.rows


def _refused(pieces: Sequence[LogRow], refusal: Refusal, decoder: CesDecoder) -> Refused | Joined:
    """The dead letter of pieces that never will be one event, of the table that one of them tells (C-95)."""
    told = {found for piece in pieces if (found := _told(piece, decoder)) is not None}
    outcome = decoder.placed(_dead_letter(pieces, refusal), told.pop() if len(told) == 1 else None)
    return Refused(outcome.rows[0]) if outcome.rows else Joined([], outcome.notices, outcome.foreign)


def _told(piece: LogRow, decoder: CesDecoder) -> NamedTable | None:
    """The table that a piece tells; the first one does."""
    try:
        return table_in_data(decoder.read(piece.raw).data)
    except Refusal:
        return None


def _by_index(pieces: Sequence[LogRow], decoder: CesDecoder) -> dict[int, _Piece]:
    """One piece for each index; of repeated ones the first by coordinates."""
    found: dict[int, _Piece] = {}
    for row in sorted(pieces, key=lambda row: (row.origin, row.place)):
        piece = _Piece(row, decoder.read(row.raw))
        known = found.setdefault(piece.event.split.piece, piece)
        if known.event != piece.event:
            raise Refusal(
                "FRAGMENT_CONFLICT",
                f"piece {piece.event.split.piece} came with two contents, from {known.row.origin} "
                f"{known.row.place} and {row.origin} {row.place}",
            )
    heads = {(piece.event.logical_id, piece.event.operation, type(piece.event.data)) for piece in found.values()}
    if len(heads) > 1:
        raise Refusal("FRAGMENT_CONFLICT", "the pieces differ in logicalid, operation or encoding")
    return found


def _run(by_index: dict[int, _Piece]) -> tuple[list[_Piece] | str, bool]:
    """The pieces in order, or what is missing; and whether it is certain that the run begins at its first piece."""
    totals = {piece.event.split.total for piece in by_index.values()}
    last = sorted(index for index, piece in by_index.items() if piece.event.split.last)
    if len(totals) > 1 or len(last) > 1 or (last and max(by_index) > last[0]):
        raise Refusal("FRAGMENT_CONFLICT", f"the pieces {sorted(by_index)} disagree about which is the last")
    total = totals.pop()
    if total is not None:
        if 0 in by_index and total in by_index:
            raise Refusal("FRAGMENT_CONFLICT", f"pieces 0 and {total} of {total}")
        base = 1 if total in by_index else 0
        end, is_proven = base + total - 1, True
        if total not in by_index and 0 not in by_index:
            return "the first or the last piece", False
    else:
        if not last:
            return "the last piece", False
        base, is_proven = (0, True) if 0 in by_index else (1, False)
        end = last[0]
    missing = [index for index in range(base, end + 1) if index not in by_index]
    if missing:
        return f"piece {missing[0]}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""), False
    return [by_index[index] for index in range(base, end + 1)], is_proven


def _concatenated(run: list[_Piece]) -> str | bytes:
    """The pieces as one; halves of a character that a cut parted are one again (C-54).

    Raises:
        UnicodeError: a half has no other one.
    """
    parts = [piece.event.data for piece in run]
    if isinstance(parts[0], bytes):
        return b"".join(part for part in parts if isinstance(part, bytes))
    text = "".join(part for part in parts if isinstance(part, str))
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _dead_letter(pieces: Sequence[LogRow], refusal: Refusal) -> LogRow:
    """One row for the whole group, at the coordinates of its first piece; the others are in the log as they came."""
    first = min(pieces, key=lambda row: (row.origin, row.place))
    # fmt: off
    return LogRow(REJECTED, first.origin, first.place, epoch=first.epoch, pos=first.pos,
                  fragment_of=first.fragment_of, code=refusal.code, reason=refusal.reason, raw=first.raw)
    # fmt: on
