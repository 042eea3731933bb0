"""``doctor --target``: how each table is at the target, by the emulator's REST API and landing zone."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fabric_emulator.web.emulator_server import EmulatorServer
from fabric_emulator.web.faults import Fault
from open_mirroring.landing_zone import layout
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.examining_target import REMEDIES
from tests.hand_published import CUSTOMERS, ORDERS, HandPublished
from tests.unit.spark_jobs.cli.test_command_line import Ran

LATER = timedelta(minutes=40)
GUIDE = Path(__file__).resolve().parents[4] / "docs" / "operate.md"


@pytest.fixture
def made(tmp_path: Path, lake: EmulatorServer) -> HandPublished:
    return HandPublished(tmp_path / "shop", lake)


class Looked:
    """One look by command line: as text, and as JSON."""

    def __init__(self, made: HandPublished, capsys: pytest.CaptureFixture[str]) -> None:
        ran = Ran(capsys, "doctor", made.file, "--target")
        self.code, self.out, self.lines = ran.code, ran.out, ran.out.splitlines()
        (document,) = Ran(capsys, "doctor", made.file, "--target", "--json").json
        self.tables: dict[str, dict[str, Any]] = {one["table"]: one for one in document["tables"]}
        self.states = {source: one["state"] for source, one in self.tables.items()}
        said = [line for line in self.lines if line.startswith("    dbo.")]
        assert len(said) == len(self.tables) and max(map(len, said)) <= 100


def test_tables_that_are_applied_are_well(
    made: HandPublished, lake: EmulatorServer, capsys: pytest.CaptureFixture[str]
) -> None:
    made.publish(orders=[1, 2], customers=[1])
    lake.poll()
    looked = Looked(made, capsys)
    assert (looked.code, looked.lines[0]) == (Exit.DONE, "shop at the target: none of 2 tables need attention.")
    assert looked.states == {ORDERS: "well", CUSTOMERS: "well"}
    orders = looked.tables[ORDERS]
    assert orders["processed_rows"] == 2 and orders["processed_bytes"] > 0 and orders["last_sync"] is not None
    assert "2 rows, " in looked.out and "last sync " in looked.out and "Fix" not in looked.out


def test_a_failed_table_shows_the_service_s_error(
    made: HandPublished, lake: EmulatorServer, capsys: pytest.CaptureFixture[str]
) -> None:
    made.publish(orders=[1], customers=[1])
    path = made.path(1)
    path.write_bytes(b"")
    lake.poll()
    looked = Looked(made, capsys)
    assert looked.code == Exit.TABLES_STOPPED
    assert looked.lines[0] == "shop at the target: 1 of 2 tables needs attention: 1 failed."
    assert looked.states == {ORDERS: "failed", CUSTOMERS: "well"}
    assert "Failed (" in looked.tables[ORDERS]["said"] and "dbo.orders: Failed (" in looked.out
    assert "open-mirroring-best-practices#plan-for-recovery" in looked.out


def test_files_that_wait_for_long_are_stuck_or_behind(
    made: HandPublished, lake: EmulatorServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The emulator applies one file of a table at a look."""
    lake.advance_clock(-LATER.total_seconds() - 60)
    made.publish(orders=[1], customers=[1])
    lake.poll()
    made.publish(orders=[2], customers=[2])
    made.publish(orders=[3])
    made.publish(orders=[4])
    assert Looked(made, capsys).states == {ORDERS: "well", CUSTOMERS: "well"}, "they may still be on their way"
    made.grow_older(LATER)
    looked = Looked(made, capsys)
    assert looked.states[ORDERS] == "stuck" and looked.code == Exit.TABLES_STOPPED
    assert "4 files (" in looked.out and "waiting for 40 min" in looked.out
    assert "data-doesnt-appear-to-be-replicating" in looked.out
    lake.poll()
    looked = Looked(made, capsys)
    assert (looked.states[ORDERS], looked.code) == ("behind", Exit.ON_HOLD)


def test_a_single_file_that_is_never_applied_is_stuck_f35(
    made: HandPublished, lake: EmulatorServer, capsys: pytest.CaptureFixture[str]
) -> None:
    made.publish(orders=[1], customers=[1])
    made.grow_older(LATER)
    assert Looked(made, capsys).states == {ORDERS: "stuck", CUSTOMERS: "stuck"}


def test_a_missing_number_blocks_and_a_folder_without_file_is_empty(
    made: HandPublished, lake: EmulatorServer, capsys: pytest.CaptureFixture[str]
) -> None:
    made.publish(orders=[1])
    for key in (2, 3):
        made.publish(orders=[key])
    made.path(2).unlink()
    state = made.table(CUSTOMERS)
    folder = made.path(1, CUSTOMERS).parent
    folder.mkdir(parents=True)
    (folder / layout.METADATA_FILE).write_bytes(layout.metadata_document(state.landed_keys, state.metadata_properties))
    lake.poll()
    looked = Looked(made, capsys)
    assert looked.states == {ORDERS: "blocked", CUSTOMERS: "empty"}
    assert looked.lines[0].endswith("2 of 2 tables need attention: 1 blocked, 1 empty.")
    assert "without rows is enough" in looked.out


@pytest.mark.parametrize(("said", "code"), [("stopped", Exit.TABLES_STOPPED), ("paused", Exit.TABLES_STOPPED)])
def test_the_state_of_the_database_is_that_of_its_tables(
    made: HandPublished, lake: EmulatorServer, capsys: pytest.CaptureFixture[str], said: str, code: Exit
) -> None:
    made.publish(orders=[1], customers=[1])
    lake.poll()
    lake.service.stop() if said == "stopped" else lake.service.pause()
    looked = Looked(made, capsys)
    assert (set(looked.states.values()), looked.code) == ({said}, code)
    assert looked.out.count("Fix: ") == 1, "one fix for what is alike"


def test_a_service_that_does_not_answer_hides_nothing_of_the_folder(
    made: HandPublished, lake: EmulatorServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in (1, 2, 3):
        made.publish(orders=[key])
    lake.faults.add(Fault("forbidden", "status", times=9))
    assert Looked(made, capsys).states == {ORDERS: "refused", CUSTOMERS: "refused"}
    made.path(2).unlink()
    assert Looked(made, capsys).states[ORDERS] == "blocked"


def test_a_local_zone_is_looked_at_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = HandPublished(tmp_path)
    assert Ran(capsys, "doctor", "--target").code == Exit.USAGE
    made.publish(orders=[1], customers=[1])
    looked = Looked(made, capsys)
    assert (set(looked.states.values()), looked.code) == ({"not asked"}, Exit.DONE)
    made.publish(orders=[2])
    made.grow_older(LATER)
    assert Looked(made, capsys).states[ORDERS] == "stuck"


def test_the_guide_prints_what_the_command_does(
    made: HandPublished,
    lake: EmulatorServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = GUIDE.read_text(encoding="utf-8").partition("## Is it the target?")[2]
    command, answer, *_ = text.partition("```sh\n")[2].partition("```")[0].splitlines()
    made.publish(orders=[1], customers=[1])
    made.path(1).write_bytes(b"")
    lake.poll()
    monkeypatch.chdir(made.folder)
    ran = Ran(capsys, *command.split()[1:])
    assert ran.out.splitlines()[0] == answer.removeprefix("# ")
    assert {line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")} == {
        "State",
        *(state for state, remedy in REMEDIES.items() if remedy.next_step),
    }
