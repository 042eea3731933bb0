"""The publish protocol's requests to a store: nothing torn, nothing guessed, content and ETag of one object."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from open_mirroring.errors import TransientError
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.local_store import LocalStore
from open_mirroring.landing_zone.schema import TableSchema
from open_mirroring.landing_zone.store import Content, ObjectInfo, RenameOutcome
from open_mirroring.ledger.reading import TableState
from open_mirroring.protocols import publishing as protocol
from spark_jobs.publish.zone_ports import ZonePorts

ID, OTHER_ID = "11111111-0000-0000-0000-000000000000", "22222222-0000-0000-0000-000000000000"
ROW = protocol.TableRow(1, 1, ID, False, 0, 0)
NEW = dataclasses.replace(ROW, intent=protocol.Intent(1, 0, protocol.Work("changes", 1)))
STAGED = protocol.Staged((protocol.StagedFile("a", "e", "d"),))
TABLE = TableState("id", "dbo.t", "dbo.schema/t", ("id",), ROW, TableSchema(()))
MARKER, METADATA = "dbo.schema/t/_incarnation.json", "dbo.schema/t/_metadata.json"
STAGING = "dbo.schema/t/_stage-1"
CREATIONS = {MARKER: protocol.CreateMarker(ID), METADATA: protocol.CreateMetadata()}


class ShowsPartialObjects(LocalStore):
    """A store as its interface allows it: an object is seen under its name before all its bytes are there."""

    dies = True

    def create(self, path: str, content: bytes | Path) -> ObjectInfo | None:
        assert isinstance(content, bytes)
        if not self.dies:
            return super().create(path, content)
        self.dies = False
        super().create(path, content[: len(content) // 2])
        raise TransientError("UNREACHABLE", "the connection broke in the middle of the upload")


class Disturbed(LocalStore):
    """A store in which something happens right after a read."""

    def __init__(self, root: Path, happens: Callable[[LocalStore], None], times: int) -> None:
        super().__init__(root)
        self._happens, self._times = happens, times

    def read(self, path: str) -> Content | None:
        content = super().read(path)
        if self._times:
            self._times -= 1
            self._happens(self)
        return content


def names(store: LocalStore) -> set[str]:
    return {info.path for info in store.list("")}


def put(store: LocalStore, path: str, content: bytes = b"x") -> ObjectInfo:
    info = store.create(path, content)
    assert info is not None
    return info


def replaced(incarnation: str) -> Callable[[LocalStore], None]:
    def replace(store: LocalStore) -> None:
        store.delete(MARKER)
        put(store, MARKER, layout.incarnation_document(incarnation))

    return replace


# --- marker and metadata --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", CREATIONS)
def test_a_file_is_created_once_and_leaves_nothing_else(tmp_path: Path, path: str) -> None:
    """I12: the second creation finds the first, and takes its own attempt away."""
    store = LocalStore(tmp_path)
    ports = ZonePorts(store)
    assert ports.answer(TABLE, CREATIONS[path]) == protocol.Answered()
    first = store.stat(path)
    assert ports.answer(TABLE, CREATIONS[path]) == protocol.Answered()
    assert first is not None
    assert store.stat(path) == first
    assert names(store) == {path}


@pytest.mark.parametrize("path", CREATIONS)
def test_a_creation_that_breaks_off_is_never_taken_for_complete(tmp_path: Path, path: str) -> None:
    """F-10, F-38: on a store that shows half an object the outcome is unknown; the repetition is whole."""
    store = ShowsPartialObjects(tmp_path)
    ports = ZonePorts(store)
    assert ports.answer(TABLE, CREATIONS[path]) == protocol.Unknown()
    assert store.stat(path) is None
    (left,) = names(store)
    assert left.startswith(f"{STAGING}/0.")
    assert ports.answer(TABLE, CREATIONS[path]) == protocol.Answered()
    whole = {MARKER: layout.incarnation_document(ID), METADATA: layout.metadata_document(("id",))}
    found = store.read(path)
    assert found is not None and found.data == whole[path]
    ports.answer(TABLE, protocol.Sweep(1, 0))
    assert names(store) == {path}, "what broke off is swept with the next confirmation"


def test_metadata_are_complete_and_read_back_before_anything_is_published(tmp_path: Path) -> None:
    """F-04, F-10, F-92: a new folder is marked and described behind its first staged files, before they are sealed."""
    store = LocalStore(tmp_path)
    ports = ZonePorts(store)
    state = protocol.step(protocol.start(), protocol.Owned(NEW))
    assert isinstance(state.request, protocol.Stage)
    nothing = protocol.step(state, protocol.Staged(()))
    assert nothing.request == protocol.Seal(NEW.version, ()), "nothing is written for a table without a file"
    state = protocol.step(state, STAGED)
    asked: list[type[object]] = []
    while not isinstance(state.request, protocol.Establish):
        asked.append(type(state.request))
        state = protocol.step(state, ports.answer(TABLE, state.request))
    assert asked == [protocol.CreateMarker, protocol.ReadMarker, protocol.CreateMetadata, protocol.ReadMetadata]
    assert store.read(METADATA).data == layout.metadata_document(("id",))
    assert names(store) == {MARKER, METADATA}
    refused = protocol.step(protocol.State(protocol.ReadMetadata(), row=ROW), protocol.Metadata(False))
    assert isinstance(refused.request, protocol.Stop)
    assert refused.request.code == protocol.METADATA_CHANGED


def test_the_marker_is_read_with_the_etag_of_its_object(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    ports = ZonePorts(store)
    assert ports.answer(TABLE, protocol.ReadMarker()) == protocol.Marker(None, "")
    ports.answer(TABLE, protocol.CreateMarker(ID))
    first = ports.answer(TABLE, protocol.ReadMarker())
    replaced(ID)(store)
    second = ports.answer(TABLE, protocol.ReadMarker())
    assert isinstance(first, protocol.Marker)
    assert isinstance(second, protocol.Marker)
    assert first.incarnation == second.incarnation == ID
    assert first.etag != second.etag, "our id, but another object"
    store.delete(MARKER)
    torn = put(store, MARKER, b'{"incarn')
    assert ports.answer(TABLE, protocol.ReadMarker()) == protocol.Marker(None, torn.etag)


def test_a_marker_that_changes_while_it_is_read_is_one_of_the_two(tmp_path: Path) -> None:
    """An id is never answered with the ETag of another object."""
    put(LocalStore(tmp_path), MARKER, layout.incarnation_document(ID))
    before = LocalStore(tmp_path).stat(MARKER)
    store = Disturbed(tmp_path, replaced(OTHER_ID), times=1)
    reply = ZonePorts(store).answer(TABLE, protocol.ReadMarker())
    assert before is not None
    assert reply == protocol.Marker(ID, before.etag)
    now = store.stat(MARKER)
    assert now is not None
    assert ZonePorts(store).answer(TABLE, protocol.ReadMarker()) == protocol.Marker(OTHER_ID, now.etag)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"keyColumns": "id"}', b"\xff\xfe", b'{"keyColumns": ["x"]}'])
def test_metadata_that_is_not_ours_stops_this_table_only(tmp_path: Path, content: bytes) -> None:
    """I23: a corrupt file is an answer of this table, no error of the run."""
    store = LocalStore(tmp_path)
    put(store, METADATA, content)
    assert ZonePorts(store).answer(TABLE, protocol.ReadMetadata()) == protocol.Metadata(False)


def test_a_late_creation_in_a_folder_made_again_gives_another_marker(tmp_path: Path) -> None:
    """I12: the machine stops where the id is right and the object is not."""
    store = LocalStore(tmp_path)
    ports = ZonePorts(store)
    state = protocol.step(protocol.step(protocol.start(), protocol.Owned(NEW)), STAGED)
    while not isinstance(state.request, protocol.Establish):
        state = protocol.step(state, ports.answer(TABLE, state.request))
    bound = state.request.marker_etag
    assert bound == ports.answer(TABLE, protocol.ReadMarker()).etag  # type: ignore[union-attr]
    row = dataclasses.replace(NEW, version=5, established=True, marker_etag=bound)
    for path in names(store):
        store.delete(path)
    ports.answer(TABLE, protocol.CreateMarker(ID))
    state = protocol.step(protocol.step(protocol.start(), protocol.Owned(row)), protocol.Staged(()))
    assert state.request == protocol.ReadMarker()
    state = protocol.step(state, ports.answer(TABLE, state.request))
    assert isinstance(state.request, protocol.Stop)
    assert state.request.code == protocol.INCARNATION_CHANGED


# --- staging --------------------------------------------------------------------------------------------------


def test_sweeping_takes_confirmed_objects_and_what_crashes_left_of_them(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    swept = [
        f"{STAGING}/{1:020d}.a.00000000.0000",
        f"{STAGING}/{2:020d}.a.00000000.0000.partial-0123456789abcdef",
        f"{STAGING}/0.abc_incarnation.json",
        f"{STAGING}/0.abc_metadata.json.partial-0123456789abcdef",
    ]
    kept = [
        f"{STAGING}/{3:020d}.a.00000000.0000",
        f"{STAGING}/{3:020d}.a.00000000.0000.partial-0123456789abcdef",
        f"{STAGING}/²",
        f"{STAGING}/².a",
        f"{STAGING}/notes.txt",
        f"dbo.schema/t/_stage-2/{1:020d}.a.00000000.0000",
        f"dbo.schema/t/{layout.file_name(1)}",
        MARKER,
    ]
    for path in (*swept, *kept):
        put(store, path)
    assert ZonePorts(store).answer(TABLE, protocol.Sweep(1, 2)) == protocol.Answered()
    assert names(store) == set(kept)


def test_what_the_store_leaves_of_a_crash_begins_with_the_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise sweeping would never find it."""
    store = LocalStore(tmp_path)
    path = f"{STAGING}/{1:020d}.a.00000000.0000"
    monkeypatch.setattr("open_mirroring.landing_zone.local_store.rename_no_replace", _die)
    monkeypatch.setattr("open_mirroring.landing_zone.local_store.remove", lambda local: None)
    with pytest.raises(KeyboardInterrupt):
        store.create(path, b"x")
    monkeypatch.undo()
    (left,) = names(store)
    assert left != path
    ZonePorts(store).answer(TABLE, protocol.Sweep(1, 1))
    assert names(store) == set()


