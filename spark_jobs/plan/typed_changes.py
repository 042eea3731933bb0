"""Types the changes that a plan publishes, by the columns of the table's files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.delimited_text import reads_as_null
from spark_jobs.plan.loaded_columns import doubt_by_deletes
from spark_jobs.plan.table_plan import PlanStop, TablePlan
from spark_jobs.sources.sql_server.extra_columns import with_extra
from spark_jobs.sources.sql_server.typed_rows import Failure, Typed, type_rows


def typed_changes(plan: TablePlan, changes: pa.Table) -> Typed:
    """The changes as rows of the table's files.

    Raises:
        PlanStop: ``SCHEMA_CHANGED`` where a column's type does not take the values of an earlier one, ``VALUE_INVALID``
            where deletes may miss their loaded rows.
    """
    if found := doubt_by_deletes(plan.begins.loaded_keys, changes):
        raise PlanStop("VALUE_INVALID", found)
    landing = plan.columns.landing
    try:
        typed = type_rows(changes, landing, plan.keys, plan.columns.types)
    except TerminalError as error:
        raise PlanStop(error.code, error.what) from error
    if plan.columns.null_text is not None:
        typed = _told_from_null(plan, typed, plan.columns.null_text)
    if not any(column.tells for column in landing):
        return typed
    return typed._replace(rows=with_extra(typed.rows, changes.take(typed.places), landing, plan.source))


def _told_from_null(plan: TablePlan, typed: Typed, null: str) -> Typed:
    """The rows without those of which the service would read a value as NULL; these are failures (F-22)."""
    bad: dict[int, Failure] = {}
    for column in plan.columns.landing:
        if column.tells or column.salted:
            continue  # the file has another text; the file's writer compares that
        found = reads_as_null(typed.rows[column.name].combine_chunks(), null)
        for at in pc.indices_nonzero(found).to_pylist():
            what = f"column {column.name!r}: the value {null!r} stands for NULL in this table's text files"
            row = typed.places[at].as_py()
            bad.setdefault(row, Failure(row, "VALUE_INVALID", f"{what}; choose another `null_value` and reload"))
    if not bad:
        return typed
    good = pc.invert(pc.is_in(typed.places, pa.array(list(bad), pa.int64())))
    return Typed(typed.rows.filter(good), typed.places.filter(good), [*typed.failures, *bad.values()])
