"""Reading log files leaves out only what is not wanted, and numbers stand for positions only where they sort alike."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.changes.row_key import KEY_BUCKETS, key_bucket
from spark_jobs.changelog import writing as log_writing
from spark_jobs.changelog.reading import CHANGES_SCHEMA, Wanted, read_changes, read_keys
from spark_jobs.changelog.schema import CHANGE, REJECTED, LogRow, bucket_ranges
from spark_jobs.changelog.writing import LogWriter
from spark_jobs.plan.certain_keys import ordinals

EXPLORING = settings(derandomize=True, deadline=None, max_examples=60)
TABLES = ("a.a", "a.b", "a.c", "a.d")


@st.composite
def log_rows(draw: st.DrawFn) -> list[LogRow]:
    wheres = st.tuples(st.sampled_from([CHANGE, CHANGE, REJECTED]), st.sampled_from(TABLES), st.integers(-1, 63))
    return [
        LogRow(kind, "file", place, None if kind == REJECTED and bucket < 0 else table, bucket, "e", f"{place:09d}:1:1")
        for place, (kind, table, bucket) in enumerate(draw(st.lists(wheres, max_size=60)))
    ]


@EXPLORING
@given(
    files=st.lists(log_rows(), min_size=1, max_size=3),
    sources=st.sets(st.sampled_from(TABLES), min_size=1),
    pieces=st.sampled_from([1, 2, 8]),
    group=st.sampled_from([2, 8, 4096]),
)
def test_ranges_of_buckets_are_read_completely_and_once(
    files: list[list[LogRow]], sources: set[str], pieces: int, group: int
) -> None:
    """However row groups and tasks are cut, each change is read by exactly one of them, dead letters by none (I1)."""
    with tempfile.TemporaryDirectory() as folder, patch.object(log_writing, "_ROW_GROUP", group):
        paths = []
        for number, rows in enumerate(files):
            writer = LogWriter(Path(folder), 1, "attempt", number)
            writer.add(rows)
            paths += [f"{folder}/{file['path']}" for file in writer.finish().files]
        found: dict[str, list[str]] = {}
        for low, high in bucket_ranges(pieces, 1):
            for source, changes in read_changes(paths, Wanted(sorted(sources), low, high)).items():
                found.setdefault(source, []).extend(changes["pos"].to_pylist())
    every = [row for rows in files for row in rows if row.kind == CHANGE and row.tbl in sources]
    wanted = {source: sorted(str(row.pos) for row in every if row.tbl == source) for source in sources}
    assert {source: sorted(positions) for source, positions in found.items()} == {s: p for s, p in wanted.items() if p}


@EXPLORING
@given(
    files=st.lists(
        st.lists(st.tuples(st.integers(0, 40), st.sampled_from([CHANGE, REJECTED]), st.sampled_from(TABLES)))
    ),
    keys=st.sets(st.integers(0, 60).map(str)),
    group=st.sampled_from([2, 8, 4096]),
)
def test_the_changes_of_some_keys_are_read_completely_g_03(
    files: list[list[tuple[int, str, str]]], keys: set[str], group: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, patch.object(log_writing, "_ROW_GROUP", group):
        paths, every = [], []
        for number, lines in enumerate(files):
            rows = [
                LogRow(kind, "file", at, table, key_bucket(str(key)), "e", f"{number:03d}{at:06d}:1:1", key=str(key))
                for at, (key, kind, table) in enumerate(lines)
            ]
            writer = LogWriter(Path(folder), 1, "attempt", number)
            writer.add(rows)
            paths += [f"{folder}/{file['path']}" for file in writer.finish().files]
            every += rows
        found = read_keys(paths, "a.b", sorted(keys))
    assert found.schema == CHANGES_SCHEMA
    wanted = sorted(str(row.pos) for row in every if row.kind == CHANGE and row.tbl == "a.b" and row.key in keys)
    assert sorted(found["pos"].to_pylist()) == wanted


@EXPLORING
@given(rows=st.integers(0, 10_000), at_most=st.integers(1, 500), more=st.integers(1, 4))
def test_finer_ranges_of_buckets_lie_inside_coarser_ones(rows: int, at_most: int, more: int) -> None:
    """What is cut into more ranges is cut wherever it would be cut into fewer; ranges cover all buckets."""
    coarse, fine = bucket_ranges(rows, at_most * more), bucket_ranges(rows, at_most)
    assert {low for low, _ in coarse} <= {low for low, _ in fine}
    assert [low for low, _ in fine] == [-1, *(high for _, high in fine[:-1])]
    assert fine[-1][1] == KEY_BUCKETS


@EXPLORING
@given(texts=st.lists(st.text("09AF:\x7f", min_size=1, max_size=24), min_size=1), width=st.integers(0, 40))
def test_numbers_compare_like_the_positions_they_stand_for(texts: list[str], width: int) -> None:
    """Equal numbers mean equal texts, greater ones greater texts, whether 63 bits hold them or not (G-01)."""
    padded = [text.ljust(width, "0")[: width or None] for text in texts]
    order = {number: text for number, text in zip(ordinals(pa.array(padded)).tolist(), padded, strict=True)}
    assert [order[number] for number in sorted(order)] == sorted(set(padded))
