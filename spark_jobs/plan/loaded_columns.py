"""Compares the values that an initial load has in a column with the column's type in later changes (G-86, G-114).

An export without SQL types does not show how a value is stored at the source: a string may lack its padding, a time may
be in another time zone. If a loaded value can mean two different values of the source, the table stops. If loaded
values may only have lost digits, the column is reported as unverified.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.streamed_types import is_streamed
from open_mirroring.landing_zone.load_columns import LoadColumn
from spark_jobs.changelog.schema import DELETE, KEY_LEFT
from spark_jobs.sources.sql_server.chosen_types import is_spelled_alike
from spark_jobs.sources.sql_server.type_text import TIMESTAMPS, SqlType, is_known, read_any
from spark_jobs.sources.sql_server.types import filled_length

if TYPE_CHECKING:
    from open_mirroring.ledger.load_ledger import LoadPlan

_GUID_LENGTH = 36
_MILLISECONDS = 3


class LoadedColumn(NamedTuple):
    """A column of an initial load; *shortest* is the length in bytes of its shortest string or binary value.

    *shortest* is None if the length was not measured.
    """

    column: LoadColumn
    shortest: int | None
    is_key: bool


def loaded_columns(plan: LoadPlan | None, keys: Collection[str]) -> dict[str, LoadedColumn]:
    """The columns of a table's initial load by name; empty if there was no initial load."""
    if plan is None:
        return {}
    return {one.name: LoadedColumn(one, plan.shortest.get(one.name), one.name in keys) for one in plan.columns}


def doubt(loaded: LoadedColumn, sql_type: str) -> str:
    """Why loaded values of a column may differ from the source; empty if they cannot differ.

    *sql_type* is the type of the column in changes.
    """
    column, shortest, _ = loaded
    length = filled_length(sql_type)
    if length is not None and shortest is not None and shortest < length:
        return (
            f"the column {column.name!r} is {sql_type}, and has a value of {shortest} bytes in the initial load: the "
            "export cut what the source fills it up with"
        )
    why = _why_ambiguous(loaded, sql_type)
    return why and f"the initial load contained the column {column.name!r} as {why}, and changes carry it as {sql_type}"


def doubt_by_deletes(loaded: Mapping[str, LoadedColumn], changes: pa.Table) -> str:
    """Why loaded keys may differ from the source, by the types of keys in deletes; empty if they cannot differ.

    If a table had only deletes since its initial load, only the deletes show the SQL types of its keys.
    """
    if not loaded:
        return ""
    gone = changes.filter(pc.is_in(changes["op"], pa.array([DELETE, KEY_LEFT])))
    for cols in pc.unique(gone["cols"].cast(pa.string())).to_pylist():
        for name, sql_type, _ in msgspec.json.decode(cols or "[]"):
            if name in loaded and (found := doubt(loaded[name], sql_type)):
                return found
    return ""


def may_lack_digits(column: LoadColumn, sql_type: str) -> bool:
    """Whether loaded times have fewer digits of a second than both the source and the target table can store."""
    kind = read_any(sql_type)
    return kind.name in (*TIMESTAMPS, "time") and "milliseconds" in column.held and kind.second_digits > _MILLISECONDS


def is_streamed_for_sure(column: LoadColumn) -> bool:
    """Whether changes always contain a loaded column as long as the source has the column.

    This is not certain for a string or binary column without a known SQL type, because changes leave out columns of
    some types (C-77).
    """
    if column.sql_type is None:
        return column.type not in ("string", "binary")
    return is_known(column.sql_type) and is_streamed(column.sql_type)


def _why_ambiguous(loaded: LoadedColumn, sql_type: str) -> str:
    column, shortest, _ = loaded
    kind = read_any(sql_type)
    if column.type == "string" and column.sql_type is not None and not is_spelled_alike(column.sql_type, sql_type):
        return f"texts with the digits of {column.sql_type}"
    if "time of day" in column.held and kind.name != "time":
        return "times of day"
    if kind.name == "datetimeoffset":
        wall_clocks, loaded_as = TIMESTAMPS - {"datetimeoffset"}, column.sql_type
        is_wall_clock = "wall clock" in column.held if loaded_as is None else read_any(loaded_as).name in wall_clocks
        return "times without their offset from UTC" if is_wall_clock else ""
    if kind.name in TIMESTAMPS:
        return "moments in another time zone than UTC" if "zone" in column.held else ""
    if column.sql_type is None and shortest is not None:
        is_guid, length = kind.name == "uniqueidentifier", _time_length(kind)
        is_other = shortest < _GUID_LENGTH if is_guid else length is not None and shortest != length
        return "texts that are spelled otherwise" if is_other else ""
    return ""


def _time_length(kind: SqlType) -> int | None:
    if kind.name != "time":
        return None
    return len("hh:mm:ss") + (1 + kind.second_digits if kind.second_digits else 0)
