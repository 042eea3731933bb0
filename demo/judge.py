"""Compares mirrored tables with the source cell by cell, typed, as an independent witness.

    python demo/judge.py --state source.db --tables DIR [--landing-zone DIR] [--json]

It shares no code with what it judges. It reads the source's SQLite file (each table under its full name, all values as
the text SQL Server prints; SQL types in ``_columns``) and the Delta tables ``DIR/<schema>/<table>``. Equal means: the
same columns and keys, and in every cell the same typed value: ``datetime2`` cut (not rounded) to microseconds, decimals
exact, floats bit for bit, NULL different from empty text.

Exit codes: 0 all tables equal and none empty at both ends; 1 some table is not; 2 the judge could not judge.
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
import struct
import sys
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow.lib import ArrowException

SHOWN_DIFFERENCES = 5
_NUMBERED_FILE = re.compile(r"^[0-9]{20}\.parquet$")
_PROCESSED = ("_ProcessedFiles", "_FilesReadyToDelete")


class CannotJudge(Exception):
    """Nothing can be judged: there is no source database, or a type that the judge does not know."""


@dataclass(frozen=True)
class Column:
    """A source column; *key_position* from 1, 0 outside the key."""

    name: str
    sql_type: str
    key_position: int


@dataclass
class Verdict:
    """What was found for one table; *files* is None where no landing zone was given."""

    table: str
    source_rows: int
    mirrored_rows: int | None
    equal: bool
    files: int | None = None
    differences: list[str] = field(default_factory=list)
    difference_count: int = 0

    def differ(self, text: str) -> None:
        """Note a difference; only the first few are kept in words."""
        self.equal = False
        self.difference_count += 1
        if len(self.differences) < SHOWN_DIFFERENCES:
            self.differences.append(text)


def judge(state: Path, tables: Path, landing_zone: Path | None = None) -> list[Verdict]:
    """Compare every table of the source with its mirrored one.

    Raises:
        CannotJudge: when the source database cannot be read.
    """
    if not state.is_file():
        raise CannotJudge(f"{state}: no such source database")
    verdicts = []
    with closing(sqlite3.connect(f"{state.resolve().as_uri()}?mode=ro", uri=True)) as db:
        try:
            # One read transaction: the source may go on meanwhile.
            db.execute("BEGIN")
            columns: dict[str, list[Column]] = {}
            query = 'SELECT "table", name, sql_type, key_position FROM _columns ORDER BY "table", ordinal'
            for table, *column in db.execute(query):
                columns.setdefault(table, []).append(Column(*column))
            for table, its in columns.items():
                rows = db.execute(f"SELECT {', '.join(map(_quoted, (one.name for one in its)))} FROM {_quoted(table)}")
                verdicts.append(_judge_table(table, its, rows.fetchall(), tables))
        except sqlite3.Error as error:
            raise CannotJudge(f"{state}: {error}") from error
    if not verdicts:
        raise CannotJudge(f"{state}: the source has no tables")
    for verdict in verdicts:
        verdict.files = None if landing_zone is None else count_files(landing_zone, verdict.table)
    return verdicts


def _judge_table(table: str, columns: Sequence[Column], rows: Sequence[Sequence[str | None]], folder: Path) -> Verdict:
    verdict = Verdict(table, len(rows), None, True)
    schema, _, name = table.partition(".")
    try:
        delta = DeltaTable(str(folder / schema / name))
    except (TableNotFoundError, FileNotFoundError):
        verdict.differ("the mirrored table is missing")
        return verdict
    try:
        # scan() and not to_pyarrow_table(), whose threads have been seen to abort a process at its end.
        arrow = pa.table(delta.scan())
    except (DeltaError, ArrowException, OSError) as error:
        verdict.differ(f"the mirrored table cannot be read: {error}")
        return verdict
    verdict.mirrored_rows = arrow.num_rows
    if not rows and not arrow.num_rows:
        verdict.differ("empty at both ends: nothing is proved")
    names = [column.name for column in columns]
    for missing in [one for one in names if one not in arrow.column_names]:
        verdict.differ(f"column {missing} is missing in the mirrored table")
    for unknown in [one for one in arrow.column_names if one not in names]:
        verdict.differ(f"column {unknown} exists in the mirrored table only")
    shared = [one for one in columns if one.name in arrow.column_names]
    key = [column for column in sorted(columns, key=lambda one: one.key_position) if column.key_position]
    if not key or any(one not in shared for one in key):
        verdict.differ("the rows cannot be matched: no key, or not all of its columns are there")
        return verdict
    source = [dict(zip(names, row, strict=True)) for row in rows]
    expected = [{one.name: expected_value(one.sql_type, row[one.name]) for one in shared} for row in source]
    found = [
        {one.name: found_value(one.sql_type, value) for one, value in zip(shared, row, strict=True)}
        for row in zip(*(arrow.column(one.name).to_pylist() for one in shared), strict=True)
    ]
    _compare(verdict, [one.name for one in key], expected, found)
    return verdict


def _compare(
    verdict: Verdict, key: Sequence[str], expected: Iterable[dict[str, Any]], found: Iterable[dict[str, Any]]
) -> None:
    mirrored: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in found:
        identity = tuple(row[name] for name in key)
        if identity in mirrored:
            verdict.differ(f"{_shown(key, identity)}: more than once in the mirrored table")
        mirrored[identity] = row
    for row in expected:
        identity = tuple(row[name] for name in key)
        other = mirrored.pop(identity, None)
        if other is None:
            verdict.differ(f"{_shown(key, identity)}: missing in the mirrored table")
            continue
        for name, value in row.items():
            if other[name] != value:
                verdict.differ(f"{_shown(key, identity)}: {name} is {_text(value)}, mirrored {_text(other[name])}")
    for identity in mirrored:
        verdict.differ(f"{_shown(key, identity)}: exists in the mirrored table only")


def expected_value(sql_type: str, text: str | None) -> tuple[str, Any] | None:
    """What the text of a source value means: (kind, value), None for NULL.

    Raises:
        CannotJudge: when the type is unknown or the text is no value of it.
    """
    if text is None:
        return None
    kind, parse = _kind(sql_type)
    try:
        return kind, parse(text)
    except (ValueError, ArithmeticError, KeyError) as error:
        raise CannotJudge(f"the source holds {text!r} in a column of type {sql_type}") from error


def found_value(sql_type: str, value: Any) -> tuple[str, Any] | None:
    """What a mirrored value means, to be compared with :func:`expected_value`; another Python type stays different."""
    if value is None:
        return None
    kind, _ = _kind(sql_type)
    if kind == "guid" and isinstance(value, str):
        return _guid_or_text(value)
    if kind in ("float", "real") and isinstance(value, float):
        return kind, _bits(kind, value)
    if kind == "timestamp" and isinstance(value, datetime):
        # With a zone or without: both mean the same instant as long as the zone is resolved.
        return kind, value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    named: dict[type, str] = {bool: "bool", int: "int", Decimal: "decimal", str: "text", date: "date", time: "time"}
    return {**named, bytes: "bytes"}.get(type(value), type(value).__name__), value


_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_TIMESTAMPS = ("datetime", "datetime2", "smalldatetime")


def _kind(sql_type: str) -> tuple[str, Callable[[str], Any]]:
    base = sql_type.lower().partition("(")[0].strip()
    if base in _INTEGERS:
        return "int", int
    if base in ("decimal", "numeric", "money", "smallmoney"):
        return "decimal", Decimal
    if base in _TIMESTAMPS:
        # 26 characters end at the microsecond: finer digits are cut.
        return "timestamp", lambda text: datetime.fromisoformat(text[:26])
    kinds: dict[str, tuple[str, Callable[[str], Any]]] = {
        "bit": ("bool", lambda text: {"0": False, "1": True}[text]),
        "float": ("float", lambda text: _bits("float", float(text))),
        "real": ("real", lambda text: _bits("real", float(text))),
        "date": ("date", date.fromisoformat),
        "uniqueidentifier": ("guid", uuid.UUID),
    }
    if base in ("char", "varchar", "nchar", "nvarchar"):
        return "text", str
    if base in ("binary", "varbinary"):
        return "bytes", lambda text: bytes.fromhex(text.removeprefix("0x"))
    if base not in kinds:
        raise CannotJudge(f"the judge does not know the SQL type {sql_type}")
    return kinds[base]


def _bits(kind: str, value: float) -> bytes:
    try:
        return struct.pack("<f" if kind == "real" else "<d", value)
    except OverflowError:
        # A double that is no real at all: its own bits, equal to no real.
        return struct.pack("<d", value)


def _guid_or_text(value: str) -> tuple[str, Any]:
    try:
        return "guid", uuid.UUID(value)
    except ValueError:
        return "text", value


def count_files(landing_zone: Path, table: str) -> int:
    """Numbered files of a table: waiting in its folder, or applied and moved to a processed folder."""
    schema, _, name = table.partition(".")
    folder = Path(f"{schema}.schema") / name
    places = [landing_zone / folder]
    for processed in _PROCESSED:
        # The processed folders lie in the table's folder or at the root of the zone; both are seen.
        places += [landing_zone / folder / processed, landing_zone / processed / folder]
    found = {path.name for place in places if place.is_dir() for path in place.iterdir()}
    return sum(1 for one in found if _NUMBERED_FILE.match(one))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _shown(key: Sequence[str], identity: Sequence[Any]) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in zip(key, identity, strict=True))


def _text(value: tuple[str, Any] | None) -> str:
    if value is None:
        return "NULL"
    kind, content = value
    if kind in ("float", "real"):
        content = struct.unpack("<f" if len(content) == 4 else "<d", content)[0]
    shown = repr(content) if isinstance(content, (str, bytes, float)) else str(content)
    return f"{kind} {shown if len(shown) <= 80 else shown[:77] + '...'}"


def table_text(verdicts: Sequence[Verdict]) -> str:
    """The verdicts as a table, each with its differences below."""
    head = ("table", "rows at source", "rows mirrored", "equal", "files")
    lines = [
        (
            one.table,
            str(one.source_rows),
            "missing" if one.mirrored_rows is None else str(one.mirrored_rows),
            "yes" if one.equal else "NO",
            "-" if one.files is None else str(one.files),
        )
        for one in verdicts
    ]
    widths = [max(len(line[place]) for line in [head, *lines]) for place in range(len(head))]
    text = []
    for line, verdict in zip([head, *lines], [None, *verdicts], strict=True):
        text.append("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        if verdict is not None:
            more = verdict.difference_count - len(verdict.differences)
            text += [f"    {one}" for one in [*verdict.differences, *([f"and {more} more"] if more else [])]]
    return "\n".join(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Judge and print; returns the exit code."""
    parser = argparse.ArgumentParser("judge", description="Compare mirrored tables with their source, cell by cell.")
    parser.add_argument("--state", type=Path, required=True, metavar="FILE", help="the source database (SQLite)")
    parser.add_argument("--tables", type=Path, required=True, metavar="DIR", help="Delta tables, <schema>/<table>")
    parser.add_argument("--landing-zone", type=Path, metavar="DIR", help="count the files published there")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args(argv)
    try:
        verdicts = judge(arguments.state, arguments.tables, arguments.landing_zone)
    except CannotJudge as error:
        print(f"judge: {error}", file=sys.stderr)
        return 2
    equal = all(one.equal for one in verdicts)
    if arguments.json:
        print(json.dumps({"equal": equal, "tables": [asdict(one) for one in verdicts]}, indent=2, ensure_ascii=False))
    else:
        print(table_text(verdicts))
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
