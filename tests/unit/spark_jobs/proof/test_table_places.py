"""Mirrored tables are found where a mirror has them: in object storage, or in its item of OneLake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from fabric_emulator.web.emulator_server import EmulatorServer
from open_mirroring.errors import TerminalError
from open_mirroring.fabric.target import TablesFolder, open_target
from open_mirroring.storage.object_path import Place, delta_address
from spark_jobs.proof.mirrored_files import table_place, tables_place
from tests.object_storage import KINDS
from tests.onelake import CLIENTS, connection_variable, emulator
from tests.pipeline import Pipeline

ROWS = pa.table({"id": [1, 2, 3]})
ORDERS = [{"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}]


def rows_at(place: Place | None) -> int:
    assert place is not None
    uri, options = delta_address(place)
    return pa.table(DeltaTable(uri, storage_options=options).scan()).num_rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("folder", "place"), [("dbo.schema/orders", "dbo/orders"), ("orders", "orders")])
def test_tables_in_object_storage_are_seen(storage_servers, kind: str, folder: str, place: str) -> None:
    """S-12, F-03: for a reset, which asks whether a table is gone, and for a proof."""
    root = storage_servers.new(kind).place("tables")
    assert TablesFolder(root).sees(folder) is None
    uri, options = delta_address(root / place)
    write_deltalake(uri, ROWS, storage_options=options)
    assert (TablesFolder(root).sees(folder), TablesFolder(root).sees("dbo.schema/others")) == (True, False)
    assert rows_at(table_place(root, folder)) == 3
    assert table_place(root, "dbo.schema/others") is None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmulatorServer]:
    with emulator(tmp_path / "lake", clients=CLIENTS, seed=1) as server:
        yield server
    open_target.cache_clear()


def mirror_in(server: EmulatorServer, folder: Path, workspace: str, item: str) -> Any:
    zone = {"store": "onelake", "workspace": workspace, "item": item, "connection": "lake"}
    return Pipeline(folder, None, ORDERS, landing_zone=zone).mirror  # type: ignore[arg-type]


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize(("folder", "place"), [("dbo.schema/orders", "dbo/orders"), ("orders", "dbo/orders")])
def test_tables_of_an_item_of_onelake_are_read_by_guid(
    server: EmulatorServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_name: bool, folder: str, place: str
) -> None:
    """S-17, F-03: also where the landing zone is given by names."""
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_variable(server))
    write_deltalake(str(tmp_path / "lake" / "tables" / place), ROWS)
    names = ("emulator", "mirror.MirroredDatabase") if by_name else (server.workspace_id, server.database_id)
    root = tables_place(mirror_in(server, tmp_path / "mirror", *names))
    assert rows_at(table_place(root, folder)) == 3
    assert table_place(root, "dbo.schema/others") is None
    assert server.database_id in str(root)


def test_a_database_that_is_not_there_is_said(
    server: EmulatorServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-17."""
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_variable(server))
    with pytest.raises(TerminalError, match="PLACE_MISSING"):
        tables_place(mirror_in(server, tmp_path / "mirror", "emulator", "other.MirroredDatabase"))
