"""Asks which tables may be published now; used by the gate's sensor and its trigger.

The core decides which tables may be published. This module decides when to stop waiting: as soon as one table may, or
waiting helps none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from open_mirroring.config import Mirror
from open_mirroring.errors import MirroringError, TerminalError, TransientError

if TYPE_CHECKING:
    from open_mirroring.landing_zone.opening import ZoneAddress


class GateEvent(TypedDict):
    """The answer of the gate: source tables that may be published, and the others with ``CODE: reason``.

    *note* is a text with HOLD and the reasons if tables have to wait; else it is empty.
    """

    passing: list[str]
    held: dict[str, str]
    stopped: dict[str, str]
    note: str


def gate_event(mirror: Mirror, ledger_url: str, tables: Sequence[str], zone: ZoneAddress | None = None) -> GateEvent:
    """Decides for each of *tables*, by ledger and landing zone, whether it may be published; blocking.

    Without *zone* the landing zone's login comes from the environment. Errors of ledger and landing zone are raised.
    """
    from open_mirroring.ledger import open_ledger
    from open_mirroring.protocols.verdicts import gate
    from open_mirroring.reconciliation.inspection import inspect_mirror

    engine = open_ledger(ledger_url)
    try:
        findings = inspect_mirror(mirror, engine, zone)
    finally:
        engine.dispose()
    result = gate({table: finding for table, finding in findings.items() if table in set(tables)})
    return GateEvent(
        passing=list(result.passing), held=result.held, stopped=result.stopped, note=hold_note(result.held)
    )


def is_settled(event: GateEvent) -> bool:
    """Whether to stop waiting: a table may be published, or waiting helps none."""
    return bool(event["passing"]) or not event["held"]


def hold_note(held: dict[str, str]) -> str:
    """The note of a run that leaves tables on hold, with their reasons; empty if there are none."""
    return f"HOLD: {'; '.join(f'{table}: {reason}' for table, reason in sorted(held.items()))}" if held else ""


def error_event(error: MirroringError) -> dict[str, Any]:
    """An error as a JSON-ready dict, to send it from the triggerer to the task."""
    kind = "transient" if isinstance(error, TransientError) else "terminal"
    fields = {"code": error.code, "what": error.what, "where": error.where, "next_step": error.next_step}
    return {"error": {"kind": kind, **fields}}


def event_error(event: dict[str, Any]) -> MirroringError | None:
    """The error in a trigger's event, see :func:`error_event`; None if there is none."""
    fields = dict(event.get("error") or {})
    if not fields:
        return None
    kind = TransientError if fields.pop("kind") == "transient" else TerminalError
    return kind(fields["code"], fields["what"], where=fields["where"], next_step=fields["next_step"])
