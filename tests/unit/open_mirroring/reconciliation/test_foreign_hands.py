"""Somebody else's hands in the landing zone or the ledger: each has its verdict, hurts its own table only, and ends."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fabric_emulator.web.emulator_server import EmulatorServer
from fabric_emulator.web.faults import Fault
from open_mirroring.codes import next_step_of
from open_mirroring.errors import TransientError
from open_mirroring.fabric.api import FabricApi
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.listing import list_tables
from open_mirroring.landing_zone.store import LandingZoneStore, ObjectInfo
from spark_jobs.cli.creating import create_database
from spark_jobs.publish.driver import PublicationDriver
from tests.hand_published import CUSTOMERS, ORDERS, HandPublished
from tests.onelake import login_of

Deployment = Callable[..., HandPublished]


@pytest.fixture
def made(tmp_path: Path) -> HandPublished:
    made = HandPublished(tmp_path / "shop")
    made.publish(orders=[1], customers=[1])
    made.publish(orders=[2], customers=[2])
    return made


@pytest.fixture(params=["local", "onelake"])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Deployment:
    """Makes deployments of the mirror that all publish to one landing zone, local or over the wire."""
    server = request.getfixturevalue("lake") if request.param == "onelake" else None

    def make(name: str, ledger: Path | None = None) -> HandPublished:
        return HandPublished(tmp_path / name, server, zone=tmp_path / "zone", ledger=ledger)

    return make


def stopped_alone(made: HandPublished, code: str, *also: str) -> None:
    """Orders are stopped by this code with a way out, and nothing is published of them; customers go on (I23, I24)."""
    before = made.numbers()
    finding = made.look()[ORDERS]
    assert finding.code == code and set(also) <= set(finding.evidence["also"])  # type: ignore[call-overload]
    assert finding.next_step == next_step_of(code)
    verdict = made.publish(orders=[90], customers=[90])
    assert list(verdict.stopped) == [ORDERS] and verdict.passing == (CUSTOMERS,)
    assert made.numbers() == before
    assert made.numbers(CUSTOMERS)[-1] == made.table(CUSTOMERS).row.confirmed == 3


def goes_on(made: HandPublished) -> None:
    """The stop passed by itself, and what waited is the next number."""
    assert made.codes()[ORDERS] == "OK"
    assert made.publish().passing == (CUSTOMERS, ORDERS)
    assert made.numbers() == [1, 2, 3]


# --- in the landing zone --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["notes.txt", "part-0000.parquet", "2.parquet", "sub/00000000000000000009.parquet"])
def test_a_foreign_file_stops_its_table_until_it_is_gone_i_23(made: HandPublished, name: str) -> None:
    """I23, F-31."""
    foreign = made.path(1).parent / name
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_bytes(b"of somebody else")
    stopped_alone(made, "FOREIGN_ITEM")
    assert foreign.read_bytes() == b"of somebody else", "nothing is touched"
    foreign.unlink()
    goes_on(made)


@pytest.mark.parametrize(
    ("number", "name", "codes"),
    [
        (1, "old.parquet", ("FOREIGN_ITEM", "FILE_MISSING")),
        (2, "old.parquet", ("FOREIGN_ITEM", "FILE_MISSING")),
        (2, layout.file_name(7), ("LEDGER_BEHIND", "FILE_MISSING")),
        (1, "_hidden.parquet", ("FILE_MISSING",)),
    ],
)
def test_a_renamed_file_stops_its_table_until_it_is_back_i_7(
    made: HandPublished, number: int, name: str, codes: tuple[str, ...]
) -> None:
    """I7, F-32, F-33."""
    path = made.path(number)
    other = path.rename(path.parent / name)
    stopped_alone(made, *codes)
    other.rename(path)
    goes_on(made)


@pytest.mark.parametrize("content", [b'{"keyColumns": ["name"]}', b"{", b"{}", None])
def test_edited_metadata_stop_their_table_until_they_are_as_before_f_13(
    made: HandPublished, content: bytes | None
) -> None:
    """F-13, I23: a copy will do, for the content is what counts."""
    path = made.path(1).parent / layout.METADATA_FILE
    ours = path.read_bytes()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    stopped_alone(made, "METADATA_CHANGED")
    path.write_bytes(ours)
    goes_on(made)


def test_a_number_that_somebody_else_takes_while_we_stage_is_a_conflict_i_8(made: HandPublished) -> None:
    """I8, O-05, F-39: the rename never overwrites; whose rows the target has is not ours to guess."""

    def take() -> None:
        shutil.copy(made.path(2), made.path(3))

    made.while_staging = take
    theirs = made.path(2).read_bytes()
    made.publish(orders=[3])
    assert made.table().stop_code == "CONFLICT" and made.path(3).read_bytes() == theirs
    made.while_staging = lambda: None
    finding = made.look()[ORDERS]
    assert finding.code == "CONFLICT" and finding.next_step == next_step_of("CONFLICT")
    assert made.publish(customers=[3]).passing == (CUSTOMERS,)


def test_two_listings_that_lack_the_last_file_alike_stop_nothing_i_22(
    made: HandPublished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Absence is proved by point reads, never by listings alone; a file that is really gone is found to be."""

    def stale(store: LandingZoneStore, folders: Iterable[str]) -> dict[str, dict[str, ObjectInfo]]:
        last = layout.file_name(2)
        listed = list_tables(store, folders)
        return {f: {p: i for p, i in objects.items() if not p.endswith(last)} for f, objects in listed.items()}

    monkeypatch.setattr("open_mirroring.reconciliation.inspection.list_tables", stale)
    assert made.codes() == {ORDERS: "OK", CUSTOMERS: "OK"}
    made.path(2).unlink()
    assert made.codes() == {ORDERS: "FILE_MISSING", CUSTOMERS: "OK"}


