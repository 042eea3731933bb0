"""The local store keeps what the publish protocol rests on: durable, complete, inside its root, never overwritten.

What it promises like any other store is proved in ``test_landing_zone_stores.py``.
"""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.landing_zone import local_store
from open_mirroring.landing_zone.local_store import LocalStore
from open_mirroring.landing_zone.store import LandingZoneStore, ObjectInfo, RenameOutcome

STAGED = "dbo.schema/orders/_stage-1/1.abc"
FINAL = "dbo.schema/orders/00000000000000000001.parquet"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "zone")


def created(store: LandingZoneStore, path: str, content: bytes = b"rows") -> ObjectInfo:
    info = store.create(path, content)
    assert info is not None
    return info


def content(store: LandingZoneStore, path: str) -> bytes | None:
    found = store.read(path)
    return None if found is None else found.data


def test_rename_takes_no_name_of_a_link_to_nowhere(store: LocalStore) -> None:
    """I8, F-33, F-37: whatever is under the number stays."""
    staged = created(store, STAGED)
    (store.root / "dangling").symlink_to(store.root / "nowhere")
    assert store.rename(STAGED, "dangling", source_etag=staged.etag) is RenameOutcome.REFUSED


def test_rename_into_a_deleted_folder_is_refused(store: LocalStore) -> None:
    """Staging dies with its folder (I12); a source elsewhere must not bring the folder back."""
    staged = created(store, "elsewhere/x")
    assert store.rename("elsewhere/x", "gone/1.parquet", source_etag=staged.etag) is RenameOutcome.REFUSED
    assert not (store.root / "gone").exists()


def test_of_racing_creates_exactly_one_is_done(store: LocalStore) -> None:
    barrier = threading.Barrier(8)

    def send(n: int) -> ObjectInfo | None:
        barrier.wait()
        return store.create("t/_incarnation.json", b"%d" % n)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(8)))
    winners = [n for n, info in enumerate(answers) if info is not None]
    assert len(winners) == 1
    assert content(store, "t/_incarnation.json") == b"%d" % winners[0]
    assert [info.path for info in store.list("t")] == ["t/_incarnation.json"]


