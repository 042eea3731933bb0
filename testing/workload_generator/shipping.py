"""How a source's changes leave it: one strategy for each format and transport.

A strategy packs the changes of a run into parcels, files or messages. They are committed together with the changes (an
outbox) and sent afterwards; after a kill in between, the same parcels are sent again.
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
    """What is committed could not be sent; the next command tries it again."""


class Parcel(NamedTuple):
    """What leaves in one piece.

    Args:
        address: the path of a file below its folder, or the partition of a message.
        key: the key of a message.
        content: all bytes.
    """

    address: str
    key: bytes | None
    content: bytes


@dataclass(frozen=True, slots=True)
class Run:
    """What happened in one run of a source.

    Args:
        changes: in the order of the log.
        late: what the run before has withheld.
        rng: decides what is drawn.
        source_seed: the seed of the source.
        number: of the run, from 1.
        hold_back: whether something should stay behind for the next run, as far as the format knows such a thing.
    """

    changes: Sequence[Change]
    late: Sequence[Piece]
    rng: Random
    source_seed: int
    number: int
    hold_back: bool


@dataclass(frozen=True, slots=True)
class Shipment:
    """What a run sends.

    Args:
        parcels: in the order of sending.
        messages: how many messages, or rows of change tables, they hold.
        withheld: pieces for the next run.
        tables: what happened to messages (``duplicates``, …) → the table of each one it happened to.
    """

    parcels: list[Parcel]
    messages: int
    withheld: list[Piece]
    tables: dict[str, list[str]]


class Shipping(Protocol):
    """A format and its way. *name* is the format's; a source speaks one format all its life."""

    name: str

    def pack(self, run: Run, memory: dict[str, Any]) -> Shipment:
        """The shipment of a run; *memory*, plain JSON, is what the strategy keeps from run to run."""

    def send(self, parcels: Sequence[Parcel]) -> int:
        """Send in this order; may have been sent before. Returns how many files were written.

        Raises:
            ShippingError: when something did not arrive.
        """


class LoadShipping(Shipping, Protocol):
    """A format whose stream begins with the rows that were there before the first change."""

    def pack_load(self, tables: Sequence[tuple[TableDef, Sequence[Row]]], rng: Random, seed: int) -> Shipment:
        """The shipment of these rows."""


def some(places: Sequence[int], part: float, at_least: int, rng: Random) -> Collection[int]:
    """About this part of *places*, but at least so many, as far as there are any."""
    chosen = dict.fromkeys(draw(places, part, rng))
    missing = [place for place in places if place not in chosen]
    for place in rng.sample(missing, min(len(missing), max(0, at_least - len(chosen)))):
        chosen[place] = None
    return list(chosen)
