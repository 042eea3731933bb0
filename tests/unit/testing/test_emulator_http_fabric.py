"""The Fabric REST API of the served emulator, and the mirroring behind it."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fabric_emulator.web import EmulatorServer
from fabric_emulator.web.databases import generic_definition
from tests.unit.testing.emulator_client import Client
from tests.unit.testing.emulator_zone import Zone, items

NOW = 1_800_000_000.0


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    return Zone(tmp_path)


@pytest.fixture
def client(zone: Zone) -> Iterator[Client]:
    """Of an emulator with one database, running."""
    with EmulatorServer(zone.zone, zone.tables, clock=lambda: NOW) as server:
        yield Client(server)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Client]:
    """Of an emulator without any database."""
    with EmulatorServer(tmp_path / "zone", tmp_path / "tables", database=None, clock=lambda: NOW) as server:
        yield Client(server)


def definition(**target: Any) -> dict[str, Any]:
    document = generic_definition()
    document["properties"]["target"]["typeProperties"] |= target
    return in_parts(document)


def of_another(end: str) -> dict[str, Any]:
    """The definition of a database whose source or target is of another type."""
    document = generic_definition()
    document["properties"][end]["type"] = "MSSQL"
    return in_parts(document)


def in_parts(document: dict[str, Any]) -> dict[str, Any]:
    payload = base64.b64encode(json.dumps(document).encode()).decode()
    return {"parts": [{"path": "mirroring.json", "payload": payload, "payloadType": "InlineBase64"}]}


def publish(client: Client, table: str, number: int, rows: list[tuple[Any, ...]]) -> None:
    """As a client of the store does: metadata, staged file, rename."""
    if number == 1:
        client.upload(f"{table}/_metadata.json", b'{"keyColumns":["id"]}')
    content = io.BytesIO()
    pq.write_table(items(rows), content)
    client.upload(f"{table}/_stage-1/{number}", content.getvalue())
    final = f"{table}/{number:020d}.parquet"
    assert client.rename(f"{table}/_stage-1/{number}", final, If_None_Match="*").status == 201


def status(client: Client, identity: str | None = None) -> str:
    answer = client.fabric("POST", f"{identity or client.server.database_id}/getMirroringStatus")
    return str(answer.json()["status"])


def test_files_published_over_http_are_mirrored(client: Client, zone: Zone) -> None:
    """F-02, F-38, F-54, F-35: staged, renamed, applied; moved by the service with the same ETag."""
    for number in (1, 2):
        publish(client, "dbo.schema/items", number, [(4, number, "x")])
    first = client.head(f"dbo.schema/items/{1:020d}.parquet").etag
    assert [(done.table, done.number) for done in client.server.poll()] == [("dbo/items", 1), ("dbo/items", 2)]
    assert zone.rows() == [(1, "x"), (2, "x")]
    assert client.head(f"dbo.schema/items/_FilesReadyToDelete/{1:020d}.parquet").etag == first
    assert client.head(f"dbo.schema/items/{2:020d}.parquet").status == 200
    (entry,) = client.fabric("POST", f"{client.server.database_id}/getTablesMirroringStatus").json()["data"]
    assert (entry["status"], entry["metrics"]["processedRows"]) == ("Replicating", 2)


def test_files_are_mirrored_while_others_come(zone: Zone) -> None:
    """F-34, F-35: a service that watches works side by side with writers; no file is lost or seen twice."""
    with EmulatorServer(zone.zone, zone.tables, poll_every=0.01) as server:
        client = Client(server)
        for number in range(1, 6):
            publish(client, "items", number, [(4, number, "x")])
        deadline = time.monotonic() + 300
        while [table["metrics"]["processedRows"] for table in server.service.status().values()] != [5]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    numbers = [path.name for path in (zone.zone / "items").rglob("*.parquet")]
    assert sorted(numbers) == [f"{number:020d}.parquet" for number in range(1, 6)]
    assert zone.rows() == [(number, "x") for number in range(1, 6)]


def test_a_file_seen_between_create_and_flush_fails_its_table(client: Client) -> None:
    """O-07, F-38, F-40: zero bytes under a final name are an outage until the file is replaced."""
    client.upload("items/_metadata.json", b'{"keyColumns":["id"]}')
    client.create(f"items/{1:020d}.parquet")
    client.server.poll()
    (entry,) = client.server.service.status().values()
    assert entry["error"]["errorCode"] == "InvalidParquetFile"


def test_the_status_calls_are_post_only(client: Client) -> None:
    """R-01."""
    for call in ("getMirroringStatus", "getTablesMirroringStatus"):
        refused = client.fabric("GET", f"{client.server.database_id}/{call}")
        assert (refused.status, refused.json()["errorCode"]) == (405, "MethodNotAllowed")
        assert client.fabric("POST", f"{client.server.database_id}/{call}").status == 200


def test_the_api_takes_its_own_audience_only(client: Client) -> None:
    """R-03."""
    path = f"/v1/workspaces/{client.server.workspace_id}/mirroredDatabases"
    assert (client.send("GET", path).status, client.fabric("GET").status) == (401, 200)


def test_a_database_made_by_rest_waits_to_be_started(empty: Client) -> None:
    """R-06: it is not started by itself; R-05: its definition."""
    created = empty.fabric("POST", "", {"displayName": "shop", "description": "d", "definition": definition()})
    assert created.status == 201
    identity = created.json()["id"]
    assert created.json()["properties"]["oneLakeTablesPath"].endswith(f"{identity}/Tables")
    publish(empty, "items", 1, [(4, 1, "x")])
    assert (status(empty), empty.server.poll()) == ("Initialized", [])
    assert empty.fabric("POST", f"{identity}/startMirroring").status == 200
    assert (status(empty), len(empty.server.poll())) == ("Running", 1)


def test_mirroring_does_not_start_without_a_definition(empty: Client) -> None:
    """R-06."""
    identity = empty.fabric("POST", "", {"displayName": "shop"}).json()["id"]
    refused = empty.fabric("POST", f"{identity}/startMirroring")
    assert (refused.status, refused.json()["errorCode"]) == (400, "MirroringDefinitionMissing")
    assert empty.fabric("POST", f"{identity}/getDefinition").json() == {"definition": {"parts": []}}
    assert empty.fabric("POST", f"{identity}/updateDefinition", {"definition": definition()}).status == 200
    assert empty.fabric("POST", f"{identity}/startMirroring").status == 200
    assert status(empty) == "Running"


def test_nothing_starts_or_stops_while_initializing(empty: Client) -> None:
    empty.server.fabric.passing_seconds = 60
    identity = empty.fabric("POST", "", {"displayName": "shop", "definition": definition()}).json()["id"]
    assert status(empty) == "Initializing"
    for call in ("startMirroring", "stopMirroring"):
        assert empty.fabric("POST", f"{identity}/{call}").status == 400
    empty.server.advance_clock(60)
    assert empty.fabric("POST", f"{identity}/startMirroring").status == 200
    publish(empty, "items", 1, [(4, 1, "x")])
    assert (status(empty), empty.server.poll()) == ("Starting", [])
    empty.server.advance_clock(60)
    assert (status(empty), len(empty.server.poll())) == ("Running", 1)


def test_a_stopped_database_starts_from_scratch(client: Client) -> None:
    """R-07, F-76."""
    for number in (1, 2):
        publish(client, "items", number, [(4, number, "x")])
    assert len(client.server.poll()) == 2
    assert client.fabric("POST", f"{client.server.database_id}/stopMirroring").status == 200
    assert (status(client), client.server.poll()) == ("Stopped", [])
    client.fabric("POST", f"{client.server.database_id}/startMirroring")
    assert (status(client), client.server.poll()) == ("Running", [])
    (entry,) = client.server.service.status().values()
    assert (entry["status"], entry["metrics"]["processedRows"]) == ("Initialized", 0)


def test_the_default_schema_is_the_definitions(empty: Client) -> None:
    """F-03, R-05; it changes only while Initialized or Stopped."""
    body = {"displayName": "shop", "definition": definition(defaultSchema="sales")}
    identity = empty.fabric("POST", "", body).json()["id"]
    empty.fabric("POST", f"{identity}/startMirroring")
    publish(empty, "items", 1, [(4, 1, "x")])
    assert [done.table for done in empty.server.poll()] == ["sales/items"]
    change = {"definition": definition(defaultSchema="other")}
    assert empty.fabric("POST", f"{identity}/updateDefinition", change).status == 400
    empty.fabric("POST", f"{identity}/stopMirroring")
    assert empty.fabric("POST", f"{identity}/updateDefinition", change).status == 200
    assert empty.fabric("GET", identity).json()["properties"]["defaultSchema"] == "other"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"parts": []},
        {"parts": [{"path": "mirroring.json", "payload": "!", "payloadType": "InlineBase64"}]},
        {"parts": [{"path": "mirroring.json", "payload": "e30=", "payloadType": "InlineBase64"}]},
        {"parts": [{**definition()["parts"][0], "payloadType": "VSCode"}]},
        {"parts": [{**definition()["parts"][0], "path": "definition.json"}]},
        of_another("source"),
        of_another("target"),
    ],
)
def test_a_definition_is_one_part_in_base64(empty: Client, wrong: Any) -> None:
    """R-05: and the source a landing zone, the target a mounted database."""
    refused = empty.fabric("POST", "", {"displayName": "shop", "definition": wrong})
    assert (refused.status, refused.json()["errorCode"]) == (400, "InvalidDefinition")
    assert empty.fabric("POST", "", {"definition": definition()}).json()["errorCode"] == "InvalidInput"