def test_a_crash_while_writing_leaves_nothing_under_the_name(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I11: a reader sees the whole object or none; an error takes its partial file away, a kill may leave it."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(local_store.shutil, "copyfileobj", full)
        with pytest.raises(TransientError, match=r"DISK_FULL: .*Next step: free space"):
            store.create("t/_incarnation.json", b"{}")
    assert list(store.list("t")) == []

    with monkeypatch.context() as patched:
        patched.setattr(local_store, "rename_no_replace", lambda *_: os._exit(0))
        child = os.fork()
        if child == 0:
            store.create("t/_incarnation.json", b"{}")
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    assert store.read("t/_incarnation.json") is None
    assert [info.path.startswith("t/_incarnation.json.partial-") for info in store.list("t")] == [True]
    created(store, "t/_incarnation.json", b"{}")


def test_everything_is_on_disk_before_a_verb_returns(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is durable only with every entry that leads to it: fsync of the file, then of its folders."""
    synced: list[str] = []
    real = os.fsync

    def recording(descriptor: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), store.root))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", recording)
    staged = created(store, "t/_stage-1/1.a")
    assert synced[:2] == [".", "t"]
    assert synced[2].startswith("t/_stage-1/1.a.partial-")
    assert synced[3:] == ["t/_stage-1"]
    synced.clear()
    assert store.rename("t/_stage-1/1.a", "t/1", source_etag=staged.etag) is RenameOutcome.DONE
    assert sorted(synced) == ["t", "t/_stage-1"]


def test_a_listing_survives_what_vanishes(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = ["t/1", "t/_stage-1/1.a", "t/_ProcessedFiles/0", "other/1"]
    for path in paths:
        created(store, path)
    walk = iter(store.list("t"))
    assert next(walk).path == "t/1", "a folder's own objects come before those of the folders it moves them to"
    for path in paths[1:3]:
        store.delete(path)
        (store.root / path).parent.rmdir()
    assert list(walk) == []

    real = os.scandir

    def vanishing(folder: str) -> list[os.DirEntry[str]]:
        entries = list(real(folder))
        for entry in entries:
            os.unlink(entry.path)
        return entries

    created(store, "v/1")
    monkeypatch.setattr(os, "scandir", vanishing)
    assert list(store.list("v")) == []


def test_links_do_not_lead_out(store: LocalStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    created(store, "t/1")
    (store.root / "t/away").symlink_to(outside)
    (store.root / "t/leak").symlink_to(outside / "secret")
    for call in (
        lambda: store.read("t/away/secret"),
        lambda: store.create("t/away/new", b""),
        lambda: store.fetch("t/leak").__enter__(),
        lambda: list(store.list("t/away")),
    ):
        with pytest.raises(TerminalError, match="FOREIGN_ITEM"):
            call()
    assert {info.path for info in store.list("t")} == {"t/1", "t/away", "t/leak"}, "seen, not followed"
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_a_filesystem_without_the_rename_is_refused(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail closed: no emulation by link and unlink."""
    staged = created(store, STAGED)

    class Libc:
        def renameat2(self, *_: object) -> int:
            local_store.ctypes.set_errno(errno.EINVAL)
            return -1

    for libc in (Libc(), object()):
        monkeypatch.setattr(local_store, "_LIBC", libc)
        with pytest.raises(TerminalError, match=r"STORE_UNFIT: .*local Linux filesystem with renameat2"):
            store.rename(STAGED, FINAL, source_etag=staged.etag)
    assert (store.stat(STAGED), store.stat(FINAL)) == (staged, None)


def test_coarse_times_are_refused(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "utime", lambda *_, **__: None)
    with pytest.raises(TerminalError, match="STORE_UNFIT: the filesystem does not keep modification times"):
        store.create("t/x", b"")
    assert list(store.list("t")) == []


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [
        (errno.EIO, TransientError, "UNREACHABLE"),
        (errno.ENOSPC, TransientError, "DISK_FULL"),
        (errno.EDQUOT, TransientError, "DISK_FULL"),
        (errno.EACCES, TerminalError, "ACCESS_DENIED"),
        (errno.EROFS, TerminalError, "ACCESS_DENIED"),
    ],
)
def test_errors_of_the_system_speak(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[TerminalError], code: str
) -> None:
    staged = created(store, STAGED)

    def failing(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(local_store, "rename_no_replace", failing)
    with pytest.raises(kind) as caught:
        store.rename(STAGED, FINAL, source_etag=staged.etag)
    assert caught.value.code == code
    assert FINAL in caught.value.where and caught.value.next_step


def test_a_file_in_the_way_of_a_folder_is_reported(store: LocalStore) -> None:
    created(store, "t")
    for call in (lambda: store.create("t/1", b""), lambda: store.stat("t/1"), lambda: list(store.list("t"))):
        with pytest.raises(TerminalError, match="FOREIGN_ITEM"):
            call()


def test_a_folder_that_goes_away_during_create_is_no_taken_name(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_store, "rename_no_replace", lambda *_: False)
    with pytest.raises(TransientError, match="UNREACHABLE: the folder went away"):
        store.create("t/x", b"")


def test_a_deleted_folder_takes_what_was_prepared_with_it(store: LocalStore, tmp_path: Path) -> None:
    """F-71, I12: a rename into it, or out of its staging, is refused however late it comes; nothing of it is left."""
    staged, elsewhere = created(store, STAGED), created(store, "dbo.schema/customers/_stage-1/1.abc")
    created(store, "dbo.schema/orders/_ProcessedFiles/00000000000000000001.parquet")
    store.delete_folder("dbo.schema/orders")
    assert list(store.list("dbo.schema/orders")) == []
    assert store.rename(STAGED, FINAL, source_etag=staged.etag) is RenameOutcome.REFUSED
    assert store.rename(elsewhere.path, FINAL, source_etag=elsewhere.etag) is RenameOutcome.REFUSED
    assert [path.name for path in (tmp_path / "zone").iterdir()] == ["dbo.schema"]
    assert store.stat(elsewhere.path) == elsewhere, "another table's folder stays"
    store.delete_folder("dbo.schema/orders")
    store.delete_folder("nothing/there")


def test_what_a_killed_deletion_left_is_removed_by_the_next(store: LocalStore, tmp_path: Path) -> None:
    """It lies under a name that the service ignores (F-05)."""
    left = tmp_path / "zone" / "_deleted-0123456789abcdef"
    left.mkdir()
    (left / "00000000000000000001.parquet").write_bytes(b"x")
    created(store, STAGED)
    store.delete_folder("dbo.schema/orders")
    assert not left.exists()


def test_a_folder_in_use_is_a_transient_error(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """F-73."""
    created(store, STAGED)

    def busy(source: str, target: str) -> bool:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), source)

    monkeypatch.setattr(local_store, "rename_no_replace", busy)
    with pytest.raises(TransientError, match="CHANGED_MEANWHILE"):
        store.delete_folder("dbo.schema/orders")
    assert store.stat(STAGED) is not None


def test_only_a_plain_folder_is_deleted(store: LocalStore, tmp_path: Path) -> None:
    """A link could lead to anything."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "zone" / "link").symlink_to(tmp_path / "outside")
    created(store, "file")
    for path in ("link", "file", "../outside", ""):
        with pytest.raises(TerminalError, match="FOREIGN_ITEM"):
            store.delete_folder(path)
    assert (tmp_path / "outside").is_dir() and store.stat("file") is not None
