"""The parameters that a person may set when starting a run. A task checks each before it uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from airflow.sdk import Context, Param

from open_mirroring.config import Mirror
from open_mirroring.errors import TerminalError
from open_mirroring.ledger import requests
from open_mirroring.ledger.requests import table_unknown
from open_mirroring_airflow.connections import ledger_url

TABLES, REREAD, MADE_ANEW = "tables", "reread", "made_anew"
TABLE, REASON, PROOF = "table", "reason", "proof"
NUMBER, NOT_APPLIED = "number", "not_applied"
DECISION, SUBJECT, RENAMED_TO = "decision", "subject", "renamed_to"
_BACKFILL = "backfill"


class DecisionForm(NamedTuple):
    """How a decision is offered in a run's form: its label, the fields that it needs, and those it may have."""

    label: str
    needs: tuple[str, ...] = ()
    may_have: tuple[str, ...] = ()


DECISIONS = {
    requests.RESUME: DecisionForm("Resume a table", (TABLE,)),
    requests.RESUME_EXTRACTION: DecisionForm("Resume reading"),
    requests.ACCEPT_EPOCH: DecisionForm("Accept a stream that began anew", (TABLE, SUBJECT)),
    requests.ACCEPT_SCHEMA: DecisionForm("A column was dropped or renamed", (TABLE, SUBJECT), (RENAMED_TO,)),
    requests.ACCEPT_TABLE: DecisionForm("Mirror a new table", (TABLE,)),
    requests.ACCEPT_RELOAD: DecisionForm("Accept the full load that a task sent again", (TABLE,)),
    requests.TARGET_GONE: DecisionForm("A table in a reset is gone from the target", (TABLE,)),
    requests.TARGET_BACK: DecisionForm("A table in a reset is back at the target", (TABLE,)),
    requests.ACCEPT_LETTERS: DecisionForm("Accept dead letters as lost", (SUBJECT,), (TABLE,)),
}
"""Every decision of a run's form, by the name of the command that takes it, too."""


def tables_param(sources: Sequence[str] | None, description: str) -> Param:
    """A choice of source tables, by name where a file does not tell them all (None); none chosen means all."""
    return Param(
        [],
        type="array",
        items=_one_of(sources),
        uniqueItems=True,
        examples=sorted(sources or ()),
        title="Tables",
        description=description,
    )


def table_param(sources: Sequence[str] | None, description: str) -> Param:
    """A choice of one source table, as :func:`tables_param`; there is no default."""
    return Param(**_one_of(sources), title="Table", description=description)


def _one_of(sources: Sequence[str] | None) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string", "minLength": 1}
    return text if sources is None else {"type": "string", "enum": sorted(sources)}


def params_of(*names: str) -> dict[str, Param]:
    """Parameters that are the same in every form; those that have to be filled in have no default."""
    text: dict[str, Any] = {"type": "string", "maxLength": 500}
    forms = {
        REASON: {**text, "minLength": 1, "title": "Reason", "description": "Kept in the ledger's audit."},
        PROOF: {
            "type": "string",
            "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
            "title": "Proof",
            "description": "Its id, as what the task `prove` returned names it: of one table, and corrected once.",
        },
        NUMBER: {
            "type": "integer",
            "minimum": 1,
            "title": "File number",
            "description": "The lost number, as the stop names it (FILE_MISSING).",
        },
        NOT_APPLIED: {
            **text,
            "default": "",
            "title": "Not applied",
            "description": "How you know that the target has not applied it, as: no row of it is there; empty where a "
            "trusted counter proves it. Kept in the ledger's audit.",
        },
        MADE_ANEW: {
            "default": False,
            "type": "boolean",
            "title": "Made anew",
            "description": "The source dropped the table and made it again, empty, before its newest stream began: "
            "what older streams told is of another table. Never for a table with an initial load.",
        },
        REREAD: {
            "default": False,
            "type": "boolean",
            "title": "Read again",
            "description": "Read again what was read of the run's interval before. The target changes only where it "
            "lacks something. For backfills, and for runs with a logical date.",
        },
    }
    return {name: Param(**forms[name]) for name in names}


def decision_params(sources: Sequence[str] | None) -> dict[str, Param]:
    """Which of :data:`DECISIONS`, of what, and why.

    A table is typed, those of the mirror file are proposed: one that joins by a pattern is not in it.
    """
    text: dict[str, Any] = {"type": ["null", "string"], "minLength": 1}
    proposed: dict[str, Any] = {} if sources is None else {"examples": sorted(sources)}
    labels = {name: form.label for name, form in DECISIONS.items()}
    kinds: dict[str, Any] = {"type": "string", "enum": list(DECISIONS), "values_display": labels}
    subject = "The GUID of the stream, the column (by its old name), or the code of dead letters: as the stop names it."
    table = "The source table. Not for reading as a whole, nor for dead letters that name no table."
    return {
        DECISION: Param(**kinds, title="Decision"),
        TABLE: Param(None, **text, **proposed, title="Table", description=table),
        SUBJECT: Param(None, **text, title="Stream, column or code", description=subject),
        RENAMED_TO: Param(None, **text, title="New name", description="Of a renamed column; none: it was dropped."),
        **params_of(REASON),
    }


