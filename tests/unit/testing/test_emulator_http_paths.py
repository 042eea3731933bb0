"""The DFS endpoint: files and folders, conditions, ETags."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fabric_emulator.web import EmulatorServer
from fabric_emulator.web.item_paths import ItemPath
from fabric_emulator.web.messages import ApiError
from fabric_emulator.web.path_conditions import Conditions
from fabric_emulator.web.path_store import PathStore
from fabric_emulator.web.uploads import HIDDEN
from tests.unit.testing.emulator_client import Client

FINAL = "dbo.schema/t/00000000000000000001.parquet"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with EmulatorServer(tmp_path / "zone", tmp_path / "tables") as server:
        yield Client(server)


def test_a_file_has_no_bytes_until_they_are_flushed(client: Client, tmp_path: Path) -> None:
    """O-07: a final name opened between create and flush is 0 bytes."""
    created = client.create(FINAL)
    assert client.append(FINAL, b"abc").status == 202
    assert (client.read(FINAL).body, client.head(FINAL).headers["Content-Length"]) == (b"", "0")
    assert (tmp_path / "zone" / FINAL).read_bytes() == b""
    flushed = client.flush(FINAL, 3)
    assert (client.read(FINAL).body, (tmp_path / "zone" / FINAL).read_bytes()) == (b"abc", b"abc")
    assert len({created.etag, flushed.etag}) == 2
    assert client.head(FINAL).etag == flushed.etag


def test_appending_alone_makes_no_file(client: Client) -> None:
    """O-07: without a create there is nothing to append to."""
    assert (client.append(FINAL, b"abc").status, client.flush(FINAL, 3).code) == (404, "PathNotFound")


def test_a_flush_needs_all_bytes_up_to_its_position(client: Client) -> None:
    client.create(FINAL)
    client.append(FINAL, b"ab", 0)
    client.append(FINAL, b"ef", 4)
    assert (client.flush(FINAL, 6).status, client.flush(FINAL, 6).code) == (400, "InvalidFlushPosition")
    client.append(FINAL, b"cd", 2)
    assert (client.flush(FINAL, 6).status, client.read(FINAL).body) == (200, b"abcdef")
    client.append(FINAL, b"gh", 6)
    assert (client.flush(FINAL, 8).status, client.read(FINAL).body) == (200, b"abcdefgh")
    assert client.flush(FINAL, 7).code == "InvalidFlushPosition"


def test_create_and_flush_need_a_length_of_zero(client: Client) -> None:
    """O-09: also when the header is missing."""
    assert client.send("PUT", FINAL, "resource=file", b"x").code == "ContentLengthMustBeZero"
    assert client.read(FINAL).status == 404
    client.create(FINAL)
    assert client.send("PATCH", FINAL, "action=flush&position=0", b"x").code == "ContentLengthMustBeZero"
    connection = http.client.HTTPConnection(urlsplit(client.server.url).netloc, timeout=300)
    connection.putrequest("PUT", client.path("other") + "?resource=file")
    connection.putheader("Authorization", f"Bearer {client.tokens['https://storage.azure.com']}")
    connection.endheaders()
    assert connection.getresponse().getheader("x-ms-error-code") == "ContentLengthMustBeZero"
    connection.close()


def test_create_overwrites_unless_reported_otherwise(client: Client) -> None:
    """A second create with ``If-None-Match: *`` is refused and changes nothing."""
    etag = client.upload(FINAL, b"abc")
    refused = client.create(FINAL, If_None_Match="*")
    assert (refused.status, refused.code) == (409, "PathAlreadyExists")
    assert (client.read(FINAL).body, client.head(FINAL).etag) == (b"abc", etag)
    assert client.create(FINAL, If_Match='"0x0"').code == "ConditionNotMet"
    anew = client.create(FINAL)
    assert (anew.status, client.read(FINAL).body) == (201, b"")
    assert anew.etag != etag


def test_what_was_appended_dies_with_the_file(client: Client, tmp_path: Path) -> None:
    client.create(FINAL)
    client.append(FINAL, b"old")
    client.create(FINAL)
    assert client.flush(FINAL, 3).code == "InvalidFlushPosition"
    client.append(FINAL, b"new")
    client.delete(FINAL)
    client.create(FINAL)
    assert client.flush(FINAL, 3).code == "InvalidFlushPosition"
    assert list((tmp_path / "zone" / HIDDEN).iterdir()) == []


def test_no_etag_comes_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each create and each flush gives a new one, also within one tick of a clock, whatever the content."""
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    store, place, seen = PathStore(), ItemPath(tmp_path / "file", tmp_path, writable=True), []
    for _ in range(20):
        seen.append(store.create_file(place, Conditions()))
        store.append(place, 0, b"same")
        seen.append(store.flush(place, 4, Conditions()))
        seen.append(store.flush(place, 4, Conditions()))
    assert len({entry.etag for entry in seen}) == 60
    # Inode numbers are handed out again, so the times alone have to tell contents apart.
    assert [entry.modified for entry in seen] == [10**18 + after for after in range(60)]


def test_a_rename_overwrites_by_default(client: Client) -> None:
    """O-04."""
    etag = client.upload("t/_a", b"new")
    client.upload("t/b", b"old")
    assert client.rename("t/_a", "t/b").status == 201
    assert (client.read("t/b").body, client.head("t/b").etag, client.head("t/_a").status) == (b"new", etag, 404)


