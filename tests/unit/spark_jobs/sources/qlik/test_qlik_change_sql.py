"""The SQL that reads change tables: exact texts, names and values that can never end where they should not."""

from __future__ import annotations

import pytest

from spark_jobs.sources.jdbc.dialects import Dialect, PostgreSql, SqlServer
from spark_jobs.sources.qlik.change_table.jdbc_table import Slice, changes_query, range_condition
from spark_jobs.sources.qlik.change_table.rows import ChangeColumn, Structure

COLUMNS = (
    ChangeColumn("header__change_mask", "varbinary(128)"),
    ChangeColumn('a"]b', "decimal(38,10)"),
    ChangeColumn("at", "datetime2(6)"),
    ChangeColumn("odd", ""),
)


@pytest.mark.parametrize(
    ("dialect", "texts", "seq"),
    [
        (
            PostgreSql(),
            [
                "'0x' || encode(\"header__change_mask\", 'hex') AS c0",
                'CAST("a""]b" AS text) AS c1',
                'CAST("at" AS text) AS c2',
            ],
            '"header__change_seq"',
        ),
        (
            SqlServer(),
            [
                "CONVERT(varchar(max), CAST([header__change_mask] AS varbinary(max)), 1) AS c0",
                'CONVERT(varchar(64), [a"]]b]) AS c1',
                "CONVERT(varchar(64), [at], 121) AS c2",
            ],
            "[header__change_seq]",
        ),
    ],
)
def test_every_column_is_read_as_its_exact_text(dialect: Dialect, texts: list[str], seq: str) -> None:
    """G-06, T-20: a column without text keeps its place and is not read."""
    query = changes_query(dialect, "t", Structure("s.t", COLUMNS), {"seq": dialect.quote("header__change_seq")})
    selected = ", ".join([*texts, "CAST(NULL AS char(1)) AS c3", f"{seq} AS seq"])
    assert query == f"(SELECT {selected} FROM t) changes"


def test_ranges_are_conditions() -> None:
    """T-18, T-34, T-91: intervals are half open; a row without sequence is in every one, so that it is never lost."""
    interval = range_condition(Slice("s.t", "s.t__ct", None, "1", "2"))
    assert interval == "(seq >= '1' AND seq < '2') OR seq IS NULL OR seq < '0'"
    assert range_condition(Slice("s.t", "s.t__ct/o'p", "o'p", "", "")) == "part = 'o''p'"
    assert range_condition(Slice("s.t", "s.t__ct/", "", "", "")) == "part IS NULL OR part = ''"
