"""`open-mirroring create` and `check` of a mirror in OneLake: the database, its structure, then the start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fabric_emulator.web.emulator_server import EmulatorServer
from fabric_emulator.web.faults import Fault
from open_mirroring.errors import TransientError
from open_mirroring.fabric import database_creation
from open_mirroring.fabric.api import FabricApi, generic_mirror
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.onelake import CLIENTS, SECRET, connection_variable, emulator, login_of

pytestmark = pytest.mark.usefixtures("without_back_off")

TABLES = [
    {"source": "dbo.orders", "target": "dbo/orders", "key": ["id", "line"]},
    {"source": "dbo.notes", "target": "notes", "key": []},
]
NAMED = {"workspace": "emulator", "item": "shop.MirroredDatabase"}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatorServer]:
    with emulator(tmp_path, clients=CLIENTS, database=None) as server:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_variable(server))
        yield server


def mirror_file(folder: Path, **zone: Any) -> Path:
    (folder / "source").mkdir(exist_ok=True)
    file = folder / "mirrors" / "shop.yaml"
    file.parent.mkdir(exist_ok=True)
    document = {
        "mirror": "shop",
        "source": {"format": "sqlserver-ces", "transport": "files", "path": "source"},
        "landing_zone": {"store": "onelake", "connection": "lake", **(zone or NAMED)},
        "ledger": "sqlite:///ledger.db",
        "change_log": "log",
        "tables": TABLES,
    }
    file.write_text(yaml.safe_dump(document))
    return file


def api_of(server: EmulatorServer) -> FabricApi:
    return FabricApi(server.url, login_of(server))


def state(server: EmulatorServer) -> str:
    api = api_of(server)
    database = api.find_database(server.workspace_id, "shop")
    assert database is not None
    return api.status(database).said


def zone_files(server: EmulatorServer) -> dict[str, bytes]:
    (database,) = server.databases.all()
    root = database.folders.zone
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def run(*arguments: str | Path) -> int:
    return main([str(argument) for argument in arguments])


def test_create_makes_everything_and_starts_last(
    server: EmulatorServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-05, R-06, F-06, F-42, F-92: definition, `_partnerEvents.json` at the root; then it is running.

    A table without a file gets no folder: with metadata alone it would fail at the target.
    """
    file = mirror_file(tmp_path)
    assert run("create", file, "--json") == Exit.DONE
    report = json.loads(capsys.readouterr().out)
    assert (report["workspace"], report["state"]) == (server.workspace_id, "Running")
    files = zone_files(server)
    assert files.keys() == {"_partnerEvents.json"}
    events = json.loads(files["_partnerEvents.json"])
    assert (events["partnerName"], events["sourceInfo"]["sourceType"]) == ("open_mirroring", "sqlserver-ces")
    assert run("create", file) == Exit.DONE
    assert zone_files(server) == files, "the second run finds everything"
    assert run("check", file) == Exit.DONE


