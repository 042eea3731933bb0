"""The triggers that wait for the gate and for a reset.

The triggers are in an installed package, because Airflow's triggerer reads no DAG files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from open_mirroring.config import Mirror, load_mirror
from open_mirroring.errors import MirroringError, TransientError
from open_mirroring_airflow.connections import known_in_trigger, landing_zone, ledger_url
from open_mirroring_airflow.gate import error_event, gate_event, is_settled

if TYPE_CHECKING:
    from open_mirroring.landing_zone.opening import ZoneAddress


class _Looking(BaseTrigger):
    """Look every *poll_interval* seconds, until there is an answer or *until* (ISO form) is over; then send one event.

    What does not answer is asked again. *kwargs* are what the trigger looks for.
    """

    def __init__(self, *, mirror_file: str, until: str, poll_interval: float, **kwargs: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mirror_file = mirror_file
        self.until = until
        self.poll_interval = poll_interval
        self._wanted = kwargs

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The trigger's class path and its arguments, for Airflow's database; the arguments contain no secrets."""
        common = {name: getattr(self, name) for name in ("mirror_file", "until", "poll_interval")}
        return f"{type(self).__module__}.{type(self).__qualname__}", {**common, **self._wanted}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Checks repeatedly, then yields one event with the result or with an error."""
        while True:
            remaining = (datetime.fromisoformat(self.until) - datetime.now(UTC)).total_seconds()
            await asyncio.sleep(max(0.0, min(self.poll_interval, remaining)))
            is_last = datetime.now(UTC) >= datetime.fromisoformat(self.until)
            try:
                mirror = await asyncio.to_thread(load_mirror, Path(self.mirror_file))
                known = await known_in_trigger(mirror)
                found = ledger_url(mirror, known), landing_zone(mirror, known)
                event = await asyncio.to_thread(self.look, mirror, *found, is_last)
            except MirroringError as error:
                event = self.failed(error, is_last)
                self.log.warning("Looking again: %s" if event is None else "Ending: %s", error)
            if event is not None:
                yield TriggerEvent(event)
                return

    def look(self, mirror: Mirror, url: str, zone: ZoneAddress, is_last: bool) -> dict[str, Any] | None:
        """Checks once, in a thread. Returns the event, or None to check again later."""
        raise NotImplementedError

    def failed(self, error: MirroringError, is_last: bool) -> dict[str, Any] | None:
        """The event for a check that failed with *error*; None to check again later."""
        return None if isinstance(error, TransientError) and not is_last else error_event(error)


class GateTrigger(_Looking):
    """Ask the gate (the check before publishing) about *tables*, until a table may be published or the time is over.

    The event contains the gate's last answer. The publishing job asks the gate again, because the answer may have
    changed since.
    """

    def __init__(self, mirror_file: str, tables: list[str], until: str, poll_interval: float) -> None:
        super().__init__(mirror_file=mirror_file, until=until, poll_interval=poll_interval, tables=tables)

    def look(self, mirror: Mirror, url: str, zone: ZoneAddress, is_last: bool) -> dict[str, Any] | None:
        """Asks the gate once."""
        event = gate_event(mirror, url, self._wanted["tables"], zone)
        if is_last or is_settled(event):
            return dict(event)
        self.log.info("Waiting: %s", event["note"])
        return None


class ResetTrigger(_Looking):
    """Waits until the reset of a table can continue after its *stage*, and sends one event.

    The reset can continue when the target has dropped or re-created the table, or when an operator has confirmed the
    drop or the re-creation. The event contains whether the reset can continue. The trigger only reads ledger and
    target.
    """

    def __init__(self, *, table: str, stage: str, waits_for: str, **kwargs: Any) -> None:
        super().__init__(table=table, stage=stage, waits_for=waits_for, **kwargs)

    def look(self, mirror: Mirror, url: str, zone: ZoneAddress, is_last: bool) -> dict[str, Any] | None:
        """Checks once whether the reset can continue."""
        goes_on = may_go_on(mirror, url, self._wanted["table"], self._wanted["stage"], zone)
        return self._event(goes_on=goes_on) if goes_on or is_last else None

    def failed(self, error: MirroringError, is_last: bool) -> dict[str, Any] | None:
        """The event for a check that failed; None to check again later.

        If the last check fails with a transient error, the event contains that the reset cannot continue.
        """
        is_over = is_last and isinstance(error, TransientError)
        return self._event(goes_on=False) if is_over else super().failed(error, is_last)

    def _event(self, *, goes_on: bool) -> dict[str, Any]:
        return {"goes_on": goes_on, "waits_for": self._wanted["waits_for"], "until": self.until}


def may_go_on(mirror: Mirror, url: str, table: str, stage: str, zone: ZoneAddress) -> bool:
    """Whether a table's reset can continue after *stage*; blocks until ledger and target have answered."""
    from open_mirroring.ledger import open_ledger
    from open_mirroring.operate.reset_driver import ResetDriver

    engine = open_ledger(url)
    try:
        return ResetDriver(mirror, engine, table, zone=zone).may_go_on(stage)
    finally:
        engine.dispose()
