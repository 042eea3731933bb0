"""Random tables with random mishaps, proved by the job as a whole, against a comparison of dictionaries (G-40)."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from open_mirroring.landing_zone.arrow_schema import arrow_type
from open_mirroring.landing_zone.schema import LandingColumn
from spark_jobs.prove import ProofOptions, prove
from tests.mutated_tables import TYPES, mutated, random_rows
from tests.pipeline import Pipeline

PARQUET_TYPES = [kind for kind in TYPES if kind != "int16"]


def _runs(folder: Path, spark: Any, seeds: range) -> None:
    names = [f"shop.t{seed}" for seed in seeds]
    tables = [
        {
            "source": name,
            "target": name.replace(".", "/"),
            "key": [] if seed % 6 == 5 else ["id"],
            "prove": {"format": "parquet", "path": f"export/{name}.parquet"},
        }
        for seed, name in zip(seeds, names, strict=True)
    ]
    zone = {"store": "local", "path": "zone", "tables": "tables"}
    pipeline = Pipeline(folder, spark, tables, landing_zone=zone)
    (folder / "export").mkdir()
    expected: dict[str, dict[str, str]] = {}
    for seed, name in zip(seeds, names, strict=True):
        chance = random.Random(seed)
        columns = [LandingColumn("id", "int64")]
        columns += [LandingColumn(f"c{at}", chance.choice(PARQUET_TYPES)) for at in range(chance.randint(1, 6))]
        schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])
        rows = random_rows(chance, columns, chance.randint(1, 80))
        other = rows if seed % 4 == 0 else mutated(chance, rows, columns)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / "export" / f"{name}.parquet")
        chance.shuffle(other)
        write_deltalake(folder / "tables" / name.replace(".", "/"), pa.Table.from_pylist(other, schema=schema))
        expected[name] = _as_rows(rows, other) if seed % 6 == 5 else _plainly(rows, other)
    found = prove(pipeline.mirror, pipeline.ledger, spark, asked=ProofOptions(settle_seconds=0)).tables
    for name in names:
        kinds: dict[str, Any] = {key["key"][2:-2]: key["kind"] for key in found[name]["keys"]}
        if "missing rows" in expected[name] or "extra rows" in expected[name]:
            kinds = {f"{kind} rows": str(found[name][kind]) for kind in ("missing", "extra") if found[name][kind]}
        assert kinds == expected[name], (name, found[name])
        assert found[name]["verdict"] == ("DIFFERENT" if expected[name] else "EQUAL")


def _plainly(rows: list[dict[str, Any]], other: list[dict[str, Any]]) -> dict[str, str]:
    """What differs, by key: in plain Python, of which nothing is the product's."""
    kinds: dict[str, str] = {}
    for key in {row["id"] for row in [*rows, *other]}:
        ours, theirs = ([row for row in side if row["id"] == key] for side in (rows, other))
        if not theirs:
            kinds[str(key)] = "missing"
        elif not ours:
            kinds[str(key)] = "extra"
        elif len(ours) != len(theirs):
            kinds[str(key)] = "doubled"
        elif _bits(ours[0]) != _bits(theirs[0]):
            kinds[str(key)] = "different"
    return kinds


def _as_rows(rows: list[dict[str, Any]], other: list[dict[str, Any]]) -> dict[str, str]:
    """How many rows either side has more, of a table without key."""
    ours, theirs = (Counter(map(tuple, map(_bits, side))) for side in (rows, other))
    more = {"missing rows": (ours - theirs).total(), "extra rows": (theirs - ours).total()}
    return {kind: str(count) for kind, count in more.items() if count}


def _bits(row: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(type(value).__name__, value.hex() if isinstance(value, float) else value) for value in row.values()]


def test_a_few_random_tables(tmp_path: Path, spark: Any) -> None:
    """G-40: what is found is exactly what a plain comparison finds."""
    _runs(tmp_path / "shop", spark, range(6))


@pytest.mark.long
def test_two_hundred_random_tables(tmp_path: Path, spark: Any) -> None:
    """G-40: the same, of 200 tables of which a quarter are equal."""
    _runs(tmp_path / "shop", spark, range(200))
