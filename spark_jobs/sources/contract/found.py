"""What a look at a source brings, whatever carries its messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from open_mirroring.ledger.extract_ledger import BoundRange


class Found(NamedTuple):
    """What a look at the source brought.

    Args:
        ranges: what was never bound before.
        waiting: what is not ready to be read.
        empty: those of them without a byte: nothing that is there is missing.
    """

    ranges: list[BoundRange]
    waiting: list[str]
    empty: Sequence[str] = ()
