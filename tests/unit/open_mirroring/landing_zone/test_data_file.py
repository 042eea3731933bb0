"""Data files: what is written is what is read, the footer is evidence, and the check lets nothing unfit through."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.landing_zone import data_file
from open_mirroring.landing_zone.arrow_schema import file_schema
from open_mirroring.landing_zone.data_file import (
    FOOTER_KEY,
    Footer,
    check_data_file,
    read_footer,
    rows_digest,
    write_data_file,
)
from open_mirroring.landing_zone.digest import EMPTY, digest_of
from open_mirroring.landing_zone.layout import Compression
from open_mirroring.landing_zone.schema import LandingColumn

TYPES = ["bool", "int16", "int32", "int64", "float32", "float64", "string", "binary", "date", "timestamp"]
COLUMNS = [
    LandingColumn("id", "int64"),
    *(LandingColumn(f"a {t}", t) for t in TYPES),
    LandingColumn("d", "decimal(38,9)"),
]
SCHEMA = file_schema(COLUMNS, ["id"], marker=True)
FOOTER = Footer("shop", "6f1c", 2, 7, 11, 13, "changes", "0001:0002:0", "0001:0009:1")


def rows(count: int, schema: pa.Schema = SCHEMA, *, start: int = 0, marker: int = 4) -> pa.Table:
    columns = []
    for field in schema:
        if field.name == "__rowMarker__":
            column = pa.array([marker] * count, pa.int32())
        elif field.nullable:
            column = pa.array([None] * count, field.type)
        else:
            column = pa.array(range(start, start + count)).cast(field.type)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "1.parquet"


def test_what_is_written_is_read_back(path: Path) -> None:
    """F-30, F-50: ZSTD is one of the compressions that the target takes."""
    table = rows(5)
    written = write_data_file(path, table, SCHEMA, FOOTER)
    assert written == (5, path.stat().st_size, digest_of(table))
    assert read_footer(path) == replace(FOOTER, rows=5, digest=written.digest)
    assert rows_digest(path) == written.digest
    assert pq.read_table(path).equals(table), "types and nullability come from Parquet alone"
    metadata = pq.read_metadata(path)
    assert set(metadata.metadata) == {FOOTER_KEY}
    assert {metadata.row_group(0).column(n).compression for n in range(metadata.num_columns)} == {"ZSTD"}
    assert metadata.schema.names[-1] == "__rowMarker__"
    check_data_file(path, SCHEMA, ["id"])


@pytest.mark.parametrize(
    ("compression", "codec"), [("zstd", "ZSTD"), ("snappy", "SNAPPY"), ("gzip", "GZIP"), ("none", "UNCOMPRESSED")]
)
def test_every_compression_of_the_target_f30(path: Path, compression: Compression, codec: str) -> None:
    """F-30: the digest is that of the rows, however they are compressed."""
    written = write_data_file(path, rows(5), SCHEMA, FOOTER, compression)
    metadata = pq.read_metadata(path)
    assert {metadata.row_group(0).column(n).compression for n in range(metadata.num_columns)} == {codec}
    assert written.digest == digest_of(rows(5)) == rows_digest(path)


def test_the_footer_is_one_json_object_of_stable_names(path: Path) -> None:
    """I9: files outlive versions; *first_number* is the publication's, for a file's own number is its name."""
    written = write_data_file(path, rows(2), SCHEMA, FOOTER)
    assert json.loads(pq.read_metadata(path).metadata[FOOTER_KEY]) == {
        "mirror": "shop",
        "table_id": "6f1c",
        "generation": 2,
        "first_number": 7,
        "batch_from": 11,
        "batch_to": 13,
        "kind": "changes",
        "first_position": "0001:0002:0",
        "last_position": "0001:0009:1",
        "rows": 2,
        "digest": written.digest,
        "standing": "",
    }


def test_pieces_become_row_groups_and_the_same_digest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How rows are cut changes the file, never its digest; small pieces are gathered, large ones split."""
    monkeypatch.setattr(data_file, "ROW_GROUP_ROWS", 100)
    monkeypatch.setattr(data_file, "LARGEST_ROW_GROUP_ROWS", 200)
    pieces = [rows(30, start=n) for n in range(0, 300, 30)] + [rows(250, start=300), rows(0)]
    written = write_data_file(path, iter(pieces), SCHEMA, FOOTER)
    assert written.digest == digest_of(rows(550)) == rows_digest(path)
    metadata = pq.read_metadata(path)
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [120, 120, 200, 110]


