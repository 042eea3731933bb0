"""Publishing a lost number again: only when it is permitted, with what was sealed, recorded first, killed anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fabric_emulator.web.emulator_server import EmulatorServer
from fabric_emulator.web.faults import Fault
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fault_points import FAULT_POINTS
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason
from open_mirroring.protocols.publishing import Intent, StagedFile, Work
from spark_jobs import repairs as job
from spark_jobs.cli.command_line import main
from spark_jobs.publish.driver import StagedWork
from spark_jobs.repairs import repair_number, stage_again
from tests.hand_published import CUSTOMERS, ORDERS, HandMadeWork, HandPublished

ASKED = Reason("Ada Lovelace", "ticket 4711")
REPAIR_POINTS = [point for point in FAULT_POINTS if point.startswith("repair.")]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HandPublished:
    """Three files in a local zone, the second without rows, none of them applied."""
    made = HandPublished(tmp_path / "shop")
    for keys in ([1], [], [3]):
        made.publish(orders=keys)
    monkeypatch.setattr(job, "stage_again", stage_by_hand(made))
    return made


def stage_by_hand(made: HandPublished) -> Any:
    """What the change log would give: the lists of batches are this mirror's log."""

    def by_hand(mirror: Any, reader: Any, state: Any, lost: Any) -> StagedFile:
        intent = Intent(lost.number, lost.batch_from, Work("changes", lost.batch_to))
        staged: StagedWork = HandMadeWork(made).stage_one(state, intent)
        return staged.staged.files[0]

    return by_hand


def repair(made: HandPublished, number: int, not_applied: str = "") -> None:
    repair_number(made.mirror, made.ledger, ORDERS, number, ASKED, not_applied=not_applied)


def events(made: HandPublished) -> list[str]:
    return [event for event, _ in made.audit()]


