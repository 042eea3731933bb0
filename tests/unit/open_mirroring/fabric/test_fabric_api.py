"""The client of the Fabric REST API against the emulator, and against answers that no emulator gives."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fabric_emulator.web.emulator_server import EmulatorServer
from fabric_emulator.web.faults import Fault
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fabric.api import FabricApi, MirroredDatabase, generic_mirror
from open_mirroring.fabric.target_status import DatabaseState, TableMirrorState
from open_mirroring.remote.entra import EntraLogin
from tests.onelake import CLIENTS, emulator, login_of


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmulatorServer]:
    with emulator(tmp_path, clients=CLIENTS, database=None) as server:
        yield server


@pytest.fixture
def api(server: EmulatorServer) -> FabricApi:
    return FabricApi(server.url, login_of(server), sleep=lambda seconds: None)


def made(api: FabricApi, server: EmulatorServer, name: str = "shop") -> MirroredDatabase:
    return api.create(server.workspace_id, name, generic_mirror("sales"))


def test_workspaces_and_databases_are_found_by_name(api: FabricApi, server: EmulatorServer) -> None:
    database = made(api, server)
    assert api.find_workspace("emulator") == server.workspace_id
    assert api.find_workspace("another") is None
    server.fabric.page = 1
    other = made(api, server, "another")
    assert api.find_database(server.workspace_id, "shop") == database
    assert api.find_database(server.workspace_id, "another") == other
    assert api.find_database(server.workspace_id, "none") is None
    assert api.get(server.workspace_id, database.id) == database
    assert api.get(server.workspace_id, server.workspace_id) is None


@pytest.mark.parametrize("polls", [None, 2])
def test_the_definition_is_the_one_it_was_made_with_r_05(
    api: FabricApi, server: EmulatorServer, polls: int | None
) -> None:
    """Also as a long-running operation, asked for again as it says."""
    server.operations.polls = polls
    database = made(api, server)
    target = {"defaultSchema": "sales", "format": "Delta"}
    assert api.definition(database) == {
        "properties": {
            "source": {"type": "GenericMirror", "typeProperties": {}},
            "target": {"type": "MountedRelationalDatabase", "typeProperties": target},
        }
    }


def test_a_database_made_by_rest_is_started_by_us_alone_r_06(api: FabricApi, server: EmulatorServer) -> None:
    database = made(api, server)
    assert api.status(database).state is DatabaseState.INITIALIZED
    api.start(database)
    assert api.status(database).state is DatabaseState.RUNNING
    api.stop(database)
    assert api.status(database).state is DatabaseState.STOPPED


def test_the_apis_tokens_are_not_those_of_storage_r_03(api: FabricApi, server: EmulatorServer) -> None:
    """The emulator refuses each audience at the other's endpoint; a client with one token for both would fail here."""
    assert made(api, server).name == "shop"


def test_a_status_call_is_repeated_and_waits_as_it_is_reported_r_04(api: FabricApi, server: EmulatorServer) -> None:
    database = made(api, server)
    for kind in ("unavailable_before", "dropped_after", "token_expired", "throttled"):
        server.faults.add(Fault(kind, "status"))  # type: ignore[arg-type]
        assert api.status(database).state is DatabaseState.INITIALIZED, kind


def test_a_creation_of_which_nobody_reported_is_found_by_its_name(api: FabricApi, server: EmulatorServer) -> None:
    server.faults.add(Fault("dropped_after", "database"))
    with pytest.raises(TransientError, match="UNREACHABLE"):
        made(api, server)
    found = api.find_database(server.workspace_id, "shop")
    assert found is not None
    with pytest.raises(TerminalError, match="SERVICE_REFUSED"):
        made(api, server)


# --- answers that no emulator gives ---------------------------------------------------------------------------

DATABASE = MirroredDatabase("w", "d", "shop")


