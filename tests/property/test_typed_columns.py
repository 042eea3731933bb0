"""Typing whole columns reads every value exactly like typing it alone: the number of rows decides nothing (G-06)."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.changes.row_key import encode_key
from open_mirroring.landing_zone.schema import LandingColumn, wider
from spark_jobs.changelog.schema import CHANGE, LogRow
from spark_jobs.changelog.writing import log_table
from spark_jobs.sources.sql_server.type_text import landing_type
from spark_jobs.sources.sql_server.typed_rows import Typed, type_rows
from spark_jobs.sources.sql_server.types import key_converter

MANY = 260
"""More rows than are typed one by one."""

# Type, a good value for the other rows, and values at and beyond the edges.
EDGES: list[tuple[str, str, Sequence[str]]] = [
    ("tinyint", "1", ["255", "256", "-1", "+7", "007", ""]),
    ("smallint", "1", ["32767", "32768", "-32768", "-32769", "1e3"]),
    ("int", "1", ["2147483647", "2147483648", " 1", "1 ", "1.0", "٣"]),
    ("bigint", "1", ["9223372036854775807", "9223372036854775808", "-9223372036854775808", "9" * 30]),
    ("bit", "1", ["0", "true", "FALSE", "2", "yes"]),
    ("decimal(8,2)", "1.50", ["999999.99", "1000000.00", "1.505", "1.500", "-0.00", "1,5", ".5", "5.",
      "1e2", "0000001"]),
    ("decimal(38,38)", "0.1", ["0." + "9" * 38, "1", "-0." + "1" * 39]),
    ("money", "1", ["922337203685477.5807", "922337203685477.5808", "-922337203685477.5808", "-922337203685477.5809"]),
    ("smallmoney", "1", ["214748.3647", "214748.3648", "-214748.3648", "999999.9999"]),
    ("float", "1.5", ["1e308", "1e309", "9" * 400, "nan", "inf", "-0", "1e-400", "4.9e-324", "0x10", "1_0"]),
    ("real", "1.5", ["3.4e38", "3.5e38", "16777217"]),
    ("date", "2026-01-01", ["0001-01-01", "0000-01-01", "2026-02-29", "2024-02-29", "9999-12-31",
      "2026-1-1", "10000-01-01"]),
    ("datetime2(3)", "2026-01-01 10:00:00", ["2026-01-01 10:00:00.123", "2026-01-01 10:00:00.1234",
      "0000-01-01 00:00:00", "2026-01-01 10:00:00.1230000", "2026-01-01T10:00:00", "2026-01-01 24:00:00", 
      "2026-01-01 23:59:60"]),
    ("datetime2(0)", "2026-01-01 10:00:00", ["2026-01-01 10:00:00.0", "2026-01-01 10:00:00.5", "2026-02-30 10:00:00"]),
    ("datetime2(7)", "2026-01-01 10:00:00", ["2026-01-01 10:00:00.1234567", "2026-01-01 10:00:00.12345678",
      "9999-12-31 23:59:59.9999999", "0001-01-01 00:00:00", "2026-01-01 10:00:00Z", "2026-01-01 10:00"]),
    ("datetimeoffset(3)", "2026-01-01 10:00:00 +02:00", ["2026-01-01 10:00:00", "2026-01-01 10:00:00 +15:00"]),
    ("smalldatetime", "2026-01-01 10:00:00", ["2026-01-01 10:00:30.5", "x"]),
    ("time(3)", "10:00:00", ["10:00:00.123", "10:00:00.1234", "24:00:00"]),
    ("nvarchar(3)", "ab", ["abc", "abcd", "äöü", "😀a", "😀😀", "", "a\u0000b", 'a"\\\n', "\ufeff", "null"]),
    ("varchar(3)", "ab", ["abc", "äöü", "longer than that"]),
    ("nvarchar(max)", "ab", ["😀" * 50, "\u2028", "\r\n", "{}"]),
    ("uniqueidentifier", "6f9619ff-8b86-d011-b42d-00c04fc964ff", ["6F9619FF8B86D011B42D00C04FC964FF", "x"]),
    ("varbinary(3)", "0x0102", ["0x01020304", "0x1", "010203", "zz"]),
]  # fmt: skip
NAMES = ["v", "a b", "it's", 'q"q', "[x]", "x\ny", "$", "größe", "😀", "a.b", "{v}", "\u0000", "\ud7ff"]


def typed(sql_type: str, name: str, values: Sequence[str | None], kind: str | None = None) -> Typed:
    cols = json.dumps([["id", "int", 0], [name, sql_type, 1]])
    rows = [
        LogRow(
            CHANGE, "o", at, "t", 0, "e", "p", "I", f'["{at}"]', cols, True, json.dumps({"id": str(at), name: value})
        )
        for at, value in enumerate(values)
    ]
    columns = [LandingColumn("id", "int32"), LandingColumn(name, kind or landing_type(sql_type))]
    return type_rows(log_table(rows, 1), columns, ["id"], {"id": "int", name: sql_type})


@settings(derandomize=True, deadline=None, max_examples=150)
@given(data=st.data())
def test_a_value_among_many_is_read_like_alone(data: st.DataObject) -> None:
    """I27: a value has one reading, wherever it stands; none becomes NULL."""
    sql_type, good, edges = data.draw(st.sampled_from(EDGES))
    name = data.draw(st.sampled_from(NAMES))
    chosen = data.draw(st.lists(st.sampled_from([*edges, None]), min_size=1, max_size=2))
    alone = typed(sql_type, name, chosen)
    among = typed(sql_type, name, [*chosen, *[good] * MANY])
    assert among.failures == alone.failures
    first = among.rows.filter(pa.compute.less(among.rows["id"], len(chosen)))
    assert first.to_pylist() == alone.rows.to_pylist()
    assert among.rows.num_rows == MANY + alone.rows.num_rows
    for row, value in zip(
        alone.rows.to_pylist(), [v for at, v in enumerate(chosen) if at not in failed(alone)], strict=True
    ):
        assert (row[name] is None) == (value is None), "a value becomes NULL only if it was NULL"


def failed(result: Typed) -> set[int]:
    assert {failure.code for failure in result.failures} <= {"VALUE_INVALID"}
    return {failure.index for failure in result.failures}


def test_every_edge_is_a_value_or_a_failure_that_names_column_and_type() -> None:
    """I27, G-06: nothing lands as something near."""
    for sql_type, good, edges in EDGES:
        result = typed(sql_type, "v", [good, *edges])
        assert 0 not in failed(result), (sql_type, good, result.failures)
        assert all(f"column 'v' ({sql_type})" in failure.reason for failure in result.failures)
        assert result.rows.num_rows + len(result.failures) == 1 + len(edges)


def test_a_delete_names_the_key_that_the_insert_had() -> None:
    """G-02, F-55: the canonical text of a key reads back as the very value that its row was written with."""
    for sql_type, good, _ in EDGES:
        try:
            key = encode_key([key_converter(sql_type)(good)])
        except ValueError:
            assert sql_type == "datetime2(7)", "only a type that loses digits is no key"
            continue
        cols = json.dumps([["v", sql_type, 0]])
        rows = [
            LogRow(CHANGE, "o", at, "t", 0, "e", "p", op, key, cols, True, row)
            for at, (op, row) in enumerate([("I", json.dumps({"v": good})), ("D", None)])
        ]
        result = type_rows(log_table(rows, 1), [LandingColumn("v", landing_type(sql_type))], ["v"], {"v": sql_type})
        assert result.failures == []
        values = result.rows["v"].to_pylist()
        assert values[0] == values[1], sql_type


def test_deletes_are_typed_before_any_row_was_seen_c71() -> None:
    """C-71, T-21: after an initial load the first changes may be deletes, which tell no types."""
    key = encode_key(["7", "2026-01-02"])
    rows = log_table([LogRow(CHANGE, "f", 1, "t", 0, "e", "1:1:0", "D", key)], 1)
    columns = [LandingColumn("id", "int64"), LandingColumn("day", "date"), LandingColumn("name", "string")]
    typed = type_rows(rows, columns, ["id", "day"], {})
    assert typed.failures == []
    ((line,),) = (typed.rows.to_pylist(),)
    assert (line["id"], str(line["day"]), line["name"]) == (7, "2026-01-02", None)


def test_values_of_a_column_that_became_wider_are_read_in_the_wider_type_g65() -> None:
    """G-65: no cast between two types that a column may have had fails, with the whole run of all tables."""
    kinds = {landing_type(sql_type) for sql_type, *_ in EDGES}
    widened = 0
    for sql_type, good, _ in EDGES:
        own = landing_type(sql_type)
        for kind in {wide for other in kinds if (wide := wider(own, other)) and wide != own}:
            for many in (1, MANY):
                found = typed(sql_type, "v", [good] * many, kind)
                assert not found.failures and found.rows["v"].null_count == 0, (sql_type, kind)
            widened += 1
    assert widened > 20
