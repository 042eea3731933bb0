"""What a worker says of published files: it reads them whole, follows them on their way, and never fails for one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.landing_zone.arrow_schema import file_schema
from open_mirroring.landing_zone.data_file import Footer, WrittenFile, write_data_file
from open_mirroring.landing_zone.delimited_text import write_text_file
from open_mirroring.landing_zone.layout import file_name
from open_mirroring.landing_zone.opening import LocalZone
from open_mirroring.landing_zone.schema import LandingColumn
from open_mirroring.landing_zone.text_format import TextFormat
from spark_jobs.reconcile import file_contents
from spark_jobs.reconcile.file_contents import CheckedTable, ListedFile, read_contents

COLUMNS = (LandingColumn("id", "int64"), LandingColumn("name", "string"), LandingColumn("added", "date"))
TABLE = CheckedTable("t1", "orders", ("id",), COLUMNS)
FOOTER = Footer("shop", "t1", 1, 1, 0, 1, "changes", "a", "b")


@pytest.fixture
def zone(tmp_path: Path) -> Path:
    return tmp_path / "zone"


def put(path: Path, columns: int = 2, *, marker: int | None = 4, schema: pa.Schema | None = None) -> WrittenFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = schema or file_schema(COLUMNS[:columns], ["id"], marker=marker is not None)
    values = {"id": [1, 2], "name": ["a", None], "added": [None, None], "__rowMarker__": [marker, marker]}
    rows = pa.table([pa.array(values[field.name], field.type) for field in schema], schema=schema)
    return write_data_file(path, rows, schema, FOOTER)


def look(zone: Path, listed: str = "", *, loads: bool = False) -> Any:
    path = listed or f"orders/{file_name(1)}"
    task = ((TABLE, ListedFile(1, path, 1, loads)),)
    ((table_id, content),) = read_contents(LocalZone(zone), task)
    assert table_id == "t1"
    return content


@pytest.mark.parametrize(("columns", "marker"), [(1, 4), (2, 2), (3, 4), (3, None)])
def test_a_sound_file_is_read_complete(zone: Path, columns: int, marker: int | None) -> None:
    """F-57, F-83: any prefix of the table's columns, with a marker or, of the initial load, without."""
    written = put(zone / "orders" / file_name(1), columns, marker=marker)
    content = look(zone, loads=marker is None)
    assert (content.size, content.rows, content.digest) == (written.size, 2, written.digest)
    assert content.footer == replace(FOOTER, rows=2, digest=written.digest)
    assert (content.columns, content.place) == (columns, f"orders/{file_name(1)}")
    assert not (content.unreadable or content.unfit or content.unread or content.moved)


def test_a_file_of_text_is_judged_by_its_bytes(zone: Path, tmp_path: Path) -> None:
    """F-21, F-36, I9: also where it has travelled to; it has no footer, and one is missed nowhere."""
    text = TextFormat("tsv", "\t", "\n", "", (("id", "int64"), ("name", "string")))
    schema = file_schema(COLUMNS[:2], ["id"], marker=True)
    rows = pa.table([pa.array([1]), pa.array(["a"]), pa.array([4], pa.int32())], names=schema.names)
    path = zone / "orders" / "_ProcessedFiles" / file_name(1, "tsv")
    path.parent.mkdir(parents=True)
    written = write_text_file(path, rows, schema, text)
    listed = ListedFile(1, f"orders/{file_name(1, 'tsv')}", written.size, False)
    ((_, content),) = read_contents(LocalZone(zone), ((replace(TABLE, text=text), listed),))
    assert (content.digest, content.size, content.footer) == (written.digest, written.size, None)
    assert not (content.unreadable or content.unfit or content.unread or content.moved)
    assert path.read_bytes() == b'"id"\t"name"\t"__rowMarker__"\n1\t"a"\t4\n'


@pytest.mark.parametrize(
    "folder",
    ["orders/_ProcessedFiles", "_ProcessedFiles/orders", "orders/_FilesReadyToDelete", "_FilesReadyToDelete/orders"],
)
def test_a_file_is_followed_to_wherever_it_was_moved(zone: Path, folder: str) -> None:
    """F-36: it was listed in the table's folder and travelled on since."""
    put(zone / folder / file_name(1))
    assert look(zone).place == f"{folder}/{file_name(1)}"


def test_a_file_that_is_nowhere_was_moved(zone: Path) -> None:
    zone.mkdir()
    assert look(zone).moved


@pytest.mark.parametrize(
    ("schema", "marker", "text"),
    [
        (file_schema([COLUMNS[1], COLUMNS[0]], ["id"], marker=True), 4, "its columns are"),
        (file_schema([COLUMNS[0], LandingColumn("name", "binary")], ["id"], marker=True), 4, "its columns are"),
        (file_schema(COLUMNS[:2], [], marker=True), 4, "its columns are"),
        (file_schema(COLUMNS[:2], ["id"], marker=False), None, "its columns are"),
        (file_schema(COLUMNS[:2], ["id"], marker=True), 0, "markers [2, 4], the file has [0]"),
    ],
)
def test_a_file_of_another_shape_is_unfit(zone: Path, schema: pa.Schema, marker: int | None, text: str) -> None:
    """I13, I26, F-50: order, types, keys that may be NULL, no marker, a marker that the table must not have."""
    schema = schema if marker is not None else pa.schema(list(schema))
    names = {"name": pa.array([b"a", b"b"], pa.binary())} if schema.field("name").type == pa.binary() else {}
    path = zone / "orders" / file_name(1)
    path.parent.mkdir(parents=True)
    values: dict[str, Any] = {"id": [1, 2], "name": ["a", "b"], "__rowMarker__": [marker, marker]}
    columns = [names.get(field.name, pa.array(values[field.name], field.type)) for field in schema]
    write_data_file(path, pa.table(columns, schema=schema), schema, FOOTER)
    content = look(zone)
    assert text in content.unfit
    assert content.digest and not content.unreadable


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(40) + b"PAR1"])
def test_a_file_that_is_no_parquet_is_unreadable(zone: Path, content: bytes) -> None:
    (zone / "orders").mkdir(parents=True)
    (zone / "orders" / file_name(1)).write_bytes(content)
    found = look(zone)
    assert found.unreadable
    assert (found.size, found.digest, found.footer) == (len(content), None, None)


def test_a_link_is_not_followed(zone: Path) -> None:
    (zone / "orders").mkdir(parents=True)
    (zone / "orders" / file_name(1)).symlink_to(zone)
    assert "FOREIGN_ITEM" in look(zone).unreadable


@pytest.mark.parametrize("kind", ["transient", "denied"])
def test_a_failing_store_proves_nothing(zone: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not read is not changed: the file is neither sound nor damaged, and tried again."""
    put(zone / "orders" / file_name(1))

    def failing(*_: Any) -> Any:
        if kind == "denied":
            raise TerminalError("ACCESS_DENIED", "not allowed")
        raise TransientError("UNREACHABLE", "Input/output error")

    if kind == "denied":
        monkeypatch.setattr("open_mirroring.landing_zone.local_store.LocalStore.stat", failing)
    else:
        monkeypatch.setattr(file_contents, "rows_digest", failing)
    content = look(zone)
    assert content.unread.startswith(("ACCESS_DENIED", "UNREACHABLE"))
    assert not (content.unreadable or content.moved)