def _die(source: str, target: str) -> bool:
    raise KeyboardInterrupt


def test_a_rename_names_the_sealed_object_only(tmp_path: Path) -> None:
    """I9, F-37 to F-39: the ETag is the condition, and the number must be free."""
    store = LocalStore(tmp_path)
    ports = ZonePorts(store)
    info = put(store, f"{STAGING}/1.a")
    sealed = protocol.StagedFile(info.path, info.etag, "d")
    assert ports.answer(TABLE, protocol.Rename(1, protocol.StagedFile(info.path, "e", "d"))) == protocol.RenameRefused()
    assert ports.answer(TABLE, protocol.Rename(1, sealed)) == protocol.Renamed()
    assert ports.answer(TABLE, protocol.Rename(2, sealed)) == protocol.RenameRefused()
    assert names(store) == {f"dbo.schema/t/{layout.file_name(1)}"}


def test_a_rename_without_an_answer_is_unknown(tmp_path: Path) -> None:
    """O-08: it may have happened, may happen later, or never."""

    class Silent(LocalStore):
        def rename(self, source: str, target: str, *, source_etag: str) -> RenameOutcome:
            raise TransientError("UNREACHABLE", "no answer")

    request = protocol.Rename(1, protocol.StagedFile(f"{STAGING}/1.a", "e", "d"))
    assert ZonePorts(Silent(tmp_path)).answer(TABLE, request) == protocol.Unknown()