def test_create_shows_partner_and_source_as_the_mirror_file_says_f_06(
    server: EmulatorServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is there is left as it is, and a run says that it differs from the mirror file."""
    story = {"partner_name": "Größe & Co", "source_type": "SQL Server", "source_version": "2025"}
    file = mirror_file(tmp_path, **NAMED, partner_events=story)
    assert run("create", file) == Exit.DONE
    written = zone_files(server)["_partnerEvents.json"]
    assert json.loads(written) == {
        "partnerName": "Größe & Co",
        "sourceInfo": {
            "sourceType": "SQL Server",
            "sourceVersion": "2025",
            "additionalInformation": {"mirror": "shop", "transport": "files"},
        },
    }
    capsys.readouterr()
    assert run("create", file) == Exit.DONE
    assert "_partnerEvents.json" not in capsys.readouterr().err
    mirror_file(tmp_path, **NAMED, partner_events={**story, "source_version": "2026"})
    assert run("create", file) == Exit.DONE
    assert "_partnerEvents.json has other content" in capsys.readouterr().err
    assert zone_files(server)["_partnerEvents.json"] == written


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ("yes", "partner_events"),
        ({"source_version": 2025}, "source_version"),
        ({"partner_name": ""}, "partner_name"),
        ({"partner": "p"}, "partner"),
    ],
)
def test_check_refuses_what_can_be_no_partner_events_f_06(
    given: Any, setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("check", mirror_file(tmp_path, **NAMED, partner_events=given)) == Exit.USAGE
    assert f"{setting}:" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["database", "create", "flush", "rename", "list"])
@pytest.mark.parametrize("skip", [0, 5])
def test_create_is_finished_by_the_next_run_f_42(server: EmulatorServer, tmp_path: Path, verb: str, skip: int) -> None:
    """Wherever it breaks off, before or after the call was carried out."""
    file = mirror_file(tmp_path)
    server.faults.add(Fault("dropped_after", verb, skip=skip))
    for _ in range(3):
        if run("create", file) == Exit.DONE:
            break
    assert state(server) == "Running"
    assert {name for name in zone_files(server) if not name.startswith("_scratchPad/")} == {"_partnerEvents.json"}
    assert len(server.databases.all()) == 1


def test_a_stopped_database_is_never_started_r_07(
    server: EmulatorServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = mirror_file(tmp_path)
    assert run("create", file) == Exit.DONE
    api = api_of(server)
    database = api.find_database(server.workspace_id, "shop")
    assert database is not None
    api.stop(database)
    assert run("create", file) == Exit.TERMINAL
    assert "TARGET_FAILED" in capsys.readouterr().err
    assert state(server) == "Stopped"


def test_retention_and_change_data_feed_are_set_when_it_is_made_and_reported_later_r_10(
    server: EmulatorServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-10: by the mirror file; a database that is there keeps its own, and that is said."""
    assert run("create", mirror_file(tmp_path, **NAMED, retention_days=3, change_data_feed=True)) == Exit.DONE
    (database,) = server.databases.all()
    assert database.definition is not None
    there = database.definition["properties"]["target"]["typeProperties"]
    assert (there["retentionInDays"], there["enableDeltaChangeDataFeed"]) == (3, True)
    assert "wants" not in capsys.readouterr().err
    assert run("create", mirror_file(tmp_path, **NAMED, retention_days=9)) == Exit.DONE
    assert "wants retentionInDays 9, the database has 3" in capsys.readouterr().err
    assert database.definition["properties"]["target"]["typeProperties"] == there
    assert run("check", mirror_file(tmp_path, **NAMED, retention_days=31)) == Exit.USAGE
    assert "retention_days" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["MSSQL", None])
