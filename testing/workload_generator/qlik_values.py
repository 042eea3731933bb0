"""SQL Server values, given as text, as Qlik messages carry them (K-35).

Public source: Qlik Help, *Kafka data types*; Apache Avro specification, *Logical Types*.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

from workload_generator.qlik_schemas import QlikType


def json_value(kind: QlikType, text: str, _logical_types: bool) -> Any:
    """A value as JSON messages spell it."""
    if kind.name in ("UINT1", "INT2", "INT4", "INT8"):
        return int(text)
    if kind.name.startswith("REAL"):
        return float(text)
    if kind.name == "BOOLEAN":
        return text == "1"
    if kind.name in ("BYTES", "BLOB"):
        return text[2:]
    return _six_digits(text) if kind.name == "DATETIME" else text


def avro_value(kind: QlikType, text: str, logical_types: bool) -> Any:
    """A value as an Avro record without conversions holds it: logical types are applied already."""
    if kind.name in ("BYTES", "BLOB"):
        return bytes.fromhex(text[2:])
    if logical_types and kind.name == "DATE":
        return (date.fromisoformat(text) - date(1970, 1, 1)).days
    if logical_types and kind.name == "DATETIME":
        return (datetime.fromisoformat(_six_digits(text)) - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    if logical_types and kind.name == "NUMERIC":
        unscaled = int(text.replace(".", ""))
        return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    return json_value(kind, text, logical_types)


def _six_digits(text: str) -> str:
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction[:6]:0<6}"
