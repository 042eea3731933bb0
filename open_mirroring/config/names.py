"""Checks single values in a mirror file. Each check raises a pydantic error with one of our codes and the fix.

No error shows a value that may be secret. Names of tables and columns are shown escaped.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from pydantic_core import PydanticCustomError

from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.layout import ROW_MARKER, table_folder
from open_mirroring.storage.address import LOCAL_ADDRESS, is_address, parse_address

BEGINNING = "beginning"
Names = TypeVar("Names", bound=Iterable[str])

_PART = re.compile(r'\[((?:[^\]]|\]\])+)\]|"((?:[^"]|"")+)"|(?![ \["])[^.]+(?<! )')
_LSN = re.compile(r"([0-9A-F]{8}):([0-9A-F]{8}):([0-9A-F]{4})|(?:0X)?([0-9A-F]{8})([0-9A-F]{8})([0-9A-F]{4})")
_EXPANDED = re.compile(
    r"^~|^\$\w|\$\{|(?<![A-Za-z0-9])\$(?:env:\w+|[A-Z_][A-Z0-9_]*(?![A-Za-z0-9_]))"
    r"|(?<![0-9])%(?![0-9A-Fa-f]{2}%)[A-Za-z_]\w*%",
    re.ASCII,
)
"""Signs of shell expansion. A ``$`` inside a name (``CRONUS$Item``) and escapes (``%C3%A4``) are allowed."""
_BIDIRECTIONAL = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_MAX_COLUMN = 128


def refusal(code: str, what: str, next_step: str) -> PydanticCustomError:
    """Build a pydantic error with our *code* as its type. Braces in *what* and *next_step* are not placeholders."""
    return PydanticCustomError(code, "{what}", {"what": what, "next_step": next_step})


def unfit(what: str, next_step: str) -> PydanticCustomError:
    """Build a pydantic error with the code ``CONFIG_INVALID``."""
    return refusal("CONFIG_INVALID", what, next_step)


class SourceName(NamedTuple):
    """Schema and name of a table as at the source, without quotes."""

    schema: str
    table: str


def split_source_name(text: str) -> SourceName:
    """Split a table name such as ``dbo.orders`` into schema and table.

    A part that contains a dot is quoted as in SQL: ``[a.b].[c]``, ``"a.b".c``.
    """
    return SourceName(*map(_unquoted, _split(text)))


def split_pattern(text: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Compile a pattern such as ``sales.*`` to two regular expressions, for schema and table.

    A ``*`` inside brackets or quotes matches only the character ``*``.
    """
    schema, table = (
        re.escape(_unquoted(part)) if _is_quoted(part) else ".*".join(map(re.escape, part[0].split("*")))
        for part in _split(text)
    )
    return re.compile(schema, re.DOTALL), re.compile(table, re.DOTALL)


def is_pattern(text: str) -> bool:
    """Whether *text* is a pattern of table names instead of the name of one table."""
    try:
        return any("*" in part[0] and not _is_quoted(part) for part in _split(text))
    except PydanticCustomError:
        return False


def _split(text: str) -> tuple[re.Match[str], re.Match[str]]:
    first = _PART.match(text)
    second = _PART.fullmatch(text, first.end() + 1) if first and text[first.end() : first.end() + 1] == "." else None
    if first is None or second is None:
        raise unfit(
            f"{text!r} does not name one schema and one table",
            "write schema.table with exactly one dot; put a part that holds a dot in brackets: [my.schema].orders",
        )
    return first, second


def _is_quoted(part: re.Match[str]) -> bool:
    return part[1] is not None or part[2] is not None


def _unquoted(part: re.Match[str]) -> str:
    if part[1] is not None:
        return part[1].replace("]]", "]")
    if part[2] is not None:
        return part[2].replace('""', '"')
    return part[0]


def check_source_name(text: str) -> str:
    """Refuse a string that is neither a table name ``schema.table`` nor a pattern of table names."""
    _split(text)
    return text


def target_folder(target: str) -> str:
    """Return a table's folder below the landing zone, for a target like ``dbo/orders`` or ``orders`` (F-02, F-03)."""
    parts = target.split("/")
    if len(parts) > 2:
        raise unfit(f"the target {target!r} has more than two parts", "write schema/table, or only table")
    try:
        return table_folder(*parts) if len(parts) == 2 else table_folder(None, target)
    except TerminalError as error:
        raise refusal(error.code, error.what, error.next_step) from None


def check_target(target: str) -> str:
    """Refuse a `target` of a table that is not safe as a folder name (F-02)."""
    target_folder(target)
    return target


def check_column(name: str) -> str:
    """Refuse a column name that Fabric reserves (F-50), or whose length or characters are not allowed.

    Control and direction characters are refused, because the name could look like another name.
    """
    next_step = "rename the column at the source, or leave it out with `columns`"
    if not name or len(name) > _MAX_COLUMN:
        raise unfit(f"a column name has 1 to {_MAX_COLUMN} characters, not {len(name)}", next_step)
    if name.casefold() == ROW_MARKER.casefold():
        raise refusal("COLUMN_NAME_INVALID", f"the target reserves the column name {name!r}", next_step)
    if any(c in _BIDIRECTIONAL or unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in name):
        raise unfit(f"the column name {name!r} holds a control or direction character", next_step)
    return name


def check_distinct(names: Names) -> Names:
    """Refuse names that differ only in case, because Fabric compares names without case."""
    if (twin := _repeated(names)) is not None:
        what = f"column {twin!r} is listed twice; case does not count"
        raise refusal("COLUMN_NAME_INVALID", what, "list each column once, spelled as at the source")
    return names


