"""The delivery of encoded events to the hub: partitions, late arrivals, duplicates.

It covers what Event Hubs and CES may do with a stream. Round robin distributes the changes of one row, and the pieces
of one event, over all partitions. A message may arrive after later ones, and more than once (C-31, C-55, C-85, C-87).
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import Literal, NamedTuple

_SENT_AGAIN_WITHIN = 50


class Piece(NamedTuple):
    """One message before it is sent: its table, transaction, index in it, piece number and count, key and bytes."""

    table: str
    txn: int
    seq: int
    segment: int
    of: int
    key: bytes
    body: bytes


class Message(NamedTuple):
    """One message in the hub: *offset* counts from 0 without gap in its partition, *enqueued* is ISO UTC."""

    partition: int
    offset: int
    body: bytes
    key: bytes | None
    enqueued: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """How messages are delivered.

    Args:
        scheme: ``round_robin`` (the source's default), or in order inside a partition by ``table`` or row ``key``.
        disorder: a message may be overtaken by up to this many later ones; with an ordered scheme only the partitions
            overtake each other.
        duplicates: the fraction of messages that is sent again, with the same bytes, up to 50 places later.
        seed: of all random choices.
    """

    partitions: int = 3
    scheme: Literal["round_robin", "table", "key"] = "round_robin"
    disorder: int = 0
    duplicates: float = 0.0
    seed: int | str = 0

    def __post_init__(self) -> None:
        if self.scheme not in ("round_robin", "table", "key"):
            raise ValueError(f"no partition scheme {self.scheme!r}")
        if self.partitions < 1 or self.disorder < 0 or not 0 <= self.duplicates <= 1:
            raise ValueError("partitions from 1, disorder from 0, duplicates between 0 and 1")


class _Send(NamedTuple):
    sent: float
    arrives: float
    number: int
    partition: int
    piece: Piece


def deliver(
    pieces: Sequence[Piece],
    delivery: Delivery,
    *,
    sent_again: Collection[int] | None = None,
    first_offsets: Sequence[int] = (),
    since: datetime = datetime(2026, 1, 5, 9, 0, tzinfo=UTC),
    every: timedelta = timedelta(milliseconds=5),
) -> list[Message]:
    """Send *pieces*: the messages in order of arrival.

    Args:
        pieces: in order of sending.
        delivery: how.
        sent_again: indexes in *pieces* to send twice; None selects them by ``delivery.duplicates``.
        first_offsets: per partition the first offset, 0 by default.
        since: when the first message is enqueued.
        every: time between two messages.
    """
    rng = Random(f"delivery:{delivery.seed}")
    if sent_again is None:
        sent_again = draw(range(len(pieces)), delivery.duplicates, rng)
    numbers = count()

    def send(piece: Piece, at: float) -> _Send:
        number = next(numbers)
        return _Send(at, at + rng.uniform(0, delivery.disorder), number, partition_of(piece, delivery, number), piece)

    sends = [send(piece, place) for place, piece in enumerate(pieces)]
    sends += [send(pieces[place], place + rng.uniform(0, _SENT_AGAIN_WITHIN)) for place in sorted(sent_again)]
    arrivals = sorted(sends, key=lambda one: (one.arrives, one.number))
    if delivery.scheme != "round_robin":
        queues = {
            partition: iter(
                sorted((one for one in sends if one.partition == partition), key=lambda one: (one.sent, one.number))
            )
            for partition in range(delivery.partitions)
        }
        arrivals = [next(queues[one.partition]) for one in arrivals]
    offsets = [count(first_offsets[p] if p < len(first_offsets) else 0) for p in range(delivery.partitions)]
    return [
        Message(one.partition, next(offsets[one.partition]), one.piece.body, _key(one.piece, delivery), _iso(at))
        for one, at in zip(arrivals, (since + n * every for n in range(len(arrivals))), strict=True)
    ]


def draw(places: Sequence[int], part: float, rng: Random) -> list[int]:
    """A random selection of about this fraction of *places*."""
    return [place for place in places if rng.random() < part]


def partition_of(piece: Piece, delivery: Delivery, number: int = 0) -> int:
    """The partition of a piece; with ``round_robin`` that of the *number*-th message."""
    if delivery.scheme == "round_robin":
        return number % delivery.partitions
    return zlib.crc32(_key(piece, delivery) or b"") % delivery.partitions


def _key(piece: Piece, delivery: Delivery) -> bytes | None:
    return {"round_robin": None, "table": piece.table.encode(), "key": piece.key}[delivery.scheme]


def _iso(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
