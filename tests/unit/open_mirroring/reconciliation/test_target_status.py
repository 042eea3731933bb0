"""The target's own word in the verdict: asked by two calls for all tables, understood or held, never acted upon."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest

from fabric_emulator.web.emulator_server import EmulatorServer
from fabric_emulator.web.faults import Fault, Kind
from open_mirroring.config import ConfigError, load_mirror
from open_mirroring.errors import TerminalError
from open_mirroring.fabric.api import FabricApi
from open_mirroring.fabric.target import FabricTarget, NoWatch, TablesFolder, open_target, target_watch
from open_mirroring.fabric.target_status import (
    DatabaseState,
    DatabaseStatus,
    TableMirroringStatus,
    TableMirrorState,
    TargetState,
    entry_of,
    target_status,
)
from open_mirroring.landing_zone import opening
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.decisions import resume_table
from open_mirroring.ledger.reset_ledger import ResetLedger
from open_mirroring.operate.reset_driver import ResetDriver
from open_mirroring.protocols.resetting import ResetStage
from open_mirroring.protocols.verdicts import Verdict
from open_mirroring.reconciliation.inspection import declaration
from tests.hand_published import CUSTOMERS, ORDERS, HandPublished
from tests.onelake import CLIENTS, connection_variable, emulator, zone_of

FOLDERS = ["dbo.schema/orders", "dbo.schema/customers"]


@pytest.fixture
def made(tmp_path: Path, lake: EmulatorServer) -> HandPublished:
    return HandPublished(tmp_path / "shop", lake)


# --- pure -----------------------------------------------------------------------------------------------------


def database(said: str, error: str = "") -> DatabaseStatus:
    state = next((state for state in DatabaseState if state.value == said), DatabaseState.UNKNOWN)
    return DatabaseStatus(state, said, error)


def table(
    said: str, error: str = "", rows: int | None = None, name: str = "orders", schema: str = "dbo"
) -> TableMirroringStatus:
    state = next((state for state in TableMirrorState if state.value == said), TableMirrorState.UNKNOWN)
    return TableMirroringStatus(schema, name, state, said, processed_rows=rows, error=error)


GOOD = ("Initialized", "Snapshotting", "Replicating", "Reseeding")


@pytest.mark.parametrize("said", [*(state.value for state in DatabaseState if state.value), "Failed", "Hibernating"])
@pytest.mark.parametrize("of_table", [None, *GOOD, "Stopped", "Failed", "Hibernating"])
def test_every_pair_of_words_has_one_state_r_09(said: str, of_table: str | None) -> None:
    """I24, R-02, R-07: a failed or stopped table counts whatever its database says; no word is understood by luck."""
    expected = {
        "Initializing": TargetState.NOT_READY,
        "Initialized": TargetState.NOT_STARTED,
        "Starting": TargetState.NOT_READY,
        "Running": TargetState.RUNNING,
        "Paused": TargetState.PAUSED,
        "Stopping": TargetState.STOPPED,
        "Stopped": TargetState.STOPPED,
        "Failed": TargetState.FAILED,
        "Hibernating": TargetState.UNKNOWN,
    }[said]
    if of_table == "Failed":
        expected = TargetState.FAILED
    elif of_table == "Stopped" and said != "Failed":
        expected = TargetState.STOPPED
    elif of_table == "Hibernating" and said == "Running":
        expected = TargetState.UNKNOWN
    found = target_status(database(said), None if of_table is None else table(of_table))
    assert found.state is expected
    assert said in found.detail and (of_table or "not listed") in found.detail


@pytest.mark.parametrize("error", ["", "MirroringThrottled: until 2026-02-01T00:00:00Z"])
def test_a_throttled_target_names_the_time(error: str) -> None:
    """I24: the service says until when; a table that failed has failed all the same."""
    for of_database, of_table in ((error, ""), ("", error)):
        found = target_status(database("Running", of_database), table("Replicating", of_table))
        assert found.state is (TargetState.THROTTLED if error else TargetState.RUNNING)
        assert error in found.detail
    assert target_status(database("Running", error), table("Failed")).state is TargetState.FAILED


def test_a_folder_finds_its_entry_and_no_other_f_03() -> None:
    entries = [table("Failed", name=name, schema=schema) for schema, name in product(("dbo", "Sales", ""), ("A", "b"))]

    def found(folder: str) -> tuple[str, str] | None:
        entry = entry_of(folder, entries)
        return None if entry is None else (entry.schema, entry.table)

    assert found("sales.schema/a") == ("Sales", "A")
    assert found("dbo.schema/B") == ("dbo", "b")
    assert found("a") == ("dbo", "A"), "without schema it is one of the default"
    assert found("other.schema/a") is None and found("c") is None


# --- over the wire --------------------------------------------------------------------------------------------


def test_one_look_is_two_calls_for_all_tables_and_pages_are_followed_r_04(
    made: HandPublished, lake: EmulatorServer
) -> None:
    """R-01, R-04: never one call per table."""
    made.publish(orders=[1], customers=[1])
    lake.poll()
    made.look()
    lake.faults.reset_calls()
    assert made.codes() == {ORDERS: "OK", CUSTOMERS: "OK"}
    assert lake.faults.calls() == {"list": 1, "status": 2}
    lake.fabric.page = 1
    lake.faults.reset_calls()
    found = made.look()
    assert lake.faults.calls() == {"list": 1, "status": 3}
    story = found[CUSTOMERS].evidence["target"]
    assert isinstance(story, dict)
    assert story["state"] == "running" and story["said"] == "'database Running; table Replicating'"
    assert story["processed_rows"] == 1
    assert made.files()[0].rows == 1


def test_the_target_is_not_asked_where_the_mirror_file_says_so(tmp_path: Path, lake: EmulatorServer) -> None:
    made = HandPublished(tmp_path / "shop", lake, status="none")
    lake.service.stop()
    lake.faults.reset_calls()
    assert made.codes() == {ORDERS: "OK", CUSTOMERS: "OK"}
    assert "status" not in lake.faults.calls()


def test_a_local_zone_has_nobody_to_ask(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="CONFIG_INVALID") as refused:
        HandPublished(tmp_path / "shop", status="rest")
    assert "gate.status" in str(refused.value)
    assert HandPublished(tmp_path / "other", status="none").codes()[ORDERS] == "OK"


def test_a_failed_table_stops_and_the_other_goes_on_i_24(made: HandPublished, lake: EmulatorServer) -> None:
    """I24, R-09: the database runs, one table has failed."""
    made.publish(orders=[1], customers=[1])
    made.path(1).write_bytes(b"")
    lake.poll()
    verdict = made.publish(orders=[2], customers=[2])
    assert verdict.passing == (CUSTOMERS,)
    finding = made.look()[ORDERS]
    assert finding.verdict is Verdict.STOP and "TARGET_FAILED" in str(finding.evidence["also"])
    assert verdict.stopped[ORDERS].startswith("CONTENT_CHANGED"), (
        "what we see ourselves goes before what we are reported"
    )
    assert made.numbers() == [1] and made.numbers(CUSTOMERS) == [1, 2]


def test_a_paused_database_holds_and_goes_on_by_itself_i_24(made: HandPublished, lake: EmulatorServer) -> None:
    made.publish(orders=[1])
    lake.service.pause()
    verdict = made.publish(orders=[2])
    assert set(verdict.held) == {ORDERS, CUSTOMERS} and verdict.held[ORDERS].startswith("PAUSED")
    assert made.numbers() == [1]
    lake.service.resume()
    assert made.publish().passing == (CUSTOMERS, ORDERS)
    assert made.numbers() == [1, 2]


def test_a_stopped_database_stops_and_is_never_started_by_us_r_07(made: HandPublished, lake: EmulatorServer) -> None:
    made.publish(orders=[1])
    lake.service.stop()
    verdict = made.publish(orders=[2])
    assert set(verdict.stopped) == {ORDERS, CUSTOMERS} and verdict.stopped[ORDERS].startswith("TARGET_FAILED")
    assert "Never restart the target's database" in made.look()[ORDERS].next_step
    assert lake.service.database_status() == "Stopped" and made.numbers() == [1]


def test_a_database_that_was_never_started_takes_its_first_files_f_42(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with emulator(tmp_path / "lake", clients=CLIENTS) as server:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_variable(server))
        server.service.initialize()
        made = HandPublished(tmp_path / "shop", server)
        assert made.publish(orders=[1]).passing == (CUSTOMERS, ORDERS)
        assert made.numbers() == [1]
        assert any(note.startswith("NOT_STARTED") for note in made.look()[ORDERS].notes)
        server.database.pass_through("Starting", 3600)
        assert made.codes() == {ORDERS: "TARGET_BUSY", CUSTOMERS: "TARGET_BUSY"}
    opening._onelake_store.cache_clear()
    open_target.cache_clear()


@pytest.mark.parametrize("kind", ["unavailable_before", "dropped_before"])
def test_status_calls_that_do_not_answer_hold_and_recover_r_02(
    kind: Kind, made: HandPublished, lake: EmulatorServer
) -> None:
    """R-02, 6.2 row 17: an answer that comes at the second time is an answer; none at all holds, and nothing breaks."""
    made.publish(orders=[1])
    lake.faults.add(Fault(kind, "status", times=3))
    assert made.codes()[ORDERS] == "OK"
    lake.faults.add(Fault(kind, "status", times=None))
    verdict = made.publish(orders=[2])
    assert verdict.held[ORDERS].startswith("STATUS_UNKNOWN") and "UNREACHABLE" in verdict.held[ORDERS]
    lake.faults.clear()
    assert made.publish().passing == (CUSTOMERS, ORDERS)
    assert made.numbers() == [1, 2]


@pytest.mark.parametrize(("seconds", "calls"), [(3600, 1), (0, 4)])
def test_who_is_reported_to_wait_does_not_look_again_r_04(lake: EmulatorServer, seconds: float, calls: int) -> None:
    """R-04: a short wait is waited for within a call, as often as it may be repeated; a long one is no answer."""
    lake.faults.add(Fault("throttled", "status", times=None, seconds=seconds))
    lake.faults.reset_calls()
    found = FabricTarget(zone_of(lake)).statuses(FOLDERS)
    assert {status.state for status in found.values()} == {TargetState.UNKNOWN}
    assert "TARGET_BUSY" in found[FOLDERS[0]].detail
    assert lake.faults.calls()["status"] == calls


class Scripted(FabricApi):
    """An API that says words of a later version; the emulator knows none."""

    def __init__(self, server: EmulatorServer, *words: str) -> None:
        super().__init__(server.url, zone_of(server).login)
        self.words = list(words)

    def status(self, database: object) -> DatabaseStatus:
        said = self.words.pop(0)
        return DatabaseStatus(next((s for s in DatabaseState if s.value == said), DatabaseState.UNKNOWN), said)

    def table_statuses(self, database: object) -> list[TableMirroringStatus]:
        return []


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (["Hibernating", "Running"], TargetState.RUNNING),
        (["Hibernating", "Hibernating", "Running"], TargetState.UNKNOWN),
    ],
)
def test_an_unknown_word_is_asked_about_once_more_r_02(
    words: list[str], state: TargetState, lake: EmulatorServer
) -> None:
    found = FabricTarget(zone_of(lake), Scripted(lake, *words)).statuses(FOLDERS)
    assert {status.state for status in found.values()} == {state}


@pytest.mark.parametrize("kind", ["forbidden", "token_expired"])
def test_a_login_that_may_not_ask_holds_and_is_reported_the_next_step_r_03_r_08(
    kind: Kind, made: HandPublished, lake: EmulatorServer
) -> None:
    """R-03, R-08, 6.2 row 17: nothing is guessed of the target, no other part of the run fails over it."""
    made.publish(orders=[1])
    lake.faults.add(Fault(kind, "status", times=None))
    lake.faults.reset_calls()
    verdict = made.publish(orders=[2])
    assert set(verdict.held) == {ORDERS, CUSTOMERS} and made.numbers() == [1]
    assert verdict.held[ORDERS].startswith("STATUS_REFUSED") and "ACCESS_DENIED" in verdict.held[ORDERS]
    assert lake.faults.calls()["status"] == {"forbidden": 1, "token_expired": 2}[kind], "it is not asked for ever"
    finding = made.look()[ORDERS]
    assert "status 40" in str(finding.evidence["target"]) and "Contributor" in finding.next_step
    lake.faults.clear()
    assert made.publish().passing == (CUSTOMERS, ORDERS)
    assert made.numbers() == [1, 2]


def test_a_name_that_may_not_be_looked_up_holds_too_r_08(lake: EmulatorServer) -> None:
    zone = replace(zone_of(lake), workspace="emulator", item="mirror.MirroredDatabase")
    lake.faults.add(Fault("forbidden", "database"))
    target = FabricTarget(zone)
    assert {status.state for status in target.statuses(FOLDERS).values()} == {TargetState.REFUSED}
    assert {status.state for status in target.statuses(FOLDERS).values()} == {TargetState.RUNNING}


def test_a_database_is_found_by_its_name_once(lake: EmulatorServer) -> None:
    zone = zone_of(lake)
    target = FabricTarget(replace(zone, workspace="emulator", item="mirror.MirroredDatabase"))
    for _ in range(2):
        assert {status.state for status in target.statuses(FOLDERS).values()} == {TargetState.RUNNING}
    assert lake.faults.calls()["database"] == 2
    lost = FabricTarget(replace(zone, workspace="emulator", item="x.MirroredDatabase"))
    assert {status.state for status in lost.statuses(FOLDERS).values()} == {TargetState.UNKNOWN}


def test_a_reset_sees_the_table_go_and_come_back_by_status_f_75(made: HandPublished, lake: EmulatorServer) -> None:
    made.publish(orders=[1])
    watch = target_watch(made.mirror, zone_of(lake))
    assert isinstance(watch, FabricTarget)
    assert watch.sees(FOLDERS[0]) is False
    lake.poll()
    assert watch.sees(FOLDERS[0]) is True
    lake.service.pause()
    assert watch.sees(FOLDERS[0]) is None, "what a paused database lists may be old"
    lake.service.resume()
    lake.faults.add(Fault("unavailable_before", "status", times=None))
    assert watch.sees(FOLDERS[0]) is None


def test_what_a_reset_looks_at_is_said_by_the_mirror_file(tmp_path: Path, lake: EmulatorServer) -> None:
    silent = HandPublished(tmp_path / "a", lake, status="none")
    assert isinstance(target_watch(silent.mirror, zone_of(lake)), NoWatch)
    text = silent.file.read_text().replace("  connection: lake\n", "  connection: lake\n  tables: tables\n")
    silent.file.write_text(text)
    assert isinstance(target_watch(load_mirror(silent.file), zone_of(lake)), TablesFolder)


# --- the clock of the service ---------------------------------------------------------------------------------


def test_purging_and_the_last_file_raise_no_alarm_f_35_f_36(made: HandPublished, lake: EmulatorServer) -> None:
    """F-35, F-36, I22: eight days later the processed files are gone, the last one stays, numbers go on."""
    for key in (1, 2, 3):
        made.publish(orders=[key])
        lake.poll()
    assert made.numbers() == [1, 2, 3]
    made.grow_older(timedelta(days=8))
    lake.poll()
    assert made.numbers() == [3], "the last one is kept"
    finding = made.look()[ORDERS]
    assert (finding.verdict, finding.applied, finding.backlog.files) == (Verdict.PASS, 2, 0)
    assert made.publish(orders=[4]).passing == (CUSTOMERS, ORDERS)
    lake.poll()
    assert made.numbers() == [3, 4] and made.codes()[ORDERS] == "OK"


def test_a_restart_of_the_database_is_seen_and_only_a_reset_fixes_it_f_76(
    made: HandPublished, lake: EmulatorServer
) -> None:
    """F-76, R-07: stopped it is a stop; started from scratch it lacks what was purged, which no listing shows."""
    for key in (1, 2, 3):
        made.publish(orders=[key])
        lake.poll()
    assert made.codes()[ORDERS] == "OK"
    made.grow_older(timedelta(days=8))
    lake.poll()
    lake.service.stop()
    assert made.codes()[ORDERS] == "TARGET_FAILED"
    lake.service.start()
    lake.poll()
    finding = made.look()[ORDERS]
    assert (finding.verdict, finding.code) == (Verdict.STOP, "TARGET_RESTARTED")
    assert "0 rows" in finding.what and "3" in finding.what and "reload-table" in finding.next_step
    assert ORDERS in made.publish(orders=[4]).stopped and made.numbers() == [3]
    assert made.codes()[ORDERS] == "TARGET_RESTARTED", "it is remembered, however often somebody looks"
    cleared = resume_table(made.ledger, "shop", ORDERS, Reason("Ada", "the rows are there"))
    assert cleared.code == "TARGET_RESTARTED" and made.audit()[-1][1]["why"] == "the rows are there"
    assert made.codes()[ORDERS] == "OK"
    with pytest.raises(TerminalError, match="COMMAND_REFUSED"):
        resume_table(made.ledger, "shop", ORDERS, Reason("Ada", "again"))


def test_a_reset_over_the_wire_goes_by_the_status_and_begins_a_new_count_f_75(
    made: HandPublished, lake: EmulatorServer
) -> None:
    """F-75, I12: gone and back are seen by status calls; the new generation's smaller count is no restart."""
    made.publish(orders=[1, 2, 3], customers=[1])
    lake.poll()
    assert made.codes()[ORDERS] == "OK"
    made.batches[ORDERS] = [[1]]
    (table,) = (table for table in made.mirror.tables if table.source == ORDERS)
    resets = ResetLedger(made.ledger, "shop")
    assert resets.request_reload(declaration(table), Reason("Ada", "ticket 4711"))

    def rebuild() -> str:
        made.publish()
        return ""

    waits = []
    for _ in range(8):
        outcome = ResetDriver(made.mirror, made.ledger, ORDERS, rebuild=rebuild).drive(timedelta(0))
        waits.append(outcome.waits_for)
        if outcome.is_over:
            break
        assert CUSTOMERS in made.publish(customers=[2]).passing
        lake.poll()
    assert outcome.is_over and any("gone" in what for what in waits) and any("again" in what for what in waits)
    assert made.codes() == {ORDERS: "OK", CUSTOMERS: "OK"} and made.numbers() == [1]
    assert made.table().row.generation == 2


