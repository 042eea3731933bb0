"""A file as Arrow reads it: a path, which it maps by itself, or an object as an open file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from open_mirroring.storage.object_path import Place


@contextmanager
def readable(path: Place) -> Iterator[Any]:
    """What Arrow's readers take.

    Raises:
        FileNotFoundError: there is no such object.
    """
    if isinstance(path, Path):
        yield path
        return
    with path.open() as file:
        yield file
