"""Measures a run: wall time, CPU and peak memory of its process tree, and the CPU that the rest of the machine used."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
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

    CPU time is each process's own, seen twice a second and once at the end. Times of ended children are not used: a
    process that leaves the tree would take away what it had used before, and a child that does not count would be
    charged to whoever waits for it. What a process uses in its last half second is missed if it ends inside the block.
    """
    cost, done = Cost(), threading.Event()
    ours, everyone = _Used(without), _Used(())
    sampler = threading.Thread(target=_sample, args=(cost, done, without, ours, everyone), daemon=True)
    busy, started = _machine(), time.monotonic()
    sampler.start()
    try:
        yield cost
    finally:
        cost.wall = time.monotonic() - started
        done.set()
        sampler.join()
        ours.look()
        everyone.look()
        cost.cpu = ours.seconds
        cost.peak = max(cost._samples, default=0)
        cost.others = max(0.0, (_machine() - busy - everyone.seconds) / (cost.wall * (os.cpu_count() or 1)))


def whole(command: Sequence[str]) -> tuple[Cost, str]:
    """What a program costs from its start to its end, and its output. Servers of this process are not part of it.

    Raises:
        SystemExit: it did not end well.
    """
    cost, done, used = Cost(), threading.Event(), dict[int, float]()
    busy, own, started = _machine(), _spent(), time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        program = psutil.Process(process.pid)
        sampler = threading.Thread(target=_watch, args=(cost, used, done, program), daemon=True)
        sampler.start()
        output, errors = process.communicate()
        cost.wall = time.monotonic() - started
        done.set()
        sampler.join()
    # Spark's JVM may outlive its program, which then does not wait for it: it was seen.
    cost.cpu = max(_reaped() - own[1], sum(used.values()))
    cost.peak = max(cost._samples, default=0)
    cost.others = max(0.0, (_machine() - busy - (_spent()[0] - own[0])) / (cost.wall * (os.cpu_count() or 1)))
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{output[-2000:]}{errors[-4000:]}")
    return cost, output


def ready_and_go(command: Sequence[str]) -> tuple[Cost, int]:
    """What a program costs from *go* on its input to the number on its output, its start not counted."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        process.stdout.readline()
        with measured() as cost:
            process.stdin.write("go\n")
            process.stdin.flush()
            number = int(process.stdout.readline())
        process.stdin.write("end\n")
    return cost, number


class _Used:
    """CPU seconds that the processes of the tree have used since this was made; never falls."""

    def __init__(self, without: Collection[int]) -> None:
        self._without = without
        self._first: dict[tuple[int, float], float] = {}
        self._last: dict[tuple[int, float], float] = {}
        self._look(begun=True)

    def look(self) -> None:
        """See what every process has used by now."""
        self._look(begun=False)

    def _look(self, *, begun: bool) -> None:
        for process in _tree(self._without):
            try:
                who, times = (process.pid, process.create_time()), process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            self._last[who] = times.user + times.system
            # One that came later began with nothing.
            self._first.setdefault(who, self._last[who] if begun else 0.0)

    @property
    def seconds(self) -> float:
        return sum(self._last[who] - self._first[who] for who in self._last)


def versions() -> str:
    """Versions that matter, as one line."""
    names = ("pyspark", "duckdb", "pyarrow", "msgspec", "deltalake", "fastavro")
    return ", ".join(f"{name} {version(name)}" for name in names)


def _sample(cost: Cost, done: threading.Event, without: Collection[int], *used: _Used) -> None:
    while True:
        cost._samples.append(_tree_memory(without))
        for one in used:
            one.look()
        if done.wait(0.5):
            return


def _spent() -> tuple[float, float]:
    """CPU seconds of this process, its descendants and what they waited for; and of what this process waited for."""
    total = 0.0
    for process in _tree(()):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total, _reaped()


def _reaped() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _watch(cost: Cost, used: dict[int, float], done: threading.Event, program: psutil.Process) -> None:
    """Sample the memory of a program's processes, and the CPU seconds of each."""
    while not done.wait(0.1):
        processes = _with_children(program)
        cost._samples.append(_memory(processes))
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                used[process.pid] = times.user + times.system


def _tree(without: Collection[int]) -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *(p for child in me.children() if child.pid not in without for p in _with_children(child))]


def _with_children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _tree_memory(without: Collection[int]) -> int:
    """Resident memory without what forks share with their parent, where the system tells."""
    return _memory(_tree(without))


def _memory(processes: Sequence[psutil.Process]) -> int:
    total = 0
    for process in processes:
        try:
            memory = process.memory_info()
            total += memory.rss - memory.shared
        except psutil.NoSuchProcess:
            continue
    return total


def _machine() -> float:
    times = psutil.cpu_times()
    return times.user + times.system + times.nice + times.irq + times.softirq
