"""Calls of Fabric's Livy API: start a program or a piece of code in Fabric's own Spark, ask for its state, cancel it.

Fabric gives every batch and session an id only in the answer to the start, so the id is unknown if this answer is lost.
Therefore each start contains a unique name or unique code, by which the batch, session or statement is found. Public
source: microsoft/fabric-samples, *Livy-API-swagger*.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from open_mirroring.errors import TransientError
from open_mirroring.fabric.api import FabricCalls
from open_mirroring.fabric.livy_connection import LivyConnection
from open_mirroring.remote.http_service import Answer, Request

_VERSION = "2023-12-01"
_PAGE = 100
_NO_CAPACITY = 430
"""Fabric's own status: all of the capacity's cores are in use."""
_FINAL = {"success", "dead", "killed", "error", "shutting_down", "succeeded", "failed", "cancelled", "expired", "ended"}
"""States and results of batches and sessions that are over, in any of the fields of an answer."""
_STATEMENT_FINAL = {"available", "error", "cancelled"}
_STATES = ("state", "result", "livyState", "schedulerState")


class LivyApi(FabricCalls):
    """The Livy API of one lakehouse.

    A batch, session or statement is named by its path below this API, for example ``/batches/ID``. Every call raises
    the errors of :class:`~open_mirroring.fabric.api.FabricCalls`, and ``TARGET_BUSY`` if the Fabric capacity has no
    room for another Spark job.
    """

    def __init__(self, livy: LivyConnection) -> None:
        super().__init__(livy.api.fabric_endpoint, livy.api.login, livy.api.timeout_seconds)
        self._base = f"/v1/workspaces/{livy.workspace}/lakehouses/{livy.lakehouse}/livyapi/versions/{_VERSION}"

    def start(self, kind: str, request: Mapping[str, Any]) -> str:
        """Start a batch (*kind* ``/batches``) or a session (``/sessions``), and return its path.

        The name in *request* must be unique among the running batches and sessions.
        """
        try:
            return f"{kind}/{self._post(kind, request)['id']}"
        except TransientError:
            if (found := self.find(kind, request["name"])) is None:
                raise
            return found

    def find(self, kind: str, name: str) -> str | None:
        """Return the path of the batch or session *name* that has not ended; None if there is none."""
        for one in self._listed(kind):
            if one.get("name") == name and not _final(one):
                return f"{kind}/{one['id']}"
        return None

    def start_statement(self, session: str, code: str) -> str:
        """Run Python code in a session, after the code that the session runs already; return the statement's path."""
        statements = f"{session}/statements"
        try:
            return f"{statements}/{self._post(statements, {'code': code, 'kind': 'pyspark'})['id']}"
        except TransientError:
            for one in self._get(statements).get("statements", ()):
                if one.get("code") == code:
                    return f"{statements}/{one['id']}"
            raise

    def is_ready(self, session: str) -> bool:
        """Whether a session accepts statements. Raises ``UNREACHABLE`` if the session has ended."""
        found = self._get(session)
        if end := _final(found):
            raise TransientError(
                "UNREACHABLE",
                f"Fabric's Spark session ended ({end}){_reasons(found)}",
                where=session,
                next_step="the next attempt starts another one; look at the session in Fabric's monitoring hub",
            )
        return found.get("state") in ("idle", "busy")

    def end(self, path: str) -> str | None:
        """Return how a batch or statement ended, as a string; None while the batch or statement runs or waits."""
        session, _, is_statement = path.partition("/statements/")
        if is_statement and (end := self._over(session)):
            # If a session died, its statements keep their last state, or no longer exist.
            return end
        return self._over(path)

    def cancel(self, path: str) -> None:
        """Cancel a batch, or a statement without ending its session.

        Nothing happens if the batch or statement has ended.
        """
        is_statement = "/statements/" in path
        method, at = ("POST", f"{path}/cancel") if is_statement else ("DELETE", path)
        answer = self._sent(Request(method, self._base + at, repeatable=True))
        if answer.status not in (404, 409):
            self._expect(answer, at)

    def _over(self, path: str) -> str | None:
        answer = self._sent(Request("GET", self._base + path, repeatable=True))
        if answer.status == 404:
            return "it is gone"
        found = self._document(answer, path)
        if "/statements/" not in path:
            end = _final(found)
            return f"{end}{_reasons(found)}" if end else None
        state, output = str(found.get("state")).lower(), found.get("output") or {}
        if state not in _STATEMENT_FINAL:
            return None
        return f"{state}: {output['ename']}: {output.get('evalue', '')}" if output.get("ename") else state

    def _listed(self, kind: str) -> Iterator[Mapping[str, Any]]:
        seen = 0
        while True:
            query = {"$top": str(_PAGE), "$skip": str(seen), "$count": "true"}
            document = self._get(kind, query)
            items = document.get("items") or []
            yield from items
            seen += len(items)
            if not items or seen >= int(document.get("totalCountOfMatchedItems") or 0):
                return

    def _get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        return self._document(self._sent(Request("GET", self._base + path, repeatable=True, query=query or {})), path)

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        request = Request("POST", self._base + path, repeatable=False, headers=headers, body=json.dumps(body).encode())
        return self._document(self._sent(request), path)

    def _sent(self, request: Request) -> Answer:
        answer = self._service.send(request)
        if answer.status == _NO_CAPACITY:
            raise TransientError(
                "TARGET_BUSY",
                "Fabric's capacity has no room for another Spark job (status 430)",
                where=str(request),
                next_step="the next attempt tries again; if it stays so, let fewer jobs run at a time, or raise the "
                "capacity",
            )
        return answer


def _final(found: Mapping[str, Any]) -> str:
    """The state or result that says that a batch or session is over; empty while it is not."""
    said = [found.get(name) for name in _STATES]
    said += [(found.get(name) or {}).get("state") for name in ("fabricBatchStateInfo", "fabricSessionStateInfo")]
    return next((state for state in map(str, said) if state.lower() in _FINAL), "")


def _reasons(found: Mapping[str, Any]) -> str:
    """Why, in the words of the service."""
    said = [one.get("message") or one.get("errorCode") for one in found.get("errorInfo") or ()]
    said.append(found.get("cancellationReason"))
    return "".join(f"; {text}" for text in said if text)