def chosen_decision(params: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """The decision that a run's params name, and the fields that are filled in.

    Raises:
        TerminalError: ``ARGUMENT_INVALID`` when a field is missing, or filled in that this decision does not have: who
            filled it in meant another one.
    """
    action = params[DECISION]
    form = DECISIONS[action]
    filled = {name: str(params[name]) for name in (TABLE, SUBJECT, RENAMED_TO) if params.get(name)}
    missing = [name for name in form.needs if name not in filled]
    strange = [name for name in filled if name not in (*form.needs, *form.may_have)]
    if missing or strange:
        said = [f"a field of the form is missing: {', '.join(missing)}"] if missing else []
        said += [f"a field has no place in it: {', '.join(strange)}"] if strange else []
        needs = ", ".join((*form.needs, *(f"{name} (optional)" for name in form.may_have))) or "only a reason"
        raise TerminalError(
            "ARGUMENT_INVALID",
            f"nothing was decided: for {form.label!r} ({action}) {'; and '.join(said)}",
            where="the run's form",
            way_out=f"start another run of this DAG; {action} takes: {needs}",
        )
    return action, filled


def letter_params(sources: Sequence[str] | None) -> dict[str, Param]:
    """Which dead letters a replay takes; all of them when nothing is chosen."""
    text: dict[str, Any] = {"type": ["null", "string"], "minLength": 1}
    table = text
    if sources is not None:
        # Not an enum of the field itself: its list would offer "null" as a value.
        table = {**text, "anyOf": [{"type": "null"}, {"enum": sorted(sources)}], "examples": sorted(sources)}
    after = "Only letters at this position of their stream or later; those without a position are left out."
    return {
        "code": Param(None, **text, title="Code", description="Only letters of this code, as MESSAGE_INVALID."),
        "table": Param(None, **table, title="Table", description="Only letters of this source table."),
        "after": Param(None, **text, title="From position", description=after),
        "before": Param(None, **text, title="To position", description="Only letters before this position."),
    }


def letter_arguments(context: Context) -> list[str]:
    """The letters that a run was started for, as arguments of the replaying job."""
    chosen = {name: context["params"].get(name) for name in ("code", "table", "after", "before")}
    return [word for name, value in chosen.items() if value for word in (f"--{name}", str(value))]


def chosen_tables(mirror: Mirror, context: Context) -> list[str]:
    """The source tables that this run is for, in the mirror file's order; all when none was chosen.

    Raises:
        TerminalError: ``ARGUMENT_INVALID``.
    """
    _see_joined(mirror)
    return checked_tables(mirror, context["params"].get(TABLES) or [table.source for table in mirror.tables])


def checked_tables(mirror: Mirror, wanted: Sequence[str]) -> list[str]:
    """The same tables in the mirror file's order.

    Raises:
        TerminalError: ``ARGUMENT_INVALID`` when the mirror file, which may have changed since, has one of them no more.
    """
    _see_joined(mirror)
    sources = [table.source for table in mirror.tables]
    unknown = sorted(set(wanted) - set(sources))
    if unknown:
        raise table_unknown(mirror.name, unknown, sources)
    return [source for source in sources if source in set(wanted)]


def _see_joined(mirror: Mirror) -> None:
    if mirror.has_patterns:
        from open_mirroring.ledger import open_ledger
        from open_mirroring.reconciliation.joined_tables import take_in_joined

        take_in_joined(mirror, open_ledger(ledger_url(mirror)))


def backfill_arguments(context: Context) -> list[str]:
    """What a run has to read before its tick, as arguments of the extracting job; nothing for a scheduled run.

    A run of a backfill names its interval; a run started by hand has one only if it was given a date (AF-05).

    Raises:
        TerminalError: ``ARGUMENT_INVALID`` for a run that is to read again without saying what.
    """
    run, reread = context["dag_run"], bool(context["params"].get(REREAD))
    if run.run_type != _BACKFILL and not reread:
        return []
    start, end = run.data_interval_start, run.data_interval_end
    if start is None or end is None or start >= end:
        raise TerminalError(
            "ARGUMENT_INVALID",
            "a run that is to read again has to name an interval, and this one has none",
            where=f"param {REREAD}",
            way_out="start it as a backfill: airflow backfill create --dag-id … --from-date … --to-date … "
            """--dag-run-conf '{"reread": true}'; or give it a logical date""",
        )
    interval = ["--from", start.isoformat(), "--to", end.isoformat()]
    return [*interval, "--reread"] if reread else interval
