"""Random tables, and copies of them in which something went wrong as it does when data is lost."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from open_mirroring.landing_zone.schema import LandingColumn

TYPES = ("bool", "int16", "int64", "float32", "float64", "string", "binary", "date", "timestamp", "decimal(12,3)")
_TEXTS = ("", " ", "a", "a ", "A", "Ada", "ada", "ADA", "naïve", "x" * 300, "0", "NULL", "\t", "é")


def value_of(chance: random.Random, kind: str) -> Any:
    """Any value of a landing type."""
    if kind.startswith("decimal"):
        return Decimal(chance.randint(-(10**12) + 1, 10**12 - 1)).scaleb(-3)
    values = {
        "bool": lambda: chance.random() < 0.5,
        "int16": lambda: chance.randint(-(2**15), 2**15 - 1),
        "int32": lambda: chance.randint(-(2**31), 2**31 - 1),
        "int64": lambda: chance.randint(-(2**63), 2**63 - 1),
        "float32": lambda: chance.choice([0.0, -0.0, 0.5, float(chance.randint(-(2**20), 2**20))]),
        "float64": lambda: chance.choice([0.0, -0.0, chance.gauss(0, 1e9)]),
        "string": lambda: chance.choice([*_TEXTS, str(chance.random())]),
        "binary": lambda: chance.randbytes(chance.choice([0, 1, 8, 300])),
        "date": lambda: date(2000, 1, 1) + timedelta(days=chance.randint(-9000, 9000)),
        "timestamp": lambda: datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=chance.randint(0, 10**15)),
    }
    return values[kind]()


def random_rows(chance: random.Random, columns: Sequence[LandingColumn], count: int) -> list[dict[str, Any]]:
    """Up to so many rows; the first column is a key."""
    rows: dict[Any, dict[str, Any]] = {}
    for _ in range(count):
        row = {
            c.name: None if at and chance.random() < 0.2 else value_of(chance, c.type) for at, c in enumerate(columns)
        }
        rows[row[columns[0].name]] = row
    return list(rows.values())


def mutated(
    chance: random.Random, rows: Sequence[Mapping[str, Any]], columns: Sequence[LandingColumn]
) -> list[dict[str, Any]]:
    """A copy with one to four mishaps: a lost row, a ghost, a double, values exchanged, NULL over one, a blank, …"""
    copy = [dict(row) for row in rows]
    for _ in range(chance.randint(1, 4)):
        mishap = chance.choice(["lost", "ghost", "double", "exchange", "null", "value", "blank", "case", "digit"])
        if mishap == "ghost" or not copy:
            copy += [row for row in random_rows(chance, columns, 1) if all(row["id"] != other["id"] for other in copy)]
            continue
        row = chance.choice(copy)
        others = [column for column in columns if column.name != "id"]
        if mishap == "lost":
            copy.remove(row)
        elif mishap == "double":
            copy.append(dict(row))
        elif mishap == "exchange" and others:
            other, name = chance.choice(copy), chance.choice(others).name
            row[name], other[name] = other[name], row[name]
        elif others:
            column = chance.choice(others)
            row[column.name] = _wrong(chance, mishap, row[column.name], column.type)
    return copy


def _wrong(chance: random.Random, mishap: str, value: Any, kind: str) -> Any:
    if mishap == "null":
        return None
    if isinstance(value, str) and mishap == "blank":
        return value + " "
    if isinstance(value, str) and mishap == "case":
        return value.swapcase()
    if isinstance(value, Decimal) and mishap == "digit":
        return value + Decimal("0.001") if value < 10**8 else value - Decimal("0.001")
    if isinstance(value, datetime) and mishap == "digit":
        return value + timedelta(microseconds=1)
    return value_of(chance, kind)
