"""The emulator killed at every step: a file is applied once, in order, and its bookkeeping is not lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabric_emulator import EmulatorError, MirroringService, delta_table, service, state
from tests.unit.testing.emulator_zone import Zone, error_of, items, names, put, recreate


class Killed(BaseException):
    """Nothing in the emulator may catch this."""


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    return Zone(tmp_path)


def _killing(patch: pytest.MonkeyPatch, *, after: Callable[..., Any] | None = None) -> Callable[..., Any]:
    def die(*args: Any, **options: Any) -> None:
        if after is not None:
            after(*args, **options)
        # A killed process does not save on its way out.
        patch.setattr(state.StateFile, "save", lambda *_: None)
        raise Killed

    return die


def _poll_and_die(service: MirroringService, patch: pytest.MonkeyPatch, place: Any, name: str, **how: Any) -> None:
    with patch.context() as context, pytest.raises(Killed):
        context.setattr(place, name, _killing(context, **how))
        service.poll()


# Where a poll can die, and how it is made to.
_DEATHS = {
    "before the Delta commit": (delta_table, "write_deltalake", False),
    "after the Delta commit": (delta_table, "write_deltalake", True),
    "before the state is saved": (state.StateFile, "save", False),
    "before files are moved": (service, "tidy", False),
    "after files are moved": (service, "tidy", True),
}


@pytest.mark.parametrize("successor", ["restarted", "beside"])
@pytest.mark.parametrize("death", _DEATHS)
def test_the_next_service_applies_nothing_twice_and_misses_nothing(
    zone: Zone, monkeypatch: pytest.MonkeyPatch, death: str, successor: str
) -> None:
    """Marker 0 shows every second application (F-51); numbers, metrics and moved files are as without the crash."""
    place, name, afterwards = _DEATHS[death]
    folder = zone.folder()
    beside = zone.service()
    beside.poll()
    size = 0
    for number in (1, 2, 3):
        size += put(folder, number, items([(0, number, "x"), (0, number, "x")])).stat().st_size
    for _ in range(3):
        _poll_and_die(zone.service(), monkeypatch, place, name, after=getattr(place, name) if afterwards else None)
    service = beside if successor == "beside" else zone.service()
    service.poll()
    assert zone.rows() == sorted([(number, "x") for number in (1, 2, 3)] * 2)
    assert zone.version() == 2, "one commit for each file"
    assert service.status()["dbo.schema/items"]["metrics"]["processedRows"] == 6
    assert service.status()["dbo.schema/items"]["metrics"]["processedBytes"] == size
    assert (names(folder), names(folder / "_FilesReadyToDelete")) == ([3], [1, 2])


def test_a_lost_state_is_found_again_in_the_delta_table(zone: Zone) -> None:
    folder = zone.folder()
    for number in (1, 2):
        put(folder, number, items([(0, number, "x")]))
    zone.service().poll()
    before = zone.service().status()
    shutil.rmtree(zone.tables / "_state")
    service = zone.service()
    assert service.poll() == []
    assert service.status() == before
    put(folder, 3, items([(0, 3, "x")]))
    assert [done.number for done in service.poll()] == [3]
    assert len(zone.rows()) == 3


@pytest.mark.parametrize("name", ["rmtree", "write_deltalake"])
def test_a_crash_while_a_recreated_table_is_rebuilt(zone: Zone, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """F-72: neither rows of the old life nor rows twice, and no remains of the dropped table."""
    folder = zone.folder()
    for number in (1, 2):
        put(folder, number, items([(0, number, "old")]))
    zone.service().poll()
    put(recreate(zone, folder), 1, items([(0, 1, "new")]))
    if name == "rmtree":
        _poll_and_die(zone.service(), monkeypatch, delta_table.shutil, "rmtree")
    else:
        _poll_and_die(zone.service(), monkeypatch, delta_table, name, after=delta_table.write_deltalake)
    zone.service().poll()
    assert zone.rows() == [(1, "new")]
    assert [path.name for path in (zone.tables / "dbo").iterdir()] == ["items"]


def test_a_crash_while_the_database_starts_again_leaves_no_old_table(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-76: the tables of the life before are strangers, also when nobody could drop them."""
    put(zone.folder(), 1, items([(0, 1, "x")]))
    service_ = zone.service()
    service_.poll()
    service_.stop()
    with monkeypatch.context() as context, pytest.raises(Killed):
        context.setattr(service, "drop", _killing(context))
        service_.start()
    assert [done.number for done in zone.service().poll()] == [1]
    assert zone.rows() == [(1, "x")]


def test_a_folder_recreated_while_its_file_is_read_is_not_mixed_up(zone: Zone, monkeypatch: pytest.MonkeyPatch) -> None:
    """F-72: what was read of one life is not applied to the other, and nothing of the new one is moved away."""
    folder = zone.folder()
    put(folder, 1, items([(0, 1, "old")]))
    read = Path.read_bytes

    def read_and_recreate(path: Path) -> bytes:
        content = read(path)
        if path.suffix == ".parquet":
            monkeypatch.undo()
            new = recreate(zone, folder)
            for number in (1, 2):
                put(new, number, items([(0, number, "new")]))
        return content

    monkeypatch.setattr(Path, "read_bytes", read_and_recreate)
    service = zone.service()
    assert service.poll() == []
    assert names(folder) == [1, 2]
    assert [done.number for done in service.poll()] == [1, 2]
    assert zone.rows() == [(1, "new"), (2, "new")]


def test_a_folder_recreated_before_its_files_are_moved_keeps_them(zone: Zone, monkeypatch: pytest.MonkeyPatch) -> None:
    """F-72: numbers applied in the old life say nothing about the files of the new one."""
    folder = zone.folder()
    for number in (1, 2, 3):
        put(folder, number, items([(0, number, "old")]))
    tidy = service.tidy

    def recreate_and_tidy(*args: Any) -> None:
        new = recreate(zone, folder)
        for number in (1, 2):
            put(new, number, items([(0, number, "new")]))
        tidy(*args)

    service_ = zone.service()
    with monkeypatch.context() as context:
        context.setattr(service, "tidy", recreate_and_tidy)
        service_.poll()
    assert names(folder) == [1, 2]
    assert [done.number for done in service_.poll()] == [1, 2]
    assert zone.rows() == [(1, "new"), (2, "new")]


def test_a_delta_table_changed_from_outside_is_noticed(zone: Zone) -> None:
    """Nothing is guessed when files are applied that the table does not have."""
    folder = zone.folder()
    put(folder, 1, items([(4, 1, "x")]))
    zone.service().poll()
    shutil.rmtree(zone.tables / "dbo/items")
    service = zone.service()
    assert service.poll() == []
    assert error_of(service) == "MirroredTableLost"


def test_a_state_that_cannot_be_read_is_an_error_with_a_next_step(zone: Zone) -> None:
    service = zone.service()
    service.poll()
    (zone.tables / "_state" / "state.json").write_text('{"tables": [')
    with pytest.raises(EmulatorError) as caught:
        service.poll()
    assert caught.value.code == "STATE_INVALID"