def test_wide_rows_end_a_row_group_early(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_file, "ROW_GROUP_BYTES", 1)
    write_data_file(path, (rows(1, start=n) for n in range(3)), SCHEMA, FOOTER)
    assert pq.read_metadata(path).num_row_groups == 3


def test_no_rows_make_a_valid_file(path: Path) -> None:
    """F-41: a file without rows is fine."""
    for nothing in ([], [rows(0)], rows(0)):
        assert write_data_file(path, nothing, SCHEMA, FOOTER)[::2] == (0, EMPTY)
        check_data_file(path, SCHEMA, ["id"])
        assert rows_digest(path) == EMPTY


@pytest.mark.parametrize("late", [False, True])
def test_rows_of_another_shape_are_refused_and_leave_no_valid_file(path: Path, late: bool) -> None:
    good = rows(2)
    null_key = good.set_column(0, pa.field("id", pa.int64()), pa.array([1, None], pa.int64()))
    for bad, why in (
        (good.drop_columns(["a bool"]), "rows have the columns"),
        (good.select([*SCHEMA.names[1:], "id"]), "rows have the columns"),
        (good.set_column(0, "id", pa.array([1, 2], pa.int32())), "'id' int32"),
        (null_key, "column 'id' must not be NULL and is, 1 times"),
    ):
        tables = [good, bad] if late else [bad]
        with pytest.raises(TerminalError, match=f"FILE_UNFIT: .*{why}"):
            write_data_file(path, tables, SCHEMA, FOOTER)
        with pytest.raises(TerminalError, match="FILE_UNFIT"):
            check_data_file(path, SCHEMA, ["id"])
    with pytest.raises(TerminalError, match="TYPE_UNSUPPORTED"):
        write_data_file(path, [], pa.schema([pa.field("t", pa.time64("us"))]), FOOTER)


def test_nullability_of_the_rows_schema_does_not_matter_when_proved(path: Path) -> None:
    loose = pa.schema([field.with_nullable(True) for field in SCHEMA])
    write_data_file(path, rows(2).cast(loose), SCHEMA, FOOTER)
    check_data_file(path, SCHEMA, ["id"])


def test_a_file_that_is_not_ours_has_no_footer(path: Path) -> None:
    pq.write_table(rows(2), path)
    assert read_footer(path) is None


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"[]",
        b"{",
        b"{}",
        json.dumps({"mirror": "m"}).encode(),
        json.dumps({**{name: "" for name in Footer.__dataclass_fields__}}).encode(),
    ],
)
def test_a_damaged_footer_is_an_error_not_a_foreign_file(path: Path, entry: bytes) -> None:
    pq.write_table(rows(2).replace_schema_metadata({FOOTER_KEY: entry}), path)
    with pytest.raises(TerminalError, match=r"FILE_UNFIT: .*our footer cannot be read.*Next step: "):
        read_footer(path)


