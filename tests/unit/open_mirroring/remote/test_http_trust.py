"""Calls over TLS trust what the system trusts, and learn it once, not for every connection."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from fabric_emulator.web.emulator_server import EmulatorServer
from open_mirroring.errors import TransientError
from open_mirroring.remote.http_service import HttpService, Request, RetryBudget
from tests.onelake import emulator


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatorServer]:
    with emulator(tmp_path_factory.mktemp("trust"), tls=True) as server:
        yield server


def health(service: HttpService) -> int:
    return service.send(Request("GET", "/_emulator/health", repeatable=False)).status


def test_the_system_s_authorities_are_read_once(server: EmulatorServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them takes 25 ms of processor time, which every new connection would pay."""
    monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
    loads: list[ssl.SSLContext] = []
    load = ssl.SSLContext.load_default_certs

    def counted(context: ssl.SSLContext, *arguments: Any) -> None:
        loads.append(context)
        load(context, *arguments)

    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", counted)
    service, together = HttpService(server.url, "the emulator"), Barrier(3)

    def call(_: int) -> int:
        together.wait(300)  # so that each call needs a connection of its own
        return health(service)

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(call, range(3))) == [200] * 3
    assert len(loads) == 1


def test_a_certificate_that_nobody_vouches_for_is_refused(
    server: EmulatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    service = HttpService(server.url, "the emulator", budget=RetryBudget(sleep=lambda _: None))
    with pytest.raises(TransientError, match="UNREACHABLE"):
        health(service)


def test_a_certificate_of_another_host_is_refused(server: EmulatorServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
    context = HttpService(server.url, "the emulator")._pool.connection_pool_kw["ssl_context"]
    assert context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED
