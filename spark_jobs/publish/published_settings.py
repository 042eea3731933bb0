"""Stops tables whose settings in the mirror file contradict what is already published (G-129)."""

from __future__ import annotations

import json
from collections.abc import Iterable

from open_mirroring.changes.column_choice import DELETED_AT, ColumnChoice, where_of
from open_mirroring.config import Table
from open_mirroring.facts.column_lists import ColumnList
from open_mirroring.landing_zone.schema import LandingColumn, extra_columns, wider
from open_mirroring.ledger.reading import TableState
from spark_jobs.plan.table_plan import PlanStop
from spark_jobs.sources.sql_server.type_text import is_known, landing_type


def refuse_other_settings(state: TableState, declared: Table, salted: str | None) -> None:
    """Raise PlanStop if settings of columns, types, names or hashes contradict the published files.

    Settings are checked even for a table without changes. Without this check such a table would keep readable values in
    a column that the mirror file now says to hash, and each run would report PASS.
    """
    chosen, published = declared.chosen, state.columns.columns
    of_source = [column for column in published if not column.content]
    names = [column.name for column in of_source]
    kept = {*chosen.of(names), *state.keys}
    if out := [name for name in names if name not in kept]:
        # Changed rows would lose these columns, all others keep them (G-12).
        raise PlanStop("SCHEMA_CHANGED", f"`columns` leaves out {out[:5]}, which are published already")
    for column in of_source:
        if what := _lands_otherwise(column, chosen):
            raise PlanStop("SCHEMA_CHANGED", what)
        if column.salted is not None and column.salted != salted:
            what = f"the hashes of column {column.name!r} are published with another salt than the connection has now"
            raise PlanStop("TABLE_REDECLARED", what)
    extra = extra_columns(chosen.extra)
    for column in published:
        if column.content and column not in extra:
            named = {one.content: one.landed_name for one in extra}.get(column.content)
            what = f"names the {column.content} {named!r}" if named else f"leaves out the {column.content}"
            setting = "on_delete" if column.content == DELETED_AT and not named else "extra_columns"
            raise PlanStop("SCHEMA_CHANGED", f"`{setting}` {what}, which is published as {column.landed_name!r}")


def refuse_other_where(state: TableState, declared: Table) -> None:
    """Raise PlanStop if published or loaded rows were chosen by another `where` than the mirror file has (G-193)."""
    plan = state.start.load_plan
    if state.types is not None:
        before = where_of(state.types)
    elif plan is not None and plan.settings:
        before = json.loads(plan.settings).get("where", "")
    else:
        return  # a ledger that was rebuilt does not know
    begun = state.row.confirmed or state.row.intent is not None or plan is not None
    if begun and before != declared.chosen.where:
        now = declared.chosen.where or "all rows"
        raise PlanStop("SCHEMA_CHANGED", f"`where` chooses {now}, and published are {before or 'all rows'}")


def refuse_text_no_more(state: TableState, declared: Table, lists: Iterable[ColumnList]) -> None:
    """Raise PlanStop if a published column is a string only because of `types` that the mirror file no longer has."""
    texts = [c for c in state.columns.columns if c.type == "string" and not c.content]
    at_source = {c.name.casefold(): c.name for c in texts if declared.chosen.type_of(c.name) is None}
    types = [(name, sql_type) for one in lists for name, sql_type, _ in json.loads(one.cols)]
    plan = state.start.load_plan
    types += [] if plan is None else [(column.name, column.sql_type or "") for column in plan.columns]
    for name, published in at_source.items():
        kinds = sorted({sql_type for column, sql_type in types if column.casefold() == name and sql_type})
        if kinds and not any(not is_known(kind) or landing_type(kind) == "string" for kind in kinds):
            what = f"column {published!r} is published as string, but `types` no longer names it: it is {kinds[0]}"
            raise PlanStop("SCHEMA_CHANGED", what)


def _lands_otherwise(column: LandingColumn, chosen: ColumnChoice) -> str:
    """How the settings contradict a published column (G-110, G-120, G-121); empty if they do not.

    The target cannot change a type, would keep a column under both names, and keeps what was published in clear.
    """
    name, kind, landed = column.name, chosen.type_of(column.name), chosen.landed_name(column.name)
    if kind is not None and wider(column.type, kind) != column.type:
        return f"`types` lands {name!r} as {kind}, which is published as {column.type}"
    if landed != column.landed_name:
        return f"`rename` lands {name!r} as {landed!r}, which is published as {column.landed_name!r}"
    is_hashed = chosen.hashes(name)
    if is_hashed == (column.salted is not None):
        return ""
    now, before = ("as a hash", "in clear") if is_hashed else ("in clear", "as a hash")
    return f"`hash` lands {name!r} {now}, which is published {before}"
