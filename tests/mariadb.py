"""A MariaDB server of the tests' own, from the programs of the machine, on a free port of it."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

PROGRAMS = ("mariadbd", "mariadb-install-db", "mariadb")
# The server ends with the test run, however that ends: a pipe closes even when its writer is killed.
_UNTIL_INPUT_ENDS = '"$@" & read -r _; kill -TERM $!; wait'


class MariaDbServer(NamedTuple):
    """A running server, and its one user beside root, whose password nobody may find anywhere."""

    port: int
    user: str
    password: str
    socket: Path

    def execute(self, *statements: str) -> None:
        """Run statements as root."""
        how = ("mariadb", "--no-defaults", f"--socket={self.socket}", "--user=root", "--default-character-set=utf8mb4")
        done = subprocess.run(how, input=";\n".join(statements), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr


def is_there() -> bool:
    """Whether the machine has the programs."""
    return all(map(shutil.which, PROGRAMS))


@contextmanager
def running_mariadb() -> Iterator[MariaDbServer]:
    """Start a server and stop it in the end."""
    installer = shutil.which("mariadb-install-db")
    assert installer is not None
    folder = Path(tempfile.mkdtemp(prefix="open_mirroring-mariadb-"))
    who = [f"--user={'root' if os.geteuid() == 0 else os.environ['USER']}"]
    own = ["--no-defaults", f"--datadir={folder / 'data'}", *who]
    base = f"--basedir={Path(installer).parents[1]}"
    how = ("--auth-root-authentication-method=normal", "--skip-test-db")
    made = subprocess.run([installer, *own, base, *how], capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stdout + made.stderr
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    server = MariaDbServer(port, "loader", secrets.token_hex(16), folder / "socket")
    listening = (f"--port={port}", "--bind-address=127.0.0.1", f"--socket={server.socket}", "--skip-name-resolve")
    with (folder / "log").open("w") as log:
        guard = subprocess.Popen(
            ["sh", "-c", _UNTIL_INPUT_ENDS, "sh", "mariadbd", *own, base, *listening],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )
    try:
        _await(server, guard, folder / "log")
        server.execute(
            f"CREATE USER '{server.user}'@'127.0.0.1' IDENTIFIED BY '{server.password}'",
            f"GRANT SELECT ON *.* TO '{server.user}'@'127.0.0.1'",
        )
        yield server
    finally:
        guard.communicate(timeout=300)
        shutil.rmtree(folder, ignore_errors=True)


def _await(server: MariaDbServer, guard: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and guard.poll() is None:
        if server.socket.exists():
            server.execute("SELECT 1")
            return
        time.sleep(0.1)
    raise AssertionError(f"the server did not start:\n{log.read_text(errors='replace')}")
