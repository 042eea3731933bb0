"""A mirrored table in OneLake or an object storage is copied as one version, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from fabric_emulator.web.emulator_server import EmulatorServer
from open_mirroring.errors import TransientError
from open_mirroring.fabric.target import TablesFolder
from open_mirroring.landing_zone.onelake_store import OneLakeStore
from open_mirroring.landing_zone.store import LandingZoneStore
from open_mirroring.storage.delta_address import delta_address
from spark_jobs.proof import copied_tables
from spark_jobs.proof.copied_tables import copied_stored_table, copied_table
from tests.object_storage import KINDS
from tests.onelake import CLIENTS, emulator, zone_of


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmulatorServer]:
    with emulator(tmp_path / "mirror", clients=CLIENTS, seed=1) as server:
        yield server


def write(folder: Path, *parts: int) -> None:
    for rows in parts:
        write_deltalake(str(folder), pa.table({"id": list(range(rows))}), mode="append")


@pytest.mark.parametrize(("folder", "place"), [("dbo.schema/orders", "dbo/orders"), ("orders", "dbo/orders"),
                                               ("orders", "orders")])  # fmt: skip
def test_the_copy_is_the_newest_version(tmp_path: Path, server: EmulatorServer, folder: str, place: str) -> None:
    """F-03, O-03."""
    write(tmp_path / "mirror" / "tables" / place, 3, 4)
    with copied_table(zone_of(server), folder) as copy:
        assert copy is not None
        table = DeltaTable(str(copy))
        assert (table.version(), pa.table(table.scan()).num_rows) == (1, 7)
    assert not copy.exists()


def test_a_table_that_is_not_there_is_none(server: EmulatorServer) -> None:
    with copied_table(zone_of(server), "dbo.schema/orders") as copy:
        assert copy is None


def vanishing(monkeypatch: pytest.MonkeyPatch, folder: Path, times: int) -> None:
    """Let the table be rewritten between the listing and the reading of its data, so many times."""
    real, left = copied_tables._fetched, [times]

    def fetched(store: LandingZoneStore, paths: list[str], local: Path) -> bool:
        assert isinstance(store, OneLakeStore)
        if left[0] and not any(path.startswith("_delta_log") for path in paths):
            left[0] -= 1
            table = DeltaTable(str(folder))
            write_deltalake(str(folder), pa.table({"id": [1]}), mode="overwrite")
            table.update_incremental()
            table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        return real(store, paths, local)

    monkeypatch.setattr(copied_tables, "_fetched", fetched)


def test_a_table_that_is_rewritten_meanwhile_is_copied_anew(
    tmp_path: Path, server: EmulatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mirror" / "tables" / "dbo" / "orders"
    write(folder, 3)
    vanishing(monkeypatch, folder, 1)
    with copied_table(zone_of(server), "dbo.schema/orders") as copy:
        assert pa.table(DeltaTable(str(copy)).scan()).num_rows == 1


def test_a_table_that_never_comes_to_rest_is_said(
    tmp_path: Path, server: EmulatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mirror" / "tables" / "dbo" / "orders"
    write(folder, 3)
    vanishing(monkeypatch, folder, 99)
    with pytest.raises(TransientError, match="TABLE_CHANGES"), copied_table(zone_of(server), "dbo.schema/orders"):
        pass


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("folder", "place"), [("dbo.schema/orders", "dbo/orders"), ("orders", "orders")])
def test_tables_in_object_storage_are_seen_and_copied(storage_servers, kind: str, folder: str, place: str) -> None:
    """S-12: for a reset, which asks whether a table is gone, and for a proof."""
    root = storage_servers.new(kind).place("tables")
    watch = TablesFolder(root)
    assert watch.sees(folder) is None
    for rows in (3, 4):
        uri, options = delta_address(root / place)
        data = pa.table({"id": list(range(rows))})
        write_deltalake(uri, data, mode="append", storage_options=options)
    assert (watch.sees(folder), watch.sees("dbo.schema/others")) == (True, False)
    with copied_stored_table(root, folder) as copy:
        assert copy is not None
        table = DeltaTable(str(copy))
        assert (table.version(), pa.table(table.scan()).num_rows) == (1, 7)
    with copied_stored_table(root, "dbo.schema/others") as copy:
        assert copy is None
