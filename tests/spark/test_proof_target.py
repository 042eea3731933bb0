"""The target's side of a proof: a version's rows, however the service wrote them, wherever they lie (G-40, S-17)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from open_mirroring.errors import TransientError
from open_mirroring.landing_zone.schema import LandingColumn
from open_mirroring.protocols.proving import add_sums
from spark_jobs.proof import mirrored_files
from spark_jobs.proof.keys import read_sums
from spark_jobs.proof.mirrored_files import Target
from spark_jobs.proof.rows import Shape, SumCells
from tests.object_storage import StorageServers

COLUMNS = (LandingColumn("id", "int64"), LandingColumn("Name", "string"), LandingColumn("late", "timestamp"))
SHAPE = Shape(COLUMNS, ("id",))


def table_of(ids: range, **columns: Any) -> pa.Table:
    values = {"id": pa.array(ids, pa.int64()), "Name": [f"name {at}" for at in ids], **columns}
    return pa.table(values)


def plain(folder: Path, spark: Any) -> pa.Table:
    """Two files, of which the first lacks a column that came later."""
    late = pa.array([at * 1_000_000 + 1 for at in range(10)], pa.timestamp("us", "UTC"))
    write_deltalake(folder, table_of(range(30)))
    write_deltalake(folder, table_of(range(30, 40), late=late), mode="append", schema_mode="merge")
    first = table_of(range(30), late=pa.nulls(30, pa.timestamp("us", "UTC")))
    return pa.concat_tables([first, table_of(range(30, 40), late=late)])


def cut_by_row_groups(folder: Path, spark: Any) -> pa.Table:
    """A file that is big enough to be read by several tasks."""
    from deltalake import WriterProperties

    rows = table_of(range(40))
    write_deltalake(folder, rows, writer_properties=WriterProperties(max_row_group_size=7))
    return rows


def replaced(folder: Path, spark: Any) -> pa.Table:
    """Files that are there, and in no version any more."""
    write_deltalake(folder, table_of(range(90, 99)))
    write_deltalake(folder, table_of(range(5)), mode="overwrite")
    return table_of(range(5))


def without_rows(folder: Path, spark: Any) -> pa.Table:
    """No file at all."""
    write_deltalake(folder, table_of(range(0)).cast(pa.schema([("id", pa.int64()), ("Name", pa.string())])))
    return table_of(range(0))


def partitioned(folder: Path, spark: Any) -> pa.Table:
    """A column that is in no file, whose values the names of folders and the log each spell in a way of their own."""
    rows = table_of(range(8))
    odd = ["a b", "x%20y/ü", None, "a+b=c#d?", 'q"r', "..", "p:q\\r", "x%20y/ü"]
    rows = rows.set_column(1, "Name", pa.array(odd))
    write_deltalake(folder, rows, partition_by=["Name"])
    return rows


def partitioned_by_spark(folder: Path, spark: Any) -> pa.Table:
    """The same, by the other writer, and by a time."""
    names = "element_at(array('a b', 'x%20y/ü', NULL, 'a+b=c#d?', 'q\"r'), cast(id % 5 AS int) + 1)"
    rows = f"SELECT id, {names} AS Name, timestamp_micros(id % 2 * 1000001 + 5) AS late FROM range(0, 20, 1, 1)"
    spark.sql(f"CREATE TABLE delta.`{folder}` USING delta PARTITIONED BY (Name, late) AS {rows}")
    return spark.sql(rows).toArrow()


def with_deleted_rows(folder: Path, spark: Any) -> pa.Table:
    """Deletion vectors: rows that are in a file, and not in the table."""
    _written_by_spark(folder, spark, "'delta.enableDeletionVectors' = 'true'")
    spark.sql(f"DELETE FROM delta.`{folder}` WHERE id % 4 = 1")
    assert "deletionVectors" in (DeltaTable(folder).protocol().reader_features or ())
    rows = table_of(range(20))
    return rows.filter(pa.array(at % 4 != 1 for at in range(20)))


def with_rows_deleted_in_many_ways(folder: Path, spark: Any) -> pa.Table:
    """Runs, scattered rows and dense ones, after checkpoints of both kinds."""
    properties = "'delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '2'"
    _written_by_spark(folder, spark, properties, rows=200_000)
    spark.sql(f"DELETE FROM delta.`{folder}` WHERE id < 70000")
    spark.sql(f"DELETE FROM delta.`{folder}` WHERE id % 2 = 0 AND id BETWEEN 80000 AND 140000")
    spark.sql(f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')")
    spark.sql(f"DELETE FROM delta.`{folder}` WHERE id IN (150001, 199999)")
    spark.sql(f"INSERT INTO delta.`{folder}` VALUES (200000, 'name 200000')")
    gone = {*range(70_000), *range(80_000, 140_001, 2), 150_001, 199_999}
    left = [key for key in range(200_001) if key not in gone]
    return pa.table({"id": pa.array(left, pa.int64()), "Name": [f"name {key}" for key in left]})


def allowing_deleted_rows(folder: Path, spark: Any) -> pa.Table:
    """The feature is on, and no row is deleted."""
    _written_by_spark(folder, spark, "'delta.enableDeletionVectors' = 'true'")
    return table_of(range(20))


def with_mapped_columns(folder: Path, spark: Any) -> pa.Table:
    """Columns whose names in the files are others."""
    _written_by_spark(folder, spark, "'delta.columnMapping.mode' = 'name'")
    spark.sql(f"ALTER TABLE delta.`{folder}` RENAME COLUMN Name TO other")
    spark.sql(f"ALTER TABLE delta.`{folder}` RENAME COLUMN other TO Name")
    return table_of(range(20))


def with_columns_mapped_by_id(folder: Path, spark: Any) -> pa.Table:
    """Columns that are reported by their ids, and rows of them that are deleted."""
    _written_by_spark(folder, spark, "'delta.columnMapping.mode' = 'id', 'delta.enableDeletionVectors' = 'true'")
    spark.sql(f"ALTER TABLE delta.`{folder}` RENAME COLUMN Name TO other")
    spark.sql(f"ALTER TABLE delta.`{folder}` ADD COLUMN Name string")
    spark.sql(f"INSERT INTO delta.`{folder}` VALUES (20, 'old', 'new')")
    spark.sql(f"DELETE FROM delta.`{folder}` WHERE id < 19")
    return pa.table({"id": pa.array([19, 20], pa.int64()), "Name": pa.array([None, "new"])})


def with_a_wider_type(folder: Path, spark: Any) -> pa.Table:
    """Files of before and after a column became wider, and rows of both that are deleted."""
    both = "'delta.enableTypeWidening' = 'true', 'delta.enableDeletionVectors' = 'true'"
    _written_by_spark(folder, spark, both, key="CAST(id AS int) AS id")
    spark.sql(f"DELETE FROM delta.`{folder}` WHERE id = 3")
    spark.sql(f"ALTER TABLE delta.`{folder}` CHANGE COLUMN id TYPE bigint")
    spark.sql(f"INSERT INTO delta.`{folder}` SELECT id, concat('name ', id) FROM range({2**33}, {2**33 + 9}, 1, 1)")
    spark.sql(f"DELETE FROM delta.`{folder}` WHERE id IN (5, {2**33 + 1})")
    features = DeltaTable(folder).protocol().reader_features or ()
    assert {"typeWidening", "deletionVectors"} <= {*features}
    keys = [*range(20), *range(2**33, 2**33 + 9)]
    left = [key for key in keys if key not in (3, 5, 2**33 + 1)]
    return pa.table({"id": pa.array(left, pa.int64()), "Name": [f"name {key}" for key in left]})


def _written_by_spark(folder: Path, spark: Any, properties: str, rows: int = 20, key: str = "id") -> None:
    selected = f"SELECT {key}, concat('name ', id) AS Name FROM range(0, {rows}, 1, 1)"
    spark.sql(f"CREATE TABLE delta.`{folder}` USING delta TBLPROPERTIES ({properties}) AS {selected}")


@pytest.mark.parametrize(
    "written",
    [
        plain,
        cut_by_row_groups,
        replaced,
        without_rows,
        partitioned,
        partitioned_by_spark,
        with_deleted_rows,
        pytest.param(with_rows_deleted_in_many_ways, marks=pytest.mark.long),
        allowing_deleted_rows,
        with_mapped_columns,
        with_columns_mapped_by_id,
        with_a_wider_type,
    ],
)
def test_the_rows_are_those_of_the_version(
    written: Callable[[Path, Any], pa.Table],
    tmp_path: Path,
    spark: Any,
    storage_servers: StorageServers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G-40, S-17: neither more nor fewer, whatever the log says of its files, on a disk and in object storage."""
    if written is cut_by_row_groups:
        monkeypatch.setattr(mirrored_files, "_PIECE_BYTES", 500)
    folder = tmp_path / "a table"
    expected = written(folder, spark)
    [line] = SumCells(SHAPE)([expected])
    storage = storage_servers.new("azure")
    for file in folder.rglob("*"):
        if file.is_file():
            storage.deliver(f"all tables/{file.relative_to(tmp_path)}", file.read_bytes())
    for place in (folder, storage.place("all tables/a table")):
        target = Target(spark, place)
        assert {column.name for column in target.columns} >= {"id", "Name"}
        assert read_sums(spark, target, SHAPE) == add_sums([pickle.loads(line["sums"][0].as_py())]), place


def test_a_file_that_is_gone_is_said(tmp_path: Path, spark: Any) -> None:
    """G-40: also when it goes after the version was looked at."""
    write_deltalake(tmp_path, table_of(range(5)))
    target = Target(spark, tmp_path)
    for file in tmp_path.glob("*.parquet"):
        file.unlink()
    with pytest.raises(TransientError, match="PROOF_FAILED"):
        read_sums(spark, target, SHAPE)
    with pytest.raises(TransientError, match="PROOF_FAILED"):
        read_sums(spark, Target(spark, tmp_path), SHAPE)
