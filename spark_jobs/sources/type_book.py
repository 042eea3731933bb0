"""The table of types for people: every type of a source, what the log calls it, and what lands.

Rendered from the very functions that decide, so that the page cannot say anything else; a test holds both together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from open_mirroring.landing_zone.schema import arrow_type
from spark_jobs.sources.qlik.message.avro import LOGICAL_TYPES, PLAIN_TYPES
from spark_jobs.sources.qlik.types import QLIK_TYPES, log_type
from spark_jobs.sources.sql_server.type_text import landing_type

_SQL_SERVER: Sequence[tuple[str, str]] = (
    ("tinyint", "0 to 255"),
    ("smallint", ""),
    ("int", ""),
    ("bigint", ""),
    ("bit", "`0`, `1`, `true`, `false`"),
    ("decimal(18,4)", "up to 38 digits, also as numeric; a digit too many is a dead letter, never rounded"),
    ("money", ""),
    ("smallmoney", ""),
    ("real", "also float(1) to float(24); too large for four bytes is a dead letter"),
    ("float", "must be finite"),
    ("date", ""),
    ("time(7)", "text: the target has no time of day"),
    ("smalldatetime", "read as UTC"),
    ("datetime", "read as UTC"),
    ("datetime2(7)", "read as UTC; the seventh digit of a second is cut, not rounded"),
    ("datetimeoffset(7)", "becomes its instant in UTC; the seventh digit is cut"),
    ("char(10)", ""),
    ("varchar(100)", ""),
    ("nchar(10)", "length checked in UTF-16 units"),
    ("nvarchar(max)", ""),
    ("text", ""),
    ("ntext", ""),
    ("xml", ""),
    ("sysname", ""),
    ("uniqueidentifier", "in capitals"),
    ("binary(16)", "hexadecimal, with or without 0x"),
    ("varbinary(max)", "as above"),
    ("image", "as above"),
)
_NUMBERS = {"NUMERIC": (0, 12, 2), "STRING": (50, 0, 0), "WSTRING": (50, 0, 0), "BYTES": (16, 0, 0)}
_HEAD = """# Types

Made by `make types` from the code that maps them; do not edit. Every value is read exactly by its type: one that does
not fit is a dead letter with its column and the reason, never NULL, never rounded. Two losses are rules: digits of a
second beyond the sixth are cut, and a `datetimeoffset` becomes its instant in UTC. A type that keeps seven digits of a
second cannot be a key. A type that is not here (geography, geometry, hierarchyid, sql_variant, rowversion, vector,
json) stops its table with TYPE_UNKNOWN: list `columns` without it. SQL Server's change event streaming cuts values at
1 MB without a word: values of exactly that length are counted and shown by `status`.
"""


def type_book() -> str:
    """The page as Markdown."""
    parts = [_HEAD]
    parts += ["## SQL Server\n", _table("SQL type", ((name, name, note) for name, note in _SQL_SERVER), same=True)]
    qlik = ((_qlik_name(name), log_type(name, *_NUMBERS.get(name, (0, 0, 0))), "") for name in QLIK_TYPES)
    parts += [
        "## Qlik change tables and messages\n\nQlik's types become a type of the log first, which is one of SQL "
        "Server's.\nA length, precision or scale that is not told is the largest.\n",
        _table("Qlik type", qlik),
    ]
    plain = ((name, text, "") for name, text in PLAIN_TYPES.items())
    logical = ((f"{base}, {name}", text, "") for (base, name), text in LOGICAL_TYPES.items())
    decimal = ("bytes or fixed, decimal(p,s)", "decimal(12,2)", "the precision as declared")
    parts += ["## Avro messages of Qlik\n", _table("Avro type", [*plain, *logical, decimal])]
    return "\n".join(parts)


def _qlik_name(name: str) -> str:
    length, precision, scale = _NUMBERS.get(name, (0, 0, 0))
    numbers = f"({precision},{scale})" if precision else f"({length})" if length else ""
    return name + numbers


def _table(head: str, rows: Iterable[tuple[str, str, str]], *, same: bool = False) -> str:
    columns = [head, "Landing type", "Parquet", "Remark"] if same else [head, "Log", "Landing type", "Parquet"]
    lines = [columns, ["---"] * len(columns)]
    for name, text, note in rows:
        landing = landing_type(text)
        parquet = str(arrow_type(landing))
        lines.append([f"`{name}`", landing, parquet, note] if same else [f"`{name}`", f"`{text}`", landing, parquet])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    print(type_book(), end="")
