"""What a proof finds of two tables, against a comparison of dictionaries that knows nothing of hashes (G-40, G-41)."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from open_mirroring.landing_zone.arrow_schema import arrow_type
from open_mirroring.landing_zone.schema import LandingColumn
from open_mirroring.protocols.proving import CellSum, add_sums, differing_cells
from spark_jobs.proof.rows import HashKeys, Shape, SumCells
from tests.mutated_tables import TYPES, mutated, random_rows, value_of

RUNS = 200


def shape_of(chance: random.Random) -> Shape:
    names = [f"c{at}" for at in range(chance.randint(1, 5))]
    key = LandingColumn("id", chance.choice(["int32", "int64", "string", "date", "timestamp"]))
    columns = (key, *(LandingColumn(name, chance.choice(TYPES)) for name in names))
    keys = chance.choice([("id",), ("id",), ("id",), ()])
    if not keys or columns[0].type == "string" or chance.random() < 0.5:
        return Shape(columns, keys)
    borders = sorted({value_of(chance, columns[0].type) for _ in range(chance.randint(1, 6))})
    return Shape(columns, keys, "id", tuple(borders))


def tables_of(rows: Iterable[Mapping[str, Any]], shape: Shape, chance: random.Random) -> list[pa.Table]:
    """The rows in any order and cut anywhere."""
    rows = list(rows)
    chance.shuffle(rows)
    schema = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in shape.columns])
    cuts = sorted(chance.randint(0, len(rows)) for _ in range(3))
    pieces = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    return [pa.Table.from_pylist(piece, schema=schema) for piece in pieces]


def sums(tables: list[pa.Table], shape: Shape) -> dict[int, CellSum]:
    parts = []
    for table in tables:
        for batch in SumCells(shape)([table]):
            [line] = batch.to_pylist()
            assert line["error"] is None
            parts.append(pickle.loads(line["sums"]))
    return add_sums(parts)


def lines(tables: list[pa.Table], shape: Shape, cells: Iterable[int]) -> list[dict[str, Any]]:
    return [line for batch in HashKeys(shape, frozenset(cells))(tables) for line in batch.to_pylist()]


def as_seen(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """A row as a value that is equal only to a row of the same bits."""
    return tuple((type(v).__name__, v.hex() if isinstance(v, float) else v) for v in row.values())


@pytest.mark.parametrize("seed", range(RUNS))
def test_the_cells_and_keys_that_differ_are_those_of_a_plain_comparison(seed: int) -> None:
    chance = random.Random(seed)
    shape = shape_of(chance)
    rows = random_rows(chance, shape.columns, chance.choice([0, 1, 40, 200]))
    other = rows if seed % 5 == 0 else mutated(chance, rows, shape.columns)
    ours, theirs = tables_of(rows, shape, chance), tables_of(other, shape, chance)

    cells = differing_cells(sums(ours, shape), sums(theirs, shape))
    assert bool(cells) is (Counter(map(as_seen, rows)) != Counter(map(as_seen, other)))

    found: dict[tuple[int, int], list[list[Any]]] = {}
    for side, tables in enumerate((ours, theirs)):
        for line in lines(tables, shape, cells):
            assert line["error"] is None
            at = found.setdefault((line["k1"], line["k2"]), [[], []])
            at[side].append((line["r1"], line["r2"], line["key"], line["hashes"]))
    differ = {k for k, (a, b) in found.items() if Counter(x[:2] for x in a) != Counter(x[:2] for x in b)}

    def keyed(rows: Iterable[Mapping[str, Any]]) -> dict[Any, Counter[Any]]:
        groups: dict[Any, Counter[Any]] = {}
        for row in rows:
            key = as_seen({k: row[k] for k in shape.keys}) if shape.keys else as_seen(row)
            groups.setdefault(key, Counter())[as_seen(row)] += 1
        return groups

    a, b = keyed(rows), keyed(other)
    expected = {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)}
    assert len(differ) == len(expected)
    if shape.keys and shape.columns[0].type in ("int32", "int64", "string"):
        texts = {json.loads((found[k][0] or found[k][1])[0][2])[0] for k in differ}
        assert texts == {str(key[0][1]) for key in expected}
    for key in differ:  # columns by their own hashes
        (one, two) = found[key]
        if shape.keys and len(one) == len(two) == 1:
            columns = {c.name for c, x, y in zip(shape.columns, one[0][3], two[0][3], strict=True) if x != y}
            names = {
                name
                for left in rows
                for right in other
                if as_seen({"id": left["id"]}) == as_seen({"id": right["id"]}) and one[0][2] == _text(left["id"], shape)
                for name in left
                if as_seen({name: left[name]}) != as_seen({name: right[name]})
            }
            assert columns == names


def _text(value: Any, shape: Shape) -> str:
    from spark_jobs.proof.rows import key_texts

    schema = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in shape.columns])
    return str(key_texts(pa.Table.from_pylist([{"id": value}], schema=schema), shape)[0].as_py())


def test_values_that_look_alike_are_distinguished() -> None:
    """G-41: NULL and empty, a trailing blank, case, bits of floats, the last digit of a decimal and of a time."""
    pairs: list[tuple[str, Any, Any]] = [
        ("string", None, ""),
        ("string", "a", "a "),
        ("string", "Straße", "STRASSE"),
        ("string", "é", "e\u0301"),
        ("binary", None, b""),
        ("binary", b"\x00", b"\x00\x00"),
        ("float64", 0.0, -0.0),
        ("float64", 0.1, 0.1 + 2**-55),
        ("float32", None, 0.0),
        ("int32", None, 0),
        ("bool", None, False),
        ("decimal(38,10)", Decimal("1234567890123456789012345678.0000000001"), Decimal("1234567890123456789012345678")),
        ("date", date(2024, 2, 29), date(2024, 3, 1)),
        ("timestamp", datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=1)),
    ]
    for kind, one, other in pairs:
        shape = Shape((LandingColumn("id", "int32"), LandingColumn("v", kind)), ("id",))
        schema = pa.schema([pa.field("id", pa.int32()), pa.field("v", arrow_type(kind))])
        tables = [pa.Table.from_pylist([{"id": 1, "v": value}], schema=schema) for value in (one, other, one)]
        first, second, again = (sums([table], shape) for table in tables)
        assert differing_cells(first, second), (kind, one, other)
        assert not differing_cells(first, again)


@pytest.mark.parametrize("kind", TYPES)
def test_differences_do_not_cancel_each_other(kind: str) -> None:
    """G-41: values exchanged between rows, and one row more beside another one less, change the sum of all rows."""
    chance = random.Random(kind)
    shape = Shape(tuple(LandingColumn(name, kind) for name in "abc"), ())
    schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in shape.columns])

    def total(rows: Iterable[tuple[Any, ...]]) -> CellSum:
        table = pa.Table.from_pylist([dict(zip("abc", row, strict=True)) for row in rows], schema=schema)
        return add_sums([{0: one} for one in sums([table], shape).values()])[0]

    for _ in range(50):
        u, v, w, x = (value_of(chance, kind) for _ in range(4))
        twins = [
            [(u, v, w), (x, v, u)],
            [(x, v, w), (u, v, u)],
            [(v, u, w), (v, x, u)],
            [(u, v, w)] * 2,
            [(x, v, u)] * 2,
        ]
        found: dict[Any, CellSum] = {}
        for rows in twins:
            found.setdefault(frozenset(Counter(as_seen(dict(enumerate(row))) for row in rows).items()), total(rows))
        assert len({*found.values()}) == len(found)
