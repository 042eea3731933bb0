"""The task that asks the gate, the check before publishing, and waits until a table may be published.

The task waits only a limited time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import BaseSensorOperator, Context

from open_mirroring.config import load_mirror
from open_mirroring_airflow.connections import landing_zone, ledger_url
from open_mirroring_airflow.gate import GateEvent, event_error, gate_event, is_settled
from open_mirroring_airflow.run_note import noted
from open_mirroring_airflow.run_params import chosen_tables
from open_mirroring_airflow.triggers import GateTrigger

_GRACE = timedelta(minutes=5)
"""How much longer than its own limit a deferral lives before Airflow ends it: a triggerer may be slow or down."""


class GateSensor(BaseSensorOperator):
    """Ask the gate (the check before publishing) which tables may be published now.

    While tables are on hold and none may be published, the task waits, deferred, for at most ``gate.timeout_minutes``
    of the mirror file. Then the task **succeeds**, even if no table may be published. It returns a
    :class:`~open_mirroring_airflow.gate.GateEvent`: the tables that may be published, and a HOLD note. The task fails
    if the gate cannot answer, for example because the ledger is unreachable.
    """

    template_fields: Sequence[str] = ("mirror_file",)

    def __init__(self, *, mirror_file: str, poll_interval: float = 30, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mirror_file = mirror_file
        self.poll_interval = poll_interval
        self.said: list[str] = []

    @noted
    def execute(self, context: Context) -> GateEvent:
        """Asks the gate once; defers the task if waiting may help."""
        mirror = load_mirror(Path(self.mirror_file))
        tables = chosen_tables(mirror, context)
        event = gate_event(mirror, ledger_url(mirror), tables, landing_zone(mirror))
        if is_settled(event):
            return self._answer(event)
        limit = timedelta(minutes=mirror.gate.timeout_minutes)
        self.log.info("Waiting at most %s: %s", limit, event["note"])
        until = (datetime.now(UTC) + limit).isoformat()
        self.defer(
            trigger=GateTrigger(str(mirror.file), tables, until, self.poll_interval),
            method_name=self.execute_complete.__name__,
            timeout=limit + _GRACE,
        )

    @noted
    def execute_complete(self, context: Context, event: dict[str, Any]) -> GateEvent:
        """Returns the gate's answer that the trigger sent."""
        error = event_error(event)
        if error is not None:
            raise error
        return self._answer(GateEvent(**event))  # type: ignore[typeddict-item]

    def _answer(self, event: GateEvent) -> GateEvent:
        for table, reason in sorted(event["stopped"].items()):
            self.log.error("Stopped: %s: %s", table, reason)
        if event["note"]:
            self.log.warning("%s", event["note"])
        self.log.info("Passing: %s", ", ".join(event["passing"]) or "none")
        return event
