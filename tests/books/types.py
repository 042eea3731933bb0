"""Renders the table of types for people: every type of a source, its name in the log, and what lands.

Rendered from the functions of the product, so that the page cannot differ from it. A test compares :func:`consequence`
with publishing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.arrow_schema import arrow_type
from open_mirroring.landing_zone.schema import wider
from spark_jobs.sources.qlik.message.avro import LOGICAL_TYPES, PLAIN_TYPES
from spark_jobs.sources.qlik.types import QLIK_TYPES, log_type
from spark_jobs.sources.sql_server.chosen_types import can_land, chosen_key_converter
from spark_jobs.sources.sql_server.type_changes import keeps_values
from spark_jobs.sources.sql_server.type_text import landing_type


class Consequence(Enum):
    """The effect on a published table when a column outside the key changes its type."""

    GOES_ON = "the landing type holds both"
    UNVERIFIED = "it lands alike, and the source may have changed values"
    REBUILT = "the log shows every value, and another landing type holds them"
    STOPS = "only a load shows the values"


def consequence(old: str, new: str) -> Consequence:
    """The effect on a table when a column of one SQL type gets another."""
    lands, becomes = landing_type(old), landing_type(new)
    if not keeps_values(old, new):
        return Consequence.UNVERIFIED if lands == becomes else Consequence.STOPS
    both = wider(lands, becomes)
    if both is None:
        return Consequence.STOPS
    return Consequence.GOES_ON if both == lands else Consequence.REBUILT


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
    ("time(7)", "text: the target has no time of day; hours beyond a day stay as they are"),
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
TYPE_CHANGES: Sequence[tuple[str, str]] = (
    ("smallint", "int"),
    ("int", "bigint"),
    ("bigint", "int"),
    ("bit", "int"),
    ("int", "decimal(12,2)"),
    ("int", "float"),
    ("bigint", "float"),
    ("int", "varchar(20)"),
    ("decimal(10,2)", "decimal(12,2)"),
    ("decimal(12,2)", "decimal(10,2)"),
    ("decimal(10,2)", "decimal(12,4)"),
    ("decimal(12,4)", "decimal(12,2)"),
    ("smallmoney", "money"),
    ("real", "float"),
    ("float", "real"),
    ("float", "decimal(18,4)"),
    ("date", "datetime2(3)"),
    ("datetime2(3)", "date"),
    ("datetime2(3)", "datetime2(7)"),
    ("datetime2(7)", "datetime2(3)"),
    ("datetime", "datetime2(3)"),
    ("datetime", "datetime2(7)"),
    ("datetime2(3)", "datetimeoffset(3)"),
    ("datetimeoffset(3)", "datetime2(3)"),
    ("time(3)", "time(7)"),
    ("varchar(20)", "varchar(50)"),
    ("varchar(50)", "varchar(20)"),
    ("varchar(20)", "nvarchar(20)"),
    ("nvarchar(20)", "varchar(20)"),
    ("char(10)", "varchar(10)"),
    ("varchar(10)", "char(10)"),
    ("uniqueidentifier", "varchar(36)"),
    ("binary(16)", "varbinary(16)"),
    ("varbinary(16)", "binary(16)"),
    ("varchar(20)", "int"),
)
"""Changes that a source can make, from and to."""
_CHOICES = ("string", "int16", "int32", "int64", "decimal(38,4)", "decimal(10,2)", "float64", "timestamp")
_CONSEQUENCES: Mapping[Consequence, str] = {
    Consequence.GOES_ON: "goes on",
    Consequence.UNVERIFIED: "goes on, *unverified*",
    Consequence.REBUILT: "rebuilt from the log",
    Consequence.STOPS: "stops for a load",
}
_CHANGES_HEAD = """## Types that change at the source

What becomes of a table whose column changes its type, once something of it is published; before that the first files
have the wider type (G-65). *Goes on*: the landing type holds the new values, and rows that did not change have theirs
at the source, too. *Unverified*: it lands alike, but the source may have rounded, cut or padded the values of rows that
no change reports; `status` says so until they are compared. *Rebuilt from the log*: SCHEMA_CHANGED, and
`on_schema_change` or `open-mirroring reload-table` go on from there without a load. *Stops for a load*:
SCHEMA_CHANGED, and the log cannot show what the source made of the other rows. A key column has to keep the spelling
of its values, too: whole numbers among each other, decimals of one scale, longer texts; else it stops for a load.
"""
_CHOICES_HEAD = """## Types of your own choice

