"""Watches the topics or the folder of a source, and sends an asset event when something changed there.

The watcher reads and commits no messages. A run reads what the ledger does not have yet, whatever started the run. So a
superfluous event costs an empty run, and a missed event is caught by the next scheduled run.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetWatcher, BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from open_mirroring.config.source import InTopics
from open_mirroring_airflow.connections import missing, resolved

if TYPE_CHECKING:
    from open_mirroring.config import Mirror
    from open_mirroring.config.connections import Connection
    from open_mirroring.config.schedule import OnNewData

_AFTER_ERROR = 30
_ANSWER_SECONDS = 10.0


def watched_source(mirror: Mirror, schedule: OnNewData) -> Asset:
    """The asset of a mirror's source, whose events start runs: ``open-mirroring-source://<mirror>/``."""
    uri = f"open-mirroring-source://{mirror.name}/"
    source, most = mirror.source, schedule.most_seconds
    connection = source.connections.get("connection", "")
    trigger: SourceTrigger
    if isinstance(source, InTopics):
        trigger = TopicTrigger(connection=connection, topics=sorted(source.topics), at_most_every=most)
    else:
        trigger = FolderTrigger(path=mirror.resolved(source.place), connection=connection, at_most_every=most)
    return Asset(name=uri, uri=uri, group="open-mirroring", watchers=[AssetWatcher(name=uri, trigger=trigger)])


class SourceTrigger(BaseEventTrigger):
    """Fires once when it starts, and then when something changed, at most every *at_most_every* seconds.

    Airflow runs one trigger for all assets whose triggers have the same class and arguments. The arguments do not name
    the mirror, so one trigger watches a topic or folder for all mirrors that read it. Airflow's database stores the
    arguments; they contain only the name of a connection.
    """

    look_every: float = 1.0
    rest: float = 0.0
    """A look that takes long is followed by a pause of so many times its length."""

    def __init__(self, *, connection: str, at_most_every: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.connection, self.at_most_every = connection, at_most_every

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments of the trigger, in types that Airflow stores unchanged.

        If Airflow changed an argument, each parse would create a new trigger.
        """
        arguments = {"connection": self.connection, "at_most_every": self.at_most_every, **self.place()}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    def place(self) -> dict[str, Any]:
        """The arguments for what is watched."""
        raise NotImplementedError

    async def opened(self) -> Callable[[], Any]:
        """Logs in to the source. Returns a blocking function that reads the source's state, as JSON values."""
        raise NotImplementedError

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Checks the source repeatedly, and yields an event for each change. No error ends the loop.

        Airflow would restart a trigger that ended, and the restarted trigger would fire although nothing changed.
        """
        look, seen = None, None
        while True:
            begun = time.monotonic()
            try:
                look = look or await self.opened()
                found = await asyncio.to_thread(look)
            except Exception as error:
                # From the beginning: the connection may have been corrected.
                look = None
                self.log.warning("Looking again in %s s: %s", _AFTER_ERROR, error)
                await asyncio.sleep(_AFTER_ERROR)
                continue
            if found == seen:
                took = time.monotonic() - begun
                await asyncio.sleep(max(self.look_every, self.rest * took))
                continue
            seen = found
            yield TriggerEvent({**self.place(), "found": found})
            await asyncio.sleep(self.at_most_every)

    async def login(self) -> Connection:
        """The connection from Airflow. Raises ``CONNECTION_INVALID``."""
        try:
            return resolved(self.connection, await BaseHook.aget_connection(self.connection))
        except AirflowNotFoundException:
            raise missing(self.connection, "schedule") from None


class TopicTrigger(SourceTrigger):
    """Watches the end offsets of topics; messages of a transaction count once it is committed."""

    def __init__(self, *, topics: list[str], **common: Any) -> None:
        super().__init__(**common)
        self.topics = topics

    def place(self) -> dict[str, Any]:
        return {"topics": self.topics}

    async def opened(self) -> Callable[[], Any]:
        from open_mirroring.source_places.kafka_client import Broker, place_of

        place = place_of(await self.login(), tuple(self.topics))
        broker = Broker(place._replace(timeout_seconds=_ANSWER_SECONDS))
        return lambda: {f"{topic.name}/{number}": end for topic in broker.topics() for number, end in topic.end.items()}


class FolderTrigger(SourceTrigger):
    """Watches a file, or the files below a folder, local or in object storage; ignores hidden file names."""

    rest = 10.0

    def __init__(self, *, path: str, **common: Any) -> None:
        super().__init__(**common)
        self.path = path
        if self.connection:
            # Each look costs a request to list up to 1,000 or 5,000 objects.
            self.look_every = 10.0

    def place(self) -> dict[str, Any]:
        return {"path": self.path}

    async def opened(self) -> Callable[[], Any]:
        from open_mirroring.config.storage import storage_place
        from open_mirroring.source_places.source_folders import SourceFile, files_below, hides

        place = storage_place(self.path, await self.login()) if self.connection else Path(self.path)

        def look() -> dict[str, Any]:
            if isinstance(place, Path):
                # Raises an error for a folder that is not mounted here, which would look empty.
                place.stat()
            files = [SourceFile.of(place, place.name)] if place.is_file() else files_below(place).files
            seen = sorted((file.name, file.version) for file in files if not hides(file.name))
            return {"files": len(seen), "digest": hashlib.sha256(repr(seen).encode()).hexdigest()}

        return look
