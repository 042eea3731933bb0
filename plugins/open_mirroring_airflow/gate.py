"""Asks the gate which tables may publish; the sensor in its task and the trigger in the triggerer share this.

The core decides which tables may publish; this module when to stop asking: as soon as one passes, or none is left that
waiting could help.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from open_mirroring.config import Mirror
from open_mirroring.errors import MirroringError, TerminalError, TransientError

if TYPE_CHECKING:
    from open_mirroring.landing_zone.opening import ZoneAddress


class GateEvent(TypedDict):
    """What the gate answers: source tables that may publish, and the others with ``CODE: reason``.

    *note* says HOLD and why when a table has to wait; else it is empty.
    """

    passing: list[str]
    held: dict[str, str]
    stopped: dict[str, str]
    note: str


def gate_event(mirror: Mirror, ledger_url: str, tables: Sequence[str], zone: ZoneAddress | None = None) -> GateEvent:
    """Look at ledger and landing zone once and sort *tables*; blocks for as long as they take.

    Without a *zone* that of the environment is asked. Raises what ledger and landing zone do.
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
    """Whether waiting longer could change nothing that this run needs."""
    return bool(event["passing"]) or not event["held"]


def hold_note(held: dict[str, str]) -> str:
    """The note of a run that leaves tables for later; empty when it leaves none."""
    return f"HOLD: {'; '.join(f'{table}: {reason}' for table, reason in sorted(held.items()))}" if held else ""


def error_event(error: MirroringError) -> dict[str, Any]:
    """An error as plain values, for the way from the triggerer to the task."""
    kind = "transient" if isinstance(error, TransientError) else "terminal"
    fields = {"code": error.code, "what": error.what, "where": error.where, "way_out": error.way_out}
    return {"error": {"kind": kind, **fields}}


def event_error(event: dict[str, Any]) -> MirroringError | None:
    """The error that an event carries, if it carries one."""
    fields = dict(event.get("error") or {})
    if not fields:
        return None
    kind = TransientError if fields.pop("kind") == "transient" else TerminalError
    return kind(fields["code"], fields["what"], where=fields["where"], way_out=fields["way_out"])