`types: {column: type}` of a table lands a column as another type than its source's (G-110). `check --sample`
refuses what the source's type does not allow. Text has one spelling, no matter who printed it: dates and times in
ISO form with all digits of their type, a `datetimeoffset` with its offset, binary values in capital hexadecimal without
0x. A date that no calendar has (`0000-00-00`, `9999-12-31 24:00:00`) lands as text, too; with its own type it is a dead
letter. A number that does not fit is a dead letter. A key lands as text, or as a wider number with the same digits
behind the point. A NUMERIC without digits (PostgreSQL, Oracle by way of Qlik) has those that `types` says, and is
refused without. The log holds what the source reported: a table that is published already is rebuilt from it with other
types (SCHEMA_CHANGED), but for its key (TABLE_REDECLARED).
"""
_NUMBERS = {"NUMERIC": (0, 12, 2), "STRING": (50, 0, 0), "WSTRING": (50, 0, 0), "BYTES": (16, 0, 0)}
_HEAD = """# Types

Each type of the source becomes the type of the landing zone in its row. Values are copied exactly. A value that does
not fit its type becomes a dead letter with its column and the reason: it is never rounded and never becomes NULL.

Two types lose something:

- A time with more than six digits of a second is cut to six. Such a type cannot be a key.
- A `datetimeoffset` becomes its instant in UTC, without its offset.

To keep both as they are, set the column to text: `types: {column: string}`. Then the type can also be a key.

A type that is not here (geography, geometry, hierarchyid, sql_variant, rowversion, vector, json, alias types) stops its
table with TYPE_UNSUPPORTED. The same setting publishes the text that was sent, also for a key.

SQL Server's change event streaming cuts values at 1 MB and does not report it. Values of exactly that length are
counted, and `status` shows them.

`make types` writes this page from the code; do not edit it.
"""


def type_book() -> str:
    """The page as Markdown."""
    parts = [_HEAD]
    parts += ["## SQL Server\n", _table("SQL type", ((name, name, note) for name, note in _SQL_SERVER), same=True)]
    qlik = ((_qlik_name(name), log_type(name, *_NUMBERS.get(name, (0, 0, 0))), "") for name in QLIK_TYPES)
    parts += [
        "## Qlik change tables and messages\n\nQlik's types become a type of the log first, which is one of SQL "
        "Server's.\nA length, precision or scale that is not reported is the largest.\n",
        _table("Qlik type", qlik),
    ]
    plain = ((name, text, "") for name, text in PLAIN_TYPES.items())
    logical = ((f"{base}, {name}", text, "") for (base, name), text in LOGICAL_TYPES.items())
    decimal = ("bytes or fixed, decimal(p,s)", "decimal(12,2)", "the precision as declared")
    parts += ["## Avro messages of Qlik\n", _table("Avro type", [*plain, *logical, decimal])]
    parts += [_CHOICES_HEAD, _choices(), _CHANGES_HEAD, _changes()]
    return "\n".join(parts)


def _choices() -> str:
    lines = [["SQL type", "Lands as", "or, by choice, as", "as a key"], ["---"] * 4]
    for name, _ in _SQL_SERVER:
        own = landing_type(name)
        chosen = [one for one in _CHOICES if one != own and can_land(own, one)]
        of_key = [one for one in chosen if _can_be_key(name, one)]
        if chosen:
            lines.append([f"`{name}`", own, ", ".join(chosen), ", ".join(of_key)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _can_be_key(sql_type: str, chosen: str) -> bool:
    try:
        chosen_key_converter(sql_type, chosen)
    except TerminalError:
        return False
    return True


def _changes() -> str:
    lines = [["From", "To", "Lands as", "and then as", "The table"], ["---"] * 5]
    for old, new in TYPE_CHANGES:
        becomes = _CONSEQUENCES[consequence(old, new)]
        lines.append([f"`{old}`", f"`{new}`", landing_type(old), landing_type(new), becomes])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


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