def test_a_number_without_rows_is_filled_again_by_the_command_f_41(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """F-41, F-40: it needs no proof and no log; who asked for it and why is in the audit, its ETag in the ledger."""
    made = HandPublished(tmp_path / "shop")
    for keys in ([1], [], [3]):
        made.publish(orders=keys)
    path = made.path(2)
    path.unlink()
    assert made.codes()[ORDERS] == "FILE_MISSING"
    command = ["repair", str(made.file), "--table", ORDERS, "--number", "2"]
    assert main([*command, "--approved-by", "Ada Lovelace", "--reason", "ticket 4711"]) == 0
    assert "Number 2 is published again, 0 rows." in capsys.readouterr().out
    table = pq.read_table(path)
    assert table.num_rows == 0 and table.column_names == ["id", "name", "__rowMarker__"]
    assert made.codes()[ORDERS] == "OK" and made.numbers() == [1, 2, 3]
    (first, asked), _, (last, done) = made.audit()
    assert (first, last) == ("REPAIR_REQUESTED", "REPAIRED")
    assert (asked["who"], asked["why"], asked["number"]) == ("Ada Lovelace", "ticket 4711", 2)
    assert done["etag"] == made.files()[1].etag != done["etag_before"]
    assert made.publish(orders=[4]).passing == (CUSTOMERS, ORDERS) and made.numbers() == [1, 2, 3, 4]


def test_rows_come_again_only_when_somebody_says_how_he_knows_f_40(made: HandPublished) -> None:
    """F-40, I8: nothing else proves that the target has not applied them."""
    made.path(3).unlink()
    assert made.codes()[ORDERS] == "FILE_MISSING"
    with pytest.raises(TerminalError, match=r"REPAIR_REFUSED.*nothing proves") as refused:
        repair(made, 3)
    assert "--not-applied" in refused.value.next_step and events(made) == [] and not made.path(3).exists()
    repair(made, 3, "its key 3 is not at the target")
    assert made.codes()[ORDERS] == "OK"
    assert pq.read_table(made.path(3))["id"].to_pylist() == [3]
    assert "its key 3 is not at the target" in made.audit()[0][1]["proof"]


def test_a_repair_is_done_once_for_its_request_g_30(made: HandPublished) -> None:
    """G-30: a number that is lost again afterwards needs another approval; a reset ends what was asked of its life."""

    def ask(request: str) -> str:
        made_again = repair_number(made.mirror, made.ledger, ORDERS, 3, ASKED, not_applied="looked", request=request)
        return made_again.etag

    made.path(3).unlink()
    first = ask("run 1")
    made.path(3).unlink()
    assert ask("run 1") == first and not made.path(3).exists(), "what came of it, and nothing more"
    assert ask("run 2") != first and made.path(3).exists()
    assert events(made).count("REPAIR_REQUESTED") == 2


@pytest.mark.parametrize(
    ("trouble", "number", "why"),
    [
        ("nothing", 2, "it is there"),
        ("nothing", 9, "no confirmed file"),
        ("foreign", 3, "FOREIGN_ITEM"),
        ("metadata", 3, "METADATA_CHANGED"),
        ("stopped", 3, "CONFLICT"),
    ],
)
def test_what_is_not_lost_or_not_alone_in_trouble_is_left_alone_i_23(
    made: HandPublished, trouble: str, number: int, why: str
) -> None:
    """I23: a repair mends one hole; whatever else is wrong comes first."""
    folder = made.path(1).parent
    if trouble != "nothing":
        made.path(3).unlink()
    if trouble == "foreign":
        (folder / "stray.txt").write_text("x")
    if trouble == "metadata":
        (folder / "_metadata.json").write_text("{}")
    if trouble == "stopped":
        with made.ledger.begin() as db:
            db.execute(t.mirrored_table.update().values(stop_code="CONFLICT", stop_what="seen"))
    with pytest.raises(TerminalError, match=f"REPAIR_REFUSED.*{why}"):
        repair(made, number, "I am sure")
    assert events(made) == []


class Killed(BaseException):
    pass


@pytest.mark.parametrize("point", REPAIR_POINTS)
def test_killed_at_any_arrow_the_next_call_finishes_with_one_object(
    made: HandPublished, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I8, I19, I29: recorded before it takes effect; from the seal on no second object is ever made."""

    def die(name: str) -> None:
        if name == point:
            raise Killed

    made.path(3).unlink()
    with monkeypatch.context() as patched:
        patched.setattr(job, "reach", die)
        with pytest.raises(Killed):
            repair(made, 3, "looked")
    sealed = [detail["object"]["etag"] for event, detail in made.audit() if event == "REPAIR_SEALED"]
    repair(made, 3, "looked")
    assert made.codes()[ORDERS] == "OK" and made.numbers() == [1, 2, 3]
    assert events(made)[-1] == "REPAIRED"
    if sealed:
        assert made.files()[2].etag == sealed[0]
    with pytest.raises(TerminalError, match="it is there"):
        repair(made, 3, "looked")


def test_a_sealed_object_that_was_swept_is_made_again(made: HandPublished, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(name: str) -> None:
        if name == "repair.sealed":
            raise Killed

    made.path(3).unlink()
    with monkeypatch.context() as patched:
        patched.setattr(job, "reach", die)
        with pytest.raises(Killed):
            repair(made, 3, "looked")
    (sealed,) = [detail["object"]["object_name"] for event, detail in made.audit() if event == "REPAIR_SEALED"]
    made.store.delete(sealed)
    with pytest.raises(TerminalError, match="nothing proves"):
        repair(made, 3)
    repair(made, 3, "looked again")
    assert made.codes()[ORDERS] == "OK" and events(made).count("REPAIR_SEALED") == 2


def test_a_number_that_somebody_else_makes_meanwhile_is_a_conflict_o_05(
    made: HandPublished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-05, I8: the rename never overwrites."""
    made.path(3).unlink()
    theirs = made.path(1).read_bytes()

    def take(name: str) -> None:
        if name == "repair.sealed":
            made.path(3).write_bytes(theirs)

    monkeypatch.setattr(job, "reach", take)
    with pytest.raises(TerminalError, match="CONFLICT"):
        repair(made, 3, "looked")
    assert made.path(3).read_bytes() == theirs and "REPAIRED" not in events(made)


def test_a_folder_made_again_meanwhile_gets_no_old_number_i_12(
    made: HandPublished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I12: the marker is read after the upload, and again before the rename."""
    made.path(3).unlink()
    marker = made.path(1).parent / "_incarnation.json"

    def replace_marker(name: str) -> None:
        if name == "repair.staged":
            content = marker.read_bytes()
            marker.unlink()
            marker.write_bytes(content)

    monkeypatch.setattr(job, "reach", replace_marker)
    with pytest.raises(TerminalError, match="REPAIR_REFUSED"):
        repair(made, 3, "looked")
    assert not made.path(3).exists() and "REPAIR_SEALED" not in events(made)


@pytest.mark.parametrize("kind", ["dropped_after", "dropped_before"])
def test_a_rename_of_which_nobody_reported_is_looked_after_o_08(
    kind: Any, tmp_path: Path, lake: EmulatorServer
) -> None:
    """O-08: done or not done, the same command ends it."""
    made = HandPublished(tmp_path / "shop", lake)
    for keys in ([1], [], [3]):
        made.publish(orders=keys)
    made.path(2).unlink()
    lake.faults.add(Fault(kind, "rename"))
    try:
        repair(made, 2)
    except TransientError as error:
        assert error.code == "CHANGED_MEANWHILE" and kind == "dropped_before"
        repair(made, 2)
    assert made.codes()[ORDERS] == "OK" and events(made).count("REPAIR_SEALED") == 1


def test_an_initial_loads_rows_are_not_made_up(tmp_path: Path) -> None:
    """F-40: the change log does not hold them; the way out names what else there is."""
    made = HandPublished(tmp_path / "shop")
    made.publish(orders=[1])
    lost = made.files()[0]._replace(kind="load")
    with pytest.raises(TerminalError, match=r"REPAIR_REFUSED.*initial load") as impossible:
        stage_again(made.mirror, made.reader, made.table(), lost)
    assert "move that very file back" in impossible.value.next_step
