"""Exported CSV: what is whole is read exactly, what is not is refused before a row of it counts (G-06)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_jobs.sources.exports import csv as csv_export
from spark_jobs.sources.exports.csv import csv_header, read_csv, why_malformed

CELLS = st.none() | st.text(st.sampled_from('ab",\n\r üé\u2028'), max_size=5)


def written(rows: list[list[str | None]], names: list[str]) -> bytes:
    def line(values):
        return ",".join("" if v is None else '"' + v.replace('"', '""') + '"' for v in values) + "\n"

    return "".join(map(line, [names, *rows])).encode()


@settings(derandomize=True, deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=8), st.integers(1, 40))
def test_what_was_written_is_read(tmp_path: Path, monkeypatch, rows: list[list[str | None]], block: int) -> None:
    """NULL and empty text stay apart; quotes, separators and line breaks inside a value are part of it."""
    path = tmp_path / "a.csv"
    path.write_bytes(written(rows, ["x", "y,z"]))
    with monkeypatch.context() as patch:
        patch.setattr(csv_export, "_BLOCK", block)
        assert why_malformed(path) is None, "wherever the blocks are cut"
    assert csv_header(path) == ["x", "y,z"]
    read = [[row["y,z"], row["x"]] for batch in read_csv(path, ["y,z", "x"]) for row in batch.to_pylist()]
    assert read == [[y, x] for x, y in rows]


@settings(derandomize=True, deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=5), st.data())
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, rows: list[list[str | None]], data: st.DataObject) -> None:
    """Cut anywhere but behind a whole line, nothing of the file counts."""
    content = written(rows, ["x", "y"])
    at = data.draw(st.integers(0, len(content) - 1))
    path = tmp_path / "a.csv"
    path.write_bytes(content[:at])
    whole = any(written(rows[:count], ["x", "y"]) == content[:at] for count in range(len(rows)))
    assert (why_malformed(path) is None) == whole


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"a,b\n1,2", "not ended"),
        (b'a,b\n1,"2\n', "not closed"),
        (b'a,b\n1,2"3\n', "inside a field"),
        (b'a,b\n1,"2"3"\n', "inside a field"),
        (b'a,b\n1,"2"x\n', "inside a field"),
        (b'a,b\n1,"2"x"3"\n', "inside a field"),
        (b"a,b\n1,2\r\n", "carriage return"),
    ],
)
def test_what_is_wrong_is_said_t93(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    assert reason in (why_malformed(path) or "")


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbf"a"\r\n"x"\r\n\r\n""\r\n')
    assert why_malformed(path) is None
    assert csv_header(path) == ["a"]
    assert [row["a"] for batch in read_csv(path, ["a"]) for row in batch.to_pylist()] == ["x", None, ""]
