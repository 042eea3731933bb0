"""How a source's changes are sent: one strategy for each format and transport.

A strategy packs the changes of a run into parcels, files or messages. They are committed together with the changes (an
outbox) and sent afterwards. After a crash in between, the same parcels are sent again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, Protocol

from workload_generator.database import Change
from workload_generator.delivery import Piece, draw
from workload_generator.tables import Row, TableDef


class ShippingError(Exception):
    """Committed parcels could not be sent; the next command tries again."""


class Parcel(NamedTuple):
    """A file or message to send.

    Args:
        address: the path of a file below its folder, or the partition of a message.
    """

    address: str
    key: bytes | None
    content: bytes


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a source.

    Args:
        changes: in the order of the log.
        late: pieces withheld by the previous run.
        number: of the run, from 1.
        hold_back: whether to withhold something for the next run, if the format supports it.
    """

    changes: Sequence[Change]
    late: Sequence[Piece]
    rng: Random
    source_seed: int
    number: int
    hold_back: bool


@dataclass(frozen=True, slots=True)
class Shipment:
    """The result of packing a run.

    Args:
        parcels: in the order of sending.
        messages: the number of messages, or rows of change tables, in them.
        withheld: pieces for the next run.
        tables: what happened to messages (``duplicates``, …) → the tables of those messages.
    """

    parcels: list[Parcel]
    messages: int
    withheld: list[Piece]
    tables: dict[str, list[str]]


class Shipping(Protocol):
    """A format and its transport. *name* is the format's; a source keeps one format."""

    name: str

    def pack(self, run: Run, memory: dict[str, Any]) -> Shipment:
        """The shipment of a run; *memory*, plain JSON, is stored between runs."""

    def send(self, parcels: Sequence[Parcel]) -> int:
        """Send in this order, possibly again. Returns the number of files written.

        Raises:
            ShippingError: when something did not arrive.
        """


class LoadShipping(Shipping, Protocol):
    """A format whose stream begins with the existing rows."""

    def pack_load(self, tables: Sequence[tuple[TableDef, Sequence[Row]]], rng: Random, seed: int) -> Shipment:
        """The shipment of these rows."""


def some(places: Sequence[int], part: float, at_least: int, rng: Random) -> Collection[int]:
    """A random selection of about the fraction *part* of *places*, with at least *at_least* if there are enough."""
    chosen = dict.fromkeys(draw(places, part, rng))
    missing = [place for place in places if place not in chosen]
    for place in rng.sample(missing, min(len(missing), max(0, at_least - len(chosen)))):
        chosen[place] = None
    return list(chosen)