def test_a_database_of_another_source_is_refused_r_05(
    server: EmulatorServer, tmp_path: Path, source: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-05, R-06: nothing is written into it, and it is not started; without a definition it could not be."""
    definition = generic_mirror()
    definition["properties"]["source"]["type"] = source
    server.databases.create("shop", definition=definition if source else None).service.initialize()
    assert run("create", mirror_file(tmp_path)) == Exit.TERMINAL
    story = capsys.readouterr().err
    assert "PLACE_MISSING" in story and "shop" in story
    assert (state(server), zone_files(server)) == ("Initialized", {})


def test_mirroring_is_not_started_before_the_structure_is_complete_f_42(
    server: EmulatorServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-06, F-42: a start is the last thing, and only when nothing is missing."""
    file = mirror_file(tmp_path)
    server.faults.add(Fault("rejected_headers", "rename", path="*_partnerEvents.json", times=None))
    assert run("create", file) == Exit.TERMINAL
    assert "STORE_UNFIT" in capsys.readouterr().err
    assert state(server) == "Initialized"


def test_a_store_that_ignores_conditions_fails_closed_o_03(
    server: EmulatorServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """O-03, O-05: nothing is begun in such a store, and `check` says so."""
    file = mirror_file(tmp_path)
    server.faults.add(Fault("rejected_headers", "rename", times=None))
    assert run("create", file) == Exit.TERMINAL
    assert "STORE_UNFIT" in capsys.readouterr().err
    assert run("check", file) == Exit.USAGE
    story = capsys.readouterr().out
    assert "STORE_UNFIT" in story and "if-none-match" in story and f"{file}:" in story
    assert "rename onto" not in story or "REFUSED" in story


@pytest.mark.parametrize(
    ("zone", "code"),
    [
        ({"workspace": "nowhere", "item": "shop.MirroredDatabase"}, "PLACE_MISSING"),
        ({"workspace": "11111111-1111-1111-1111-111111111111"} | {"item": "1" * 8 + "-1111" * 3 + "-" + "1" * 12}, ""),
    ],
)
def test_what_is_not_there_is_reported(
    server: EmulatorServer, tmp_path: Path, zone: dict[str, str], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if not code:
        zone, code = zone | {"workspace": server.workspace_id}, "PLACE_MISSING"
    assert run("create", mirror_file(tmp_path, **zone)) == Exit.TERMINAL
    assert code in capsys.readouterr().err
    assert server.databases.all() == []


def test_check_shows_a_database_that_is_not_there(
    server: EmulatorServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("check", mirror_file(tmp_path)) == Exit.USAGE
    story = capsys.readouterr().out
    assert "PLACE_MISSING" in story and "open-mirroring create" in story


@pytest.mark.parametrize("verb", ["status", "rename"])
def test_check_shows_a_login_that_may_not_do_what_runs_do_r_08(
    server: EmulatorServer, tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-03, R-08: to ask is a right of its own, and who may not is held in every run."""
    file = mirror_file(tmp_path)
    assert run("create", file) == Exit.DONE
    server.faults.add(Fault("forbidden", verb, times=None))
    assert run("check", file) == Exit.USAGE
    ran = capsys.readouterr()
    setting = "gate.status" if verb == "status" else "landing_zone"
    assert f"ACCESS_DENIED: {setting}: " in ran.out and "Contributor" in ran.out
    assert "1 problem found" in ran.err
    file.write_text(file.read_text() + "gate: {status: none}\n")
    assert run("check", file) == (Exit.DONE if verb == "status" else Exit.USAGE), "nothing asks then"


@pytest.mark.parametrize("kind", ["missing", "broken"])
def test_check_shows_a_connection_that_cannot_be_used(
    server: EmulatorServer,
    tmp_path: Path,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if kind == "missing":
        monkeypatch.delenv("AIRFLOW_CONN_LAKE")
    else:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_variable(server, dfs_endpoint="https://elsewhere.example"))
    assert run("check", mirror_file(tmp_path)) == Exit.USAGE
    story = capsys.readouterr().out
    assert "CONNECTION_INVALID" in story and "landing_zone.connection" in story
    assert SECRET not in story


def test_a_database_of_a_later_version_is_not_ready_r_02(
    server: EmulatorServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = mirror_file(tmp_path)
    assert run("create", file) == Exit.DONE
    api = api_of(server)
    database = api.find_database(server.workspace_id, "shop")
    assert database is not None
    monkeypatch.setattr(type(server.databases.all()[0]), "status", lambda self: "Hibernating")
    with pytest.raises(TransientError, match=r"TARGET_BUSY.*Hibernating"):
        database_creation.settled(api, database)


def test_a_database_is_waited_for_while_it_is_initializing(server: EmulatorServer) -> None:
    api = api_of(server)
    database = api.create(server.workspace_id, "shop", {"properties": {}} | database_creation.generic_mirror())
    server.databases.all()[0].pass_through("Initializing", 60.0)
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        server.advance_clock(30.0)

    assert database_creation.settled(api, database, sleep).said == "Initialized"
    assert len(waited) == 2
