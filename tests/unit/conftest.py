"""An empty database for a ledger, in each dialect; a mirror by hand; services that are asked again at once."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric_emulator import Settings
from fabric_emulator.web.emulator_server import EmulatorServer
from open_mirroring.fabric.target import open_target
from open_mirroring.landing_zone import opening
from open_mirroring.remote.http_service import RetryBudget
from tests.hand_made_mirror import HandMadeMirror
from tests.onelake import CLIENTS, connection_variable, emulator


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database of the test's own that holds nothing yet; in PostgreSQL a schema, which is made faster."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'new' / 'ledger.db'}"
    server = request.getfixturevalue("postgres")
    name = f"ledger_{secrets.token_hex(8)}"
    server.execute(f"CREATE SCHEMA {name}")
    address = f"{server.user}:{server.password}@127.0.0.1:{server.port}/{server.database}"
    return f"postgresql+psycopg2://{address}?options=-csearch_path%3D{name}"


@pytest.fixture
def without_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated calls do not wait, unless the service asks them to."""
    monkeypatch.setattr(RetryBudget, "back_off", lambda self, attempt: None)


@pytest.fixture
def made(tmp_path: Path) -> HandMadeMirror:
    return HandMadeMirror(tmp_path)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_back_off: None) -> Iterator[EmulatorServer]:
    """OneLake with a mirrored database that applies one file a look; the connection `lake` leads to it."""
    with emulator(tmp_path / "lake", clients=CLIENTS, settings=Settings(files_per_poll=1)) as server:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_variable(server))
        yield server
    opening._onelake_store.cache_clear()
    open_target.cache_clear()
