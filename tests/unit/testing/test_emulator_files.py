"""The emulator's numbered files: order, gaps, invalid files and their repair (F-05, F-30 to F-41)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fabric_emulator import delta_table
from tests.unit.testing.emulator_zone import Zone, error_of, items, names, put, recreate


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    return Zone(tmp_path)


def test_a_missing_number_blocks_its_table_only(zone: Zone) -> None:
    """F-32: later files wait, other tables go on, and the missing file sets them free."""
    blocked, other = zone.folder("dbo.schema/items"), zone.folder("dbo.schema/other")
    for number in (1, 3, 4):
        put(blocked, number, items([(4, number, "x")]))
        put(other, number, items([(4, number, "x")]))
    put(other, 2, items([(4, 2, "x")]))
    service = zone.service()
    assert [(done.table, done.number) for done in service.poll()] == [
        ("dbo/items", 1),
        *(("dbo/other", number) for number in (1, 2, 3, 4)),
    ]
    assert service.poll() == []
    assert error_of(service) is None
    put(blocked, 2, items([(4, 2, "x")]))
    assert [done.number for done in service.poll()] == [2, 3, 4]


def test_the_first_number_is_one(zone: Zone) -> None:
    """F-31."""
    folder = zone.folder()
    put(folder, 2, items([(4, 1, "x")]))
    assert zone.service().poll() == []


def test_names_that_are_no_numbers_are_passed_over(zone: Zone) -> None:
    """F-05, F-31: staged objects, part files, short numbers, number zero, other extensions, folders."""
    folder = zone.folder()
    good = put(folder, 1, items([(4, 1, "x")])).read_bytes()
    strangers = [
        "_00000000000000000002.parquet",
        "part-00000.parquet",
        "2.parquet",
        "00000000000000000000.parquet",
        "00000000000000000002.csv",
        "00000000000000000002.parquet.tmp",
    ]
    for name in strangers:
        (folder / name).write_bytes(good)
    (folder / "00000000000000000002.parquet").mkdir()
    (folder / "_stage-1").mkdir()
    (folder / "_stage-1" / "00000000000000000002.parquet").write_bytes(good)
    service = zone.service()
    assert [done.number for done in service.poll()] == [1]
    assert error_of(service) is None
    assert all((folder / name).exists() for name in strangers)


def test_underscore_folders_and_folders_without_metadata_are_no_tables(zone: Zone) -> None:
    """F-05 and F-10 (field); the latter as a switch, as a table without keys (F-12)."""
    for name in ("_scratchPad", "_private.schema/items", "dbo.schema/_items"):
        put(zone.folder(name), 1, items([(4, 1, "x")]))
    bare = zone.folder("dbo.schema/bare")
    put(bare, 1, items([(0, 1, "x")]))
    (bare / "_metadata.json").unlink()
    service = zone.service()
    assert service.poll() == []
    assert service.status() == {}
    assert [done.table for done in zone.service(ignore_folder_without_metadata=False).poll()] == ["dbo/bare"]


def test_tables_without_a_schema_level_are_in_the_default_schema(zone: Zone) -> None:
    """F-03."""
    put(zone.folder("plain"), 1, items([(4, 1, "x")]))
    put(zone.folder("sales.schema/items"), 1, items([(4, 2, "y")]))
    zone.service().poll()
    assert zone.rows("dbo/plain") == [(1, "x")]
    assert zone.rows("sales/items") == [(2, "y")]


def _parquet(tmp_path: Path, **options: str) -> bytes:
    return put(tmp_path, 9, items([(4, 1, "x")] * 100), **options).read_bytes()


def _not_utf8() -> pa.Array:
    return pa.StringArray.from_buffers(1, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff"))


@pytest.mark.parametrize(
    "kind", ["zero bytes", "no parquet", "truncated", "broken page", "compression", "twins", "no text"]
)
def test_an_invalid_file_latches_its_table_until_it_is_replaced_under_its_name(
    zone: Zone, tmp_path: Path, kind: str
) -> None:
    """F-38, F-40: other tables go on; what is behind the bad file waits; a valid file under its name heals."""
    good = _parquet(tmp_path)
    middle = bytearray(_parquet(tmp_path, compression="none", use_dictionary=False))
    middle[4:200] = b"\xff" * 196
    bad = {
        "zero bytes": b"",
        "no parquet": b"id,name\n1,x\n",
        "truncated": good[: len(good) // 2],
        "broken page": bytes(middle),
        "compression": _parquet(tmp_path, compression="lz4"),
        "no text": put(tmp_path, 9, pa.table({"id": [1], "name": _not_utf8()})).read_bytes(),
        "twins": put(tmp_path, 9, pa.table({"id": [1], "Name": ["x"], "name": ["x"]})).read_bytes(),
    }[kind]
    folder, other = zone.folder("dbo.schema/items"), zone.folder("dbo.schema/other")
    put(folder, 1, items([(4, 1, "a")]))
    put(folder, 2, bad)
    put(folder, 3, items([(4, 3, "c")]))
    put(other, 1, items([(4, 1, "a")]))
    service = zone.service()
    assert {(done.table, done.number) for done in service.poll()} == {("dbo/items", 1), ("dbo/other", 1)}
    assert error_of(service) == "InvalidParquetFile"
    assert service.status()["dbo.schema/items"]["status"] == "Failed"

    put(other, 2, items([(4, 2, "b")]))
    assert [done.table for done in zone.service().poll()] == ["dbo/other"], "latched, also for a service restarted"
    assert error_of(service) == "InvalidParquetFile"

    put(folder, 2, items([(4, 2, "b")]))
    assert [done.number for done in service.poll()] == [2, 3]
    assert error_of(service) is None
    assert zone.rows() == [(1, "a"), (2, "b"), (3, "c")]


def test_taking_the_bad_file_away_heals_nothing_by_itself(zone: Zone) -> None:
    """F-40: the repair is a valid file under the same name; F-72: or a folder of a new life."""
    folder = zone.folder()
    bad = put(folder, 1, b"")
    service = zone.service()
    service.poll()
    bad.unlink()
    service.poll()
    assert error_of(service) == "InvalidParquetFile"
    put(recreate(zone, folder), 1, items([(4, 1, "x")]))
    assert [done.number for done in service.poll()] == [1]
    assert error_of(service) is None


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
def test_documented_compressions_are_read(zone: Zone, compression: str) -> None:
    """F-30."""
    put(zone.folder(), 1, items([(4, 1, "x")]), compression=compression)
    assert len(zone.service().poll()) == 1


def test_a_file_without_rows_is_fine_and_uses_its_number(zone: Zone) -> None:
    """F-41: also as the first one of a table, which comes into being empty."""
    folder = zone.folder()
    put(folder, 1, items([], marked=False))
    service = zone.service()
    assert [done.rows for done in service.poll()] == [0]
    assert zone.rows() == []
    put(folder, 2, items([]))
    put(folder, 3, items([(4, 1, "x")]))
    assert [done.number for done in service.poll()] == [2, 3]
    assert zone.rows() == [(1, "x")]


def test_a_processed_number_that_comes_back_is_not_read_again(zone: Zone) -> None:
    """F-33, F-37: neither in place of the last file nor of one that left, whose copy stays what it was."""
    folder = zone.folder()
    for number in (1, 2):
        put(folder, number, items([(4, number, "x")]))
    service = zone.service()
    service.poll()
    away = folder / "_FilesReadyToDelete" / "00000000000000000001.parquet"
    before, version = away.read_bytes(), zone.version()
    for number in (1, 2):
        put(folder, number, items([(4, number, "changed")]))
    assert service.poll() == []
    assert (zone.rows(), zone.version()) == ([(1, "x"), (2, "x")], version)
    assert away.read_bytes() == before
    assert names(folder) == [1, 2]


def test_an_error_of_the_disk_is_raised_and_keeps_no_other_table_waiting(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is nobody's bad file: not latched, and it passes by itself."""
    for name in ("items", "other"):
        put(zone.folder(f"dbo.schema/{name}"), 1, items([(4, 1, "x")]))
    write = delta_table.write_deltalake

    def full_for_items(path: Path, *args: Any, **options: Any) -> None:
        if path.name == "items":
            raise OSError("no space left")
        write(path, *args, **options)

    service = zone.service()
    with monkeypatch.context() as context, pytest.raises(ExceptionGroup):
        context.setattr(delta_table, "write_deltalake", full_for_items)
        service.poll()
    assert zone.rows("dbo/other") == [(1, "x")]
    assert error_of(service) is None
    assert [done.table for done in service.poll()] == ["dbo/items"]
