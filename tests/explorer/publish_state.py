"""What a state of the publish world is made of, and how large the world may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from open_mirroring.protocols import publishing as p

from .publish_ports import Content, Zone


@dataclass(frozen=True)
class Bounds:
    """How large the world is, and how often each disturbance may strike; crashes and lost requests are unlimited."""

    writers: int = 2
    late: int = 1
    """Requests of *late_kinds* that execute after their caller gave up, or a second time."""
    late_kinds: tuple[type, ...] = (p.Rename,)
    duplicated_uploads: int = 0
    deleted_objects: int = 0
    foreign_folders: int = 0
    foreign_files: int = 0
    resets: int = 0
    cuts: tuple[tuple[int, ...], ...] = ((2, 2), (2, 2))
    """Per batch, the number of files of every way in which a staging may cut it."""
    keeps_last: bool = True
    """The mirror leaves the highest file in the folder (F-35)."""
    two_processed_folders: bool = False
    """Moved files pass through both folders that the documentation names, instead of one."""
    established: bool = True
    """Folder, marker and metadata are in place at the beginning."""


class Left(NamedTuple):
    """How often each disturbance may still strike."""

    late: int
    duplicated_uploads: int
    deleted_objects: int
    foreign_folders: int
    foreign_files: int
    resets: int


class State(NamedTuple):
    """A state; *row*, *writers* and *late* are interned numbers, *ever* and *bound* are ghosts of this generation."""

    row: int
    writers: tuple[int, ...]
    late: tuple[int, ...]
    zone: Zone
    ever: tuple[Content | None, ...]
    """Per number, what was ever visible under it."""
    bound: tuple[str | None, ...]
    """Per number, the digest that was sealed for it."""
    left: Left


def incarnation(generation: int) -> str:
    """The id in the marker of a generation's folder."""
    return f"incarnation-{generation}"


def with_item(items: tuple[Any, ...], number: int, item: Any) -> tuple[Any, ...]:
    """A tuple that counts from 1 with this item under the number."""
    longer = list(items) + [None] * (number - len(items))
    longer[number - 1] = item
    return tuple(longer)
