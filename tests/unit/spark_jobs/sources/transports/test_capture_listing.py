"""Capture files: what was read long ago is not listed at every look, and nothing is missed (S-08)."""

from __future__ import annotations

import os
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from open_mirroring.errors import TerminalError
from spark_jobs.sources.transports.capture import holes, list_capture
from spark_jobs.sources.transports.source_files import FileVersion, gone_unread, open_source
from tests.object_storage import KINDS, Storage
from tests.unit.spark_jobs.sources.transports.test_capture_gaps import put

TODAY = date(2026, 3, 1)


class Disk(NamedTuple):
    """A folder, used as a place in object storage is."""

    folder: Path

    def place(self) -> Path:
        return self.folder

    def deliver(self, name: str, content: bytes) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(content)


@pytest.fixture(params=["disk", *(pytest.param(kind, marks=pytest.mark.storage) for kind in KINDS)])
def storage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Storage | Disk:
    if request.param == "disk":
        return Disk(tmp_path_factory.mktemp("source"))
    place: Storage = request.getfixturevalue("storage_servers").new(request.param)
    return place


def deliver(
    storage: Storage | Disk, folder: Path, partition: int, days_ago: int, numbers: range, minute: int = 0
) -> str:
    day = TODAY - timedelta(days=days_ago)
    name = f"ns/hub/{partition}/{day:%Y/%m/%d}/03/{minute:02d}/00.avro"
    storage.deliver(name, put(folder, name, numbers).read_bytes())
    return name


def listed(storage: Storage | Disk, bound: dict[str, int], today: date = TODAY) -> set[str]:
    return {file.name for file in list_capture(storage.place(), bound, today).files}


def test_a_listing_begins_a_day_before_what_was_bound(storage: Storage | Disk, tmp_path: Path) -> None:
    """S-08: for each partition; new partitions whole."""
    files = [deliver(storage, tmp_path, p, d, range(10 * (4 - d), 10 * (5 - d))) for p in (0, 1) for d in (4, 3, 2, 1)]
    bound = {file.name: file.size for file in list_capture(storage.place(), {}).files}
    assert sorted(bound) == sorted(files), "at first everything"
    assert listed(storage, bound) == {*files}, "nothing of today is bound"
    news = [deliver(storage, tmp_path, 0, 0, range(40, 50)), deliver(storage, tmp_path, 2, 7, range(5))]
    recent = {name for name in files if "/2026/02/28/" in name}
    today = deliver(storage, tmp_path, 1, 0, range(40, 50))
    bound[today] = next(f.size for f in list_capture(storage.place(), bound, TODAY).files if f.name == today)
    first_of_zero = {name for name in files if name.startswith("ns/hub/0/2026/02/27")}
    assert listed(storage, bound) == {*news, *recent, *first_of_zero, today}
    storage.deliver("ns/other.avro", b"x")
    assert "ns/other.avro" in listed(storage, bound), "what is in no partition is found at every look"
    old = deliver(storage, tmp_path, 1, 9, range(3))
    assert old not in listed(storage, bound)
    assert old in listed(storage, bound, TODAY + timedelta(days=1)), "the first look of another day lists everything"
    found = list_capture(storage.place(), bound, TODAY)
    seen = {name: FileVersion(f"{size + 1}:x", "") for name, size in bound.items()}
    gone = {one.name for one in gone_unread(found, bound, seen)}
    assert gone == set(), "what is not listed is not taken for gone"


def test_a_hole_behind_empty_windows_is_seen(storage: Storage | Disk, tmp_path: Path) -> None:
    """S-08, C-93: where only empty windows would be listed, the partition is listed whole."""
    deliver(storage, tmp_path, 0, 9, range(10))
    for days in (2, 1, 0):
        deliver(storage, tmp_path, 0, days, range(0))
    storage.deliver(f"ns/hub/0/{TODAY:%Y/%m/%d}/foreign.txt", b"bound as a dead letter, and no Capture file")
    everything = list_capture(storage.place(), {})
    bound = {file.name: file.size for file in [*everything.files, *everything.unknown]}
    assert len(listed(storage, bound)) == 2
    late = deliver(storage, tmp_path, 0, 0, range(12, 15), minute=5)
    found = list_capture(storage.place(), bound, TODAY)
    assert len(found.files) == 5
    (hole,) = holes(storage.place(), found.files, bound)
    assert (hole.what, hole.files) == ("numbers 10 to 11", (late,))
    deliver(storage, tmp_path, 0, 0, range(10, 12), minute=4)
    assert holes(storage.place(), list_capture(storage.place(), bound, TODAY).files, bound) == []


def test_another_layout_is_listed_complete(storage: Storage | Disk, tmp_path: Path) -> None:
    """S-08: nothing is known of its order."""
    content = put(tmp_path, "x.avro", range(3)).read_bytes()
    for name in ("2026/02/01/0.avro", "2026/03/01/0.avro"):
        storage.deliver(name, content)
    bound = {file.name: file.size for file in list_capture(storage.place(), {}).files}
    assert listed(storage, bound) == {*bound}


def test_a_folder_that_may_not_be_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-62: nobody is to believe that it was looked into."""
    real = os.scandir

    def denied(path: Path) -> Any:
        if Path(path).name == "02":
            raise PermissionError(13, "Permission denied")
        return real(path)

    deliver(Disk(tmp_path), tmp_path, 0, 9, range(3))
    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(TerminalError, match=r"ACCESS_DENIED: the folder .*/2026/02' may not be read"):
        list_capture(tmp_path, {})


def test_a_file_that_may_not_be_read_is_reported_as_one_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-62: nobody has to write there."""

    def denied(path: Path, *_: object) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(TerminalError, match=r"ACCESS_DENIED: the file .*/0\.avro' may not be read"):
        open_source(tmp_path / "0.avro")
