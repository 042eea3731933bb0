"""Builds the params (the trigger form) of DAGs from operations, and checks their values in tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Context, Param

from open_mirroring.config import Mirror
from open_mirroring.errors import TerminalError
from open_mirroring.operate.arguments import Argument, required
from open_mirroring.operate.operations import DECISIONS, REASON, REREAD, TABLE, Operation
from open_mirroring_airflow.connections import ledger_url

DECISION, TABLES = "decision", "tables"
_BACKFILL = "backfill"
_TEXT: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 500}


def params_of(operation: Operation, sources: Sequence[str] | None) -> dict[str, Param]:
    """The params (the trigger form) of an operation.

    *sources* are the tables that the form offers; None if the mirror file names tables by patterns.
    """
    return {one.field: _param(one, sources) for one in operation.fields}


def _param(one: Argument, sources: Sequence[str] | None) -> Param:
    shown: dict[str, Any] = {"title": one.title, "description": one.says}
    choice: dict[str, Any] = {} if sources is None else {"enum": sorted(sources)}
    if one.is_flag:
        return Param(False, type="boolean", **shown)
    if one.is_number:
        return Param(type="integer", minimum=1, **shown)
    if one.field == TABLES:
        items = {**_TEXT, **choice}
        return Param([], type="array", items=items, uniqueItems=True, examples=sorted(sources or ()), **shown)
    is_table = one.field == TABLE.field
    if one.is_required:
        return Param(**{**_TEXT, **(choice if is_table else {}), **one.schema}, **shown)
    text = {**_TEXT, "type": ["null", "string"], **one.schema}
    if is_table and sources is not None:
        # Not an enum of the field itself: its list would offer "null" as a value.
        text |= {"anyOf": [{"type": "null"}, choice], "examples": sorted(sources)}
    return Param(None, **text, **shown)


def decision_params(sources: Sequence[str] | None) -> dict[str, Param]:
    """The params (the trigger form) of the DAG ``decide``: the decision, its fields, and the reason.

    *sources* are the tables of the mirror file. The form suggests them, but accepts any name, because a pattern in the
    mirror file may mirror more tables.
    """
    labels = {name: one.label for name, one in DECISIONS.items()}
    kinds: dict[str, Any] = {**_TEXT, "enum": list(DECISIONS), "values_display": labels}
    params = {DECISION: Param(**kinds, title="Decision")}
    for field, uses in _decision_fields().items():
        text = {**_TEXT, "type": ["null", "string"]}
        if field == TABLE.field and sources is not None:
            text["examples"] = sorted(sources)
        title = " or ".join(dict.fromkeys(one.title for one in uses.values()))
        said = dict.fromkeys(one.says for one in uses.values())
        says = " ".join(said if len(said) == 1 else (f"{name}: {one.says}" for name, one in uses.items()))
        params[field] = Param(None, **text, title=title, description=says)
    return {**params, REASON.field: _param(required(REASON), None)}


def _decision_fields() -> dict[str, dict[str, Argument]]:
    """The arguments of decisions by field, each by the decision; without the reason."""
    found: dict[str, dict[str, Argument]] = {}
    for name, operation in DECISIONS.items():
        for one in operation.fields:
            if one.field != REASON.field:
                found.setdefault(one.field, {})[name] = one
    return found


def chosen_decision(params: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """The name of the decision in a run's params, and the filled fields of this decision.

    Raises ``ARGUMENT_INVALID`` if the decision lacks a field, or if a field is filled that the decision does not have.
    """
    operation = DECISIONS[params[DECISION]]
    needs, may_have = operation.needs, operation.may_have
    filled = {name: str(params[name]) for name in _decision_fields() if params.get(name)}
    missing = [name for name in needs if name not in filled]
    strange = [name for name in filled if name not in (*needs, *may_have)]
    if missing or strange:
        said = [f"a field of the form is missing: {', '.join(missing)}"] if missing else []
        said += [f"a field has no place in it: {', '.join(strange)}"] if strange else []
        takes = ", ".join((*needs, *(f"{name} (optional)" for name in may_have))) or "only a reason"
        raise TerminalError(
            "ARGUMENT_INVALID",
            f"nothing was decided: for {operation.label!r} ({operation.name}) {'; and '.join(said)}",
            where="the run's form",
            next_step=f"start another run of this DAG; {operation.name} takes: {takes}",
        )
    return operation.name, filled


def chosen_tables(mirror: Mirror, context: Context) -> list[str]:
    """The source tables that the run is for, in the mirror file's order; all tables if the run names none."""
    return checked_tables(mirror, context["params"].get(TABLES) or None)


def checked_tables(mirror: Mirror, wanted: Sequence[str] | None) -> list[str]:
    """The tables in *wanted*, which may include histories, in the mirror file's order; if None, all tables.

    Raises ``ARGUMENT_INVALID`` if the mirror has no table of a name in *wanted*.
    """
    if mirror.has_patterns:
        from open_mirroring.ledger import open_ledger
        from open_mirroring.reconciliation.joined_tables import declare_joined

        declare_joined(mirror, open_ledger(ledger_url(mirror)))
    sources = [table.source for table in mirror.targets]
    chosen = {table.source for table in mirror.tables} if wanted is None else set(wanted)
    if unknown := sorted(chosen.difference(sources)):
        from open_mirroring.ledger.requests import table_unknown

        raise table_unknown(mirror.name, unknown, sources)
    return [source for source in sources if source in chosen]


def backfill_arguments(context: Context) -> list[str]:
    """The arguments that let the extracting job first read the interval of the run.

    Empty unless the run is a backfill, or its params ask for reading again. A backfill always has an interval, a run
    that a user triggered only if it has a logical date (AF-05). Raises ``ARGUMENT_INVALID`` if the arguments need an
    interval and the run has none.
    """
    run, reread = context["dag_run"], bool(context["params"].get(REREAD.field))
    if run.run_type != _BACKFILL and not reread:
        return []
    start, end = run.data_interval_start, run.data_interval_end
    if start is None or end is None or start >= end:
        raise TerminalError(
            "ARGUMENT_INVALID",
            "a run that is to read again has to name an interval, and this one has none",
            where=f"param {REREAD.field}",
            next_step="start it as a backfill: airflow backfill create --dag-id … --from-date … --to-date … "
            """--dag-run-conf '{"reread": true}'; or give it a logical date""",
        )
    interval = ["--from", start.isoformat(), "--to", end.isoformat()]
    return [*interval, "--reread"] if reread else interval
