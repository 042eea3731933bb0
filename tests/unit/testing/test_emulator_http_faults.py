"""Faults on demand, and what is left after them."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric_emulator.web import EmulatorServer, Fault
from tests.unit.testing.emulator_client import Client


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with EmulatorServer(tmp_path / "zone", tmp_path / "tables") as server:
        client = Client(server)
        client.upload("t/_a", b"a")
        yield client


def _hang_up(client: Client, source: str = "t/_a", target: str = "t/b") -> None:
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        client.rename(source, target, If_None_Match="*")


def test_what_came_into_being_is_counted_however_late_or_often_it_is_asked_for(client: Client) -> None:
    """O-05: a name that is made twice was overwritten, or came back after the service had taken it away."""
    client.server.faults.add(Fault("delayed", "rename"))
    _hang_up(client)
    client.server.faults.release()
    assert client.rename("t/_a", "t/b", If_None_Match="*").status == 404
    made = {path.name: times for path, times in client.server.store.made.items()}
    assert made == {"_a": 1, "b": 1}
    client.upload("t/_a", b"again")
    assert client.rename("t/_a", "t/b", If_None_Match="*").status == 409
    assert client.rename("t/_a", "t/b").status == 201
    made = {path.name: times for path, times in client.server.store.made.items()}
    assert made == {"_a": 2, "b": 2}


def test_a_lost_request_may_have_its_effect_later(client: Client) -> None:
    """O-08: and then it is harmless if its source is not what it was."""
    client.server.faults.add(Fault("delayed", "rename", times=2))
    _hang_up(client)
    _hang_up(client)
    assert client.head("t/b").status == 404
    assert client.server.faults.release() == [201, 404]
    assert client.head("t/b").status == 200
    assert client.server.faults.release() == []


def test_a_copy_of_a_request_may_arrive_late(client: Client) -> None:
    """O-04, O-08: a late create brings a consumed source to life again, as another object."""
    for kind in ("duplicated", "delayed"):
        client.server.faults.add(Fault(kind, "create", "*/t/_b"))  # type: ignore[arg-type]
    sealed = client.upload("t/_b", b"b")
    assert client.rename("t/_b", "t/b", x_ms_source_if_match=sealed).status == 201
    assert (client.server.faults.release(), client.head("t/_b").status) == ([201], 200)
    again = client.rename("t/_b", "t/b", x_ms_source_if_match=sealed)
    assert (again.code, client.read("t/b").body) == ("SourceConditionNotMet", b"b")


def test_a_login_may_lack_a_right(client: Client) -> None:
    """R-08: to ask for the status is another right than to write, and each is refused with its service's own code."""
    for verb in ("status", "rename"):
        client.server.faults.add(Fault("forbidden", verb))
    asked = client.fabric("POST", f"{client.server.database_id}/getMirroringStatus")
    assert (asked.status, asked.json()["errorCode"]) == (403, "InsufficientPrivileges")
    renamed = client.rename("t/_a", "t/b", If_None_Match="*")
    assert (renamed.status, renamed.code) == (403, "AuthorizationPermissionMismatch")
    assert client.rename("t/_a", "t/b", If_None_Match="*").status == 201


def test_a_listing_may_be_stale_or_repeat_itself(client: Client) -> None:
    """A stale one is the last one given for this folder, the first one empty."""
    faults = client.server.faults
    faults.add(Fault("stale_listing", "list"))
    assert client.names("t") == []
    assert client.names("t") == ["t/_a"]
    client.rename("t/_a", "t/b")
    faults.add(Fault("stale_listing", "list", times=2))
    assert client.names("t") == ["t/_a"]
    assert client.names("t") == ["t/_a"]
    assert client.names("t") == ["t/b"]
    faults.add(Fault("repeated_listing", "list"))
    assert client.names("t") == ["t/b", "t/b"]


def test_faults_choose_by_verb_path_and_count(client: Client) -> None:
    client.server.faults.add(Fault("unavailable_before", "create", "*/t/b*", times=2, skip=1))
    paths = ["t/c", "t/b1", "t/b2", "u/b3", "t/b4", "t/b5"]
    assert [client.create(path).status for path in paths] == [201, 201, 503, 201, 503, 201]
    assert client.server.faults.struck() == {"unavailable_before": 2}


def test_a_fault_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no fault 'explode'"):
        Fault("explode")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="of 'renam'"):
        Fault("slow", "renam")


def test_the_emulator_can_be_reported_over_http(client: Client) -> None:
    def tell(method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        answer = client.send(method, f"/_emulator/{path}", body=body, audience=None)
        return answer.status, answer.body

    assert tell("GET", "health") == (200, b"")
    assert tell("POST", "poll") == (200, b'{"applied": []}')
    assert tell("POST", "faults", b'{"kind": "unavailable_before", "verb": "read", "times": null}')[0] == 200
    assert client.read("t/_a").status == 503
    assert b'"verb": "read"' in tell("GET", "faults")[1]
    assert b'"unavailable_before": 1' in tell("GET", "calls")[1]
    assert tell("DELETE", "faults")[0] == 200
    assert client.read("t/_a").status == 200
    assert tell("POST", "faults", b'{"kind": "explode"}')[0] == 400
    assert tell("DELETE", "calls")[0] == 200
    assert client.server.faults.calls() == {}
    assert tell("POST", "pause")[0] == 200
    assert b'"status": "Paused"' in tell("GET", "status")[1]
    before = client.server.now()
    assert tell("POST", "clock", b'{"seconds": 4000}')[0] == 200
    assert client.server.now() >= before + 4000
    assert client.read("t/_a").status == 401
    assert tell("POST", "clock", b'{"seconds": "x"}')[0] == 400
    assert tell("POST", "latency", b'{"seconds": 0}')[0] == 200
    assert tell("POST", "release") == (200, b'{"released": []}')
    assert tell("POST", "nothing")[0] == 404