def test_an_exchanged_file_stops_i_8(made: HandPublished) -> None:
    """I8, F-37."""
    content = made.path(2).read_bytes()
    made.path(2).unlink()
    shutil.copy(made.path(1), made.path(2))
    stopped_alone(made, "CONTENT_CHANGED")
    assert made.path(2).read_bytes() != content


def test_a_folder_that_was_deleted_is_not_made_again_i_12(made: HandPublished) -> None:
    """I12, F-71: the target dropped the table; numbers from here on would be increments to nothing."""
    folder = made.path(1).parent
    shutil.rmtree(folder)
    stopped_alone(made, "INCARNATION_CHANGED", "METADATA_CHANGED", "FILE_MISSING")
    assert not folder.exists()


def test_a_folder_that_is_deleted_while_we_stage_gets_no_number_i_12(made: HandPublished) -> None:
    """I12, F-71: an upload makes parent folders, so a stray one may be there; a number never is."""
    folder = made.path(1).parent
    made.while_staging = lambda: shutil.rmtree(folder)
    made.publish(orders=[3])
    assert made.table().stop_code == "INCARNATION_CHANGED" and made.numbers() == []


# --- in the ledger --------------------------------------------------------------------------------------------


def test_a_ledger_from_an_old_backup_gives_no_number_twice_i_7(made: HandPublished, tmp_path: Path) -> None:
    """I7, I22: what the zone shows above the ledger's numbers stops it; the newest ledger ends that."""
    ledger, backup, newest = (tmp_path / "shop" / "ledger.db", tmp_path / "backup.db", tmp_path / "newest.db")
    _copy(made, ledger, backup)
    made.publish(orders=[3])
    assert made.numbers() == [1, 2, 3]
    content = made.path(3).read_bytes()
    _copy(made, ledger, newest)
    _copy(made, backup, ledger)
    verdict = made.publish(customers=[3])
    assert verdict.stopped[ORDERS].startswith("LEDGER_BEHIND") and verdict.passing == (CUSTOMERS,)
    assert "restore the newest ledger" in made.look()[ORDERS].next_step
    assert made.path(3).read_bytes() == content and made.numbers() == [1, 2, 3]
    _copy(made, newest, ledger)
    assert made.codes()[ORDERS] == "OK"
    assert made.codes()[CUSTOMERS] == "LEDGER_BEHIND", "what was published meanwhile is unknown to it"


