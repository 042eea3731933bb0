"""Asks the gate, the check before publishing, which tables may be published now.

The gate's sensor and its trigger use this module. :mod:`open_mirroring.protocols.verdicts` decides which tables may be
published. This module decides when the sensor stops waiting: as soon as one table may be published, or when no table
would be helped by waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from open_mirroring.changes.history_names import is_chosen
from open_mirroring.config import Mirror
from open_mirroring.errors import MirroringError, TerminalError, TransientError

if TYPE_CHECKING:
    from open_mirroring.landing_zone.opening import ZoneAddress


class GateEvent(TypedDict):
    """The answer of the gate. *passing* are the source tables that may be published now.

    *held* are tables that have to wait, and *stopped* are tables that cannot be published until their stop ends; both
    map the source table to ``CODE: reason``. *note* is a line with HOLD and the reasons if *held* has tables; else it
    is empty.
    """

    passing: list[str]
    held: dict[str, str]
    stopped: dict[str, str]
    note: str


def gate_event(mirror: Mirror, ledger_url: str, tables: Sequence[str], zone: ZoneAddress | None = None) -> GateEvent:
    """Decides for each of *tables*, and for its history, whether it may be published now.

    The decision reads ledger and landing zone, and blocks until both have answered. If *zone* is None, the login to
    the landing zone comes from environment variables. Raises the errors of ledger and landing zone.
    """
    from open_mirroring.ledger import open_ledger
    from open_mirroring.protocols.verdicts import gate
    from open_mirroring.reconciliation.inspection import inspect_mirror

    engine = open_ledger(ledger_url)
    try:
        findings = inspect_mirror(mirror, engine, zone)
    finally:
        engine.dispose()
    result = gate({table: finding for table, finding in findings.items() if is_chosen(table, set(tables))})
    return GateEvent(
        passing=list(result.passing), held=result.held, stopped=result.stopped, note=hold_note(result.held)
    )


def is_settled(event: GateEvent) -> bool:
    """Whether the sensor can stop waiting: a table may be published, or no table is on hold."""
    return bool(event["passing"]) or not event["held"]


def hold_note(held: dict[str, str]) -> str:
    """The line for the note of a run that lists tables on hold with their reasons; empty if *held* is empty."""
    return f"HOLD: {'; '.join(f'{table}: {reason}' for table, reason in sorted(held.items()))}" if held else ""


def error_event(error: MirroringError) -> dict[str, Any]:
    """Converts an error to a dict of JSON values, so that a trigger can send the error to its task."""
    kind = "transient" if isinstance(error, TransientError) else "terminal"
    fields = {"code": error.code, "what": error.what, "where": error.where, "next_step": error.next_step}
    return {"error": {"kind": kind, **fields}}


def event_error(event: dict[str, Any]) -> MirroringError | None:
    """The error that :func:`error_event` put into a trigger's event; None if the event contains no error."""
    fields = dict(event.get("error") or {})
    if not fields:
        return None
    kind = TransientError if fields.pop("kind") == "transient" else TerminalError
    return kind(fields["code"], fields["what"], where=fields["where"], next_step=fields["next_step"])
