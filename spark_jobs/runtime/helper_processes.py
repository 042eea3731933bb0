"""Runs tasks in several processes without Spark: this process and helper processes take tasks.

A helper is a new program, not a fork: a fork of a process with Arrow's threads can hang. A helper takes a third of a
second to start, during which this process works already. If this process ends, even by a kill, so do its helpers.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any

from open_mirroring.errors import memory_error
from spark_jobs.runtime.collector import spare_the_collector

log = logging.getLogger(__name__)


class Helper:
    """A helper process. Called with a task, it returns the result or raises the error of *work*."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work = work
        self._connection, theirs = Pipe()
        with theirs:
            level = logging.getLogger("spark_jobs").getEffectiveLevel()
            command = [sys.executable, "-P", "-m", __name__, str(theirs.fileno()), str(level)]
            self._process = subprocess.Popen(command, stdout=2, pass_fds=[theirs.fileno()])

    def __enter__(self) -> Helper:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.wait()

    def __call__(self, task: Any) -> Any:
        try:
            self._connection.send((self._work, task))
            result, error = self._connection.recv()
        except (EOFError, ConnectionError):
            raise memory_error() from None  # only the kernel kills a helper
        if error is not None:
            raise error
        return result


def helped(work: Callable[[Any], Any], tasks: Sequence[Any], processes: int) -> list[Any]:
    """The results of *work* for each of the tasks, in order, by this process and up to *processes* - 1 helpers."""
    waiting = SimpleQueue[tuple[int, Any]]()
    for numbered in enumerate(tasks):
        waiting.put(numbered)
    found, failed = dict[int, Any](), Event()

    def take(work: Callable[[Any], Any]) -> None:
        with suppress(Empty):
            while not failed.is_set():
                at, task = waiting.get_nowait()
                try:
                    found[at] = work(task)
                except BaseException:
                    failed.set()
                    raise

    with ExitStack() as stack:
        helpers = [stack.enter_context(Helper(work)) for _ in range(min(processes, len(tasks)) - 1)]
        pool = stack.enter_context(ThreadPoolExecutor(len(helpers)))
        taking = [pool.submit(take, helper) for helper in helpers]
        take(work)
        for one in taking:
            one.result()
    return [found[at] for at in range(len(tasks))]


def main() -> None:
    """Work for the process at the other end of a connection until that end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spare_the_collector()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    for our_own in ("open_mirroring", "spark_jobs"):
        logging.getLogger(our_own).setLevel(int(sys.argv[2]))
    connection, received = Connection(int(sys.argv[1])), SimpleQueue[bytes]()
    Thread(target=_receive, args=(connection, received), daemon=True).start()
    while True:
        result: Any = None
        failure: Exception | None = None
        try:
            work, task = pickle.loads(received.get())
            result = work(task)
        except Exception as error:
            log.exception("a task failed")
            failure = error
        connection.send((result, failure))


def _receive(connection: Connection, received: SimpleQueue[bytes]) -> None:
    """Receive tasks, in a thread of its own: so the end of the other process ends this one in the middle of a task."""
    try:
        while True:
            received.put(connection.recv_bytes())
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
