"""What a run costs: wall time, CPU of the process tree, its peak memory, and what the rest of the machine was doing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version

import psutil

BUSY = 0.15
"""A run during which others took more of the machine than this is marked: judge it by CPU seconds."""


@dataclass
class Cost:
    """Filled in when the measured block ends; *peak* in bytes, *others* as a share of all cores."""

    wall: float = 0.0
    cpu: float = 0.0
    peak: int = 0
    others: float = 0.0
    _samples: list[int] = field(default_factory=list, repr=False)


@contextmanager
def measured() -> Iterator[Cost]:
    """Measure this process and all its descendants while the block runs."""
    cost, done = Cost(), threading.Event()
    sampler = threading.Thread(target=_sample, args=(cost, done), daemon=True)
    busy, cpu, started = _machine(), _tree_cpu(), time.monotonic()
    sampler.start()
    try:
        yield cost
    finally:
        cost.wall = time.monotonic() - started
        cost.cpu = _tree_cpu() - cpu
        done.set()
        sampler.join()
        cost.peak = max(cost._samples, default=0)
        cost.others = max(0.0, (_machine() - busy - cost.cpu) / (cost.wall * (os.cpu_count() or 1)))


def versions() -> str:
    """Versions that matter, as one line."""
    names = ("pyspark", "duckdb", "pyarrow", "msgspec", "deltalake", "fastavro")
    return ", ".join(f"{name} {version(name)}" for name in names)


def _sample(cost: Cost, done: threading.Event) -> None:
    while True:
        cost._samples.append(_tree_memory())
        if done.wait(0.5):
            return


def _tree() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def _tree_cpu() -> float:
    total = 0.0
    for process in _tree():
        try:
            total += sum(process.cpu_times()[:4])  # with those of children that ended
        except psutil.NoSuchProcess:
            continue
    return total


def _tree_memory() -> int:
    """Resident memory without what forks share with their parent, where the system tells."""
    total = 0
    for process in _tree():
        try:
            memory = process.memory_info()
            total += memory.rss - memory.shared
        except psutil.NoSuchProcess:
            continue
    return total


def _machine() -> float:
    times = psutil.cpu_times()
    return times.user + times.system + times.nice + times.irq + times.softirq
