"""What a look at a source brings, whatever carries its messages."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from open_mirroring.ledger.extract_ledger import BoundRange


class Found(NamedTuple):
    """What a look at the source brought: ranges never bound before, and files that are not ready to be read.

    Of a broker also *offsets*: by partition the first one that is left, and the one behind the newest message.
    """

    ranges: list[BoundRange]
    waiting: list[str]
    offsets: Mapping[str, tuple[int, int]] = MappingProxyType({})
