"""Connections to OneLake and their tokens: who signs in, where tokens go, how long they hold, what is never told."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fabric_emulator.web.emulator_server import EmulatorServer
from fabric_emulator.web.faults import Fault
from open_mirroring.config.connections import Connection
from open_mirroring.config.onelake import OneLakeConnection, onelake_connection
from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.landing_zone.onelake_store import OneLakeStore
from open_mirroring.remote import entra
from open_mirroring.remote.entra import FABRIC_AUDIENCE, STORAGE_AUDIENCE, EntraLogin, TokenSource
from open_mirroring.remote.http_service import HttpService, Request
from tests.onelake import CLIENTS, SECRET, emulator, login_of, zone_of

pytestmark = pytest.mark.usefixtures("without_back_off")

CANARY = "hunter2canary"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmulatorServer]:
    with emulator(tmp_path, clients=CLIENTS) as server:
        yield server


def connection(**changed: Any) -> Connection:
    extra = {"tenant_id": "contoso.example", **changed.pop("extra", {})}
    story = {"conn_type": "open_mirroring_onelake", "login": "app", "password": CANARY, **changed}
    return Connection("lake", **story, extra=extra)


# --- what a connection may say --------------------------------------------------------------------------------


def test_a_service_principal_at_the_public_addresses() -> None:
    """O-01, O-02, R-03."""
    assert onelake_connection(connection()) == OneLakeConnection(
        EntraLogin("lake", "service_principal", "contoso.example", "app", CANARY, "https://login.microsoftonline.com"),
        "https://onelake.dfs.fabric.microsoft.com",
        "https://api.fabric.microsoft.com",
        60.0,
    )


@pytest.mark.parametrize("auth", ["workload_identity", "managed_identity", "cli"])
def test_other_logins_have_no_secret(auth: str) -> None:
    login = onelake_connection(connection(password=None, extra={"auth": auth})).login
    assert (login.auth, login.secret) == (auth, "")
    with pytest.raises(TerminalError, match=r"CONNECTION_INVALID.*no password"):
        onelake_connection(connection(extra={"auth": auth}))


def test_what_a_form_leaves_empty_is_not_given() -> None:
    empty = {"dfs_endpoint": "", "fabric_endpoint": None, "timeout_seconds": None}
    assert onelake_connection(connection(extra=empty)) == onelake_connection(connection())


@pytest.mark.parametrize(
    "address",
    [
        "https://westeurope-onelake.dfs.fabric.microsoft.com",
        "https://0f00ab.z0f.dfs.fabric.microsoft.com",
        "http://127.0.0.1:8080",
        "http://localhost:8080/",
        "https://[::1]:8443",
    ],
)
def test_addresses_of_microsoft_and_of_this_machine_are_taken(address: str) -> None:
    """O-01: those of a region, too."""
    assert onelake_connection(connection(extra={"dfs_endpoint": address})).dfs_endpoint == address.rstrip("/")


@pytest.mark.parametrize(
    "changed",
    [
        {"conn_type": "http"},
        {"extra": {"auth": "account_key"}},
        {"extra": {"tenant_id": "a/b"}},
        {"extra": {"tenant_id": 5}},
        {"extra": {"tenant_id": ""}},
        {"login": None},
        {"password": None},
        {"extra": {"account_key": CANARY}},
        {"extra": {"dfs_endpoint": "http://onelake.dfs.fabric.microsoft.com"}},
        {"extra": {"dfs_endpoint": "https://onelake.dfs.fabric.microsoft.com.evil.example"}},
        {"extra": {"dfs_endpoint": f"https://{CANARY}@onelake.dfs.fabric.microsoft.com"}},
        {"extra": {"dfs_endpoint": "https://onelake.dfs.fabric.microsoft.com/x?sig=1"}},
        {"extra": {"dfs_endpoint": "https://api.fabric.microsoft.com"}},
        {"extra": {"dfs_endpoint": "http://10.0.0.1:80"}},
        {"extra": {"dfs_endpoint": "http://127.0.0.1:99999"}},
        {"extra": {"dfs_endpoint": "ftp://127.0.0.1"}},
        {"extra": {"fabric_endpoint": "https://onelake.dfs.fabric.microsoft.com"}},
        {"extra": {"authority": "https://login.example"}},
        {"extra": {"timeout_seconds": 0}},
        {"extra": {"timeout_seconds": "soon"}},
        {"extra": {"timeout_seconds": True}},
    ],
)
def test_anything_else_is_refused_without_its_content(changed: dict[str, Any]) -> None:
    """O-02, I30: no shared key; nothing of a connection is in the error; no token goes to a host of anybody else."""
    with pytest.raises(TerminalError) as caught:
        onelake_connection(connection(**changed))
    assert caught.value.code == "CONNECTION_INVALID"
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_an_installation_can_trust_more_hosts_but_only_by_https(monkeypatch: pytest.MonkeyPatch) -> None:
    """I30: a connection alone sends no token to another host; a variable of the process does."""
    changed = {"extra": {"dfs_endpoint": "https://emulator:10443"}}
    with pytest.raises(TerminalError):
        onelake_connection(connection(**changed))
    monkeypatch.setenv("OPEN_MIRRORING_TRUSTED_HOSTS", "other, Emulator")
    assert onelake_connection(connection(**changed)).dfs_endpoint == "https://emulator:10443"
    for address in ("http://emulator:10443", "https://emulator.example", "https:///"):
        with pytest.raises(TerminalError):
            onelake_connection(connection(extra={"dfs_endpoint": address}))


def test_a_service_is_trusted_by_the_authority_that_the_installation_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I30: a certificate that nobody vouches for ends the call before anything is sent."""
    with EmulatorServer(tmp_path / "zone", tmp_path / "tables", tls=True) as server:
        with pytest.raises(TransientError, match="UNREACHABLE"):
            HttpService(server.url, "emulator", 5).send(Request("GET", "/_emulator/health", repeatable=False))
        monkeypatch.setenv("OPEN_MIRRORING_CA_FILE", str(server.certificate))
        answer = HttpService(server.url, "emulator", 5).send(Request("GET", "/_emulator/health", repeatable=False))
    assert answer.status == 200


