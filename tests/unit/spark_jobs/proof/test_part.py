"""A part of a table: exactly its rows, and no row group left out that may have one."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from open_mirroring.landing_zone.load_columns import LoadColumn
from open_mirroring.landing_zone.schema import LandingColumn
from spark_jobs.proof.rows import HashKeys, OfKeys, OfRanges, Shape, are_asked_by_key, key_texts
from spark_jobs.sources.jdbc.dialects import PostgreSql, SqlServer, condition_of_keys

COLUMNS = {"day": "date", "name": "string", "size": "decimal(8,2)", "id": "int32", "note": "string"}
ROWS = st.lists(
    st.tuples(
        st.dates(date(2020, 1, 1), date(2020, 1, 9)),
        st.sampled_from(["a", "A", "", "ä'\"", "[1]", "a,b"]),
        st.decimals(-2, 2, places=2),
        st.integers(-3, 3),
        st.none() | st.just("note"),
    ),
    min_size=1,
    max_size=40,
)


def table_of(rows: list[tuple[Any, ...]], shape: Shape) -> pa.Table:
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), shape.schema, strict=True)],
        schema=shape.schema,
    )


@given(rows=ROWS, keys=st.permutations(["day", "name", "size", "id"]), width=st.integers(1, 4), data=st.data())
def test_exactly_the_rows_of_the_keys_are_found(
    rows: list[tuple[Any, ...]], keys: list[str], width: int, data: st.DataObject
) -> None:
    """Whatever a key consists of; each row gets the key as it was asked for, and no statistics hide it."""
    shape = Shape(tuple(LandingColumn(*one) for one in COLUMNS.items()), tuple(keys[:width]))
    table = table_of(rows, shape)
    texts = key_texts(table, shape).to_pylist()
    wanted = data.draw(st.sets(st.sampled_from(texts)))
    part = OfKeys.of(pa.array([*sorted(wanted), '["no","key","of","this","table"]'], pa.string()), shape)
    assert key_texts(part.rows(table), shape).to_pylist() == [text for text in texts if text in wanted]
    lines = [line for batch in HashKeys(shape, None, part)([table]) for line in batch.to_pylist()]
    assert [line["key"] for line in lines] == [text for text in texts if text in wanted]
    values = table[shape.keys[0]].to_pylist()
    assert part.may_hold(min(values), max(values)) or not wanted
    assert part.may_be_among(table.select(shape.keys)) == bool(wanted)


@given(rows=ROWS, borders=st.sets(st.integers(-4, 4)), data=st.data())
def test_exactly_the_rows_of_the_ranges_are_found(
    rows: list[tuple[Any, ...]], borders: set[int], data: st.DataObject
) -> None:
    """Each row is in one range, and no statistics hide it."""
    columns = tuple(LandingColumn(*one) for one in COLUMNS.items())
    shape = Shape(columns, ("id",), "id", tuple(sorted(borders)))
    ranges = data.draw(st.frozensets(st.integers(0, len(borders))))
    table, part = table_of(rows, shape), OfRanges(shape, ranges)
    ids = table["id"].to_pylist()
    chosen = [one for one in ids if sum(one >= border for border in borders) in ranges]
    assert part.rows(table)["id"].to_pylist() == chosen
    assert not chosen or part.may_hold(min(ids), max(ids))
    assert all(part.may_hold(one, one) == (one in chosen) for one in ids)


def test_databases_are_asked_for_keys_by_literals_that_keep_every_character() -> None:
    """An index can be used: the columns are compared as they are."""
    assert condition_of_keys(PostgreSql(), ['"a"'], [("1", "o'k")]) == "\"a\" IN ('1', 'o''k')"
    both = condition_of_keys(SqlServer(), ["[a]", "[b]"], [("1", "2"), ("x", "")])
    assert both == "([a] = N'1' AND [b] = N'x') OR ([a] = N'2' AND [b] = N'')"


def test_a_key_whose_text_may_not_find_its_row_is_not_asked_for() -> None:
    """Times that a database keeps with more digits, floats, bytes, and hashes."""
    columns = [
        LoadColumn(name, "string", sql_type)
        for name, sql_type in {
            "id": "bigint",
            "at": "datetime2(7)",
            "x": "float",
            "raw": "varbinary(8)",
            "no": None,
        }.items()
    ]
    asked = {name: are_asked_by_key(columns, ["id", name], ()) for name in ("id", "at", "x", "raw", "no")}
    assert asked == {"id": True, "at": False, "x": False, "raw": False, "no": False}
    assert not are_asked_by_key(columns, ["id"], ["id"]) and not are_asked_by_key(columns, [], ())
