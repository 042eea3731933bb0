"""Hashes columns and gives all columns their names at the target: the last step before rows are written (G-121)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa

from open_mirroring.landing_zone.salt import Salt
from open_mirroring.landing_zone.schema import LandingColumn


def landed_rows(rows: pa.Table, columns: Sequence[LandingColumn], names: Sequence[str], salt: Salt | None) -> pa.Table:
    """Rows as they are written to a file: salted columns are hashed, and all columns get the names *names*.

    *names* include the column of the row marker.
    """
    return hashed_rows(rows, [column.name for column in columns if column.salted], salt).rename_columns([*names])


def hashed_rows(rows: pa.Table, columns: Collection[str], salt: Salt | None) -> pa.Table:
    """Replaces the strings of *columns* by their hashes; NULL stays NULL."""
    for name in columns:
        if salt is None:
            raise ValueError(f"the column {name!r} is to be hashed, and there is no salt")
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), _hashed(rows[name], salt))
    return rows


def _hashed(texts: pa.ChunkedArray, salt: Salt) -> pa.Array:
    # Each text once: values often repeat, and only this step goes value by value.
    coded = texts.combine_chunks().dictionary_encode()
    hashes = pa.array(map(salt.hash, coded.dictionary.to_pylist()), pa.string())
    return hashes.take(coded.indices)
