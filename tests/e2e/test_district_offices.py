"""A real table's whole change history, in every CES form we have, ends exactly in its known final state."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.pipeline import Pipeline, in_order

TABLES = [{"source": "dbo.district_offices", "target": "dbo/district_offices", "key": ["office_id"]}]


def assert_equals_final(pipeline: Pipeline, expected: Path, ticks: int) -> None:
    found = in_order(pipeline.mirrored("dbo", "district_offices"), ["office_id"])
    assert found == in_order(pq.read_table(expected).to_pylist(), ["office_id"])
    assert pipeline.numbers("dbo.schema/district_offices") == list(range(1, ticks + 1))
    assert pipeline.open_fragments == 0


@pytest.mark.parametrize("ticks", [pytest.param(1, marks=pytest.mark.long), 7])
def test_capture_generation_c(ticks: int, tmp_path: Path, spark, shared_data: Path) -> None:
    """C-22c, C-32, C-93, G-02, G-05, G-09: round-robin partitions, duplicates and disorder over Capture windows."""
    pipeline = Pipeline(tmp_path, spark, TABLES, source={"transport": "capture", "layout": None})
    root = shared_data / "ces" / "capture-gen-c"
    files = sorted(root.rglob("*.avro"), key=lambda path: (path.name, path.relative_to(root)))
    random.Random(7).shuffle(files)
    delivered = messages = 0
    for tick in range(ticks):
        for path in files[len(files) * tick // ticks : len(files) * (tick + 1) // ticks]:
            pipeline.deliver(str(path.relative_to(root)), path.read_bytes())
            delivered += 1
        extracted, _ = pipeline.tick()
        messages += extracted.counts.get("messages", 0)
    assert (delivered, messages) == (18, 11_356)
    found = in_order(pipeline.mirrored("dbo", "district_offices"), ["office_id"])
    expected = pq.read_table(shared_data / "district_offices" / "final.parquet").to_pylist()
    assert found == in_order(expected, ["office_id"])
    numbers = pipeline.numbers("dbo.schema/district_offices")
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(
    ("generation", "ticks"),
    [("a", 7), ("c", 1), ("c", 7), pytest.param("c", 50, marks=pytest.mark.long)],
)
def test_json_lines(generation: str, ticks: int, tmp_path: Path, spark, shared_data: Path) -> None:
    """C-22a, C-22c, C-51 to C-55, G-02, G-09: cut and repeated events, late across ticks, files in any order."""
    pipeline = Pipeline(tmp_path, spark, TABLES)
    packed = shared_data / "ces" / f"json-gen-{generation}" / "messages.jsonl.gz"
    lines = gzip.decompress(packed.read_bytes()).splitlines(keepends=True)
    for tick in range(ticks):
        part = lines[len(lines) * tick // ticks : len(lines) * (tick + 1) // ticks]
        # Three files a tick whose names say nothing about their order.
        names = [f"{random.Random(tick * 3 + third).random()}.jsonl" for third in range(3)]
        for third, name in enumerate(names):
            pipeline.deliver(name, b"".join(part[third::3]))
        pipeline.tick()
    assert_equals_final(pipeline, shared_data / "district_offices_part" / "final.parquet", ticks)
