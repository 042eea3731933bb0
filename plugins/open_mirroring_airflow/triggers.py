"""The trigger of the gate. It lives in a package or the plugins folder, because the triggerer reads no DAG files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from open_mirroring.config import load_mirror
from open_mirroring.errors import MirroringError, TransientError
from open_mirroring_airflow.connections import landing_zone_in_trigger, ledger_url_in_trigger
from open_mirroring_airflow.gate import GateEvent, error_event, gate_event, is_settled


class GateTrigger(BaseTrigger):
    """Ask the gate every *poll_interval* seconds, at most until a given time; then one event, whatever the answer.

    The event promises nothing beyond the moment it was asked: publishing asks again. Ledger and landing zone are read
    in a thread; an error that may pass is asked again, too, and told when the time is over.

    Args:
        mirror_file: path of the mirror file, the same where the triggerer runs.
        tables: source tables to ask about.
        until: time in ISO form with a zone after which the last answer counts. A restarted triggerer keeps it.
        poll_interval: seconds between two questions.
    """

    def __init__(self, mirror_file: str, tables: list[str], until: str, poll_interval: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mirror_file = mirror_file
        self.tables = tables
        self.until = until
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments; no secret is among them."""
        return (
            f"{GateTrigger.__module__}.{GateTrigger.__qualname__}",
            {
                "mirror_file": self.mirror_file,
                "tables": self.tables,
                "until": self.until,
                "poll_interval": self.poll_interval,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, then yield one event: a :class:`~open_mirroring_airflow.gate.GateEvent`, or an error."""
        until = datetime.fromisoformat(self.until)
        while True:
            remaining = (until - datetime.now(UTC)).total_seconds()
            await asyncio.sleep(max(0.0, min(self.poll_interval, remaining)))
            last = datetime.now(UTC) >= until
            try:
                event = await self._ask()
            except MirroringError as error:
                if isinstance(error, TransientError) and not last:
                    self.log.warning("Asking the gate again: %s", error)
                    continue
                yield TriggerEvent(error_event(error))
                return
            if last or is_settled(event):
                yield TriggerEvent(dict(event))
                return
            self.log.info("Waiting: %s", event["note"])

    async def _ask(self) -> GateEvent:
        mirror = await asyncio.to_thread(load_mirror, Path(self.mirror_file))
        url = await ledger_url_in_trigger(mirror)
        zone = await landing_zone_in_trigger(mirror)
        return await asyncio.to_thread(gate_event, mirror, url, self.tables, zone)
