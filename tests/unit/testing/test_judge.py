"""The judge of the demo says "equal" of equal tables only: each way of being wrong is reported by name."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from demo.judge import CannotJudge, expected_value, found_value, judge, main

COLUMNS = {
    "id": ("bigint", pa.int64()),
    "name": ("nvarchar(20)", pa.string()),
    "price": ("decimal(12,2)", pa.decimal128(12, 2)),
    "weight": ("float", pa.float64()),
    "at": ("datetime2(7)", pa.timestamp("us")),
    "day": ("date", pa.date32()),
    "vip": ("bit", pa.bool_()),
    "guid": ("uniqueidentifier", pa.string()),
}
SOURCE = [
    (
        "1",
        "é",
        "10.50",
        "0.1",
        "2026-01-02 03:04:05.1234569",
        "2026-01-02",
        "1",
        "0F8FAD5B-D9CB-469F-A165-70867728950E",
    ),
    ("2", "", "-0.01", "1e-300", "9999-12-31 23:59:59.9999999", "0001-01-01", "0", None),
    ("3", None, None, None, None, None, None, None),
]
MIRRORED: list[list[Any]] = [
    [
        *(1, "é", Decimal("10.50"), 0.1, datetime(2026, 1, 2, 3, 4, 5, 123456), date(2026, 1, 2), True),
        "0f8fad5b-d9cb-469f-a165-70867728950e",
    ],
    [2, "", Decimal("-0.01"), 1e-300, datetime(9999, 12, 31, 23, 59, 59, 999999), date(1, 1, 1), False, None],
    [3, *[None] * 7],
]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "source.db"
    with sqlite3.connect(path) as db:
        db.execute('CREATE TABLE _columns ("table", ordinal, name, sql_type, key_position)')
        for ordinal, (name, (sql_type, _)) in enumerate(COLUMNS.items()):
            db.execute(
                "INSERT INTO _columns VALUES ('dbo.t', ?, ?, ?, ?)", (ordinal, name, sql_type, int(name == "id"))
            )
        db.execute(f'CREATE TABLE "dbo.t" ({", ".join(COLUMNS)})')
        db.executemany(f'INSERT INTO "dbo.t" VALUES ({", ".join("?" * len(COLUMNS))})', SOURCE)
    return path


def mirror(folder: Path, rows: list[list[Any]] = MIRRORED, **other_types: pa.DataType) -> Path:
    types = {name: other_types.get(name, kind) for name, (_, kind) in COLUMNS.items()}
    columns = [[row[place] for row in rows] for place in range(len(types))]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types.values(), strict=True)]
    write_deltalake(str(folder / "dbo" / "t"), pa.Table.from_arrays(arrays, names=list(types)))
    return folder


def changed(row: int, column: str, value: Any) -> list[list[Any]]:
    rows = [list(one) for one in MIRRORED]
    rows[row][list(COLUMNS).index(column)] = value
    return rows


def test_equal_tables_are_equal_in_any_row_order(state: Path, tmp_path: Path) -> None:
    (verdict,) = judge(state, mirror(tmp_path / "tables", MIRRORED[::-1]))
    assert (verdict.table, verdict.source_rows, verdict.mirrored_rows, verdict.equal) == ("dbo.t", 3, 3, True)
    assert verdict.differences == []


def test_a_zoned_timestamp_is_the_instant_it_names(state: Path, tmp_path: Path) -> None:
    assert judge(state, mirror(tmp_path / "tables", at=pa.timestamp("us", "UTC")))[0].equal


@pytest.mark.parametrize(
    ("row", "column", "value", "said"),
    [
        (1, "name", None, "id=int 2: name is text '', mirrored NULL"),
        (2, "name", "", "id=int 3: name is NULL, mirrored text ''"),
        (0, "name", "e", "name is text 'é', mirrored text 'e'"),
        (0, "price", Decimal("10.51"), "price is decimal 10.50, mirrored decimal 10.51"),
        (0, "weight", 0.1 + 2**-56, "weight is float 0.1, mirrored float 0.10000000000000002"),
        (0, "at", datetime(2026, 1, 2, 3, 4, 5, 123457), "123456, mirrored timestamp 2026-01-02 03:04:05.123457"),
        (1, "day", date(1, 1, 3), "day is date 0001-01-01, mirrored date 0001-01-03"),
        (0, "vip", False, "vip is bool True, mirrored bool False"),
        (0, "guid", "0f8fad5b-d9cb-469f-a165-70867728950f", "guid is guid 0f8fad5b-d9cb-469f-a165-70867728950e"),
        (0, "guid", "none", "mirrored text 'none'"),
        (0, "id", 4, "id=int 1: missing in the mirrored table"),
        (0, "id", 2, "id=int 2: more than once in the mirrored table"),
        (0, "id", None, "id=NULL: exists in the mirrored table only"),
    ],
)
def test_every_wrong_cell_is_named(state: Path, tmp_path: Path, row: int, column: str, value: Any, said: str) -> None:
    (verdict,) = judge(state, mirror(tmp_path / "tables", changed(row, column, value)))
    assert not verdict.equal
    assert any(said in one for one in verdict.differences), verdict.differences


@pytest.mark.parametrize(
    ("column", "kind", "value"),
    [
        ("price", pa.string(), "10.50"),
        ("price", pa.float64(), 10.5),
        ("id", pa.string(), "1"),
        ("vip", pa.int32(), 1),
        ("at", pa.string(), "2026-01-02 03:04:05.123456"),
        ("day", pa.timestamp("us"), datetime(2026, 1, 2)),
    ],
)
def test_the_right_text_in_the_wrong_type_is_wrong(
    state: Path, tmp_path: Path, column: str, kind: pa.DataType, value: Any
) -> None:
    rows = changed(0, column, value)[:1]
    with sqlite3.connect(state) as db:
        db.execute('DELETE FROM "dbo.t" WHERE id <> 1')
    (verdict,) = judge(state, mirror(tmp_path / "tables", rows, **{column: kind}))
    assert not verdict.equal


def test_rows_and_columns_too_many_or_too_few_are_named(state: Path, tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([1, 2, 9], pa.int64()), "name": ["é", "", "x"], "__rowMarker__": [1, 1, 1]})
    write_deltalake(str(tmp_path / "dbo" / "t"), table)
    (verdict,) = judge(state, tmp_path)
    assert "column price is missing in the mirrored table" in verdict.differences
    assert verdict.difference_count == 6 + 1 + 2 and len(verdict.differences) == 5


def test_a_table_that_is_missing_or_broken_is_not_equal(state: Path, tmp_path: Path) -> None:
    (verdict,) = judge(state, tmp_path / "tables")
    assert verdict.differences == ["the mirrored table is missing"] and verdict.mirrored_rows is None
    mirror(tmp_path / "tables")
    for file in (tmp_path / "tables").rglob("*.parquet"):
        file.write_bytes(b"PAR1")
    (verdict,) = judge(state, tmp_path / "tables")
    assert not verdict.equal and "cannot be read" in verdict.differences[0]
    for file in (tmp_path / "tables").rglob("*.parquet"):
        file.unlink()
    (verdict,) = judge(state, tmp_path / "tables")
    assert not verdict.equal and "cannot be read" in verdict.differences[0]


def test_two_empty_tables_prove_nothing(state: Path, tmp_path: Path) -> None:
    with sqlite3.connect(state) as db:
        db.execute('DELETE FROM "dbo.t"')
    (verdict,) = judge(state, mirror(tmp_path / "tables", []))
    assert not verdict.equal and verdict.differences == ["empty at both ends: nothing is proved"]


def test_files_are_counted_where_they_wait_and_where_they_went(state: Path, tmp_path: Path) -> None:
    """F-31, F-36: numbered files in the table's folder and both processed folders; others do not count."""
    folder = tmp_path / "zone" / "dbo.schema" / "t"
    root = tmp_path / "zone" / "_FilesReadyToDelete" / "dbo.schema" / "t"
    for place, number in ((folder, 3), (folder / "_ProcessedFiles", 2), (root, 1), (folder / "_stage-1", 4)):
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:020d}.parquet").touch()
    (folder / "_metadata.json").touch()
    assert judge(state, mirror(tmp_path / "tables"), tmp_path / "zone")[0].files == 3


