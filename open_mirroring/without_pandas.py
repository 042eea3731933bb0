"""Lets libraries find no pandas while they are imported: none of ours needs it, and it takes longer than most tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_pandas() -> Iterator[None]:
    """Hide pandas from what is imported in the block, unless it is loaded; later imports of it work."""
    if "pandas" in sys.modules:
        yield
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        yield
    finally:
        sys.meta_path.remove(_NoPandas)


class _NoPandas:
    @staticmethod
    def find_spec(name: str, _path: object, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)
