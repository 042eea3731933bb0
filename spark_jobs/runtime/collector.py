"""Keeps Python's garbage collector from searching objects that live until the process ends."""

from __future__ import annotations

import atexit
import gc
import sys
from functools import cache


def spare_the_collector() -> None:
    """Collect garbage seldom, and not at the exit of the program, where it takes a fifth of the time of a short run."""
    gc.set_threshold(50_000)
    atexit.register(_spare_the_exit)


def _spare_the_exit() -> None:
    # DuckDB reports on standard error what is not collected of it.
    spare = gc.unfreeze if "duckdb" in sys.modules else gc.freeze
    spare()


@cache
def spare_the_imports() -> None:
    """Exclude all objects that exist after the imports from garbage collection, once for the process."""
    gc.freeze()
    atexit.register(_spare_the_exit)
