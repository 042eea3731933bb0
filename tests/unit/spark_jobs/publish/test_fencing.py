"""Two ledgers, one a copy of the other, publish to one landing zone: no number is used twice, and one of them stops."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.local_store import LocalStore
from open_mirroring.landing_zone.onelake_store import OneLakeStore
from open_mirroring.landing_zone.store import RenameOutcome
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.decisions import resume_extraction
from open_mirroring.ledger.documents import ZONE_TOKENS
from spark_jobs.publish.fencing import ZoneFence
from tests.hand_published import CUSTOMERS, ORDERS, HandPublished

CHANGES = ("create", "rename", "delete")


class Killed(BaseException):
    """The process ends here."""


class Watched:
    """All calls that change a landing zone: which numbers were given, and what happens before a call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.given: list[tuple[str, str]] = []
        self.before: Callable[[int], None] = lambda at: None
        self.after: Callable[[int], None] = lambda at: None
        for store in (LocalStore, OneLakeStore):
            for name in CHANGES:
                monkeypatch.setattr(store, name, self._watched(name, getattr(store, name)))

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(store: object, path: str, *args: Any, **named: Any) -> Any:
            at = len(self.calls)
            self.calls.append(f"{name} {path}")
            self.before(at)
            done = call(store, path, *args, **named)
            if name == "rename" and done is RenameOutcome.DONE and layout.file_number(args[0].rpartition("/")[2]):
                self.given.append((args[0], named["source_etag"]))
            self.after(at)
            return done

        return watched

    def forget(self) -> None:
        """Count calls from here on, and disturb none."""
        self.calls.clear()
        self.before = self.after = lambda at: None

    def used_once(self) -> bool:
        """Whether no number was given twice."""
        paths = [path for path, _ in self.given]
        return len(paths) == len(set(paths))


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


@pytest.fixture(params=["local", "onelake"])
def first(request: pytest.FixtureRequest, tmp_path: Path) -> HandPublished:
    server = request.getfixturevalue("lake") if request.param == "onelake" else None
    return HandPublished(tmp_path / "first", server, zone=tmp_path / "zone")


def local(folder: Path) -> HandPublished:
    return HandPublished(folder / "first", zone=folder / "zone")


def copied(made: HandPublished, name: str = "second") -> HandPublished:
    """Another deployment, with a copy of the ledger as it is now."""
    twin = made.folder.parent / name
    made.ledger.dispose()
    twin.mkdir(parents=True, exist_ok=True)
    for file in made.folder.glob("ledger.db*"):
        shutil.copy(file, twin / file.name)
    second = HandPublished(twin, made.server, zone=made.folder.parent / "zone")
    second.batches = {source: [*batches] for source, batches in made.batches.items()}
    return second


def serviced(made: HandPublished) -> None:
    """The service applies everything, and moves all files but the last one of each table."""
    if made.server is not None:
        while made.server.poll():
            pass
        return
    for source in (ORDERS, CUSTOMERS):
        folder = made.path(1, source).parent
        for file in sorted(folder.glob("0*.parquet"))[:-1]:
            (folder / layout.PROCESSED_FOLDER).mkdir(exist_ok=True)
            file.rename(folder / layout.PROCESSED_FOLDER / file.name)


def ran(made: HandPublished, **batches: list[int]) -> str:
    """One run; the code of the error that ended it, or nothing."""
    try:
        made.publish(**batches)
    except MirroringError as error:
        return error.code
    return ""


def overtaking(made: HandPublished) -> None:
    """Two publications with a look of the service after each, so that the first number is free again."""
    for key in (71, 72):
        ran(made, orders=[key])
        serviced(made)


def stop_of(made: HandPublished) -> str | None:
    return made.reader.mirror().stop_code


@pytest.mark.parametrize("holds", ["first", "second"])
def test_a_copied_ledger_uses_no_number_again_that_the_service_has_moved_away_i_8(
    first: HandPublished, watched: Watched, holds: str
) -> None:
    """I8, F-33: one publisher waits before it stages, and the other one publishes the number meanwhile."""
    first.publish(orders=[1], customers=[1])
    second = copied(first)
    slow, fast = (first, second) if holds == "first" else (second, first)
    slow.while_staging = lambda: overtaking(fast)
    assert ran(slow, orders=[2]) == "LEDGER_BEHIND"
    assert watched.used_once() and not stop_of(fast)
    assert stop_of(slow) == "LEDGER_BEHIND", "an operator sees it after the run as well"
    assert ran(fast, orders=[3]) == "" and fast.numbers() == [1, 2, 3, 4]


def test_a_run_claims_by_one_call_and_a_run_without_files_by_none(first: HandPublished, watched: Watched) -> None:
    first.publish(orders=[1], customers=[1])
    watched.forget()
    first.publish(orders=[2], customers=[2])
    assert [call for call in watched.calls if layout.PUBLISHER_FOLDER in call] == watched.calls[2:3]
    assert len(watched.calls) == 5, "two files are staged and renamed"
    watched.forget()
    first.publish()
    assert watched.calls == []


STAGE, CLAIM, NUMBER, END = range(4)
"""Before each call of a run with one file that changes the zone, and after the run."""
MOMENTS = [(copied, overtaken) for overtaken in range(END + 1) for copied in range(overtaken + 1)]


