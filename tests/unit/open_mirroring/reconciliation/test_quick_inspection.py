"""What a run looks at does not grow with the files that the service keeps, and hides nothing of its own files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import pytest

from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.local_store import LocalStore
from open_mirroring.landing_zone.store import ObjectInfo
from tests.hand_published import ORDERS, HandPublished


@pytest.fixture
def made(tmp_path: Path) -> HandPublished:
    made = HandPublished(tmp_path)
    for key in range(1, 4):
        made.publish(orders=[key])
    return made


def moved(made: HandPublished, *, last: bool = False) -> None:
    """Applied files leave the folder as the service moves them, all but the *last* one."""
    folder = made.path(1).parent
    for file in sorted(folder.glob("0*.parquet"))[: None if last else -1]:
        away = folder.parents[1] / layout.PROCESSED_FOLDER / folder.parent.name / folder.name
        away.mkdir(parents=True, exist_ok=True)
        file.rename(away / file.name)


def test_a_run_lists_as_much_behind_many_files_as_behind_few(
    made: HandPublished, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[ObjectInfo] = []
    whole = LocalStore.list

    def counted(store: LocalStore, folder: str, skipped: Collection[str] = ()) -> Iterable[ObjectInfo]:
        found = [*whole(store, folder, skipped)]
        listed.extend(found)
        return found

    def seen() -> tuple[int, str]:
        moved(made)
        made.publish(orders=[1])
        listed.clear()
        return len(made.look(everything=False)) and len(listed), made.look()[ORDERS].code

    monkeypatch.setattr(LocalStore, "list", counted)
    few = seen()
    for _ in range(10):
        assert seen() == few == (few[0], "OK")
    assert made.look()[ORDERS].evidence["processed"] == "1-12"


@pytest.mark.parametrize("last", [False, True], ids=["the last one stays", "the last one moves too (F-35)"])
def test_files_that_the_service_has_just_moved_are_found(made: HandPublished, *, last: bool) -> None:
    made.look(everything=False)
    moved(made, last=last)
    found = made.look(everything=False)[ORDERS]
    assert (found.code, found.applied) == ("OK", 3 if last else 2)
    assert made.look(everything=False)[ORDERS].applied == found.applied


def test_more_moved_files_than_are_asked_for_one_by_one_are_listed(made: HandPublished) -> None:
    for key in range(30):
        made.publish(orders=[key])
    moved(made)
    assert made.look(everything=False)[ORDERS].applied == 32


def taken_away(made: HandPublished) -> None:
    made.path(2).unlink()


def taken_back(made: HandPublished) -> None:
    """A file of a number that was applied already appears again."""
    shutil.copy(made.path(3), made.path(1))


def exchanged(made: HandPublished) -> None:
    content = made.path(3).read_bytes()
    made.path(3).unlink()
    made.path(3).write_bytes(content)


def numbered(made: HandPublished) -> None:
    shutil.copy(made.path(3), made.path(4))


@pytest.mark.parametrize(
    ("change", "code", "settled"),
    [
        (taken_away, "FILE_MISSING", False),
        (taken_back, "FOREIGN_ITEM", True),
        (exchanged, "CONTENT_CHANGED", True),
        (numbered, "LEDGER_BEHIND", True),
    ],
)
def test_what_concerns_the_files_of_a_run_stops_it(
    made: HandPublished, change: Callable[[HandPublished], None], code: str, *, settled: bool
) -> None:
    if settled:
        moved(made)
    made.look(everything=False)
    change(made)
    assert made.look(everything=False)[ORDERS].code == code
    assert made.look()[ORDERS].code == code


def test_a_stop_that_only_a_look_at_everything_finds_stays(made: HandPublished) -> None:
    moved(made)
    assert made.look(everything=False)[ORDERS].applied == 2
    folder = made.path(1).parent
    (folder.parents[1] / layout.PROCESSED_FOLDER / folder.parent.name / folder.name / made.path(1).name).unlink()
    assert made.look(everything=False)[ORDERS].code == "OK", "it was seen to be applied"
    assert made.look()[ORDERS].code == "FILE_MISSING"
    assert made.look(everything=False)[ORDERS].code == "FILE_MISSING"
