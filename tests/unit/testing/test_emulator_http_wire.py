"""HTTP itself: what clients other than Python's send, and what becomes of an error of the emulator."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fabric_emulator.web import EmulatorServer
from tests.unit.testing.emulator_client import STORAGE, Client


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with EmulatorServer(tmp_path / "zone", tmp_path / "tables") as server:
        client = Client(server)
        client.create("t/a")
        yield client


def test_a_put_may_stand_for_a_patch(client: Client) -> None:
    """Java's own client knows no PATCH; the ABFS driver of Hadoop sends ``X-HTTP-Method-Override`` then."""
    override = {"X-HTTP-Method-Override": "PATCH"}
    assert client.send("PUT", "t/a", "action=append&position=0", b"abc", override).status == 202
    assert client.send("PUT", "t/a", "action=flush&position=3", headers=override).status == 200
    assert client.read("t/a").body == b"abc"


def test_half_a_request_has_no_effect(client: Client) -> None:
    host, port = urlsplit(client.server.url).netloc.split(":")
    head = (
        f"PATCH {client.path('t/a')}?action=append&position=0 HTTP/1.1\r\nHost: {host}\r\nContent-Length: 6\r\n"
        f"Authorization: Bearer {client.tokens[STORAGE]}\r\n\r\nabc"
    )
    with socket.create_connection((host, int(port)), timeout=300) as connection:
        connection.sendall(head.encode())
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1000) == b""
    assert client.flush("t/a", 3).code == "InvalidFlushPosition"


def test_an_error_of_the_emulator_is_a_500_and_shown(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(client.server.store, "answer", fail)
    answer = client.read("t/a")
    assert (answer.status, answer.code) == (500, "InternalError")
    assert "RuntimeError: a bug" in capsys.readouterr().err


@pytest.mark.parametrize("tls", [False, True])
def test_a_server_ends_with_its_threads_though_clients_stay_connected(tmp_path: Path, tls: bool) -> None:
    """A thread that goes on while the interpreter ends makes native libraries print what they leaked."""
    before = set(threading.enumerate())
    with EmulatorServer(tmp_path / "zone", tmp_path / "tables", tls=tls) as server:
        host, port = urlsplit(server.url).netloc.split(":")
        silent = [socket.create_connection((host, int(port)), timeout=300) for _ in range(3)]
        while len(set(threading.enumerate()) - before) < 1 + len(silent):
            time.sleep(0.01)
        ended = time.monotonic()
    assert time.monotonic() - ended < 300
    assert set(threading.enumerate()) <= before
    for client in silent:
        client.close()
