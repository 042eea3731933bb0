"""Reads a task's history of DDL: which columns of a table were dropped or renamed, and when (T-84).

Public source: Qlik help, *DDL history*.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from open_mirroring.changes.told_statements import ColumnStep, Statement
from spark_jobs.sources.qlik.positions import SEQUENCE_DIGITS, qlik_position

_CONTRADICTED = ColumnStep("")


def statements_of(rows: Iterable[tuple[str, Any, Any, Any, Any]]) -> dict[str, list[Statement]]:
    """The statements on each table, in order.

    A task may record one twice, for the table and for its change table. If the two contradict each other about a
    column, neither counts. If a row has no position in the order, no statement on its table counts.

    Args:
        rows: table, ``change_seq``, time, type and details of each row.
    """
    found: dict[str, dict[str, Statement]] = {}
    unplaced: set[str] = set()
    for table, sequence, at, kind, details in rows:
        text = str(sequence or "").strip()
        if not re.fullmatch(rf"[0-9]{{{SEQUENCE_DIGITS}}}", text):
            unplaced.add(table)
            continue
        place = qlik_position(text, 0)
        columns, renamed_to = _details(details)
        one = Statement(place, str(kind or "").strip().upper(), columns, renamed_to, str(at or ""))
        known = found.setdefault(table, {})
        known[place] = _as_one(known[place], one) if place in known else one
    return {table: [told[at] for at in sorted(told)] for table, told in found.items() if table not in unplaced}


def _as_one(first: Statement, second: Statement) -> Statement:
    if first.columns is None or second.columns is None or first.kind != second.kind:
        return first._replace(columns=None)
    both = {
        name: step if first.columns.get(name, step) == second.columns.get(name, step) else _CONTRADICTED
        for name, step in {**first.columns, **second.columns}.items()
    }
    return first._replace(columns=both, renamed_to=first.renamed_to or second.renamed_to)


def _details(text: Any) -> tuple[Mapping[str, ColumnStep] | None, str | None]:
    """The columns and the table's new name; the columns are unknown if the details are not as documented."""
    try:
        told = json.loads(str(text or "{}"), object_pairs_hook=_unique)
        columns = {name.casefold(): _step(one) for name, one in (told.get("columns") or {}).items()}
        renamed_to = _name(told.get("tableNewName"))
        is_other = renamed_to is not None and renamed_to != told.get("table")
        return columns, renamed_to if is_other else None
    except (ValueError, AttributeError, RecursionError):
        return None, None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len({name.casefold() for name in found}) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _step(one: Mapping[str, Any]) -> ColumnStep:
    return ColumnStep(str(one.get("action") or "").upper(), _name(one.get("columnNewName")))


def _name(value: Any) -> str | None:
    return str(value) if value else None