# --- tokens ---------------------------------------------------------------------------------------------------


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_token_is_kept_and_renewed_ahead_of_its_end(server: EmulatorServer) -> None:
    """O-02."""
    clock = Clock()
    tokens = TokenSource(login_of(server), STORAGE_AUDIENCE, clock)
    first = tokens.token()
    clock.now += 3600 - 301
    assert tokens.token() == first
    assert server.faults.calls()["token"] == 1
    clock.now += 2
    tokens.token()
    assert server.faults.calls()["token"] == 2


def test_a_short_token_is_renewed_after_half_its_life(server: EmulatorServer) -> None:
    clock, server.tokens.lifetime = Clock(), 60
    tokens = TokenSource(login_of(server), STORAGE_AUDIENCE, clock)
    for seconds, asked in ((0, 1), (29, 1), (2, 2)):
        clock.now += seconds
        tokens.token()
        assert server.faults.calls()["token"] == asked


def test_a_token_that_still_holds_is_used_while_none_can_be_asked_for(server: EmulatorServer) -> None:
    clock = Clock()
    tokens = TokenSource(login_of(server), STORAGE_AUDIENCE, clock)
    first = tokens.token()
    server.faults.add(Fault("dropped_before", "token", times=None))
    clock.now += 3500
    assert tokens.token() == first
    clock.now += 200
    with pytest.raises(TransientError, match="UNREACHABLE"):
        tokens.token()


def test_a_refused_token_is_renewed_once_however_many_threads_saw_it(server: EmulatorServer) -> None:
    tokens = TokenSource(login_of(server), STORAGE_AUDIENCE)
    refused = tokens.token()
    server.tokens.lifetime = 3000  # another token, although it may be asked for in the same second
    assert {tokens.renewed(refused) for _ in range(3)} == {tokens.token()}
    assert server.faults.calls()["token"] == 2


def test_storage_and_api_have_tokens_of_their_own_o_02_r_03(server: EmulatorServer) -> None:
    login = login_of(server)
    store = OneLakeStore(zone_of(server))
    assert list(store.list("")) == []
    store._calls._service._tokens = TokenSource(login, FABRIC_AUDIENCE)
    with pytest.raises(TerminalError, match="ACCESS_DENIED"):
        list(store.list(""))


