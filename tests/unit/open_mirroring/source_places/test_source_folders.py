"""One walk through folders: on a disk, by partitions of a Capture, in object storage (G-62)."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from open_mirroring.source_places.source_folders import files_below
from open_mirroring.storage import object_path
from open_mirroring.storage.address import StorageAddress
from open_mirroring.storage.object_path import ObjectPath
from open_mirroring.storage.object_store import ObjectStore, S3Login, StorageRoot
from spark_jobs.sources.exports.files import Export, export_files
from spark_jobs.sources.transports.capture import list_capture
from spark_jobs.sources.transports.source_files import list_source_files
from tests.unit.spark_jobs.sources.transports.test_capture_gaps import put
from tests.unit.spark_jobs.sources.transports.test_capture_listing import TODAY


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> ObjectPath:
    """A folder in a store in memory."""
    store = ObjectStore(MemoryStore(), "memory")
    monkeypatch.setattr(object_path, "open_store", lambda root: store)
    address = StorageAddress("s3", "", "bucket", "src", "s3://bucket/src")
    return ObjectPath(StorageRoot(address, S3Login("c", "", "", "", "", "")), "src")


def test_hidden_folders_in_object_storage_are_counted_and_named(stored: ObjectPath) -> None:
    for name in ("1.jsonl", "_audit/2.jsonl", "_audit/deep/3.jsonl", "_audit/_SUCCESS", "_delta_log/0.json"):
        (stored / name).create(b"{}")
    (stored / "_temporary/0/4.jsonl").create(b"{}")
    (stored / "_empty").create(b"")
    found = list_source_files(stored, (".jsonl", ".json"))
    assert [file.name for file in found.files] == ["1.jsonl"]
    assert found.unread == ("_audit (hidden by the folder's name: 2 files)",)
    assert found.unfinished == ["_temporary/0/4.jsonl"]


def test_an_export_in_object_storage_is_walked_alike(stored: ObjectPath) -> None:
    for name in ("b.parquet", "a/c.parquet", "_SUCCESS"):
        (stored / name).create(b"x")
    (stored / "empty_folder").create(b"")
    assert export_files(Export(stored, "parquet")) == ["a/c.parquet", "b.parquet"]
    (stored / "_x/d.parquet").create(b"x")
    with pytest.raises(Exception, match=r"LOAD_INVALID.*'_x/d.parquet'"):
        export_files(Export(stored, "parquet"))
    (stored / "z=1/_delta_log/0.json").create(b"{}")
    with pytest.raises(Exception, match="LOAD_INVALID"):
        export_files(Export(stored, "parquet"))


def test_links_to_partitions_and_days_of_a_capture_are_followed_at_every_look(tmp_path: Path) -> None:
    """S-08: also where not every day is listed."""
    root, away, days = tmp_path / "source", tmp_path / "away", [TODAY - timedelta(days=one) for one in range(3)]
    for at, day in enumerate(reversed(days)):
        put(root, f"ns/hub/0/{day:%Y/%m/%d}/03/00/00.avro", range(10 * at, 10 * at + 10))
        put(away, f"{day:%Y/%m/%d}/03/00/00.avro", range(10 * at, 10 * at + 10))
    assert len(list_capture(root, {}).files) == 3
    bound = {file.name: file.size for file in list_capture(root, {}).files}
    (root / "ns/hub/1").symlink_to(away)
    (root / "ns/hub/loop").symlink_to("..")
    found = list_capture(root, bound, TODAY)
    assert {file.name for file in found.files} - {*bound} == {f"ns/hub/1/{day:%Y/%m/%d}/03/00/00.avro" for day in days}
    assert found.unread == ()
    os.mkfifo(root / f"ns/hub/0/{TODAY:%Y/%m/%d}/04.avro")
    put(root, f"ns/hub/0/{TODAY:%Y/%m/%d}/_late/05/00.avro", range(3))
    assert found.files == list_capture(root, bound, TODAY).files
    assert list_capture(root, bound, TODAY).unread == (
        f"ns/hub/0/{TODAY:%Y/%m/%d}/04.avro (a pipe)",
        f"ns/hub/0/{TODAY:%Y/%m/%d}/_late (hidden by the folder's name: 1 file)",
    )


def test_a_hidden_folder_that_may_not_be_read_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / "1.jsonl").write_bytes(b"{}")
    real = os.scandir

    def denied(path: Path) -> object:
        if Path(path).name == ".ssh":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", denied)
    assert [file.name for file in files_below(tmp_path).files] == ["1.jsonl"]
