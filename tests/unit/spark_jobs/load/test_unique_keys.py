"""Keys of data files are proven unique at sight where they ascend, and by comparing all of them elsewhere (I6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.load.task import duplicate_in


@pytest.mark.parametrize(
    ("files", "twice"),
    [
        ([[1, 2], [3]], None),
        ([[3, 2], [1]], None),
        ([[1, 2], [2, 3]], (1, 2)),
        ([[1, 1]], (0, 1)),
        ([[], ["a", "b"], [], ["c"]], None),
        ([["b", "a"], ["b"]], (0, 2)),
        ([[False, True]], None),
        ([[1.5, float("nan")], [float("nan")]], (1, 2)),
        ([[]], None),
    ],
)
def test_a_key_that_is_there_twice_is_found_in_any_order(
    tmp_path: Path, files: list[list[Any]], twice: tuple[int, int] | None
) -> None:
    kind = next((pa.array(values).type for values in files if values), pa.int64())
    schema = pa.schema([pa.field("k", kind, nullable=False)])
    for at, values in enumerate(files):
        pq.write_table(pa.table({"k": pa.array(values, kind)}, schema), tmp_path / f"{at}.parquet", store_schema=False)
    assert duplicate_in(sorted(tmp_path.iterdir()), schema) == twice
    pairs = pa.schema([*schema, pa.field("n", pa.int64())])
    for at, values in enumerate(files):
        table = pa.table({"n": pa.array([7] * len(values), pa.int64()), "k": pa.array(values, kind)})
        pq.write_table(table, tmp_path / f"{at}.parquet", store_schema=False)
    assert duplicate_in(sorted(tmp_path.iterdir()), pairs) == twice