@pytest.mark.parametrize("auth", ["workload_identity", "managed_identity", "cli"])
def test_identities_of_the_platform_go_through_azures_own_library(auth: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-03: managed identities are let in, as O-02 lets them."""
    import azure.identity
    from azure.core.credentials import AccessToken
    from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError

    given: list[Any] = [
        AccessToken("t1", 10_000),
        ServiceRequestError("x"),
        ClientAuthenticationError(f"AADSTS700 {CANARY}"),
    ]
    made: list[tuple[str, dict[str, Any]]] = []

    class Credential:
        def __init__(self, kind: str, **options: Any) -> None:
            made.append((kind, options))

        def get_token(self, scope: str) -> AccessToken:
            assert scope == STORAGE_AUDIENCE
            found = given.pop(0)
            if isinstance(found, Exception):
                raise found
            return found  # type: ignore[no-any-return]

    for name in ("WorkloadIdentityCredential", "ManagedIdentityCredential", "AzureCliCredential"):
        monkeypatch.setattr(azure.identity, name, partial(Credential, name))
    clock = Clock()
    clock.now = 9_000.0
    tokens = TokenSource(EntraLogin("lake", auth, "t", "c"), STORAGE_AUDIENCE, clock)
    assert tokens.token() == "t1"
    clock.now = 20_000.0
    with pytest.raises(TransientError, match=r"UNREACHABLE.*ServiceRequestError"):
        tokens.token()
    with pytest.raises(TerminalError, match=r"ACCESS_DENIED.*AADSTS700") as caught:
        tokens.token()
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    one_for_the_process = {
        "workload_identity": ("WorkloadIdentityCredential", {"tenant_id": "t", "client_id": "c"}),
        "managed_identity": ("ManagedIdentityCredential", {"client_id": "c"}),
        "cli": ("AzureCliCredential", {"tenant_id": "t"}),
    }
    assert made == [one_for_the_process[auth]], "which caches as it likes"


# --- secrets --------------------------------------------------------------------------------------------------


def test_no_text_of_a_zone_shows_its_secret(server: EmulatorServer) -> None:
    """I30: a zone travels to workers with its secret and shows it nowhere."""
    zone = zone_of(server)
    assert pickle.loads(pickle.dumps(zone)) == zone
    assert SECRET not in f"{zone} {zone!r} {zone.login}"


@pytest.mark.parametrize("kind", ["unavailable_before", "dropped_before", "token_expired", "throttled"])
def test_no_error_and_no_log_line_shows_secret_or_token(
    server: EmulatorServer, kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """I30: whatever fails, and at whatever level the libraries below us talk."""
    caplog.set_level(logging.DEBUG)
    store = OneLakeStore(zone_of(server))
    list(store.list(""))
    token = store._calls._service._tokens.token()
    server.faults.add(Fault(kind, times=None, seconds=3600))
    story, rows = list[str](), "-".join(["row", "canary"]).encode()
    for verb in (
        lambda: store.create("t/x", rows),
        lambda: store.rename("t/x", "t/y", source_etag="e"),
        lambda: store.stat("t/x"),
        lambda: entra.TokenSource(login_of(server), FABRIC_AUDIENCE).token(),
    ):
        try:
            verb()
        except MirroringError as error:
            story.append("".join(traceback.format_exception(error)))
    text = "".join([*story, caplog.text, *(str(record.args) for record in caplog.records)])
    assert len(story) >= 3 and ("UNREACHABLE" in text or "TARGET_BUSY" in text)
    assert [secret for secret in (SECRET, token, rows.decode(), "Bearer") if secret in text] == []


def test_a_token_that_is_no_header_is_not_quoted(server: EmulatorServer) -> None:
    """I30: the library below us quotes what it refuses to send."""
    store = OneLakeStore(zone_of(server))
    store._calls._service._tokens._token = entra.Token(f"{CANARY}\nx", 9e12, 9e12)
    with pytest.raises(TransientError, match="UNREACHABLE") as caught:
        store.stat("t/x")
    assert CANARY not in "".join(traceback.format_exception(caught.value))
