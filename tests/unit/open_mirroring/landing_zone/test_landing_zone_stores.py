"""The contract of the store, held alike by the local folder and by OneLake over the wire."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.local_store import LocalStore
from open_mirroring.landing_zone.onelake_store import OneLakeStore
from open_mirroring.landing_zone.store import Content, LandingZoneStore, ObjectInfo, RenameOutcome
from tests.onelake import CLIENTS, emulator, zone_of

STAGED = "dbo.schema/orders/_stage-1/1.abc"
FINAL = "dbo.schema/orders/00000000000000000001.parquet"
LARGE = bytes(range(251)) * 52_000
"""More than three blocks of an upload."""


@pytest.fixture(params=["local", "onelake"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LandingZoneStore]:
    if request.param == "local":
        yield LocalStore(tmp_path / "zone")
        return
    with emulator(tmp_path, clients=CLIENTS) as server:
        yield OneLakeStore(zone_of(server))


def created(store: LandingZoneStore, path: str, content: bytes | Path = b"rows") -> ObjectInfo:
    info = store.create(path, content)
    assert info is not None
    return info


def data(store: LandingZoneStore, path: str) -> bytes | None:
    found = store.read(path)
    return None if found is None else found.data


@pytest.mark.parametrize("content", [b"", b"rows", LARGE], ids=["empty", "small", "large"])
@pytest.mark.parametrize("as_file", [False, True])
def test_create_is_complete_with_the_etag_that_everybody_sees(
    store: LandingZoneStore, tmp_path: Path, content: bytes, as_file: bool
) -> None:
    """O-07, O-09: create, append and flush; the ETag is the one after the last of them."""
    local = tmp_path / "built"
    local.write_bytes(content)
    info = created(store, STAGED, local if as_file else content)
    assert (info.path, info.size) == (STAGED, len(content))
    assert store.stat(STAGED) == info
    assert list(store.list("dbo.schema/orders")) == [info]
    assert store.read(STAGED) == Content(content, info.etag)
    with store.fetch(STAGED) as fetched:
        assert fetched is not None and fetched.read_bytes() == content
    assert local.exists()


def test_create_takes_no_name_that_is_taken(store: LandingZoneStore) -> None:
    first = created(store, STAGED, b"one")
    assert store.create(STAGED, b"two") is None
    assert store.read(STAGED) == Content(b"one", first.etag)


def test_what_is_not_there_is_none(store: LandingZoneStore) -> None:
    assert store.read("no/thing") is None
    assert store.stat("no/thing") is None
    assert list(store.list("no")) == []
    store.delete("no/thing")
    with store.fetch("no/thing") as fetched:
        assert fetched is None
    created(store, "folder/object")
    assert store.stat("folder") is None
    store.delete("folder/object")
    assert store.stat("folder/object") is None
    assert list(store.list("")) == []


def test_an_object_created_again_has_another_etag(store: LandingZoneStore) -> None:
    """O-05: even at once, where a filesystem gives the same inode and coarse time again."""
    etags, times = set(), 100 if isinstance(store, LocalStore) else 10
    for _ in range(times):
        etags.add(created(store, "t/x").etag)
        store.delete("t/x")
    assert len(etags) == times


def test_rename_consumes_its_source_and_keeps_the_etag_o_04(store: LandingZoneStore) -> None:
    staged = created(store, STAGED)
    assert store.rename(STAGED, FINAL, source_etag=staged.etag) is RenameOutcome.DONE
    assert store.stat(STAGED) is None
    assert store.stat(FINAL) == ObjectInfo(FINAL, staged.size, staged.etag)
    assert store.rename(STAGED, FINAL, source_etag=staged.etag) is RenameOutcome.REFUSED


@pytest.mark.parametrize("by", ["guid", "name"])
def test_a_rename_names_both_ends_by_full_path_o_06(tmp_path: Path, by: str) -> None:
    """O-01, O-06: workspace and item in both, neither in the address of the account."""
    with emulator(tmp_path, clients=CLIENTS, database="shop") as server:
        named = {} if by == "guid" else {"workspace": "emulator", "item": "shop.MirroredDatabase"}
        store = OneLakeStore(replace(zone_of(server), **named))
        staged = created(store, STAGED)
        assert store.rename(STAGED, FINAL, source_etag=staged.etag) is RenameOutcome.DONE
        assert list(store.list("")) == [staged._replace(path=FINAL)]
        assert (tmp_path / "zone" / FINAL).read_bytes() == b"rows"


def test_rename_never_overwrites_o_05(store: LandingZoneStore) -> None:
    created(store, FINAL, b"published")
    staged = created(store, STAGED, b"late")
    assert store.rename(STAGED, FINAL, source_etag=staged.etag) is RenameOutcome.REFUSED
    assert (data(store, FINAL), data(store, STAGED)) == (b"published", b"late")


def test_rename_is_bound_to_the_sealed_object_o_05(store: LandingZoneStore) -> None:
    """A revived or replaced source is another object, although its name and bytes are the same."""
    sealed = created(store, STAGED)
    store.delete(STAGED)
    assert store.rename(STAGED, FINAL, source_etag=sealed.etag) is RenameOutcome.REFUSED
    created(store, STAGED)
    assert store.rename(STAGED, FINAL, source_etag=sealed.etag) is RenameOutcome.REFUSED
    assert store.stat(FINAL) is None


def test_of_racing_renames_exactly_one_is_done(store: LandingZoneStore) -> None:
    """I8, I20, O-05: many late requests for one source, and many sources for one number: one winner each."""
    writers = 8
    for turn in range(25 if isinstance(store, LocalStore) else 5):
        target = f"t/{turn + 1:020d}.parquet"
        shared = created(store, f"t/_stage-1/{turn}.shared")
        own = [created(store, f"t/_stage-1/{turn}.own-{n}", b"%d" % n) for n in range(writers)]
        requests = [*own, *[shared] * writers]
        barrier = threading.Barrier(len(requests))

        def send(source: ObjectInfo, barrier: threading.Barrier = barrier, target: str = target) -> RenameOutcome:
            barrier.wait()
            return store.rename(source.path, target, source_etag=source.etag)

        with ThreadPoolExecutor(len(requests)) as pool:
            answers = list(pool.map(send, requests))
        assert answers.count(RenameOutcome.DONE) == 1
        winner = requests[answers.index(RenameOutcome.DONE)]
        assert store.stat(target) == winner._replace(path=target)
        left = {info.path for info in store.list("t/_stage-1") if info.path.startswith(f"t/_stage-1/{turn}.")}
        assert left == {info.path for info in requests} - {winner.path}


def test_a_listing_is_of_the_folder_with_all_below_it(store: LandingZoneStore) -> None:
    names = ["dbo.schema/a b/1", "dbo.schema/a b/_stage-1/2", "dbo.schema/größe/3", "dbo.schemax/4", "5"]
    infos = {name: created(store, name, name.encode()) for name in names}
    assert {info.path: info for info in store.list("")} == infos
    assert {info.path for info in store.list("dbo.schema")} == set(names[:3])
    assert {info.path for info in store.list("dbo.schema/a b")} == set(names[:2])


@pytest.mark.parametrize(
    "path", ["", "/x", "a//b", "../x", "a/../../x", "a/../b", "./a", "a/", "a/.", "a\\b", "a\nb", "a\0b", "a\x7f"]
)
def test_no_verb_leaves_the_zone(store: LandingZoneStore, path: str) -> None:
    for verb in (
        lambda: store.create(path, b"x"),
        lambda: store.read(path),
        lambda: store.fetch(path).__enter__(),
        lambda: store.stat(path),
        lambda: store.delete(path),
        lambda: store.rename(path, "a/b", source_etag="e"),
        lambda: list(store.list(path or "..")),  # "" lists the whole zone
    ):
        with pytest.raises(TerminalError, match=r"FOREIGN_ITEM: .*Next step: "):
            verb()
    source = created(store, "source")
    with pytest.raises(TerminalError, match="FOREIGN_ITEM"):
        store.rename("source", path, source_etag=source.etag)
    assert store.stat("source") == source
