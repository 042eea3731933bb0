"""Starts and stops the demo's background programs, each in a process session of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from demo.failures import DemoFailed

_PATIENCE_AFTER_TERM, _PATIENCE_AFTER_KILL = 10.0, 10.0


class Service:
    """A program that runs until it is stopped; whatever it starts belongs to its session and is stopped with it.

    Args:
        name: what to call it in messages.
        command: program and arguments.
        environment: its whole environment.
        folder: where it runs.
        log: the file for its output.

    Raises:
        DemoFailed: when the program cannot be started.
    """

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
    ) -> None:
        self.name, self.log = name, log
        try:
            with log.open("wb") as output:
                self._process = subprocess.Popen(
                    command,
                    env=environment,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C at the terminal is for the demo alone; it then ends this in good order.
                    start_new_session=True,
                )
        except OSError as error:
            raise DemoFailed(f"{name} could not be started: {error}") from error

    @property
    def session(self) -> int:
        """The session that it and all it starts belong to."""
        return self._process.pid

    def check(self) -> None:
        """Nothing while it runs.

        Raises:
            DemoFailed: when it has ended by itself.
        """
        code = self._process.poll()
        if code is not None:
            raise DemoFailed(f"{self.name} ended by itself with exit code {code}", self.log)

    def stop(self, patience: float = 40.0) -> list[str]:
        """End it and everything in its session; safe to call again.

        Args:
            patience: seconds it gets after SIGINT to end in good order.

        Returns:
            Command lines of processes that had to be killed, which none should.

        Raises:
            DemoFailed: when something is still there.
        """
        if self._process.poll() is None:
            # To the leader alone: it knows how to end its children in good order.
            self._process.send_signal(signal.SIGINT)
            # If it does not, the whole session is asked, then killed.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
        _signal_all(session_members(self.session), signal.SIGTERM)
        _, alive = psutil.wait_procs(session_members(self.session), timeout=_PATIENCE_AFTER_TERM)
        killed = [_command_line(process) for process in alive]
        _signal_all(alive, signal.SIGKILL)
        psutil.wait_procs(alive, timeout=_PATIENCE_AFTER_KILL)
        left = session_members(self.session)
        if left:
            raise DemoFailed(f"{self.name} left processes behind: {'; '.join(map(_command_line, left))}", self.log)
        self._process.wait(_PATIENCE_AFTER_KILL)
        return killed


def session_members(session: int) -> list[psutil.Process]:
    """Every living process of a session, orphans included."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            continue  # it ended while we looked, or is somebody else's
    return found


def free_ports(number: int) -> list[int]:
    """Finds *number* different TCP ports on which no program listens."""
    sockets = [socket.socket() for _ in range(number)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _signal_all(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue  # ended meanwhile


def _command_line(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return str(process.pid)
