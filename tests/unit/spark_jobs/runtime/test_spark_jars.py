"""The jars are found wherever the package is installed, and who lacks them is reported how to get them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from open_mirroring.errors import TerminalError
from open_mirroring.operate import spark_jars
from spark_jobs.cli.command_line import main
from spark_jobs.runtime import session
from tests.pipeline import Pipeline


def test_the_variable_comes_before_the_checkout_and_that_before_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPEN_MIRRORING_JARS", raising=False)
    assert (spark_jars.jars_folder() / "SHA256SUMS").is_file()
    monkeypatch.setattr(spark_jars, "_CHECKOUT", tmp_path / "site-packages" / "jars")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert spark_jars.jars_folder() == tmp_path / "cache" / "open_mirroring" / "jars"
    monkeypatch.setenv("OPEN_MIRRORING_JARS", str(tmp_path / "ours"))
    assert spark_jars.jars_folder() == tmp_path / "ours"


def test_a_session_needs_no_jars_but_complete_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPEN_MIRRORING_JARS", str(tmp_path))
    assert session._jars() == []
    (tmp_path / "postgresql-42.7.14.jar").write_bytes(b"PK\3\4, and no end")
    with pytest.raises(TerminalError, match=r"INSTALLATION_INCOMPLETE: .* is cut off: postgresql-42\.7\.14\.jar"):
        session._jars()


def brings_driver(monkeypatch: pytest.MonkeyPatch, folder: Path, jar: str) -> None:
    """A pyspark in whose own folder of jars somebody has put a driver."""
    (folder / "pyspark" / "jars").mkdir(parents=True)
    (folder / "pyspark" / "__init__.py").touch()
    (folder / "pyspark" / "jars" / jar).touch()
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize("setting", ["initial_load", "prove"])
def test_a_check_shows_a_driver_that_is_missing(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only who reads over JDBC needs jars; where the jobs run elsewhere, that place has them."""
    monkeypatch.setenv("OPEN_MIRRORING_JARS", str(tmp_path / "jars"))
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", '{"conn_type": "postgres", "host": "127.0.0.1"}')
    table = {"source": "dbo.a", "target": "dbo/a", "key": ["id"]}
    jdbc = {setting: {"format": "jdbc", "connection": "shop"}}
    pipeline = Pipeline(tmp_path / "mirror", None, [table, {**table, "source": "dbo.b", "target": "dbo/b", **jdbc}])
    assert main(["check", str(pipeline.file)]) == 0
    story = capsys.readouterr().out
    assert (
        "INSTALLATION_INCOMPLETE" in story
        and f"tables[1].{setting}.connection" in story
        and "open-mirroring jars" in story
    )
    main(["doctor", str(pipeline.file), "--json"])
    (hint,) = [one for one in json.loads(capsys.readouterr().out) if "INSTALLATION_INCOMPLETE" in one["found"]]
    assert hint["sound"] and "cluster has the driver" in hint["found"], "a cluster may bring it"
    with monkeypatch.context() as other:
        brings_driver(other, tmp_path / "mssql", "mssql-jdbc-13.jar")
        assert main(["check", str(pipeline.file)]) == 0 and "INSTALLATION_INCOMPLETE" in capsys.readouterr().out
    with monkeypatch.context() as own:
        brings_driver(own, tmp_path / "postgres", "postgresql-42.jar")
        assert main(["check", str(pipeline.file)]) == 0 and "INSTALLATION_INCOMPLETE" not in capsys.readouterr().out
    monkeypatch.setenv("SPARK_REMOTE", "sc://server:15002")
    assert main(["check", str(pipeline.file)]) == 0 and "INSTALLATION_INCOMPLETE" not in capsys.readouterr().out


def test_what_cannot_be_fetched_is_an_error_and_leaves_no_jar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No Java: the script fails before it fetches anything; pins that an earlier version left are this one's now."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "SHA256SUMS").write_text("of an earlier version", encoding="utf-8")
    assert main(["jars", str(tmp_path / "jars")]) == 1
    assert "INSTALLATION_INCOMPLETE" in capfd.readouterr().err
    assert not list((tmp_path / "jars").glob("*.jar"))
    assert "earlier" not in (tmp_path / "jars" / "SHA256SUMS").read_text("utf-8")
