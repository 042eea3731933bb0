"""The emulator's applied files, clock and monitoring surfaces: F-35, F-36."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabric_emulator import EmulatorError, Settings
from tests.unit.testing.emulator_zone import Zone, items, names, put, recreate

DAY = 86_400


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    return Zone(tmp_path)


def _fill(folder: Path, *numbers: int) -> None:
    for number in numbers:
        put(folder, number, items([(4, number, "x")]))


@pytest.mark.parametrize("name", ["_ProcessedFiles", "_FilesReadyToDelete"])
def test_applied_files_leave_but_the_last_one(zone: Zone, name: str) -> None:
    """F-35, F-36."""
    folder = zone.folder()
    service = zone.service(processed_folder=name)
    _fill(folder, 1)
    service.poll()
    assert names(folder) == [1]
    _fill(folder, 2, 3)
    service.poll()
    assert names(folder) == [3]
    assert names(folder / name) == [1, 2]


def test_files_that_are_not_applied_stay(zone: Zone) -> None:
    """F-35: behind a gap, the last one *applied* stays too; or only the highest number (switch, assumed)."""
    folder = zone.folder()
    _fill(folder, 1, 2, 4)
    zone.service().poll()
    assert names(folder) == [2, 4]
    zone.service(last_kept="highest").poll()
    assert names(folder) == [4]


def test_processed_files_may_lie_at_the_root_of_the_zone(zone: Zone) -> None:
    """F-36 (switch): and a new life of the folder does not meet the files of the old one."""
    folder = zone.folder()
    service = zone.service(processed_at_zone_root=True)
    away = zone.zone / "_FilesReadyToDelete" / "dbo.schema" / "items"
    _fill(folder, 1, 2, 3)
    service.poll()
    assert (names(folder), names(away)) == ([3], [1, 2])
    _fill(recreate(zone, folder), 1, 2)
    service.poll()
    assert (names(folder), names(away)) == ([2], [1])


def test_processed_files_are_purged_after_seven_days_of_the_emulators_clock(zone: Zone) -> None:
    """F-36: counted per file from the day it left; the last file is never purged."""
    folder = zone.folder()
    away = folder / "_FilesReadyToDelete"
    service = zone.service()
    _fill(folder, 1, 2)
    service.poll()
    service.advance_clock(3 * DAY)
    _fill(folder, 3)
    service.poll()
    service.advance_clock(4 * DAY - 1)
    zone.service().poll()
    assert names(away) == [1, 2]
    zone.now += 1
    service.poll()
    assert names(away) == [2]
    service.advance_clock(100 * DAY)
    service.poll()
    assert (names(away), names(folder)) == ([], [3])
    _fill(folder, 4)
    service.poll()
    assert (names(away), names(folder)) == ([3], [4])
    assert len(zone.rows()) == 4


def test_status_has_the_shape_of_the_rest_call_and_metrics_only_grow(zone: Zone) -> None:
    """processedRows counts the rows of files, not of the table (field)."""
    folder = zone.folder()
    service = zone.service()
    service.poll()
    assert service.status() == {
        "dbo.schema/items": {
            "sourceObjectType": "Table",
            "sourceSchemaName": "dbo",
            "sourceTableName": "items",
            "status": "Snapshotting",
            "metrics": {"processedBytes": 0, "processedRows": 0},
        }
    }
    sizes = [put(folder, 1, items([(4, 1, "x")])), put(folder, 2, items([(2, 1, None)]))]
    size = sum(path.stat().st_size for path in sizes)
    service.poll()
    entry = service.status()["dbo.schema/items"]
    assert entry["status"] == "Replicating"
    assert entry["metrics"] == {
        "processedBytes": size,
        "processedRows": 2,
        "lastSyncDateTime": "2027-01-15T08:00:00.000Z",
    }
    service.advance_clock(60)
    put(folder, 3, b"")
    service.poll()
    entry = service.status()["dbo.schema/items"]
    assert entry["status"] == "Failed"
    assert entry["metrics"]["lastSyncDateTime"] == "2027-01-15T08:00:00.000Z"
    assert entry["error"]["errorCode"] == "InvalidParquetFile"
    assert "00000000000000000003.parquet" in entry["error"]["message"]


def test_a_table_is_incremental_from_its_first_marker_on(zone: Zone) -> None:
    """F-58: a load is a snapshot however many files it has; one marker ends that for good."""
    folder = zone.folder()
    for number in (1, 2, 4):
        put(folder, number, items([(number, "x")], marked=False))
    put(folder, 3, items([(4, 3, "x")]))
    put(folder, 5, items([(5, "x")], marked=False))
    seen = []
    for _ in range(4):
        # A new service each time: what it has seen stands in the table.
        service = zone.service(files_per_poll=1)
        service.poll()
        seen.append(service.status()["dbo.schema/items"]["status"])
    assert seen == ["Snapshotting", "Snapshotting", "Replicating", "Replicating"]


@pytest.mark.parametrize(
    "wrong", [{"processed_folder": "_Elsewhere"}, {"purge_after_days": -1.0}, {"files_per_poll": 0}]
)
def test_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(EmulatorError) as caught:
        Settings(**wrong)  # type: ignore[arg-type]
    assert caught.value.code == "SETTING_INVALID"