def check_landed_names(names: Iterable[str]) -> None:
    """Refuse column names that differ only in case at the target: Fabric compares names without case (G-120)."""
    if (twin := _repeated(names)) is not None:
        what = f"two columns would land as {twin!r}; case does not count"
        raise refusal("COLUMN_NAME_INVALID", what, "choose another name by `rename` for one of them")


def _repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            return name
        seen.add(name.casefold())
    return None


def check_connection_name(name: str) -> str:
    """Refuse a string that cannot be the name of a connection, for example the content of a connection."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,199}", name):
        raise unfit(
            "this is no name of a connection",
            "use letters, digits and underscores; the connection itself is set in AIRFLOW_CONN_<NAME>",
        )
    return name


def why_elsewhere(path: str) -> tuple[str, str] | None:
    """Why a local path would mean another folder for another user or machine, and the fix; None if it would not.

    Paths with `~` or variables are refused and not expanded: scheduler, workers and operators have different home
    folders and environments. After ``./``, a path may contain `~` and `$` as plain characters.
    """
    if re.match(r"file:", path, re.IGNORECASE):
        return LOCAL_ADDRESS
    if is_address(path) or re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path):
        next_step = (
            "if the setting accepts object storage, write {path: ADDRESS, connection: NAME}; else name a local path"
        )
        return "an address of object storage needs its connection", next_step
    if re.match(r"[A-Za-z]:[\\/]|\\\\", path):
        next_step = "mount the disk or share, and write the path of the mount: /mnt/share/events"
        return "this is a path of Windows", next_step
    if _EXPANDED.search(re.sub(r"(?:^|(?<=/))\./[^/]*", "", path)):
        what = "`~` and variables such as $HOME, ${HOME} or %HOME% are not expanded in a path"
        next_step = (
            "write the path in full, or relative to the home folder of the mirrors; write ./ before the name of a "
        )
        return what, next_step + "folder that is really called so"
    return None


def check_path(path: str) -> str:
    """Refuse a missing path, and a string that is not a local path."""
    if not path:
        raise unfit("a path is needed here", "name a folder; relative ones start at the home folder")
    if (elsewhere := why_elsewhere(path)) is not None:
        raise unfit(*elsewhere)
    if path != path.strip() or any(unicodedata.category(c) == "Cc" for c in path):
        next_step = "write a path relative to the home folder of the mirrors, or an absolute one"
        raise unfit("a path has no control character and no blank at its ends", next_step)
    return path


def check_stored_place(text: str) -> str:
    """Refuse a string that is not an address in object storage (S-01)."""
    if not is_address(text):
        raise unfit("a local path needs no connection", "write it without connection, as a text, or name an address")
    if not re.fullmatch(r"[\w .=-]+", check_place(text).partition("://")[2].replace("/", "").replace("@", "")):
        # delta-rs decodes percent-encoded names once in one call and twice in another.
        next_step = "choose a path of letters, digits, blanks and . _ = -"
        raise unfit("a Delta table does not bear every character in its address", next_step)
    return text


def check_place(text: str) -> str:
    """Refuse a string that is neither a local path nor an address in object storage (S-01)."""
    if not is_address(text):
        return check_path(text)
    try:
        parse_address(text)
    except TerminalError as error:
        raise refusal(error.code, error.what, error.next_step) from None
    return text


def check_connection_of(text: str, connection: str | None) -> str | None:
    """Refuse an object storage address without the name of a connection, and a local path with one."""
    if is_address(text) and connection is None:
        next_step = "name it, and set the connection in the environment as AIRFLOW_CONN_<NAME>"
        raise unfit("object storage needs a connection", next_step)
    if text and not is_address(text) and connection is not None:
        raise unfit("a local path needs no connection", "leave `connection` out")
    return connection


def stream_position(text: str) -> str:
    """Return a checked position in the stream: ``beginning``, or a commit LSN (C-32).

    An LSN is written as in change events, ``0000002C:00000730:0011``. The binary form of SQL Server's functions,
    ``0x0000002C000007300011``, is converted to this form.
    """
    if text == BEGINNING:
        return text
    match = _LSN.fullmatch(text.upper())
    if match is None:
        raise unfit(
            "this is no stream position",
            f"write {BEGINNING!r}, or the commit LSN before the export began, in quotes: '0000002C:00000730:0011'",
        )
    return ":".join(part for part in match.groups() if part)


def check_sql_type(text: str) -> str:
    """Refuse a string that does not look like an SQL type such as ``int``, ``decimal(18,4)``, ``nvarchar(max)``."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_ ]{0,63}(\( *(\d{1,5}|max) *(, *\d{1,3} *)?\))?", text):
        raise unfit("this is no SQL type", "write it as in the table's definition: decimal(18,4)")
    return text


LANDING_TYPES = ("string", "int16", "int32", "int64", "float64", "timestamp", "decimal(p,s)")
"""The target types that the mirror file can set for a column, if its source's type allows that."""


def check_landing_type(text: str) -> str:
    """Refuse a type that a column cannot have at the target; valid are ``string``, ``int64``, ``decimal(38,10)``, …."""
    digits = re.fullmatch(r"decimal\(([0-9]{1,2}),([0-9]{1,2})\)", text)
    is_decimal = digits is not None and 1 <= int(digits[1]) <= 38 and int(digits[2]) <= int(digits[1])
    if not is_decimal and text not in LANDING_TYPES[:-1]:
        what = f"{text!r} is no type that a column can be said to land as"
        raise refusal(
            "TYPE_UNSUPPORTED", what, f"choose from {', '.join(LANDING_TYPES)}; docs/types.md shows which fit"
        )
    return text