def test_a_rename_refuses_an_existing_target_if_reported_so(client: Client) -> None:
    """O-05: ``If-None-Match: *``."""
    client.upload("t/_a", b"new")
    client.upload("t/b", b"old")
    refused = client.rename("t/_a", "t/b", If_None_Match="*")
    assert (refused.status, refused.code) == (409, "PathAlreadyExists")
    assert (client.read("t/b").body, client.read("t/_a").body) == (b"old", b"new")
    assert client.rename("t/_a", "t/c", If_None_Match="*").status == 201
    again = client.rename("t/_a", "t/d", If_None_Match="*")
    assert (again.status, again.code) == (404, "SourcePathNotFound")


def test_a_rename_may_be_bound_to_the_source_it_means(client: Client) -> None:
    """O-05: ``x-ms-source-if-match``."""
    stale = client.upload("t/_a", b"one")
    fresh = client.upload("t/_a", b"two")
    refused = client.rename("t/_a", "t/b", x_ms_source_if_match=stale)
    assert (refused.status, refused.code, client.head("t/b").status) == (412, "SourceConditionNotMet", 404)
    assert client.rename("t/_a", "t/b", x_ms_source_if_match=fresh).status == 201
    assert client.head("t/b").etag == fresh


def test_a_folder_moves_with_all_it_holds(client: Client) -> None:
    client.upload("t/_x/a", b"a")
    client.upload("t/_x/sub/b", b"b")
    client.upload("t/full/c", b"c")
    assert client.rename("t/_x", "t/full").code == "DirectoryNotEmpty"
    assert client.rename("t/_x", "none/y").code == "RenameDestinationParentPathNotFound"
    assert client.rename("t/_x", "t/_x/sub/y").code == "InvalidRenameSourcePath"
    assert client.rename("t/_x", "t/full/c").code == "InvalidSourceOrDestinationResourceType"
    identity = client.head("t/_x").etag
    assert client.rename("t/_x", "t/_y", If_None_Match="*").status == 201
    assert client.names("t") == ["t/_y", "t/_y/a", "t/_y/sub", "t/_y/sub/b", "t/full", "t/full/c"]
    assert client.head("t/_y").etag == identity


def test_a_recreated_folder_has_another_etag_and_a_filled_one_the_same(client: Client) -> None:
    """F-72: the service tells lives of a folder apart by ETag."""
    first = client.create("t", "directory").etag
    client.upload("t/a", b"a")
    assert client.create("t", "directory").etag == first
    assert client.create("t", "directory", If_None_Match="*").code == "PathAlreadyExists"
    assert client.delete("t").status == 200
    assert client.create("t", "directory").etag != first


def test_deleting_is_recursive_only_if_reported_so(client: Client) -> None:
    client.upload("t/a", b"a")
    assert client.delete("t", "recursive=false").code == "DirectoryNotEmpty"
    assert client.delete("t/a", "").status == 200
    assert client.delete("t/a", "").code == "PathNotFound"
    assert client.delete("t", "recursive=false").status == 200
    assert client.head("t").status == 404


def test_reading_by_range_and_condition(client: Client) -> None:
    etag = client.upload("t/a", b"0123456789")
    part = client.read("t/a", Range="bytes=2-4", If_Match=etag)
    assert (part.status, part.body, part.headers["Content-Range"]) == (206, b"234", "bytes 2-4/10")
    assert client.read("t/a", Range="bytes=8-").body == b"89"
    assert client.read("t/a", x_ms_range="bytes=8-50").body == b"89"
    assert client.read("t/a", Range="bytes=10-").code == "InvalidRange"
    assert client.read("t/a", If_Match='"0x0"').status == 412
    assert client.read("t/a", If_None_Match=etag).status == 304
    assert client.send("HEAD", "t/a", "action=getStatus").headers["Content-Length"] == "10"


@pytest.mark.parametrize("name", ["../x", "a/../../x", "_$emulator/x", "a\\b"])
def test_no_path_leaves_the_zone(client: Client, name: str, tmp_path: Path) -> None:
    answer = client.create(name)
    assert (answer.status, answer.code) == (400, "InvalidUri")
    assert not (tmp_path / "x").exists()


def test_of_many_renames_to_one_name_one_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """O-05, side by side: the target is made once, every other source stays."""
    check = PathStore._check_target

    def check_slowly(store: PathStore, target: Path, conditions: Conditions) -> None:
        check(store, target, conditions)
        time.sleep(0.01)  # time enough for another request between check and rename, if it were let in

    monkeypatch.setattr(PathStore, "_check_target", check_slowly)
    store, refused = PathStore(), []
    sources = [ItemPath(tmp_path / f"_{n}", tmp_path, writable=True) for n in range(5)]
    target = ItemPath(tmp_path / "final", tmp_path, writable=True)

    def publish(source: ItemPath) -> None:
        try:
            store.rename(source, target, Conditions(), Conditions(if_none_match="*"))
        except ApiError as error:
            refused.append(error.code)

    for source in sources:
        store.create_file(source, Conditions())
    threads = [threading.Thread(target=publish, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == ["PathAlreadyExists"] * 4
    assert len(store.children(ItemPath(tmp_path, tmp_path, writable=True), recursive=False)) == 5
