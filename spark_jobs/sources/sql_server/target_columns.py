"""Writes the columns that only the target has: extra columns (G-118), hashes (G-121) and names at the target (G-120).

Extra columns, such as the operation, are filled with properties of the rows' changes. No value comes from a local
clock, so a row that is written again has the same values.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.column_choice import DELETED_AT
from open_mirroring.changes.log_position import is_load_epoch
from open_mirroring.landing_zone.arrow_schema import arrow_type
from open_mirroring.landing_zone.layout import RowMarker
from open_mirroring.landing_zone.salt import Salt
from open_mirroring.landing_zone.schema import LandingColumn
from spark_jobs.changelog.schema import DELETE, INSERT, KEY_LEFT, LOAD_MAJOR

LOADED, _CORRECTED, _INSERTED, _UPDATED, _DELETED = "load", "correction", "insert", "update", "delete"
_UNKNOWN = datetime(1970, 1, 1, tzinfo=UTC)
"""Qlik's commit time of a transaction that it does not know yet (T-17)."""
_TIME = arrow_type("timestamp")
_ZONE = r"(Z|[+-]00:?00)$"


def with_extra(
    rows: pa.Table, changes: pa.Table, columns: Sequence[LandingColumn], source: str, *, placed: bool = False
) -> pa.Table:
    """Typed rows of the table *source* with their extra columns filled from *changes*.

    The extra columns of a row that removes a key stay NULL (F-55). With *placed*, rows of an initial load or full load
    get a log position before all changes, because a history needs it (G-194); else their log position is NULL.
    """
    removes = pc.equal(rows[rows.column_names[-1]].combine_chunks(), int(RowMarker.DELETE))
    for column in columns:
        if column.content:
            place, kind = rows.schema.get_field_index(column.name), arrow_type(column.type)
            filled = pc.if_else(removes, pa.scalar(None, kind), _property_of(column.content, changes, source, placed))
            rows = rows.set_column(place, rows.schema.field(place), filled)
    return rows


def loaded_extra(rows: pa.Table, columns: Sequence[LandingColumn], source: str) -> pa.Table:
    """Rows of an initial load with their extra columns.

    Only operation and source table are filled: the other extra columns describe changes, and stay NULL.
    """
    known = {"operation": LOADED, "source_table": source}
    for column in columns:
        value = pa.scalar(known.get(column.content or ""), arrow_type(column.type))
        rows = rows.append_column(pa.field(column.name, value.type), pa.repeat(value, rows.num_rows))
    return rows


def _property_of(content: str, changes: pa.Table, source: str, placed: bool) -> pa.Array:
    if content == "source_table":
        return pa.repeat(source, changes.num_rows)
    if content == "operation":
        operations = pc.if_else(pc.equal(_texts(changes, "op"), INSERT), _INSERTED, _UPDATED)
        operations = pc.if_else(pc.match_substring(_texts(changes, "pos"), "~"), _CORRECTED, operations)
        operations = pc.if_else(_are_removed(changes), _DELETED, operations)
        return pc.if_else(_are_loaded(changes), LOADED, operations)
    if content == "log_position":
        order = _texts(changes, "order")
        return order if placed else pc.if_else(_are_loaded(changes), pa.scalar(None, pa.string()), order)
    if content == DELETED_AT:
        # NULL would show a row that is there: an unknown time is the same instant for all.
        known = pc.fill_null(times(_texts(changes, "committed")), pa.scalar(_UNKNOWN, _TIME))
        return pc.if_else(_are_removed(changes), known, pa.scalar(None, _TIME))
    if content == "is_current":
        return changes[content].combine_chunks()
    if content == "transaction":
        return _texts(changes, content)
    return times(_texts(changes, "valid_to" if content == "valid_to" else "committed"))


def _are_removed(changes: pa.Table) -> pa.Array:
    """Which changes remove a row; one that stays at the target is among them (G-192)."""
    return pc.is_in(_texts(changes, "op"), pa.array([DELETE, KEY_LEFT]))


def _are_loaded(changes: pa.Table) -> pa.Array:
    """Which changes are rows of a full load, ours or the source's: they have no position among changes (K-18)."""
    epochs = _texts(changes, "epoch").dictionary_encode()
    ours = pa.array([is_load_epoch(epoch) for epoch in epochs.dictionary.to_pylist()], pa.bool_()).take(epochs.indices)
    return pc.or_(ours, pc.starts_with(_texts(changes, "pos"), f"{LOAD_MAJOR}:"))


def _texts(changes: pa.Table, name: str) -> pa.Array:
    return changes[name].cast(pa.string()).combine_chunks()


def times(texts: pa.Array) -> pa.Array:
    """Converts ISO strings to times, in UTC if the string has no zone.

    Invalid and missing strings become NULL, and so does 1970-01-01 00:00:00, Qlik's time of an unknown commit (T-17).
    """
    try:
        plain = pc.utf8_slice_codeunits(pc.replace_substring_regex(texts, _ZONE, ""), 0, 26)
        found = plain.cast(pa.timestamp("us")).cast(_TIME)
    except pa.ArrowInvalid:
        coded = texts.dictionary_encode()
        found = pa.array(map(_time, coded.dictionary.to_pylist()), _TIME).take(coded.indices)
    return pc.if_else(pc.equal(found, pa.scalar(_UNKNOWN, _TIME)), pa.scalar(None, _TIME), found)


def _time(text: str | None) -> datetime | None:
    with suppress(ValueError, TypeError, OverflowError):
        found = datetime.fromisoformat(text or "")
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    return None


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
