"""The triggers of the gate and of a reset.

They live in a package or the plugins folder, because the triggerer reads no DAG files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from open_mirroring.config import Mirror, load_mirror
from open_mirroring.errors import MirroringError, TransientError
from open_mirroring_airflow.connections import landing_zone_in_trigger, ledger_url_in_trigger
from open_mirroring_airflow.gate import error_event, gate_event, is_settled

if TYPE_CHECKING:
    from open_mirroring.landing_zone.opening import ZoneAddress

T = TypeVar("T")


class _Looking(BaseTrigger):
    """Look every *poll_interval* seconds, until a given time.

    Args:
        mirror_file: path of the mirror file, the same where the triggerer runs.
        until: time in ISO form with a zone after which waiting ends. A restarted triggerer keeps it.
        poll_interval: seconds between two looks.
        kwargs: what the trigger looks for.
    """

    def __init__(self, *, mirror_file: str, until: str, poll_interval: float, **kwargs: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mirror_file = mirror_file
        self.until = until
        self.poll_interval = poll_interval
        self._wanted = kwargs

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments; no secret is among them."""
        common = {name: getattr(self, name) for name in ("mirror_file", "until", "poll_interval")}
        return f"{type(self).__module__}.{type(self).__qualname__}", {**common, **self._wanted}

    async def _wait(self) -> None:
        """Sleep until the next look is due."""
        remaining = (datetime.fromisoformat(self.until) - datetime.now(UTC)).total_seconds()
        await asyncio.sleep(max(0.0, min(self.poll_interval, remaining)))

    @property
    def _is_over(self) -> bool:
        return datetime.now(UTC) >= datetime.fromisoformat(self.until)

    async def _asked(self, look: Callable[[Mirror, str, ZoneAddress], T]) -> T:
        """What *look* finds, in a thread, of mirror, ledger's address and landing zone."""
        mirror = await asyncio.to_thread(load_mirror, Path(self.mirror_file))
        url = await ledger_url_in_trigger(mirror)
        zone = await landing_zone_in_trigger(mirror)
        return await asyncio.to_thread(look, mirror, url, zone)


class GateTrigger(_Looking):
    """Ask the gate; send one event when a table may pass or the time is over, whatever the answer.

    The event holds only for the moment of the question: publishing asks again. After an error that may pass the gate is
    asked again; the error is reported only when the time is over.

    Args:
        mirror_file: as in every trigger of ours.
        tables: source tables to ask about.
        until: after this time the last answer counts.
        poll_interval: seconds between two questions.
    """

    def __init__(self, mirror_file: str, tables: list[str], until: str, poll_interval: float) -> None:
        super().__init__(mirror_file=mirror_file, until=until, poll_interval=poll_interval, tables=tables)
        self.tables = tables

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, then yield one event: a :class:`~open_mirroring_airflow.gate.GateEvent`, or an error."""
        while True:
            await self._wait()
            last = self._is_over
            try:
                event = await self._asked(lambda mirror, url, zone: gate_event(mirror, url, self.tables, zone))
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


class ResetTrigger(_Looking):
    """Look whether the reset of a table can go on; then send one event. Starts no Spark.

    It can when the target shows what the reset waits for, or when somebody has said so. The trigger changes nothing:
    the task that waits carries the reset on. What does not answer is asked again.

    Args:
        table: the source table.
        stage: the reset's last record when the wait began.
        waits_for: what it waits for, in words.
        kwargs: as in every trigger of ours.
    """

    def __init__(self, *, table: str, stage: str, waits_for: str, **kwargs: Any) -> None:
        super().__init__(table=table, stage=stage, waits_for=waits_for, **kwargs)
        self.table = table
        self.stage = stage
        self.waits_for = waits_for

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, then yield one event: an error, or whether the reset goes on, with *waits_for* and *until*."""
        while True:
            await self._wait()
            try:
                if await self._may_go_on():
                    yield self._event(goes_on=True)
                    return
            except TransientError as error:
                self.log.warning("Looking again: %s", error)
            except MirroringError as error:
                yield TriggerEvent(error_event(error))
                return
            if self._is_over:
                yield self._event(goes_on=False)
                return

    def _event(self, *, goes_on: bool) -> TriggerEvent:
        return TriggerEvent({"goes_on": goes_on, "waits_for": self.waits_for, "until": self.until})

    async def _may_go_on(self) -> bool:
        return await self._asked(lambda mirror, url, zone: may_go_on(mirror, url, self.table, self.stage, zone))


def may_go_on(mirror: Mirror, url: str, table: str, stage: str, zone: ZoneAddress) -> bool:
    """Whether a run would carry the reset of a table beyond *stage*; blocks for as long as ledger and target take."""
    from open_mirroring.ledger import open_ledger
    from open_mirroring.operate.reset_driver import ResetDriver

    engine = open_ledger(url)
    try:
        return ResetDriver(mirror, engine, table, zone=zone).may_go_on(stage)
    finally:
        engine.dispose()
