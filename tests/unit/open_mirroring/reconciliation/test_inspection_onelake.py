"""A look at a mirror in OneLake costs one listing, and still sees everything that changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric_emulator.web.emulator_server import EmulatorServer
from fabric_emulator.web.faults import Fault
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.listing import list_tables
from open_mirroring.landing_zone.local_store import LocalStore
from open_mirroring.protocols.verdicts import Finding
from open_mirroring.reconciliation.inspection import inspect_mirror
from tests.hand_published import CUSTOMERS, ORDERS, HandPublished
from tests.onelake import CLIENTS, connection_variable, emulator


class Looked:
    """An established mirror of two tables, with a file each, looked at once."""

    def __init__(self, server: EmulatorServer, made: HandPublished) -> None:
        self.server, self.mirror, self.ledger = server, made.mirror, made.ledger
        made.publish(orders=[1], customers=[1])
        (database,) = server.databases.all()
        self.zone = database.folders.zone
        self.look()

    def look(self) -> tuple[dict[str, Finding], dict[str, int]]:
        """What a look finds, and the calls that it costs."""
        self.server.faults.reset_calls()
        found = inspect_mirror(self.mirror, self.ledger)
        return found, self.server.faults.calls()


@pytest.fixture
def looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looked]:
    with emulator(tmp_path, clients=CLIENTS) as server:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_variable(server))
        yield Looked(server, HandPublished(tmp_path, server))


def codes(found: dict[str, Finding]) -> dict[str, str]:
    return {source: finding.code for source, finding in found.items()}


def test_pages_are_all_that_a_large_zone_costs(looked: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("open_mirroring.landing_zone.onelake_store._PAGE", 3)
    found, calls = looked.look()
    assert set(codes(found).values()) == {"OK"}
    assert calls.keys() == {"list", "status"} and calls["list"] > 1


@pytest.mark.parametrize("name", [layout.METADATA_FILE, layout.INCARNATION_FILE])
@pytest.mark.parametrize("change", ["edited", "deleted", "made anew"])
def test_an_object_with_another_etag_is_read_i23(looked: Looked, name: str, change: str) -> None:
    """What makes idle tables cheap hides nothing: other keys, another folder's marker, or the same words anew."""
    path = looked.zone / "dbo.schema" / "orders" / name
    content = path.read_bytes()
    path.unlink()
    if change == "edited":
        path.write_text(json.dumps({"keyColumns": ["other"], "incarnation": "other"}))
    elif change == "made anew":
        path.write_bytes(content)
    found, calls = looked.look()
    stops = "METADATA_CHANGED" if name == layout.METADATA_FILE else "INCARNATION_CHANGED"
    harmless = change == "made anew" and name == layout.METADATA_FILE
    assert codes(found) == {ORDERS: "OK" if harmless else stops, CUSTOMERS: "OK"}
    assert calls["read"] >= 1
    path.unlink(missing_ok=True)
    if harmless:
        return
    path.write_bytes(content)
    found, _ = looked.look()
    assert codes(found)[ORDERS] == ("OK" if name == layout.METADATA_FILE else stops), "I12: another object is another"


def test_a_stop_counts_when_a_second_look_agrees(looked: Looked) -> None:
    """A listing is no snapshot: what one of them lacks is asked for, and listed again."""
    empty = looked.zone.rename(looked.zone.with_name("away"))
    looked.zone.mkdir()
    looked.look()
    looked.zone.rmdir()
    empty.rename(looked.zone)
    looked.server.faults.add(Fault("stale_listing", "list"))
    found, calls = looked.look()
    assert codes(found) == {ORDERS: "OK", CUSTOMERS: "OK"}
    assert calls["list"] in (1, 2)


def test_a_listing_of_the_zone_is_distinguished_by_table_f_36(tmp_path: Path) -> None:
    """Processed folders in either place; tables with and without schema; nothing of others (F-03, F-05)."""
    store = LocalStore(tmp_path)
    mine = {
        "dbo.schema/a": ["dbo.schema/a/1", "dbo.schema/a/_stage-1/2", "_ProcessedFiles/dbo.schema/a/3"],
        "a": ["a/4", "a/_ProcessedFiles/5", "_FilesReadyToDelete/a/6"],
    }
    others = [
        "dbo.schema/b/7",
        "b/8",
        "_scratchPad/a/9",
        "_partnerEvents.json",
        "dbo.schema/ab/10",
        "_ProcessedFiles/11",
    ]
    for path in (*mine["a"], *mine["dbo.schema/a"], *others):
        store.create(path, b"x")
    found = list_tables(store, mine)
    assert {folder: sorted(objects) for folder, objects in found.items()} == {f: sorted(p) for f, p in mine.items()}
