"""Maps Qlik's own data types to those of the change log, each to one that holds all of its values (K-12, K-13, T-43).

Public source: Qlik Help, *Replicate data types* and *Kafka data types*.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from open_mirroring.errors import TerminalError
from spark_jobs.sources.contract.json_numbers import DOUBLE_DIGITS
from spark_jobs.sources.sql_server.type_text import AS_TEXT

LARGE_OBJECTS = frozenset({"BLOB", "CLOB", "NCLOB"})
"""Types whose columns masks do not show (K-22)."""

TEXTS = frozenset({"STRING", "WSTRING", "CLOB", "NCLOB"})
BINARIES = frozenset({"BYTES", "BLOB"})
WHOLE_NUMBERS = frozenset(f"{sign}INT{size}" for sign in ("", "U") for size in (1, 2, 4, 8))
_FLOAT_DIGITS = 6
_LONGEST = 8000
_MOST_DIGITS = 38


def _digits(length: int, precision: int, scale: int) -> str | None:
    # A negative scale means zeros before the point; one above the precision, zeros after it.
    if precision < 1:
        return None
    whole, fraction = precision - scale, max(scale, 0)
    most = max(whole, 0) + fraction
    return f"decimal({most},{fraction})" if 1 <= most <= _MOST_DIGITS else None


def _seconds(name: str) -> Callable[[int, int, int], str | None]:
    # Descriptions may have scale 0 for times with a fraction, so 0 is ignored.
    return lambda length, precision, scale: f"{name}({scale if 1 <= scale <= 7 else 7})"


def _sized(name: str) -> Callable[[int, int, int], str | None]:
    # A missing length is 0 and means any length.
    return lambda length, precision, scale: f"{name}({length if 1 <= length <= _LONGEST else 'max'})"


_LOG_TYPES: dict[str, str | Callable[[int, int, int], str | None]] = {
    "BOOLEAN": "bit",
    # A signed byte: tinyint is unsigned.
    "INT1": "smallint",
    "INT2": "smallint",
    "INT4": "int",
    "INT8": "bigint",
    "UINT1": "tinyint",
    "UINT2": "int",
    "UINT4": "bigint",
    "UINT8": "decimal(20,0)",
    "REAL4": "real",
    "REAL8": "float",
    "NUMERIC": _digits,
    "DATE": "date",
    "TIME": _seconds("time"),
    "DATETIME": _seconds("datetime2"),
    "TIMESTAMP": _seconds("datetime2"),
    "STRING": _sized("varchar"),
    "WSTRING": _sized("varchar"),
    "CLOB": "varchar(max)",
    "NCLOB": "varchar(max)",
    "BYTES": _sized("varbinary"),
    "BLOB": "varbinary(max)",
}
QLIK_TYPES = tuple(_LOG_TYPES)
RANGES = {
    "INT1": (-(2**7), 2**7 - 1),
    "UINT2": (0, 2**16 - 1),
    "UINT4": (0, 2**32 - 1),
    "UINT8": (0, 2**64 - 1),
}
"""The ranges of integers whose type in the log has a larger one."""


@lru_cache(maxsize=4096)
def log_type(type: str, length: int, precision: int, scale: int) -> str:
    """The change log's type for a column that Qlik describes.

    *type* is Qlik's type, *length* is in bytes, and numbers that Qlik does not give are 0. Raises ``TYPE_UNSUPPORTED``
    if the type cannot be mirrored.
    """
    spell = _LOG_TYPES.get(type.upper())
    text = spell(length, precision, scale) if callable(spell) else spell
    if text is None and type.upper() == "NUMERIC" and precision < 1:
        raise TerminalError(
            "TYPE_UNSUPPORTED",
            f"'NUMERIC' with precision {precision} and scale {scale} gives no digits, as of an Oracle NUMBER without "
            "precision: give the column digits by `types`, such as decimal(38,10), or, if it is not a key, leave "
            "it out with `columns`",
            next_step="set `types: {column: decimal(38,10)}`, or, if it is not a key, leave it out with `columns`",
        )
    if text is None:
        raise TerminalError(
            "TYPE_UNSUPPORTED",
            f"{type!r} with length {length}, precision {precision} and scale {scale} is not a Qlik type that can be "
            "mirrored",
            next_step=f"{AS_TEXT}, or transformed in the Qlik task",
        )
    return text


def key_type(log_type: str, chosen: str | None = None) -> str:
    """The change log's type of a key column: a ``datetime2(7)`` has six digits of a second as a key (G-02).

    Any other type, and a column with a landing type *chosen* in the mirror file, keeps *log_type*.
    """
    return "datetime2(6)" if log_type == "datetime2(7)" and chosen is None else log_type


def is_longer_than_a_double(type_name: str, precision: int) -> bool:
    """Whether a column of this Qlik type may have more digits than a double holds (G-112).

    A NUMERIC without declared precision may have more.
    """
    name = type_name.upper()
    return name == "UINT8" or (name == "NUMERIC" and not 0 < precision <= DOUBLE_DIGITS)


def is_longer_than_a_float(type_name: str, precision: int) -> bool:
    """Whether a column of this Qlik type may have more digits than a four-byte float holds."""
    name = type_name.upper()
    return name in ("REAL8", "UINT8") or (name == "NUMERIC" and not 0 < precision <= _FLOAT_DIGITS)


def is_out_of_range(value: str | None, low: int, high: int) -> bool:
    """Whether *value* is an integer outside *low* and *high*; False for any string that is not an integer."""
    try:
        return value is not None and not low <= int(value) <= high
    except ValueError:
        return False