def test_exit_codes_and_output(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--state", str(state), "--tables", str(mirror(tmp_path / "good"))]
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["dbo.t", "3", "3", "yes", "-"]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["equal"] is True
    words[-1] = str(mirror(tmp_path / "bad", changed(0, "name", "x")))
    assert main(words) == 1
    assert "NO" in capsys.readouterr().out
    words[1] = str(tmp_path / "none.db")
    assert main(words) == 2
    assert "no such source database" in capsys.readouterr().err


def test_the_judge_stands_alone(state: Path, tmp_path: Path) -> None:
    """It runs as a script from anywhere, with nothing of the product on its path."""
    script = Path(__file__).parents[3] / "demo" / "judge.py"
    words = ["--state", str(state), "--tables", str(mirror(tmp_path / "tables"))]
    run = subprocess.run([sys.executable, "-I", str(script), *words], cwd=tmp_path, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr
    source = script.read_text(encoding="utf-8")
    assert "open_mirroring" not in source and "workload_generator" not in source


def test_values_compare_by_their_type() -> None:
    assert expected_value("float", "-0.0") != found_value("float", 0.0)
    assert expected_value("real", "0.1") == found_value("real", 0.10000000149011612)
    assert expected_value("varbinary(max)", "0x00FF") == found_value("varbinary(max)", b"\x00\xff")
    assert expected_value("money", "1.5000") == found_value("money", Decimal("1.5000"))
    zoned = datetime(2026, 1, 2, tzinfo=UTC)
    assert found_value("datetime2(7)", zoned) == expected_value("datetime2(7)", "2026-01-02 00:00:00.0000000")
    with pytest.raises(CannotJudge, match="does not know"):
        expected_value("geography", "POINT (0 0)")
    with pytest.raises(CannotJudge, match="holds 'x'"):
        expected_value("int", "x")
