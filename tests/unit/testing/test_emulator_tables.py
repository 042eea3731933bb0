"""The emulator's tables and database: dropped, recreated, restarted, paused; keys that never change."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from fabric_emulator import EmulatorError
from tests.unit.testing.emulator_zone import Zone, error_of, items, put, recreate


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    return Zone(tmp_path)


def _keys(folder: Path, *keys: str) -> None:
    (folder / "_metadata.json").write_text(json.dumps({"keyColumns": list(keys)}))


def test_a_folder_that_appears_is_a_table_at_the_next_poll(zone: Zone) -> None:
    """F-04, F-70: nobody registers it, and its neighbours go on."""
    service = zone.service()
    put(zone.folder("dbo.schema/first"), 1, items([(4, 1, "x")]))
    assert [done.table for done in service.poll()] == ["dbo/first"]
    put(zone.folder("new.schema/second"), 1, items([(4, 2, "y")]))
    put(zone.zone / "dbo.schema/first", 2, items([(4, 3, "z")]))
    assert sorted((done.table, done.number) for done in service.poll()) == [("dbo/first", 2), ("new/second", 1)]
    assert zone.rows("new/second") == [(2, "y")]


def test_the_events_file_at_the_root_is_no_table(zone: Zone) -> None:
    """F-06."""
    document = {"partnerName": "p", "sourceInfo": {"sourceType": "SQL", "sourceVersion": "2025"}}
    (zone.zone / "_partnerEvents.json").write_text(json.dumps(document))
    put(zone.folder(), 1, items([(4, 1, "x")]))
    service = zone.service(ignore_folder_without_metadata=False)
    assert len(service.poll()) == 1
    assert list(service.status()) == ["dbo.schema/items"]


def test_what_lies_there_before_the_start_is_taken_from_number_one(zone: Zone) -> None:
    """F-42: folders, metadata and first files of all tables, however many there are by then."""
    service = zone.service()
    service.stop()
    for name in ("items", "other"):
        folder = zone.folder(f"dbo.schema/{name}")
        put(folder, 1, items([(1, "a"), (2, "b")], marked=False))
        put(folder, 2, items([(2, 1, None)]))
    assert service.poll() == []
    service.start()
    assert sorted((done.table, done.number) for done in service.poll()) == [
        (f"dbo/{name}", number) for name in ("items", "other") for number in (1, 2)
    ]
    assert zone.rows("dbo/other") == zone.rows() == [(2, "b")]


def test_a_deleted_folder_drops_its_table(zone: Zone) -> None:
    """F-71: the other one stays."""
    for name in ("items", "other"):
        put(zone.folder(f"dbo.schema/{name}"), 1, items([(4, 1, "x")]))
    service = zone.service()
    service.poll()
    shutil.rmtree(zone.zone / "dbo.schema/items")
    service.poll()
    assert not (zone.tables / "dbo/items").exists()
    assert list(service.status()) == ["dbo.schema/other"]
    assert zone.rows("dbo/other") == [(1, "x")]


@pytest.mark.parametrize("files", [0, 1, 3])
def test_a_recreated_folder_is_a_new_table_from_number_one(zone: Zone, files: int) -> None:
    """F-72: also when the new life has the very files of the old one, and when no poll saw the folder gone."""
    folder = zone.folder()
    first = items([(0, 1, "x")])
    put(folder, 1, first)
    put(folder, 2, items([(0, 2, "old")]))
    service = zone.service()
    service.poll()
    folder = recreate(zone, folder)
    for number in range(1, files + 1):
        put(folder, number, first)
    assert [done.number for done in service.poll()] == list(range(1, files + 1))
    if files:
        assert zone.rows() == [(1, "x")] * files
    else:
        assert not zone.exists()
    assert service.status()["dbo.schema/items"]["metrics"]["processedRows"] == files


def test_a_folder_that_is_deleted_in_part_is_still_the_table(zone: Zone) -> None:
    """F-73: what a failed deletion leaves is no new life; the table is dropped when it is gone, and not before."""
    folder = zone.folder()
    for number in (1, 2):
        put(folder, number, items([(0, number, "x")]))
    service = zone.service()
    service.poll()
    for path in folder.rglob("*"):
        if path.is_file():
            path.unlink()
    put(folder, 1, items([(0, 9, "again")]))
    assert service.poll() == []
    assert zone.rows() == [(1, "x"), (2, "x")]
    shutil.rmtree(folder)
    service.poll()
    assert not zone.exists()


def test_a_renamed_table_is_another_one_with_what_its_folder_holds(zone: Zone) -> None:
    """F-74: nothing of the old one comes with it."""
    old = zone.folder("dbo.schema/old")
    put(old, 1, items([(4, 1, "x"), (4, 2, "y")]))
    service = zone.service()
    service.poll()
    shutil.rmtree(old)
    put(zone.folder("dbo.schema/new"), 1, items([(4, 2, "y")]))
    assert [(done.table, done.number) for done in service.poll()] == [("dbo/new", 1)]
    assert zone.rows("dbo/new") == [(2, "y")]
    assert not zone.exists("dbo/old")


def test_files_put_into_a_living_folder_do_not_make_it_a_new_one(zone: Zone) -> None:
    """F-72: writing below a folder changes its times, not its life."""
    folder = zone.folder()
    service = zone.service()
    for number in (1, 2, 3):
        put(folder, number, items([(0, number, "x")]))
        (folder / f"_stage-{number}").mkdir()
        assert [done.number for done in service.poll()] == [number]
    assert len(zone.rows()) == 3


def test_changed_keys_fail_the_table_until_it_is_recreated(zone: Zone) -> None:
    """F-13, F-89."""
    folder = zone.folder()
    put(folder, 1, items([(4, 1, "x")]))
    service = zone.service()
    service.poll()
    _keys(folder, "name")
    put(folder, 2, items([(4, 2, "y")]))
    assert service.poll() == []
    assert error_of(service) == "KeyColumnsChanged"
    _keys(folder, "id")
    assert service.poll() == []
    folder = recreate(zone, folder, keys=["name"])
    put(folder, 1, items([(4, 1, "x"), (4, 2, "x")]))
    service.poll()
    assert zone.rows() == [(2, "x")]


def test_keys_may_be_added_to_a_table_that_had_none(zone: Zone) -> None:
    """F-13."""
    folder = zone.folder(keys=None)
    put(folder, 1, items([(0, 1, "x")]))
    service = zone.service()
    service.poll()
    _keys(folder, "id")
    put(folder, 2, items([(4, 1, "y")]))
    service.poll()
    assert zone.rows() == [(1, "y")]


@pytest.mark.parametrize(
    "text",
    [
        ("{"),
        ("[]"),
        ('{"keyColumns": "id"}'),
        ('{"keyColumns": ["id", "id"]}'),
        ('{"keyColumns": ["id"], "isUpsertDefaultRowMarker": "yes"}'),
        ('{"isUpsertDefaultRowMarker": true}'),
        ('{"fileDetectionStrategy": "Alphabetical"}'),
    ],
)
def test_metadata_that_cannot_be_used_fail_the_table_until_replaced(zone: Zone, text: str) -> None:
    """F-11 to F-15, F-21, F-43."""
    folder = zone.folder()
    (folder / "_metadata.json").write_text(text)
    put(folder, 1, items([(4, 1, "x")]))
    service = zone.service()
    assert service.poll() == []
    assert error_of(service) == "InvalidMetadata"
    (folder / "_metadata.json").write_text('{"KeyColumns": ["id"], "fileDetectionStrategy": "SequentialFileName"}')
    assert len(service.poll()) == 1, "F-11: the property in any case"


@pytest.mark.parametrize("strategy", [None, "SequentialFileName", "LastUpdateTimeFileDetection"])
@pytest.mark.parametrize("upsert", [None, False, True])
def test_order_of_files_and_meaning_of_rows_are_chosen_apart(
    zone: Zone, strategy: str | None, upsert: bool | None
) -> None:
    """F-14 to F-16, F-43: rows without marker mean the same whatever the order, which is that of numbers or times."""
    chosen = {"fileDetectionStrategy": strategy, "isUpsertDefaultRowMarker": upsert}
    folder = zone.folder(**{name: value for name, value in chosen.items() if value is not None})
    put(folder, 2, items([(1, "second")], marked=False))
    put(folder, 1, items([(1, "first")], marked=False))
    os.utime(folder / f"{2:020}.parquet", ns=(1, 1))
    service = zone.service()
    service.poll()
    last = "first" if strategy == "LastUpdateTimeFileDetection" else "second"
    assert sorted(zone.rows()) == ([(1, last)] if upsert else [(1, "first"), (1, "second")])


def test_a_conditional_column_changes_nothing_f18(zone: Zone) -> None:
    folder = zone.folder(ConditionalUpdateColumn="id")
    put(folder, 1, items([(4, 2, "a"), (4, 1, "b")]))
    put(folder, 2, items([(4, 2, "c")]))
    zone.service().poll()
    assert zone.rows() == [(1, "b"), (2, "c")]


def test_metadata_arm_a_folder_whenever_they_come(zone: Zone) -> None:
    """F-10 (field): files may lie there before."""
    folder = zone.folder()
    (folder / "_metadata.json").unlink()
    put(folder, 1, items([(4, 1, "x")]))
    service = zone.service()
    assert service.poll() == []
    _keys(folder, "id")
    assert len(service.poll()) == 1


@pytest.mark.parametrize("twin", ["items", "Items"])
def test_two_folders_of_one_table_do_not_mix(zone: Zone, twin: str) -> None:
    """F-02, F-03 (assumed): the second fails, whatever becomes of the first, and deleting it harms nothing."""
    first, second = zone.folder("dbo.schema/items"), zone.folder(twin)
    service = zone.service()
    service.poll()
    codes = {name: error_of(service, name) for name in ("dbo.schema/items", twin)}
    assert sorted(codes.values(), key=str) == [None, "TargetCollision"]
    owner, loser = (first, second) if codes[twin] else (second, first)
    table = "dbo/items" if codes[twin] else f"dbo/{twin}"
    put(owner, 1, items([(4, 1, "owner")]))
    put(owner, 2, b"")
    put(loser, 1, items([(4, 1, "loser")]))
    service.poll()
    service.poll()
    assert zone.rows(table) == [(1, "owner")]
    shutil.rmtree(loser)
    service.poll()
    assert zone.rows(table) == [(1, "owner")]


def test_nothing_happens_while_paused(zone: Zone) -> None:
    folder = zone.folder()
    put(folder, 1, items([(4, 1, "x")]))
    service = zone.service()
    service.pause()
    assert zone.service().poll() == []
    assert service.database_status() == "Paused"
    service.resume()
    assert len(service.poll()) == 1


@pytest.mark.parametrize("reads_processed", [False, True])
def test_stop_and_start_rebuild_from_scratch(zone: Zone, reads_processed: bool) -> None:
    """F-76: what is left in the table folder is all there is (field), or the processed files too (switch)."""
    folder = zone.folder()
    for number in (1, 2, 3):
        put(folder, number, items([(0, number, "x")]))
    service = zone.service(restart_reads_processed=reads_processed)
    service.poll()
    service.stop()
    put(folder, 4, items([(0, 4, "x")]))
    assert service.poll() == []
    assert len(zone.rows()) == 3, "a stopped table stays"
    service.start()
    assert not zone.exists()
    applied = [done.number for done in service.poll()]
    if reads_processed:
        assert applied == [1, 2, 3, 4]
        assert zone.rows() == [(number, "x") for number in (1, 2, 3, 4)]
    else:
        assert applied == []
        assert not zone.exists()


def test_a_zone_that_is_gone_drops_nothing(zone: Zone) -> None:
    """A wrong path must not look like a thousand deleted folders."""
    service = zone.service()
    zone.zone.rename(zone.zone.with_name("away"))
    assert service.poll() == []
    zone.zone.with_name("away").rename(zone.zone)
    put(zone.folder(), 1, items([(4, 1, "x")]))
    service.poll()
    zone.zone.rename(zone.zone.with_name("away"))
    with pytest.raises(EmulatorError) as caught:
        service.poll()
    assert caught.value.code == "PLACE_MISSING"
    assert zone.rows() == [(1, "x")]
