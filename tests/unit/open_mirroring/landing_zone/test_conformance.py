"""The probe of a store: it finds nothing where nothing is wrong, and every deviation that the protocol rests on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import pytest

from fabric_emulator.web.emulator_server import EmulatorServer
from fabric_emulator.web.faults import Fault
from open_mirroring.errors import TransientError
from open_mirroring.landing_zone.conformance import deviations
from open_mirroring.landing_zone.onelake_store import OneLakeStore
from open_mirroring.landing_zone.store import ObjectInfo, RenameOutcome
from tests.onelake import CLIENTS, emulator, zone_of


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmulatorServer]:
    with emulator(tmp_path, clients=CLIENTS) as server:
        yield server


def test_nothing_is_found_and_nothing_is_left(server: EmulatorServer, tmp_path: Path) -> None:
    """O-03 to O-05, F-05: everything happens in the scratch folder, which the service reads nothing from."""
    assert deviations(OneLakeStore(zone_of(server))) == []
    assert [path for path in (tmp_path / "zone").rglob("*") if path.is_file()] == []
    assert server.service.poll() == []


class Overwrites(OneLakeStore):
    """A rename that takes no notice of what is there (O-04)."""

    def rename(self, source: str, target: str, *, source_etag: str) -> RenameOutcome:
        if self.stat(source) is not None:
            self.delete(target)
        return super().rename(source, target, source_etag=source_etag)


class Unbound(OneLakeStore):
    """A rename that takes any source."""

    def rename(self, source: str, target: str, *, source_etag: str) -> RenameOutcome:
        found = self.stat(source)
        return super().rename(source, target, source_etag=found.etag if found else source_etag)


class Copies(OneLakeStore):
    """A rename that leaves its source."""

    def rename(self, source: str, target: str, *, source_etag: str) -> RenameOutcome:
        content = self.read(source)
        answer = super().rename(source, target, source_etag=source_etag)
        if content is not None and answer is RenameOutcome.DONE:
            self.create(source, content.data)
        return answer


class Retakes(OneLakeStore):
    """A creation that replaces."""

    def create(self, path: str, content: bytes | Path) -> ObjectInfo | None:
        self.delete(path)
        return super().create(path, content)


class Stale(OneLakeStore):
    """A listing that comes late."""

    def list(self, folder: str, skipped: Collection[str] = ()) -> Iterable[ObjectInfo]:
        return list(super().list(folder, skipped))[:-1]


class SameTag(OneLakeStore):
    """ETags that say nothing of the content."""

    def create(self, path: str, content: bytes | Path) -> ObjectInfo | None:
        found = super().create(path, content)
        return None if found is None else found._replace(etag="0x1")


class Revives(OneLakeStore):
    """A deletion of a folder that comes late."""

    def delete_folder(self, folder: str) -> None:
        if not folder.endswith("/table"):
            super().delete_folder(folder)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Overwrites, "a rename onto an object is refused"),
        (Unbound, "a rename of another object than the one named is refused"),
        (Copies, "a rename consumes its source"),
        (Retakes, "a second creation under one name is refused (If-None-Match)"),
        (Stale, "an object is listed as soon as it is created"),
        (SameTag, "a re-created object has another ETag"),
        (Revives, "a rename out of a deleted folder is refused"),
    ],
)
def test_every_deviation_is_named(server: EmulatorServer, kind: Callable[..., OneLakeStore], expected: str) -> None:
    """O-05: what no page promises is tried at the place itself."""
    assert expected in {deviation.expected for deviation in deviations(kind(zone_of(server)))}


@pytest.mark.parametrize("header", ["if-none-match", "x-ms-source-if-match"])
def test_an_ignored_condition_is_a_deviation_o_03(server: EmulatorServer, header: str) -> None:
    server.faults.add(Fault("rejected_headers", times=None, headers=(header,)))
    found = deviations(OneLakeStore(zone_of(server)))
    assert any(header in deviation.found for deviation in found)


def test_without_an_answer_nothing_is_proved(server: EmulatorServer) -> None:
    server.faults.add(Fault("unavailable_before", "create", times=None))
    with pytest.raises(TransientError):
        deviations(OneLakeStore(zone_of(server)))
