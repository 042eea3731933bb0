"""What a look at a source brings, whatever carries its messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from open_mirroring.ledger.extract_ledger import BoundRange, FileVersion


class Found(NamedTuple):
    """What a look at the source brought.

    Args:
        ranges: what was never bound before.
        waiting: what is not ready to be read.
        empty: those of them without a byte: nothing that is there is missing.
        versions: how files are now that will be bound by these ranges, or are bound and were seen otherwise (G-32).
    """

    ranges: list[BoundRange]
    waiting: list[str]
    empty: Sequence[str] = ()
    versions: Mapping[str, FileVersion] = MappingProxyType({})
