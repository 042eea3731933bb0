"""What OneLake is beside a plain store: names, tokens, fixed folders, headers, listings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_emulator.web import EmulatorServer
from tests.unit.testing.emulator_client import FABRIC, STORAGE, Client

NOW = 1_800_000_000.0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    folders = (tmp_path / "zone", tmp_path / "tables")
    with EmulatorServer(*folders, workspace="Sales", database="shop", clock=lambda: NOW) as server:
        yield Client(server)


@pytest.mark.parametrize("account", ["", "/onelake"])
def test_items_go_by_names_or_by_guids_and_never_by_both(client: Client, account: str) -> None:
    """O-01: names with the suffix of the type, GUIDs without."""
    guids, names = (client.server.workspace_id, client.server.database_id), ("Sales", "shop.MirroredDatabase")
    client.upload("t/a", b"a")
    for workspace, item in (guids, names):
        assert client.read(f"{account}/{workspace}/{item}/Files/LandingZone/t/a").body == b"a"
    for workspace, item in ((guids[0], names[1]), (names[0], guids[1])):
        mixed = client.read(f"{account}/{workspace}/{item}/Files/LandingZone/t/a")
        assert (mixed.status, mixed.code) == (400, "FriendlyNameSupportDisabled")
    assert client.read(f"{account}/Sales/shop/Files/LandingZone/t/a").code == "PathNotFound"
    assert client.read(f"{account}/Other/{names[1]}/Files/LandingZone/t/a").code == "FilesystemNotFound"


def test_names_in_a_listing_are_those_of_the_request(client: Client) -> None:
    """O-01."""
    client.upload("t/a", b"a")
    zone = "shop.MirroredDatabase/Files/LandingZone"
    paths = client.list(zone, workspace="Sales").json()["paths"]
    assert [path["name"] for path in paths] == [f"{zone}/t", f"{zone}/t/a"]
    items = client.list("", "recursive=false", client.server.workspace_id).json()["paths"]
    assert [path["name"] for path in items] == [client.server.database_id]
    whole = [path["name"] for path in client.list("", workspace="Sales").json()["paths"]]
    assert f"{zone}/t/a" in whole
    assert "shop.MirroredDatabase/Tables" in whole


def test_the_store_takes_the_storage_audience_only(client: Client) -> None:
    """O-02, R-03: two tokens."""
    for audience in (FABRIC, None):
        answer = client.send("HEAD", "", audience=audience)
        assert answer.status == 401
        assert f"resource_id={STORAGE}" in answer.headers["WWW-Authenticate"]
    assert client.send("HEAD", "").status == 200
    forged = client.tokens[STORAGE][:-3] + "AAA"
    assert client.send("HEAD", "", headers={"Authorization": f"Bearer {forged}"}, audience=None).status == 401
    assert client.send("HEAD", "", headers={"Authorization": "SharedKey onelake:xyz"}, audience=None).status == 401


def test_a_token_ends_by_the_emulators_clock(client: Client) -> None:
    """O-02."""
    client.server.advance_clock(3599)
    assert client.send("HEAD", "").status == 200
    client.server.advance_clock(1)
    expired = client.send("GET", "")
    assert (expired.status, expired.code) == (401, "InvalidAuthenticationInfo")
    assert "expired" in expired.json()["error"]["message"]


def test_a_token_is_refused_for_a_wrong_secret_or_scope(tmp_path: Path) -> None:
    with EmulatorServer(tmp_path / "zone", tmp_path / "tables", clients={"app": "s3cret"}) as server:
        client, address = Client(server), "/tenant/oauth2/v2.0/token"
        storage = {"scope": f"{STORAGE}/.default"}
        assert _ask_for_token(client, address, storage, secret="wrong")["error"] == "invalid_client"
        assert _ask_for_token(client, address, {"scope": "https://other/.default"})["error"] == "invalid_scope"
        assert "access_token" in _ask_for_token(client, address, storage)


def _ask_for_token(client: Client, address: str, wanted: dict[str, str], secret: str = "s3cret") -> dict[str, Any]:
    form = {"grant_type": "client_credentials", "client_id": "app", "client_secret": secret, **wanted}
    body = client.send("POST", address, body=urlencode(form).encode(), audience=None).body
    return dict(json.loads(body))


def test_headers_that_onelake_ignores_are_named(client: Client) -> None:
    """O-03: ``x-ms-rejected-headers``."""
    answer = client.create("t/a", x_ms_permissions="rwxrwx---", x_ms_umask="0027")
    assert (answer.status, answer.headers["x-ms-rejected-headers"]) == (201, "x-ms-permissions,x-ms-umask")
    assert "x-ms-rejected-headers" not in client.create("t/b", If_None_Match="*").headers
    seen = client.head("t/a").headers
    assert (seen["x-ms-owner"], seen["x-ms-permissions"]) == ("$superuser", "---------")


def test_only_what_lies_below_files_can_be_changed(client: Client) -> None:
    """O-03: item, ``Files`` and ``Tables`` are fixed; of account and container there is HEAD, and the listing."""
    item = f"/{client.server.workspace_id}/{client.server.database_id}"
    client.upload("t/a", b"a")
    for path in (item, f"{item}/Files", f"{item}/Tables", f"{item}/Tables/dbo/t", f"{item}/Files/Monitoring/x"):
        assert client.create(path, "directory").status == 403
        assert client.delete(path).status == 403
        assert client.rename("t/a", path).status == 403
        assert client.rename(path, "t/b").status == 403
    assert client.create(f"{item}/Other/x").status == 404
    assert client.create(f"{item}/Files/scratch/x").status == 201
    for path in ("/", f"/{client.server.workspace_id}"):
        assert client.send("HEAD", path).status == 200
        assert [client.send(method, path).status for method in ("PUT", "DELETE")] == [403, 403]
    assert client.send("PATCH", "t/a", "action=setAccessControl").code == "UnsupportedOperation"


def test_a_listing_shows_what_there_is_and_not_what_is_under_way(client: Client) -> None:
    """O-07: what is appended is no file; a created one has zero bytes."""
    etag = client.upload("t/a", b"abc")
    client.create("t/sub/b")
    client.append("t/sub/b", b"xyz")
    found = {path["name"].split("LandingZone/")[1]: path for path in client.list().json()["paths"]}
    assert {name: path["contentLength"] for name, path in found.items()} == {
        "t": "0",
        "t/a": "3",
        "t/sub": "0",
        "t/sub/b": "0",
    }
    assert (f'"{found["t/a"]["etag"]}"', found["t"]["isDirectory"]) == (etag, "true")
    flat = client.list("t", "recursive=false").json()["paths"]
    assert [path["name"].rsplit("/", 1)[1] for path in flat] == ["a", "sub"]
    assert client.list("none").code == "PathNotFound"
    assert client.list("t/a").code == "PathNotFound"


@settings(derandomize=True, deadline=None, max_examples=15)
@given(st.integers(1, 7), st.sets(st.sampled_from("abcdefgh"), max_size=6))
def test_pages_of_a_listing_are_the_listing(
    tmp_path_factory: pytest.TempPathFactory, page: int, names: set[str]
) -> None:
    """Whatever the size of a page: every path once, in order."""
    root = tmp_path_factory.mktemp("pages")
    for name in names:
        (root / "zone" / f"{name}.schema").mkdir(parents=True)
        (root / "zone" / f"{name}.schema" / "t").touch()
    with EmulatorServer(root / "zone", root / "tables") as server:
        client, seen, token = Client(server), [], ""
        for _ in range(20):
            answer = client.list("", f"recursive=true&maxResults={page}&continuation={token}")
            assert len(answer.json()["paths"]) <= page
            seen += [path["name"].split("LandingZone/")[1] for path in answer.json()["paths"]]
            token = answer.headers.get("x-ms-continuation", "")
            if not token:
                break
    expected = [path for name in names for path in (f"{name}.schema", f"{name}.schema/t")]
    assert seen == sorted(expected)


def test_the_complete_landing_zone_may_be_deleted(client: Client) -> None:
    """O-03: what lies below ``Files`` may go; the item stays."""
    client.upload("t/a", b"a")
    assert client.delete("").status == 200
    paths = client.list("", workspace=client.server.workspace_id).json()["paths"]
    assert not [path for path in paths if "LandingZone" in path["name"]]
    client.upload("t/b", b"b")
    assert client.names() == ["t", "t/b"]


def test_tables_and_monitoring_can_be_read(client: Client, tmp_path: Path) -> None:
    """O-03: ``Tables`` shows the mirrored tables, and nothing else that the emulator keeps there."""
    (tmp_path / "tables" / "dbo" / "t").mkdir(parents=True)
    (tmp_path / "tables" / "dbo" / "t" / "part").write_bytes(b"rows")
    client.server.poll()
    item = f"{client.server.workspace_id}/{client.server.database_id}"
    assert client.read(f"/{item}/Tables/dbo/t/part").body == b"rows"
    assert json.loads(client.read(f"/{item}/Files/Monitoring/replicator.json").body)["status"] == "Running"
    listed = client.list(f"{client.server.database_id}/Tables", workspace=client.server.workspace_id).json()["paths"]
    assert [path["name"].split("/Tables/")[1] for path in listed] == ["dbo", "dbo/t", "dbo/t/part"]
    assert client.read(f"/{item}/Tables/_state/state.json").code == "PathNotFound"
