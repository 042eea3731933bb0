"""OneLake over the wire when things go wrong: what is repeated, what is unknown, what is refused for good."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabric_emulator.web.emulator_server import EmulatorServer
from fabric_emulator.web.faults import Fault, Kind
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.landing_zone.onelake_store import OneLakeStore
from open_mirroring.landing_zone.store import ObjectInfo, RenameOutcome
from open_mirroring.remote.http_service import RetryBudget
from tests.onelake import CLIENTS, emulator, zone_of

pytestmark = pytest.mark.usefixtures("without_back_off")

STAGED, FINAL = "t/_stage-1/1.abc", "t/00000000000000000001.parquet"
LARGE = bytes(range(251)) * 52_000
BEFORE: tuple[Kind, ...] = ("unavailable_before", "dropped_before", "throttled", "token_expired")
AFTER: tuple[Kind, ...] = ("unavailable_after", "dropped_after")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmulatorServer]:
    with emulator(tmp_path, clients=CLIENTS) as server:
        yield server


@pytest.fixture
def store(server: EmulatorServer) -> OneLakeStore:
    return OneLakeStore(zone_of(server))


def created(store: OneLakeStore, path: str, content: bytes = b"rows") -> ObjectInfo:
    info = store.create(path, content)
    assert info is not None
    return info


# --- what is repeated -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*BEFORE, *AFTER])
@pytest.mark.parametrize("verb", ["properties", "read", "list", "delete"])
def test_reads_and_deletes_are_repeated(server: EmulatorServer, store: OneLakeStore, verb: Any, kind: Kind) -> None:
    info = created(store, STAGED)
    server.faults.add(Fault(kind, verb))
    match verb:
        case "properties":
            assert store.stat(STAGED) == info
        case "read":
            assert store.read(STAGED) == (b"rows", info.etag)
        case "list":
            assert list(store.list("")) == [info]
        case "delete":
            store.delete(STAGED)
            assert store.stat(STAGED) is None


@pytest.mark.parametrize("kind", [*BEFORE, *AFTER, "duplicated"])
@pytest.mark.parametrize("verb", ["append", "flush"])
@pytest.mark.parametrize("content", [b"rows", LARGE], ids=["small", "large"])
def test_appends_and_flushes_are_repeated_without_another_etag(
    server: EmulatorServer, store: OneLakeStore, verb: str, kind: Kind, content: bytes
) -> None:
    """O-08: also when the call was carried out and its answer lost, or carried out twice; tokens may expire between."""
    server.faults.add(Fault(kind, verb))
    info = created(store, STAGED, content)
    assert store.stat(STAGED) == info
    assert store.read(STAGED) == (content, info.etag)
    assert store.rename(STAGED, FINAL, source_etag=info.etag) is RenameOutcome.DONE


def test_a_token_that_expires_in_the_middle_of_an_upload_is_renewed_o_02(
    server: EmulatorServer, store: OneLakeStore
) -> None:
    server.faults.add(Fault("token_expired", "append", skip=1))
    info = created(store, STAGED, LARGE)
    assert store.read(STAGED) == (LARGE, info.etag)
    assert server.faults.calls()["append"] == -(-len(LARGE) // (4 << 20)) + 1


def test_a_late_answer_counts_as_none(server: EmulatorServer) -> None:
    store = OneLakeStore(zone_of(server, timeout_seconds=0.2))
    info = created(store, STAGED)
    server.faults.add(Fault("slow", "properties", seconds=0.5))
    assert store.stat(STAGED) == info
    server.faults.add(Fault("slow", "rename", seconds=0.5))
    with pytest.raises(TransientError, match="UNREACHABLE"):
        store.rename(STAGED, FINAL, source_etag=info.etag)


def test_a_listing_that_comes_twice_names_each_object_once(server: EmulatorServer, store: OneLakeStore) -> None:
    info = created(store, STAGED)
    server.faults.add(Fault("repeated_listing", "list"))
    assert list(store.list("")) == [info]


def test_a_large_folder_is_deleted_in_as_many_calls_as_it_takes(server: EmulatorServer, store: OneLakeStore) -> None:
    server.store.delete_page = 2
    for number in range(7):
        created(store, f"t/{number}")
    kept = created(store, "tt/1")
    server.faults.add(Fault("dropped_after", "delete", skip=1))
    store.delete_folder("t")
    assert list(store.list("")) == [kept]
    assert server.faults.calls()["delete"] > 3
    store.delete_folder("t")


@pytest.mark.parametrize("skip", [0, 1])
def test_a_folder_in_use_is_reported_and_deleted_by_a_later_call_f_73(
    server: EmulatorServer, store: OneLakeStore, skip: int
) -> None:
    """F-73: also when a part of it is gone already; what cannot be deleted is never taken for gone."""
    server.store.delete_page = 2
    for number in range(4):
        created(store, f"t/{number}")
    server.faults.add(Fault("in_use", "delete", skip=skip))
    with pytest.raises(TransientError, match=r"CHANGED_MEANWHILE.*PathInUse"):
        store.delete_folder("t")
    assert len(list(store.list("t"))) == 4 - 2 * skip
    store.delete_folder("t")
    assert list(store.list("")) == []


# --- what is unknown ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*BEFORE, *AFTER])
def test_a_rename_without_a_plain_answer_is_unknown_and_not_repeated_o_08(
    server: EmulatorServer, store: OneLakeStore, kind: Kind
) -> None:
    info = created(store, STAGED)
    server.faults.reset_calls()
    server.faults.add(Fault(kind, "rename"))
    with pytest.raises(TransientError, match=r"UNREACHABLE|TARGET_BUSY"):
        store.rename(STAGED, FINAL, source_etag=info.etag)
    assert server.faults.calls()["rename"] == 1
    done = kind in AFTER
    assert (store.stat(FINAL) is not None) is done
    again = store.rename(STAGED, FINAL, source_etag=info.etag)
    assert again is (RenameOutcome.REFUSED if done else RenameOutcome.DONE), "the identical request decides"
    assert store.stat(FINAL) == info._replace(path=FINAL)


@pytest.mark.parametrize("kind", [*BEFORE, *AFTER])
def test_a_creation_without_a_plain_answer_is_unknown_and_not_repeated_o_07(
    server: EmulatorServer, store: OneLakeStore, kind: Kind
) -> None:
    """O-07, O-08: an empty object may be left under the staging name: harmless there, and never under a final one."""
    server.faults.add(Fault(kind, "create"))
    with pytest.raises(TransientError):
        store.create(STAGED, b"rows")
    assert server.faults.calls()["create"] == 1
    left = store.stat(STAGED)
    assert (None if left is None else left.size) == (0 if kind in AFTER else None)


def test_a_duplicated_rename_answers_once_and_publishes_once(server: EmulatorServer, store: OneLakeStore) -> None:
    info = created(store, STAGED)
    server.faults.add(Fault("duplicated", "rename"))
    assert store.rename(STAGED, FINAL, source_etag=info.etag) is RenameOutcome.DONE
    assert list(store.list("")) == [info._replace(path=FINAL)]


def test_an_upload_whose_folder_goes_away_is_not_taken_for_complete(
    server: EmulatorServer, store: OneLakeStore
) -> None:
    """What was swept in the middle is reported; nothing comes into being again by the rest of the upload."""
    other = OneLakeStore(zone_of(server))
    append = store._append

    def gone(path: str, content: bytes | Path) -> int:
        size = append(path, content)
        other.delete_folder("t")
        return size

    store._append = gone  # type: ignore[method-assign]
    with pytest.raises(TransientError, match="CHANGED_MEANWHILE"):
        store.create(STAGED, b"rows")
    assert list(store.list("")) == []


def test_a_full_disk_is_reported_and_not_mistaken_for_the_object(
    server: EmulatorServer, store: OneLakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(store, STAGED)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("open_mirroring.remote.http_service._received", full)
    with pytest.raises(TransientError, match=r"DISK_FULL.*TMPDIR"), store.fetch(STAGED):
        pass


# --- what is refused for good ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "header"),
    [
        ("create", "if-none-match"),
        ("flush", "if-match"),
        ("rename", "if-none-match"),
        ("rename", "x-ms-source-if-match"),
    ],
)
def test_a_condition_that_was_ignored_fails_closed_o_03(
    server: EmulatorServer, store: OneLakeStore, verb: str, header: str
) -> None:
    """Exactly-once rests on the conditions: one in x-ms-rejected-headers ends the run, whatever was done."""
    info = created(store, STAGED)
    server.faults.add(Fault("rejected_headers", verb, headers=(header,)))
    with pytest.raises(TerminalError, match=f"STORE_UNFIT.*{header}"):
        if verb == "rename":
            store.rename(STAGED, FINAL, source_etag=info.etag)
        else:
            store.create("t/_stage-1/2.abc", b"rows")


def test_other_rejected_headers_are_none_of_our_business_o_03(server: EmulatorServer, store: OneLakeStore) -> None:
    server.faults.add(Fault("rejected_headers", times=None, headers=("x-ms-owner",)))
    info = created(store, STAGED)
    assert store.rename(STAGED, FINAL, source_etag=info.etag) is RenameOutcome.DONE


@pytest.mark.parametrize("verb", ["read", "append"])
def test_a_token_that_is_refused_twice_is_refused_for_good(
    server: EmulatorServer, store: OneLakeStore, verb: str
) -> None:
    server.faults.add(Fault("token_expired", verb, times=2))
    with pytest.raises(TerminalError, match=r"ACCESS_DENIED.*connection lake.*Contributor"):
        _ = store.create(STAGED, b"rows") if verb == "append" else store.read(STAGED)


def test_a_wrong_secret_is_reported_by_its_code_alone(server: EmulatorServer) -> None:
    from tests.onelake import login_of

    store = OneLakeStore(zone_of(server, login=login_of(server, secret="wrong-canary")))
    with pytest.raises(TerminalError, match=r"ACCESS_DENIED.*AADSTS7000215") as caught:
        store.stat(STAGED)
    assert "wrong-canary" not in str(caught.value)


def test_a_workspace_that_is_not_there_is_reported_o_01(server: EmulatorServer) -> None:
    from dataclasses import replace

    store = OneLakeStore(replace(zone_of(server), workspace="00000000-0000-0000-0000-000000000000"))
    with pytest.raises(TerminalError, match="PLACE_MISSING"):
        list(store.list(""))


# --- waiting --------------------------------------------------------------------------------------------------


class Waits:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now, self.slept = 0.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def budget(self, repeats: int = 30) -> RetryBudget:
        return RetryBudget(repeats, clock=lambda: self.now, sleep=self.sleep)


def waiting(store: OneLakeStore, budget: RetryBudget) -> OneLakeStore:
    store._calls._service._service.budget = budget
    return store


def test_all_calls_wait_as_long_as_one_was_reported_to_r_04(server: EmulatorServer, store: OneLakeStore) -> None:
    info, waits = created(store, STAGED), Waits()
    waiting(store, waits.budget())
    server.faults.add(Fault("throttled", "properties", seconds=7))
    assert store.stat(STAGED) == info
    (slept,) = waits.slept
    assert 7 <= slept <= 8, "not less than asked for, and with some jitter"


def test_a_rename_that_is_throttled_lets_the_next_call_wait(server: EmulatorServer, store: OneLakeStore) -> None:
    info, waits = created(store, STAGED), Waits()
    waiting(store, waits.budget())
    server.faults.add(Fault("throttled", "rename", seconds=7))
    with pytest.raises(TransientError, match=r"TARGET_BUSY.*for 7 s"):
        store.rename(STAGED, FINAL, source_etag=info.etag)
    assert waits.slept == []
    assert store.stat(STAGED) == info
    assert 7 <= waits.slept[0] <= 8


def test_nobody_waits_for_an_hour(server: EmulatorServer, store: OneLakeStore) -> None:
    waits = Waits()
    waiting(store, waits.budget())
    server.faults.add(Fault("throttled", "properties", seconds=3600))
    for _ in range(2):
        with pytest.raises(TransientError, match="TARGET_BUSY"):
            store.stat(STAGED)
    assert waits.slept == []
    assert server.faults.calls()["properties"] == 1


def test_repetitions_of_a_run_have_an_end(server: EmulatorServer, store: OneLakeStore) -> None:
    """One budget for all calls: a store that is down is not asked for ever, nor by every table anew."""
    waits = Waits()
    waiting(store, waits.budget(5))
    server.faults.add(Fault("unavailable_before", "properties", times=None))
    for _ in range(10):
        with pytest.raises(TransientError, match="UNREACHABLE"):
            store.stat(STAGED)
    assert server.faults.calls()["properties"] == 10 + 5
