"""The digest of rows against its definition, written out slowly; and what may and may not change it (I9, I16)."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.arrow_schema import arrow_type
from open_mirroring.landing_zone.digest import EMPTY, LONG_VALUE, combine, digest_of

M64 = (1 << 64) - 1
EXACT = Context(prec=50)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# --- the definition -------------------------------------------------------------------------------------------


def mix(word: int) -> int:
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & M64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & M64
    return word ^ (word >> 31)


def seeds(text: str) -> tuple[int, int]:
    return struct.unpack("<QQ", blake2b(text.encode(), digest_size=16).digest())


def canonical(kind: str, value: Any) -> tuple[str, bytes]:
    """Type tag and canonical bytes of a value of a landing type."""
    if kind.startswith("decimal"):
        scale = int(kind[:-1].split(",")[1])
        return f"decimal{scale}", int(value.scaleb(scale, EXACT)).to_bytes(16, "little", signed=True)
    match kind:
        case "bool":
            return "bool", struct.pack("<q", int(value))
        case "int16" | "int32" | "int64":
            return "int", struct.pack("<q", value)
        case "float32":
            return "float32", struct.pack("<f", value)
        case "float64":
            return "float64", struct.pack("<d", value)
        case "string":
            return "string", value.encode()
        case "binary":
            return "binary", value
        case "date":
            return "date", struct.pack("<q", (value - date(1970, 1, 1)).days)
        case "timestamp":
            return "timestamp", struct.pack("<q", (value - EPOCH) // timedelta(microseconds=1))
    raise AssertionError(kind)


def slow_digest(columns: dict[str, str], rows: list[dict[str, Any]]) -> str:
    total = 0
    for row in rows:
        lanes = list(seeds("row"))
        for name, kind in columns.items():
            if row[name] is None:
                continue
            tag, data = canonical(kind, row[name])
            long = len(data) > LONG_VALUE
            body = blake2b(data, digest_size=16).digest() if long else data + bytes(-len(data) % 8)
            for lane, seed in enumerate(seeds(f"{tag}\0{name}")):
                hashed = (seed + len(data)) & M64
                for (word,) in struct.iter_unpack("<Q", body):
                    hashed = mix(hashed ^ word)
                lanes[lane] = (lanes[lane] + hashed) & M64
        total += mix(lanes[0]) + (mix(lanes[1]) << 64)
    return f"{total % (1 << 128):032x}"


# --- rows of every type ---------------------------------------------------------------------------------------

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float32": st.floats(width=32, allow_nan=False),
    "float64": st.floats(allow_nan=False),
    "string": st.text(st.characters(codec="utf-8"), max_size=40) | st.text("aé", min_size=200, max_size=300),
    "binary": st.binary(max_size=40) | st.binary(min_size=LONG_VALUE - 1, max_size=LONG_VALUE + 2),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "decimal(38,0)": st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    "decimal(9,4)": st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-4, EXACT)),
}
COLUMNS = {f"c {kind}": kind for kind in VALUES}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | VALUES[kind] for name, kind in COLUMNS.items()}), max_size=8)


def table(rows: list[dict[str, Any]], columns: dict[str, str] = COLUMNS) -> pa.Table:
    schema = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in columns.items()])
    return pa.Table.from_pylist(rows, schema=schema)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(ROWS)
def test_the_digest_is_its_definition(rows: list[dict[str, Any]]) -> None:
    assert digest_of(table(rows)) == slow_digest(COLUMNS, rows)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(ROWS, st.data())
def test_order_cutting_and_slicing_do_not_change_it(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    """Sums have no order (I9): rows permuted, columns permuted, cut anywhere, read through an offset."""
    whole = digest_of(table(rows))
    shuffled = data.draw(st.permutations(rows))
    names = data.draw(st.permutations(list(COLUMNS)))
    cut = data.draw(st.integers(0, len(rows)))
    moved = table(shuffled).select(names)
    assert digest_of(moved) == whole
    assert combine([digest_of(moved.slice(cut)), digest_of(moved.slice(0, cut))]) == whole
    assert digest_of(pa.concat_tables([moved.slice(0, cut), moved.slice(cut)])) == whole
    batch = table([*rows, *shuffled]).combine_chunks().to_batches()
    assert not rows or digest_of(batch[0].slice(len(rows))) == whole


@settings(derandomize=True, deadline=None, max_examples=40)
@given(ROWS.filter(bool), st.data())
def test_any_changed_value_changes_it(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    name = data.draw(st.sampled_from(list(COLUMNS)))
    value = data.draw(st.none() | VALUES[COLUMNS[name]])
    old = rows[at][name]
    changed = [*rows[:at], {**rows[at], name: value}, *rows[at + 1 :]]
    same = repr(old) == repr(value) or (isinstance(old, Decimal) and old == value)
    assert (digest_of(table(changed)) == digest_of(table(rows))) is same


@settings(derandomize=True, deadline=None, max_examples=20)
@given(ROWS)
def test_a_null_column_added_later_leaves_old_rows_alone(rows: list[dict[str, Any]]) -> None:
    """F-83, F-84: the union of columns may grow without touching what is stored about older files."""
    grown = table(rows).append_column("new", pa.nulls(len(rows), pa.string()))
    assert digest_of(grown) == digest_of(table(rows))


def test_it_survives_parquet(tmp_path: Path) -> None:
    rows = [{name: None for name in COLUMNS}] + [
        {
            **{name: None for name in COLUMNS},
            "c float64": value,
            "c string": "ß" * n,
            "c decimal(9,4)": Decimal("-0.0001"),
        }
        for n, value in enumerate([math.nan, -0.0, 0.0, math.inf, 1e-320])
    ]
    for compression, dictionary, rows_per_group in (("zstd", True, 1), ("none", False, 100)):
        path = tmp_path / f"{compression}.parquet"
        pq.write_table(
            table(rows), path, compression=compression, use_dictionary=dictionary, row_group_size=rows_per_group
        )
        assert digest_of(pq.read_table(path)) == digest_of(table(rows))


def test_what_looks_alike_differs() -> None:
    """NULL is no empty string, -0.0 no 0.0, 1.0 of one scale not 1.00 of another; names and row counts matter."""
    nan, other_nan = (struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (0x7FF8 << 48, (0x7FF8 << 48) + 1))
    distinct = [
        table([], {"a": "string"}),
        table([{"a": None}], {"a": "string"}),
        table([{"a": None}, {"a": None}], {"a": "string"}),
        table([{"a": ""}], {"a": "string"}),
        table([{"a": "\0"}], {"a": "string"}),
        table([{"a": b"\0"}], {"a": "binary"}),
        table([{"b": "\0"}], {"b": "string"}),
        table([{"a": 0.0}], {"a": "float64"}),
        table([{"a": -0.0}], {"a": "float64"}),
        table([{"a": 0.0}], {"a": "float32"}),
        table([{"a": nan}], {"a": "float64"}),
        table([{"a": other_nan}], {"a": "float64"}),
        table([{"a": Decimal("1.0")}], {"a": "decimal(9,1)"}),
        table([{"a": Decimal("1.00")}], {"a": "decimal(9,2)"}),
        table([{"a": 1}], {"a": "int32"}),
        table([{"a": True}], {"a": "bool"}),
        table([{"a": "x", "b": "y"}], {"a": "string", "b": "string"}),
        table([{"a": "y", "b": "x"}], {"a": "string", "b": "string"}),
    ]
    assert len({digest_of(rows) for rows in distinct}) == len(distinct)
    swapped = [
        [{"a": 1, "b": 2}, {"a": 2, "b": 1}],
        [{"a": 1, "b": 1}, {"a": 2, "b": 2}],
    ]
    assert len({digest_of(table(rows, {"a": "int64", "b": "int64"})) for rows in swapped}) == 2


def test_it_is_the_same_next_year() -> None:
    """Stored digests must stay comparable: these two are written down, not computed."""
    rows = [{"id": 1, "name": "Ada", "paid": Decimal("1.50"), "__rowMarker__": 4}]
    columns = {"id": "int64", "name": "string", "paid": "decimal(9,2)", "__rowMarker__": "int32"}
    assert digest_of(table(rows, columns)) == "869b7b9d86ce9af0c96c701083aa0653"
    assert digest_of(table([], columns)) == EMPTY == combine([])


def test_sums_wrap_at_two_to_the_128th_and_not_before() -> None:
    rows = table([{"a": n} for n in range(100_000)], {"a": "int32"})
    parts = [digest_of(rows.slice(start, 7_001)) for start in range(0, 100_000, 7_001)]
    assert combine(parts) == digest_of(rows)
    assert combine(["f" * 32, f"{1:032x}"]) == EMPTY


def test_errors_name_the_column_and_the_text() -> None:
    with pytest.raises(TerminalError, match=r"TYPE_UNSUPPORTED: column 'when' has the type timestamp\[ns\]"):
        digest_of(pa.table({"when": pa.array([1], pa.timestamp("ns"))}))
    for text in ("", "0" * 31, "G" * 32, "A" * 32, " " + "0" * 31):
        with pytest.raises(TerminalError, match="LOG_DAMAGED"):
            combine([text])