@pytest.mark.parametrize(("copied_at", "overtaken_at"), MOMENTS)
def test_whenever_the_ledger_is_copied_and_the_copy_publishes_i_8(
    tmp_path: Path, watched: Watched, copied_at: int, overtaken_at: int
) -> None:
    """I8, I9: also if the copy has what an unfinished publication had sealed."""
    first = local(tmp_path)
    first.publish(orders=[1])
    first.publish(orders=[2])
    serviced(first)
    twins: list[HandPublished] = []

    def disturb(at: int) -> None:
        if at == copied_at and not twins:
            twins.append(copied(first))
        if at == overtaken_at:
            watched.before = lambda at: None
            overtaking(twins[0])

    watched.forget()
    watched.before = disturb
    ran(first, orders=[3])
    if overtaken_at == END:
        disturb(END)
    for one in (first, *twins) * 2:
        overtaking(one)
    assert watched.used_once(), watched.given
    assert [stop_of(one) or one.codes()[ORDERS] for one in (first, *twins)].count("OK") == 1, "one goes on"


@pytest.mark.parametrize("begins", ["with the first files", "later"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_run_that_is_killed_at_any_call_is_finished_by_the_next_i_19(
    tmp_path: Path, watched: Watched, begins: str, side: str
) -> None:
    """I19: also between the ledger's record of a claim and the claim, and between the claim and its record."""

    def kill(at: int) -> None:
        if at == point:
            raise Killed

    for point in range(12):
        made = local(tmp_path / str(point))
        if begins == "later":
            made.publish(orders=[1])
        before = made.numbers() if begins == "later" else []
        watched.forget()
        watched.given.clear()
        setattr(watched, side, kill)
        try:
            made.publish(orders=[2])
            break
        except Killed:
            watched.forget()
        assert ran(made) == "" and ran(made, orders=[3]) == ""
        assert made.numbers() == [*before, len(before) + 1, len(before) + 2] and watched.used_once()
        assert len([*made.store.list(layout.PUBLISHER_FOLDER)]) == 1, "no second token is left"
    assert point >= (3 if begins == "later" else 6)


def test_an_operator_lets_one_ledger_take_over_and_the_other_one_stops(first: HandPublished, watched: Watched) -> None:
    """A file that it had sealed does not get the number that the other one has used meanwhile."""
    first.publish(orders=[1], customers=[1])
    second = copied(first)
    second.while_staging = lambda: overtaking(first)
    assert ran(second, orders=[2], customers=[2]) == "LEDGER_BEHIND"
    assert ran(second) == "LEDGER_BEHIND", "it stays so"
    cleared = resume_extraction(second.ledger, "shop", Reason("Ada", "the first one is gone for good"))
    assert cleared.code == "LEDGER_BEHIND"
    second.drive([ORDERS, CUSTOMERS])
    assert watched.used_once() and second.numbers(CUSTOMERS) == [1, 2]
    assert second.table().stop_code == "CONFLICT", "its number 2 is another file's: only a reset helps"
    assert ran(first, orders=[3]) == "LEDGER_BEHIND" and watched.used_once()
    assert ran(second, customers=[3]) == "", "the other table of the ledger that was kept goes on"


def test_a_newer_copy_goes_on_and_a_ledger_without_a_token_takes_over(tmp_path: Path) -> None:
    """A ledger restored from a copy of after the last run, one without a record of the token, and a deleted token."""
    made = local(tmp_path)
    made.publish(orders=[1])
    restored = copied(made, "restored")
    assert ran(restored, orders=[2]) == ""
    with restored.ledger.begin() as db:
        ZONE_TOKENS.drop(db, "shop")  # as rebuild-ledger leaves it
    assert ran(restored, orders=[3]) == ""
    for token in [*restored.store.list(layout.PUBLISHER_FOLDER)]:
        restored.store.delete(token.path)
    assert ran(restored, orders=[4]) == "" and restored.numbers() == [1, 2, 3, 4]
    assert set(restored.codes().values()) == {"OK"}


def test_a_takeover_that_gets_no_answer_still_looks_which_numbers_are_used(tmp_path: Path, watched: Watched) -> None:
    store = LocalStore(tmp_path / "zone")
    first, second = (ZoneFence(store, open_ledger(f"sqlite:///{tmp_path}/{n}.db"), "shop") for n in ("one", "two"))
    assert first.claim() is False

    def unanswered(at: int) -> None:
        watched.forget()
        raise TransientError("UNREACHABLE", "no answer")

    watched.after = unanswered
    with pytest.raises(TransientError):
        second.claim()
    assert second.claim() is True
    assert second.claim() is False


def test_two_ledgers_that_begin_at_once_end_with_one_token(tmp_path: Path, watched: Watched) -> None:
    """Each sees the other's token after it has created its own, and gives way."""
    store, fences = LocalStore(tmp_path / "zone"), list[ZoneFence]()
    for name in ("one", "two"):
        fences.append(ZoneFence(store, open_ledger(f"sqlite:///{tmp_path}/{name}.db"), "shop"))

    def other(at: int) -> None:
        watched.forget()
        fences[1].claim()

    watched.before = other  # after the first one has seen that there is none
    with pytest.raises(MirroringError, match="CHANGED_MEANWHILE"):
        fences[0].claim()
    assert len([*store.list(layout.PUBLISHER_FOLDER)]) == 1
    assert fences[0].claim() is True, "it takes over, and has to look which numbers are used"
    with pytest.raises(TerminalError, match="LEDGER_BEHIND"):
        fences[1].claim()


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Engine]:
    engine = open_ledger(ledger_url)
    with engine.begin() as db:
        db.execute(t.mirror.insert().values(name="shop"))
    yield engine
    engine.dispose()


def test_runs_of_one_ledger_claim_at_the_same_time_and_none_is_stopped_i_20(tmp_path: Path, ledger: Engine) -> None:
    store, errors = LocalStore(tmp_path / "zone"), list[BaseException]()
    ZoneFence(store, ledger, "shop").claim()

    def run() -> None:
        try:
            for _ in range(5):
                ZoneFence(store, ledger, "shop").claim()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and len([*store.list(layout.PUBLISHER_FOLDER)]) == 1
