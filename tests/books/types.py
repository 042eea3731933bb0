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
from spark_jobs.sources.sql_server.chosen_types import can_land, chosen_key_converter, keeps_values
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
    ("decimal(18,4)", "up to 38 digits; this row also applies to numeric; too many digits make a dead letter"),
    ("money", ""),
    ("smallmoney", ""),
    ("real", "this row also applies to float(1) to float(24); a value too large for four bytes is a dead letter"),
    ("float", "a value that is not finite is a dead letter"),
    ("date", ""),
    ("time(7)", "a string, because Fabric has no time of day; hours beyond 24 are kept"),
    ("smalldatetime", "read as UTC"),
    ("datetime", "read as UTC"),
    ("datetime2(7)", "read as UTC; the seventh digit of a second is cut, not rounded"),
    ("datetimeoffset(7)", "becomes its instant in UTC; the seventh digit of a second is cut, not rounded"),
    ("char(10)", ""),
    ("varchar(100)", ""),
    ("nchar(10)", "the length is checked in UTF-16 units"),
    ("nvarchar(max)", ""),
    ("text", ""),
    ("ntext", ""),
    ("xml", ""),
    ("sysname", ""),
    ("uniqueidentifier", "in capitals"),
    ("binary(16)", "hexadecimal, with or without 0x"),
    ("varbinary(max)", "hexadecimal, with or without 0x"),
    ("image", "hexadecimal, with or without 0x"),
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
    Consequence.REBUILT: "rebuilt from the change log",
    Consequence.STOPS: "stops for an initial load",
}
_CHANGES_HEAD = """## Types that change at the source

The last column shows what happens to a mirrored table when a column changes its type at the source. If no row of the
table has been published yet, nothing stops: the first published files have the wider type ([G-65](rules/common.md)).

- *Goes on*: the landing type can hold the new values. In rows that did not change, source and target still have the
  same value.
- *Goes on, unverified*: the landing type stays the same, but the source may have rounded, cut or padded values in rows
  for which it sent no change. `status` shows the table as *unverified* until `open-mirroring prove` compared its rows.
- *Rebuilt from the change log*: the table stops with SCHEMA_CHANGED, and the change log has every value. If
  `on_schema_change` in the mirror file allows a rebuild, the next run rebuilds the table; if not, reset the table
  (`open-mirroring reload-table`). A new initial load is not needed.
- *Stops for an initial load*: the table stops with SCHEMA_CHANGED. The change log does not show the new values of rows
  for which the source sent no change, so the table needs a new initial load.

A key column may change its type without a new initial load only if each value keeps its spelling as a string: from one
integer type to another, between decimals of the same scale, or to a longer string type.
"""
_CHOICES_HEAD = """## Types of your own choice

The setting `types: {column: type}` of a table in the mirror file gives a column another landing type than the usual one
([G-110](rules/common.md)). `open-mirroring check FILE --sample` refuses a landing type that the source's type cannot
become.

- A value that becomes a string has one spelling, whichever source sent it: dates and times in ISO form with all digits
  of their type, a `datetimeoffset` with its offset, binary values in capital hexadecimal without 0x.
- A date that no calendar has (`0000-00-00`, `9999-12-31 24:00:00`) can become a string. Without the setting, such a
  date is a dead letter.
- A number that does not fit the chosen type is a dead letter.
- A key column may become a string, or a wider number type with the same number of digits behind the point.
- A NUMERIC whose precision the source does not report (PostgreSQL, Oracle by way of Qlik) gets the precision that
  `types` names. Without an entry in `types` such a column is refused.
- If you change `types` for a table that is already published, the table stops with SCHEMA_CHANGED and is rebuilt from
  the change log, which has the values as the source sent them. If you change the type of a key column, runs are refused
  with TABLE_REDECLARED until the table is reset.
"""
_NUMBERS = {"NUMERIC": (0, 12, 2), "STRING": (50, 0, 0), "WSTRING": (50, 0, 0), "BYTES": (16, 0, 0)}
_HEAD = """# Types

This page shows which type each column gets in the published files: the *landing type*. Values are copied exactly. A
value that does not fit the landing type becomes a dead letter with its column and the reason: the value is never
rounded and never becomes NULL.

The values of two types lose something:

- A time with more than six digits of a second is cut to six digits. A column of such a type cannot be a key.
- A `datetimeoffset` becomes its instant in UTC, without its offset.

To keep all digits and the offset, publish the column as a string: `types: {column: string}` for the table in the mirror
file. Then the column can also be a key.

A column of a type that is not on this page (geography, geometry, hierarchyid, sql_variant, rowversion, vector, json,
alias types) stops its table with TYPE_UNSUPPORTED. `types: {column: string}` publishes such a column as the string that
the source sent, also if the column is a key.

SQL Server's change event streaming cuts values at 1 MB and does not report this. Values of exactly 1 MB are
counted, and `status` shows their number.

`make types` writes this page from the code; do not edit the page.
"""


def type_book() -> str:
    """The page as Markdown."""
    parts = [_HEAD]
    parts += ["## SQL Server\n", _table("SQL type", ((name, name, note) for name, note in _SQL_SERVER), same=True)]
    qlik = ((_qlik_name(name), log_type(name, *_NUMBERS.get(name, (0, 0, 0))), "") for name in QLIK_TYPES)
    parts += [
        "## Qlik change tables and messages\n\nEach Qlik type becomes a type of SQL Server in the change log, and "
        "from there a landing type.\nIf Qlik does not report a length, precision or scale, the largest is used.\n",
        _table("Qlik type", qlik),
    ]
    plain = ((name, text, "") for name, text in PLAIN_TYPES.items())
    logical = ((f"{base}, {name}", text, "") for (base, name), text in LOGICAL_TYPES.items())
    decimal = ("bytes or fixed, decimal(p,s)", "decimal(12,2)", "the precision as declared")
    parts += ["## Avro messages of Qlik\n", _table("Avro type", [*plain, *logical, decimal])]
    parts += [_CHOICES_HEAD, _choices(), _CHANGES_HEAD, _changes()]
    return "\n".join(parts)


def _choices() -> str:
    lines = [["SQL type", "Landing type", "Can be set to", "Can be set to, for a key"], ["---"] * 4]
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
    lines = [["Type before", "Type after", "Landing type before", "Landing type after", "The table"], ["---"] * 5]
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
