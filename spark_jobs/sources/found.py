"""What a look at a source brings, whatever carries its messages."""

from __future__ import annotations

from typing import NamedTuple

from open_mirroring.ledger.extract_ledger import BoundRange


class Found(NamedTuple):
    """What a look at the source brought: ranges never bound before, and files that are not ready to be read."""

    ranges: list[BoundRange]
    waiting: list[str]
