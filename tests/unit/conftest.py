"""An empty database for a ledger, in each dialect that a ledger speaks; services that are asked again at once."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from open_mirroring.remote.http_service import RetryBudget


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
