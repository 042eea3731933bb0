"""What of two landing types holds both, and that values of either one can be cast to it (G-65)."""

from __future__ import annotations

from itertools import combinations_with_replacement, permutations, product

import pyarrow as pa
import pytest

from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.arrow_schema import arrow_type, file_schema
from open_mirroring.landing_zone.schema import LandingColumn, wider
from spark_jobs.sources.sql_server.type_text import landing_type
from spark_jobs.sources.sql_server.typed_rows import Failure, typed_column

VALUES = {
    "bit": ("0", "1"),
    "tinyint": ("0", "255"),
    "smallint": ("-32768", "32767"),
    "int": ("-2147483648", "2147483647"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "real": ("-1.5", "16777216"),
    "float": ("-1.5", "9007199254740992"),
    "decimal(1,0)": ("-9", "9"),
    "decimal(2,2)": ("-0.99", "0.99"),
    "decimal(5,2)": ("-999.99", "999.99"),
    "decimal(20,0)": ("-99999999999999999999", "99999999999999999999"),
    "decimal(38,0)": ("-" + "9" * 38, "9" * 38),
    "decimal(38,38)": ("-0." + "9" * 38, "0." + "9" * 38),
    "money": ("-922337203685477.5808", "922337203685477.5807"),
    "date": ("0001-01-01", "9999-12-31"),
    "datetime2(7)": ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
    "nvarchar(9)": ("", "x"),
    "varbinary(9)": ("0x", "0xFF"),
}
"""Of each source type its least and greatest value; every landing type is there."""
MANY = 260
"""As many rows are cast as columns."""


def held(types: tuple[str, ...]) -> str | None:
    """The landing type of a column that had these types one after the other."""
    kind: str | None = landing_type(types[0])
    for other in types[1:]:
        kind = None if kind is None else wider(kind, landing_type(other))
    return kind


def test_whatever_holds_two_or_three_types_takes_the_values_of_each_g65() -> None:
    pairs, triples = (set(product(VALUES, repeat=count)) for count in (2, 3))
    casts = {(one, kind) for types in pairs | triples if (kind := held(types)) is not None for one in types}
    assert ("bit", "decimal(12,2)") in casts
    for sql_type, kind in sorted(casts):
        for rows in (VALUES[sql_type], VALUES[sql_type] * MANY):
            texts, bad = pa.array([*rows, None], pa.string()), dict[int, Failure]()
            (field,) = file_schema([LandingColumn("v", kind)], (), marker=False)
            column = typed_column(texts, sql_type, field, pa.array(range(len(texts))), bad)
            assert (column.type, bad, column.null_count) == (arrow_type(kind), {}, 1), (sql_type, kind)
            assert len(set(column[:2].to_pylist())) == 2, "two values stay two"


def test_the_order_of_the_types_decides_nothing_where_each_two_have_a_wider_one_g65() -> None:
    for types in combinations_with_replacement(VALUES, 3):
        if all(held(pair) is not None for pair in permutations(types, 2)):
            assert len({held(order) for order in permutations(types)}) == 1, types


def test_a_cast_that_fails_names_its_column_g65() -> None:
    (field,) = file_schema([LandingColumn("v", "float32")], (), marker=False)
    with pytest.raises(TerminalError) as error:
        typed_column(pa.array(["16777217"]), "int", field, pa.array([0]), {})
    assert error.value.code == "SCHEMA_CHANGED" and "'v'" in error.value.what