def test_damaged_files_are_refused_wherever_they_are_cut(path: Path) -> None:
    """F-38, I11: never partial, corrupt or empty."""
    write_data_file(path, rows(50), SCHEMA, FOOTER)
    whole = path.read_bytes()
    for size in (0, 1, 4, 11, 12, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        for reading in (read_footer, rows_digest, lambda cut: check_data_file(cut, SCHEMA, ["id"])):
            with pytest.raises(TerminalError, match="FILE_UNFIT"):
                reading(path)
    for torn in (b"XXXX" + whole[4:], whole + b"tail", b"PAR1" + bytes(100) + b"PAR1"):
        path.write_bytes(torn)
        with pytest.raises(TerminalError, match="FILE_UNFIT"):
            check_data_file(path, SCHEMA, ["id"])
    page = whole.index(b"\x28\xb5\x2f\xfd")  # the first zstd frame
    path.write_bytes(whole[:page] + bytes(8) + whole[page + 8 :])
    with pytest.raises(TerminalError, match=r"FILE_UNFIT: .*cannot be read"):
        rows_digest(path)


def rewritten(path: Path, table: pa.Table, *, counted: int | None = None, write_statistics: bool = True) -> Path:
    """A file with a footer of ours whose content is whatever somebody made of it."""
    rows = table.num_rows if counted is None else counted
    footer = {**{name: getattr(FOOTER, name) for name in Footer.__dataclass_fields__}, "rows": rows}
    with pq.ParquetWriter(path, table.schema, store_schema=False, write_statistics=write_statistics) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({FOOTER_KEY: json.dumps(footer)})
    return path


@pytest.mark.parametrize("statistics", [True, False])
def test_the_check_names_what_is_wrong(path: Path, statistics: bool) -> None:
    """F-12, F-38, F-50, F-51, I26 and the schema fence (I13), whether statistics tell or columns have to be read."""
    good = rows(3)
    at = SCHEMA.names.index("__rowMarker__")
    loose = pa.schema([field.with_nullable(True) for field in SCHEMA])
    loose_marker = pa.field("__rowMarker__", pa.int32())
    first = good.select(["__rowMarker__", *SCHEMA.names[:-1]])
    wide = good.set_column(at, pa.field("__rowMarker__", pa.int64(), nullable=False), pa.array([4] * 3, pa.int64()))
    null_key = good.set_column(0, "id", pa.array([1, None, 2])).cast(loose)
    null_marker = good.set_column(at, loose_marker, pa.array([4, None, 2], pa.int32()))
    swapped = good.select([*SCHEMA.names[1:-1], "id", "__rowMarker__"])
    cases = [
        (good.drop_columns(["d"]), SCHEMA, ["id"], "its columns are"),
        (swapped, SCHEMA, ["id"], "its columns are"),
        (good.cast(loose), SCHEMA, ["id"], "its columns are"),
        (good, SCHEMA, ["nope"], "key column 'nope' is missing"),
        (null_key, loose, ["id"], "column 'id' must not be NULL and is, 1 times"),
        (null_marker, null_marker.schema, ["id"], "column '__rowMarker__' must not be NULL and is, 1 times"),
        (first, first.schema, ["id"], "__rowMarker__ is not the last column"),
        (wide, wide.schema, ["id"], "__rowMarker__ is not the last column, or no int32"),
        (rows(3, marker=3), SCHEMA, ["id"], r"with keys has markers \[2, 4\], the file has \[3\]"),
        (rows(3, marker=0), SCHEMA, ["id"], r"with keys has markers \[2, 4\], the file has \[0\]"),
        (rows(3, marker=4), SCHEMA, [], r"without keys has markers \[0\], the file has \[4\]"),
    ]
    for table, expected, keys, why in cases:
        with pytest.raises(TerminalError, match=f"FILE_UNFIT: .*{why}") as caught:
            check_data_file(rewritten(path, table, write_statistics=statistics), expected, keys)
        assert caught.value.where == str(path)
    check_data_file(rewritten(path, good, write_statistics=statistics), SCHEMA, ["id"])
    check_data_file(rewritten(path, rows(3, marker=2), write_statistics=statistics), SCHEMA, ["id"])
    check_data_file(rewritten(path, rows(3, marker=0), write_statistics=statistics), SCHEMA, [])


def test_load_files_have_no_marker(path: Path) -> None:
    """F-57: the initial load is marker-free."""
    schema = file_schema(COLUMNS, ["id"], marker=False)
    write_data_file(path, rows(4, schema), schema, replace(FOOTER, kind="load"))
    check_data_file(path, schema, ["id"])
    with pytest.raises(TerminalError, match="its columns are"):
        check_data_file(path, SCHEMA, ["id"])


def test_the_footer_must_be_there_and_count_the_rows(path: Path) -> None:
    pq.write_table(rows(2), path, store_schema=False)
    with pytest.raises(TerminalError, match="it carries no footer of ours"):
        check_data_file(path, SCHEMA, ["id"])
    rewritten(path, rows(2), counted=3)
    with pytest.raises(TerminalError, match="its footer counts 3 rows, the file 2"):
        check_data_file(path, SCHEMA, ["id"])


def test_a_file_that_was_moved_away_is_looked_for_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for reading in (read_footer, rows_digest, lambda gone: check_data_file(gone, SCHEMA, ["id"])):
        with pytest.raises(TransientError, match=r"CHANGED_MEANWHILE: .*run again"):
            reading(path)

    def failing(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(data_file.pq, "read_metadata", failing)
    with pytest.raises(TransientError, match="UNREACHABLE"):
        read_footer(path)
