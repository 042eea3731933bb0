"""Keeps Python's garbage collector from looking through what lives as long as the process anyway."""

from __future__ import annotations

import atexit
import gc
import sys
from functools import cache


def spare_the_collector() -> None:
    """Let a program seldom look for garbage, and not at its exit, which takes a fifth of a short run."""
    gc.set_threshold(50_000)
    atexit.register(_spare_the_exit)


def _spare_the_exit() -> None:
    # DuckDB reports on standard error what is not collected of it.
    spare = gc.unfreeze if "duckdb" in sys.modules else gc.freeze
    spare()


@cache
def spare_the_imports() -> None:
    """Take all that was imported so far out of garbage collection, once: else it is searched while rows are made."""
    gc.freeze()
    atexit.register(_spare_the_exit)
