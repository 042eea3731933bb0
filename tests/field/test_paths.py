"""Paths of a mirror file lead where they say, or are refused; what they resolved to is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from open_mirroring.operate.exit_codes import Exit
from tests.field.test_source_folders import keys, put
from tests.field.trial import Trial
from tests.page_mirror import PageMirror

SETTINGS = {
    "source.path": "events",
    "landing_zone.path": "zone",
    "landing_zone.tables": "tables",
    "ledger": "sqlite:///ledger.db",
    "change_log": "log",
    "tables[0].initial_load.path": "export",
    "tables[0].initial_load.stream_from.file": "stream_from.json",
    "tables[0].prove.path": "proof",
}
FILE = """mirror: paths
source: {{format: sqlserver-ces, transport: files, layout: bare, path: '{source.path}'}}
landing_zone: {{store: local, path: '{landing_zone.path}', tables: '{landing_zone.tables}'}}
ledger: '{ledger}'
change_log: '{change_log}'
tables:
  - source: dbo.orders
    target: dbo/orders
    key: [id]
    initial_load: {{format: csv, path: '{load}', types: {{id: int}}, stream_from: {{file: '{stream_from}'}}}}
    prove: {{format: csv, path: '{prove}', types: {{id: int}}}}
"""


def written(trial: Trial, **given: str) -> None:
    chosen = {**SETTINGS, **given}
    text = FILE
    for setting, value in chosen.items():
        plain = {
            "tables[0].initial_load.path": "load",
            "tables[0].initial_load.stream_from.file": "stream_from",
            "tables[0].prove.path": "prove",
        }.get(setting, setting)
        text = text.replace(f"{{{plain}}}", value)
    trial.file.write_text(text.replace("{{", "{").replace("}}", "}"), encoding="utf-8")


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    made = Trial(tmp_path / "trial")
    put(made.folder / "events" / "1.jsonl", 1)
    (made.folder / "export").mkdir()
    (made.folder / "export" / "a.csv").write_text("id\n101\n", encoding="utf-8")
    (made.folder / "stream_from.json").write_text('{"stream_from": "beginning"}', encoding="utf-8")
    written(made)
    return made


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("path", ["~/x", "$HOME/x", "${HOME}/x", "a/$STAGE/x", "%HOME%/x", "file:///x", "file:/x"])
def test_a_path_that_leads_elsewhere_is_refused(trial: Trial, setting: str, path: str) -> None:
    before = {one.name for one in trial.folder.iterdir()}
    written(trial, **{setting: f"sqlite:///{path}" if setting == "ledger" else path})
    for command in ("check", "tick"):
        ended = trial.run(command)
        assert ended.code == Exit.USAGE, ended.text
        assert setting in ended.text
        said = "without file:" if path.startswith("file:") else "not expanded"
        # SQLite has a scheme of that name, which is refused as such.
        assert said in ended.text or (setting == "ledger" and "a SQLite ledger is a file" in ended.text)
    assert {one.name for one in trial.folder.iterdir()} == before


@pytest.mark.parametrize("path", ["dbfs:/mnt/x", "C:/data/x", "\\\\server\\share", "hdfs://name/x", "FILE:///x"])
def test_addresses_that_are_no_paths_here_are_refused(trial: Trial, path: str) -> None:
    for setting in ("source.path", "landing_zone.path", "tables[0].prove.path"):
        written(trial, **{setting: path})
        ended = trial.run("check")
        assert ended.code == Exit.USAGE and setting in ended.text, ended.text


@pytest.mark.parametrize("name", ["CRONUS$Item", "100%", "a$", "SYS$LOGIN", "x~", "%C3%A4"])
def test_names_that_only_look_so_are_read(trial: Trial, name: str) -> None:
    (trial.folder / "events").rename(trial.folder / name)
    written(trial, **{"source.path": name})
    assert trial.run("check").code == Exit.DONE
    assert trial.run("initial-load").code == Exit.DONE
    assert trial.run("tick").code == Exit.DONE
    assert keys(trial) == [1, 101]


def test_check_and_status_show_where_paths_lead(trial: Trial) -> None:
    wanted = [trial.folder / name for name in ("events", "zone", "tables", "log", "ledger.db")]
    check, never = trial.run("check"), trial.run("status")
    assert (check.code, never.code) == (Exit.DONE, Exit.DONE)
    trial.run("initial-load")
    trial.run("tick")
    for ended in (check, never, trial.run("status", "--wide")):
        assert all(str(place) in ended.text for place in wanted), ended.text
        assert f"{trial.folder}, where relative paths start" in ended.text
    assert json.loads(trial.run("status", "--json").out)["places"]["source"] == str(wanted[0])


def test_the_fields_paths_are_refused_with_every_setting(shared_data: Path, tmp_path: Path) -> None:
    trial = Trial.of("S_paths", shared_data, tmp_path)
    ended = trial.run("check", file=trial.folder / "tilde2.yaml")
    assert ended.code == Exit.USAGE
    for setting in ("landing_zone.path", "landing_zone.tables", "ledger", "change_log"):
        assert f"{setting}" in ended.text
    assert not (trial.folder / "~").exists()


def test_the_page_shows_where_paths_lead_while_nothing_has_run(tmp_path: Path) -> None:
    made = PageMirror(tmp_path)
    made.ledger.dispose()
    for file in tmp_path.glob("ledger.db*"):
        file.unlink()
    client = TestClient(made.app(), base_url="http://127.0.0.1")
    for address in ("/", "/mirrors/shop"):
        page = client.get(address).text
        assert "Nothing has run yet" in page and "where relative paths start" in page and "ledger.db" in page