class _Scripted(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.endswith("/token"):
            status, document, headers = 200, {"access_token": "t", "expires_in": 3600}, {}
        else:
            self.server.asked.append((self.command, self.path))  # type: ignore[attr-defined]
            status, document, headers = self.server.answers.pop(0)  # type: ignore[attr-defined]
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def scripted(*answers: tuple[int, Any, dict[str, str]]) -> Iterator[tuple[FabricApi, list[tuple[str, str]]]]:
    """An API that gives these answers, and the calls that it got."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Scripted)
    server.answers, server.asked = list(answers), []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    login = EntraLogin("lake", "service_principal", "t", "c", "s", url)
    try:
        yield FabricApi(url, login, sleep=lambda seconds: None), server.asked  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_tables_come_page_by_page_by_post_r_01() -> None:
    def entry(name: str, status: str, **more: Any) -> dict[str, Any]:
        return {"sourceSchemaName": "dbo", "sourceTableName": name, "status": status, **more}

    metrics = {"processedRows": 7, "processedBytes": 900, "lastSyncDateTime": "2026-01-01T00:00:00Z"}
    error = {"errorCode": "SchemaChange", "message": "type\nchanged"}
    pages = [
        (200, {"data": [entry("a", "Replicating", metrics=metrics)], "continuationToken": "n/2"}, {}),
        (200, {"data": [entry("b", "Failed", error=error)], "continuationUri": "http://elsewhere.invalid/x"}, {}),
    ]
    with scripted(*pages) as (api, asked):
        one, other = api.table_statuses(DATABASE)
    assert (one.table, one.state, one.processed_rows) == ("a", TableMirrorState.REPLICATING, 7)
    assert (other.state, other.error) == (TableMirrorState.FAILED, "SchemaChange: type changed")
    path = "/v1/workspaces/w/mirroredDatabases/d/getTablesMirroringStatus"
    assert asked == [("POST", path), ("POST", f"{path}?continuationToken=n%2F2")]


@pytest.mark.parametrize("word", ["Hibernating", "", "running"])
def test_a_word_of_a_later_version_is_not_ready_and_no_crash_r_02(word: str) -> None:
    tables = {"data": [{"sourceTableName": "a", "status": word, "metrics": {"processedRows": "many"}}]}
    with scripted((200, {"status": word}, {}), (200, tables, {})) as (api, _):
        status, (table,) = api.status(DATABASE), api.table_statuses(DATABASE)
    assert (status.state, status.said) == (DatabaseState.UNKNOWN, word)
    assert (table.state, table.said, table.processed_rows) == (TableMirrorState.UNKNOWN, word, None)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"data": 5}'])
def test_an_answer_that_cannot_be_understood_may_be_another_next_time(body: bytes) -> None:
    with scripted((200, body, {})) as (api, _), pytest.raises(TransientError, match="UNREACHABLE"):
        api.table_statuses(DATABASE)


def test_a_refusal_is_reported_by_its_code() -> None:
    refusal = {"errorCode": "MirroringDefinitionMissing", "message": "secret-canary"}
    with scripted((400, refusal, {})) as (api, _), pytest.raises(TerminalError) as caught:
        api.start(DATABASE)
    assert "SERVICE_REFUSED" in str(caught.value) and "MirroringDefinitionMissing" in str(caught.value)
    assert "canary" not in str(caught.value)


def test_a_redirect_is_not_followed() -> None:
    """A token goes to the address of the connection and to no other."""
    elsewhere = {"Location": "http://elsewhere.invalid/"}
    with scripted((307, {}, elsewhere)) as (api, asked), pytest.raises(TerminalError, match="SERVICE_REFUSED"):
        api.status(DATABASE)
    assert len(asked) == 1


def test_an_operation_that_fails_is_refused() -> None:
    accepted = (202, {}, {"x-ms-operation-id": "o", "Retry-After": "1"})
    running = (200, {"status": "Running"}, {"Retry-After": "1"})
    failed = (200, {"status": "Failed", "error": {"errorCode": "QuotaExceeded", "message": "no"}}, {})
    with scripted(accepted, running, failed) as (api, asked), pytest.raises(TerminalError, match="QuotaExceeded"):
        api.definition(DATABASE)
    assert asked[1:] == [("GET", "/v1/operations/o"), ("GET", "/v1/operations/o")]