def _copy(made: HandPublished, source: Path, target: Path) -> None:
    made.ledger.dispose()
    for suffix in ("", "-wal", "-shm"):
        Path(f"{target}{suffix}").unlink(missing_ok=True)
        if Path(f"{source}{suffix}").exists():
            shutil.copy(f"{source}{suffix}", f"{target}{suffix}")


@pytest.mark.parametrize("days", [-30, 30])
def test_a_clock_that_jumps_does_not_let_a_number_be_given_twice_i_21(tmp_path: Path, days: int) -> None:
    """I21: times that the ledger keeps decide nothing of the protocol; a hole stays a hole at any age."""
    made = HandPublished(tmp_path / "shop", max_age_minutes=10**6)
    for key in (1, 2):
        made.publish(orders=[key])
    made.grow_older(timedelta(days=days))
    assert made.publish(orders=[3]).passing == (CUSTOMERS, ORDERS)
    assert made.numbers() == [1, 2, 3]
    lost = made.path(2).rename(made.folder / "taken away")
    assert made.codes()[ORDERS] == "FILE_MISSING"
    lost.rename(made.path(2))
    assert made.codes()[ORDERS] == "OK"


def test_a_service_whose_clock_runs_ahead_raises_an_alarm_that_passes_i_21(
    tmp_path: Path, lake: EmulatorServer
) -> None:
    """I21, I22, F-36: purged by its clock and too young by ours; wrong in the careful direction."""
    made = HandPublished(tmp_path / "shop", lake)
    for key in (1, 2, 3):
        made.publish(orders=[key])
        lake.poll()
    lake.advance_clock(8 * 86_400)
    lake.poll()
    assert made.codes() == {ORDERS: "FILE_MISSING", CUSTOMERS: "OK"}
    made.grow_older(timedelta(days=8))
    assert made.codes() == {ORDERS: "OK", CUSTOMERS: "OK"}


# --- on the wire ----------------------------------------------------------------------------------------------


def test_a_token_that_expires_in_mid_upload_costs_nothing_o_02(tmp_path: Path, lake: EmulatorServer) -> None:
    """O-02, R-03: renewed once, and the same upload goes on."""
    made = HandPublished(tmp_path / "shop", lake)
    made.publish(orders=[1])
    for verb in ("create", "append", "flush"):
        lake.faults.add(Fault("token_expired", verb))
    for key in (2, 3, 4):
        try:
            made.publish(orders=[key])
        except TransientError:
            made.publish()
    assert made.numbers() == [1, 2, 3, 4] and made.codes()[ORDERS] == "OK"
    assert sum(file.rows for file in made.files()) == 4


# --- two deployments ------------------------------------------------------------------------------------------


def test_with_two_ledgers_the_second_stops_before_it_changes_anything_i_23(deployment: Deployment) -> None:
    """I12, I23: the folder has another one's marker; not an object is added, changed or removed."""
    first, second = deployment("first"), deployment("second")
    first.publish(orders=[1], customers=[1])
    before = sorted(first.store.list(""))
    verdict = second.publish(orders=[7], customers=[7])
    assert verdict.passing == () and set(verdict.stopped) == {ORDERS, CUSTOMERS}
    assert verdict.stopped[ORDERS].startswith("LEDGER_LOST"), "or that of another deployment: nothing tells which"
    assert "one ledger" in second.look()[ORDERS].next_step
    assert sorted(first.store.list("")) == before
    assert first.publish(orders=[2]).passing == (CUSTOMERS, ORDERS)
    assert first.numbers() == [1, 2]


def test_with_two_ledgers_the_second_creates_nothing_either_i_23(tmp_path: Path, lake: EmulatorServer) -> None:
    """I23, F-42: `create` looks before it lays anything down, the probe of the store included."""
    first, second = (HandPublished(tmp_path / name, lake) for name in ("first", "second"))
    first.publish(orders=[1], customers=[1])
    before = sorted(first.store.list(""))
    lake.faults.reset_calls()
    made = create_database(second.mirror, second.ledger, FabricApi(lake.url, login_of(lake)))
    assert set(made.stopped) == {ORDERS, CUSTOMERS} and made.stopped[ORDERS].startswith("LEDGER_LOST")
    assert not {"create", "append", "flush", "rename", "delete"} & lake.faults.calls().keys()
    assert sorted(first.store.list("")) == before


