"""The triggers of the gate and of a reset.

They live in a package or the plugins folder, because the triggerer reads no DAG files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from open_mirroring.config import Mirror, load_mirror
from open_mirroring.errors import MirroringError, TransientError
from open_mirroring.landing_zone.opening import ZoneAddress
from open_mirroring.ledger import open_ledger
from open_mirroring.operate.reset_driver import ResetDriver
from open_mirroring_airflow.connections import landing_zone_in_trigger, ledger_url_in_trigger
from open_mirroring_airflow.gate import GateEvent, error_event, gate_event, is_settled


class GateTrigger(BaseTrigger):
    """Ask the gate every *poll_interval* seconds, at most until a given time; then send one event, whatever the answer.

    The event holds only for the moment of the question: publishing asks again. Ledger and landing zone are read in a
    thread. After an error that may pass the gate is asked again; the error is reported only when the time is over.

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


class ResetTrigger(BaseTrigger):
    """Look every *poll_interval* seconds whether the reset of a table can go on; then send one event. Starts no Spark.

    It can when the target shows what the reset waits for, or when somebody has said so. The trigger changes nothing:
    the task that waits carries the reset on. What does not answer is asked again.

    Args:
        mirror_file: path of the mirror file, the same where the triggerer runs.
        table: the source table.
        stage: the reset's last record when the wait began.
        waits_for: what it waits for, in words.
        until: time in ISO form with a zone after which waiting ends. A restarted triggerer keeps it.
        poll_interval: seconds between two looks.
    """

    def __init__(
        self, mirror_file: str, table: str, stage: str, waits_for: str, until: str, poll_interval: float
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mirror_file = mirror_file
        self.table = table
        self.stage = stage
        self.waits_for = waits_for
        self.until = until
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments; no secret is among them."""
        names = ("mirror_file", "table", "stage", "waits_for", "until", "poll_interval")
        return f"{ResetTrigger.__module__}.{ResetTrigger.__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, then yield one event: an error, or whether the reset goes on, with *waits_for* and *until*."""
        until = datetime.fromisoformat(self.until)
        while True:
            remaining = (until - datetime.now(UTC)).total_seconds()
            await asyncio.sleep(max(0.0, min(self.poll_interval, remaining)))
            try:
                if await self._may_go_on():
                    yield self._event(goes_on=True)
                    return
            except TransientError as error:
                self.log.warning("Looking again: %s", error)
            except MirroringError as error:
                yield TriggerEvent(error_event(error))
                return
            if datetime.now(UTC) >= until:
                yield self._event(goes_on=False)
                return

    def _event(self, *, goes_on: bool) -> TriggerEvent:
        return TriggerEvent({"goes_on": goes_on, "waits_for": self.waits_for, "until": self.until})

    async def _may_go_on(self) -> bool:
        mirror = await asyncio.to_thread(load_mirror, Path(self.mirror_file))
        url = await ledger_url_in_trigger(mirror)
        zone = await landing_zone_in_trigger(mirror)
        return await asyncio.to_thread(may_go_on, mirror, url, self.table, self.stage, zone)


def may_go_on(mirror: Mirror, url: str, table: str, stage: str, zone: ZoneAddress) -> bool:
    """Whether a run would carry the reset of a table beyond *stage*; blocks for as long as ledger and target take."""
    engine = open_ledger(url)
    try:
        return ResetDriver(mirror, engine, table, zone=zone).may_go_on(stage)
    finally:
        engine.dispose()