def test_a_reset_waits_for_a_folder_in_use_and_publishes_nothing_into_what_is_left_f_73(
    made: HandPublished, lake: EmulatorServer
) -> None:
    """F-73: the next run deletes it; until then it is the table still, and the others go on."""
    made.publish(orders=[1, 2, 3], customers=[1])
    lake.poll()
    (table,) = (table for table in made.mirror.tables if table.source == ORDERS)
    resets = ResetLedger(made.ledger, "shop")
    assert resets.request_reload(declaration(table), Reason("Ada", "ticket 4711"))
    lake.faults.add(Fault("in_use", "delete", path="*/dbo.schema/orders"))
    outcome = ResetDriver(made.mirror, made.ledger, ORDERS, rebuild=lambda: "").drive(timedelta(0))
    assert (outcome.stage, outcome.is_over) == (
        ResetStage.REQUESTED,
        False,
    ) and "CHANGED_MEANWHILE" in outcome.waits_for
    verdict = made.publish(orders=[4], customers=[2])
    assert verdict.held[ORDERS].startswith("RESET_OPEN") and verdict.passing == (CUSTOMERS,)
    assert (made.numbers(), made.numbers(CUSTOMERS)) == ([1], [1, 2])
    outcome = ResetDriver(made.mirror, made.ledger, ORDERS, rebuild=lambda: "").drive(timedelta(0))
    assert outcome.stage is ResetStage.FOLDER_DELETED and made.numbers() == []


def test_a_backlog_holds_its_table_and_the_kept_file_is_none_f_35(tmp_path: Path, lake: EmulatorServer) -> None:
    """F-35, I18, I24: one file per poll is applied; the last one stays and counts for nothing."""
    made = HandPublished(tmp_path / "shop", lake, max_files=2)
    for key in (1, 2, 3):
        made.publish(orders=[key])
    verdict = made.publish(orders=[4], customers=[1])
    assert verdict.held[ORDERS].startswith("BACKLOG") and verdict.passing == (CUSTOMERS,)
    backlogs = []
    for _ in range(4):
        lake.poll()
        finding = made.look()[ORDERS]
        backlogs.append((finding.backlog.files, finding.code))
    assert backlogs[-1] == (0, "OK") and made.numbers() == [1, 2, 3]
    assert [files for files, _ in backlogs] == sorted((files for files, _ in backlogs), reverse=True)
    assert made.publish().passing == (CUSTOMERS, ORDERS) and made.numbers() == [1, 2, 3, 4]