def test_with_two_ledgers_a_second_that_looked_too_early_stops_all_the_same_i_12(deployment: Deployment) -> None:
    """I12: the marker is created on condition and read back, so of two that begin at once one is the second."""
    first, second = deployment("first"), deployment("second")
    assert set(second.codes().values()) == {"OK"}
    first.publish(orders=[1], customers=[1])
    before = sorted(first.store.list(""))
    second.batches[ORDERS].append([7])
    second.drive([ORDERS, CUSTOMERS])
    assert second.table().stop_code == "INCARNATION_CHANGED"
    # What it staged is seen by nobody, and swept by the first one.
    after = [info for info in first.store.list("") if "/_stage-1/" not in info.path]
    assert sorted(after) == before and first.codes()[ORDERS] == "OK"


def test_with_one_ledger_the_faster_one_publishes_and_the_other_says_so_i_20(
    deployment: Deployment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """I8, I10, I20, F-39: both stage the same number; what was sealed counts, the other's object is garbage."""
    first = deployment("first", tmp_path / "one.db")
    second = deployment("second", tmp_path / "one.db")
    second.batches = first.batches
    first.publish(orders=[1], customers=[1])

    def overtake() -> None:
        first.while_staging = lambda: None
        second.publish()

    first.while_staging = overtake
    first.batches[ORDERS].append([2])
    driver = first.drive([ORDERS])
    assert driver.overtaken == {ORDERS} and "CHANGED_MEANWHILE" in caplog.text
    assert first.numbers() == [1, 2] and [file.number for file in first.files()] == [1, 2]
    assert first.codes() == second.codes() == {ORDERS: "OK", CUSTOMERS: "OK"}
    first.publish(orders=[3])
    second.publish(orders=[4])
    assert first.numbers() == [1, 2, 3, 4]


def test_with_one_ledger_two_at_the_same_time_give_every_number_once_i_20(
    deployment: Deployment, tmp_path: Path
) -> None:
    """I7, I8, I20: numbers unbroken, every row in one file, whoever was faster."""
    both = [deployment(name, tmp_path / "one.db") for name in ("first", "second")]
    both[1].batches = both[0].batches
    errors: list[BaseException] = []

    def run(one: HandPublished) -> None:
        try:
            one.publish()
        except TransientError:
            pass  # the next run goes on
        except BaseException as error:
            errors.append(error)

    for key in range(1, 6):
        both[0].batches[ORDERS].append([key])
        threads = [threading.Thread(target=run, args=(one,)) for one in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    both[0].publish()
    files = both[0].files()
    assert both[0].numbers() == [file.number for file in files] == list(range(1, len(files) + 1))
    ids = [key for file in files for key in pq.read_table(both[0].path(file.number))["id"].to_pylist()]
    assert ids == [1, 2, 3, 4, 5]
    assert set(both[1].codes().values()) == {"OK"}


def test_two_publishers_give_way_to_each_other_and_each_reports_its_own_files_i_20(
    deployment: Deployment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither trades take-overs with the other: a table is warned of once, and every file is reported once."""
    both = [deployment(name, tmp_path / "one.db") for name in ("first", "second")]
    both[1].batches = both[0].batches
    both[0].publish(orders=[1], customers=[1])
    caplog.clear()
    for batch in (2, 3):
        both[0].batches[ORDERS].append([batch])
        both[0].batches[CUSTOMERS].append([batch])
    drivers: list[PublicationDriver] = []
    begin = threading.Barrier(2)

    def run(one: HandPublished) -> None:
        begin.wait()
        drivers.append(one.drive([ORDERS, CUSTOMERS]))

    threads = [threading.Thread(target=run, args=(one,)) for one in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for source in (ORDERS, CUSTOMERS):
        made = sorted(number for driver in drivers for number in driver.made.get(source, ()))
        assert made == both[0].numbers(source)[1:]
    assert sum("CHANGED_MEANWHILE" in record.message for record in caplog.records) <= 4
