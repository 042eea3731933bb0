"""What a person may choose when starting a run, and how a task reads it: never used before it is checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow.sdk import Context, Param

from open_mirroring.config import Mirror
from open_mirroring.errors import TerminalError

TABLES, REREAD = "tables", "reread"
TABLE, REASON = "table", "reason"


def tables_param(sources: Iterable[str], description: str) -> Param:
    """A choice of source tables; none chosen means all."""
    choices = sorted(sources)
    return Param(
        [],
        type="array",
        items={"type": "string", "enum": choices},
        uniqueItems=True,
        examples=choices,
        title="Tables",
        description=description,
    )


def table_param(sources: Iterable[str], description: str) -> Param:
    """A choice of one source table; there is no default."""
    return Param(type="string", enum=sorted(sources), title="Table", description=description)


def reason_param() -> Param:
    """Why; there is no default."""
    return Param(type="string", minLength=1, maxLength=500, title="Reason", description="Kept in the ledger's audit.")


def reread_param() -> Param:
    """Whether ranges that were read before are read once more."""
    return Param(
        False,
        type="boolean",
        title="Read again",
        description="Read source ranges again that were read before. Not built yet: a run that asks for it is refused.",
    )


def chosen_tables(mirror: Mirror, context: Context) -> list[str]:
    """The source tables that this run is for, in the mirror file's order; all when none was chosen.

    Raises:
        TerminalError: ``TABLE_UNKNOWN``.
    """
    return checked_tables(mirror, context["params"].get(TABLES) or [table.source for table in mirror.tables])


def checked_tables(mirror: Mirror, wanted: Sequence[str]) -> list[str]:
    """The same tables in the mirror file's order.

    Raises:
        TerminalError: ``TABLE_UNKNOWN`` when the mirror file, which may have changed since, has one of them no more.
    """
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


def refuse_reread(context: Context) -> None:
    """Refuse a run that asks for what is not built, instead of doing something else under its name.

    Raises:
        TerminalError: ``NOT_YET_SUPPORTED``.
    """
    if context["params"].get(REREAD):
        raise TerminalError(
            "NOT_YET_SUPPORTED",
            "ranges that were read before cannot be read again yet",
            where=f"param {REREAD}",
            way_out="start the run without it; what was never read is read by every run",
        )
