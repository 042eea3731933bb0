"""What a run costs: wall time, CPU of the process tree, its peak memory, and what the rest of the machine was doing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator
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
def measured(without: Collection[int] = ()) -> Iterator[Cost]:
    """Measure this process and all its descendants while the block runs; *without* are children that do not count.

    Their CPU time is not counted as that of others either: a server serves whoever is measured.
    """
    cost, done = Cost(), threading.Event()
    sampler = threading.Thread(target=_sample, args=(cost, done, without), daemon=True)
    busy, cpu, all_cpu, started = _machine(), _tree_cpu(without), _tree_cpu(()), time.monotonic()
    sampler.start()
    try:
        yield cost
    finally:
        cost.wall = time.monotonic() - started
        cost.cpu, ours = _tree_cpu(without) - cpu, _tree_cpu(()) - all_cpu
        done.set()
        sampler.join()
        cost.peak = max(cost._samples, default=0)
        cost.others = max(0.0, (_machine() - busy - ours) / (cost.wall * (os.cpu_count() or 1)))


def versions() -> str:
    """Versions that matter, as one line."""
    names = ("pyspark", "duckdb", "pyarrow", "msgspec", "deltalake", "fastavro")
    return ", ".join(f"{name} {version(name)}" for name in names)


def _sample(cost: Cost, done: threading.Event, without: Collection[int]) -> None:
    while True:
        cost._samples.append(_tree_memory(without))
        if done.wait(0.5):
            return


def _tree(without: Collection[int]) -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *(p for child in me.children() if child.pid not in without for p in _with_children(child))]


def _with_children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _tree_cpu(without: Collection[int]) -> float:
    total = 0.0
    for process in _tree(without):
        try:
            total += sum(process.cpu_times()[:4])  # with those of children that ended
        except psutil.NoSuchProcess:
            continue
    return total


def _tree_memory(without: Collection[int]) -> int:
    """Resident memory without what forks share with their parent, where the system tells."""
    total = 0
    for process in _tree(without):
        try:
            memory = process.memory_info()
            total += memory.rss - memory.shared
        except psutil.NoSuchProcess:
            continue
    return total


def _machine() -> float:
    times = psutil.cpu_times()
    return times.user + times.system + times.nice + times.irq + times.softirq
