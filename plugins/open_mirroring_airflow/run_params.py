"""The parameters that a person may set when starting a run. A task checks each before it uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context, Param

from open_mirroring.config import Mirror
from open_mirroring.errors import TerminalError
from open_mirroring.ledger import open_ledger
from open_mirroring.reconciliation.joined_tables import take_in_joined
from open_mirroring_airflow.connections import ledger_url

TABLES, REREAD = "tables", "reread"
TABLE, REASON, PROOF = "table", "reason", "proof"
_BACKFILL = "backfill"


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


def reason_param() -> Param:
    """Why; there is no default."""
    return Param(type="string", minLength=1, maxLength=500, title="Reason", description="Kept in the ledger's audit.")


def proof_param() -> Param:
    """The proof whose keys are corrected; there is no default."""
    uuid = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
    said = "Its id, as what the task `prove` returned names it: of one table, and corrected once."
    return Param(type="string", pattern=uuid, title="Proof", description=said)


def reread_param() -> Param:
    """Whether ranges that were read before are read once more."""
    return Param(
        False,
        type="boolean",
        title="Read again",
        description="Read again what was read of the run's interval before. The target changes only where it lacks "
        "something. For backfills, and for runs with a logical date.",
    )


def letter_params(sources: Sequence[str] | None) -> dict[str, Param]:
    """Which dead letters a replay takes; all of them when nothing is chosen."""
    text: dict[str, Any] = {"type": ["null", "string"], "minLength": 1}
    table = text if sources is None else {"type": ["null", "string"], "enum": [None, *sorted(sources)]}
    after = "Only letters at this position of their stream or later; those without a position are left out."
    return {
        "code": Param(None, **text, title="Code", description="Only letters of this code, as JSON_MALFORMED."),
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
        TerminalError: ``TABLE_UNKNOWN``.
    """
    _see_joined(mirror)
    return checked_tables(mirror, context["params"].get(TABLES) or [table.source for table in mirror.tables])


def checked_tables(mirror: Mirror, wanted: Sequence[str]) -> list[str]:
    """The same tables in the mirror file's order.

    Raises:
        TerminalError: ``TABLE_UNKNOWN`` when the mirror file, which may have changed since, has one of them no more.
    """
    _see_joined(mirror)
    sources = [table.source for table in mirror.tables]
    unknown = sorted(set(wanted) - set(sources))
    if unknown:
        raise TerminalError(
            "TABLE_UNKNOWN",
            f"the mirror {mirror.name!r} has no table {', '.join(map(repr, unknown))}",
            where=str(mirror.file),
            way_out=f"choose among: {', '.join(sources)}",
        )
    return [source for source in sources if source in set(wanted)]


def _see_joined(mirror: Mirror) -> None:
    if mirror.has_patterns:
        take_in_joined(mirror, open_ledger(ledger_url(mirror)))


def backfill_arguments(context: Context) -> list[str]:
    """What a run has to read before its tick, as arguments of the extracting job; nothing for an ordinary run.

    A run of a backfill names its interval; a run started by hand has one only if it was given a date (AF-05).

    Raises:
        TerminalError: ``INTERVAL_MISSING`` for a run that is to read again without saying what.
    """
    run, reread = context["dag_run"], bool(context["params"].get(REREAD))
    if run.run_type != _BACKFILL and not reread:
        return []
    start, end = run.data_interval_start, run.data_interval_end
    if start is None or end is None or start >= end:
        raise TerminalError(
            "INTERVAL_MISSING",
            "a run that is to read again has to name an interval, and this one has none",
            where=f"param {REREAD}",
            way_out="start it as a backfill: airflow backfill create --dag-id … --from-date … --to-date … "
            """--dag-run-conf '{"reread": true}'; or give it a logical date""",
        )
    interval = ["--from", start.isoformat(), "--to", end.isoformat()]
    return [*interval, "--reread"] if reread else interval
