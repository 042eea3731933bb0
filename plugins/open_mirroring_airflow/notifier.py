"""Notifies people when a run failed, with the fix of each stop, or when a run takes too long."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from airflow.sdk import BaseHook, BaseNotifier, Context

from open_mirroring.errors import MirroringError, TerminalError

_SECONDS = 10


class AlreadySent(TerminalError):
    """An error with which an earlier run failed, too, and about which the earlier run already sent a message.

    The message about this run is written into the task's log, but not posted.
    """


class MirrorNotifier(BaseNotifier):
    """Post one JSON object about a run of a mirror to an Airflow HTTP connection, or write it only into the task's log.

    The object has the field ``text`` for people, and the fields ``mirror``, ``dag``, ``run`` and ``event``
    (``failed``, ``overdue`` or ``unverified``) for machines. *about* is added to the text. *connection* is a
    connection of the type ``http``, whose password is sent as a bearer token; without *connection* nothing is posted.
    If the post fails, an error is logged, and the state of the run does not change.
    """

    template_fields = ("mirror", "event", "about")

    def __init__(
        self,
        mirror: str,
        event: str = "failed",
        connection: str | None = None,
        about: str = "",
        context: Context | None = None,
    ) -> None:
        self.mirror, self.event, self.connection, self.about = mirror, event, connection, about
        super().__init__(context)

    def notify(self, context: Context) -> None:
        """Writes the message into the task's log, and posts it unless the run failed with :class:`AlreadySent`."""
        message = self.message(context)
        # Airflow folds what is logged after a failure: the end of its group first, so that it is seen at once.
        self.log.info("::endgroup::")
        for line in lines(message["text"]):
            self.log.warning("%s", line)
        if self.connection is not None and not isinstance(context.get("exception"), AlreadySent):
            self._post(BaseHook.get_connection(self.connection), message)

    async def async_notify(self, context: Context) -> None:
        """Posts the message in a thread, because Airflow's triggerer must not be blocked."""
        message = self.message(context)
        self.log.warning("%s", message["text"])
        if self.connection is not None:
            found = await BaseHook.aget_connection(self.connection)
            await asyncio.to_thread(self._post, found, message)

    def message(self, context: Context) -> dict[str, Any]:
        """The JSON object about the run of *context* that is posted."""
        run, dag = _named(context, "dag_run", "run_id"), _named(context, "dag", "dag_id")
        error = context.get("exception")
        # An error of ours repeats no secret; of any other only its kind is shown.
        said = "" if error is None else str(error) if isinstance(error, MirroringError) else type(error).__name__
        about = "; ".join(filter(None, (self.about, said)))
        where = f" ({dag} {run})" if dag else ""
        text = f"Mirror {self.mirror}: {self.event}{where}" + (f": {about}" if about else "")
        return {"text": text, "mirror": self.mirror, "event": self.event, "dag": dag, "run": run}

    @staticmethod
    def _post(connection: Any, message: dict[str, Any]) -> None:
        address = connection.host or ""
        headers = {"Content-Type": "application/json"}
        if connection.password:
            headers["Authorization"] = f"Bearer {connection.password}"
        if urlsplit(address).scheme not in ("http", "https"):
            raise ValueError("the connection of the notifier needs a host that begins with http:// or https://")
        request = urllib.request.Request(address, json.dumps(message).encode(), headers)
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            answer.read()


def lines(text: str) -> list[str]:
    """Splits the text of an error into lines; the fix is on a line of its own."""
    said, *next_steps = text.split(" Next step: ")
    return [said, *(f"Next step: {one}" for one in next_steps)]


def _named(context: Context, name: str, attribute: str) -> str:
    found = context.get(name)
    value = found.get(attribute) if isinstance(found, dict) else getattr(found, attribute, None)
    return str(value or "")
