"""Long-running operations of the Fabric REST API (Microsoft Learn, *Long running operations*)."""

from __future__ import annotations

import threading
import uuid
from typing import Any

from fabric_emulator.web.messages import ApiError, Request, Response, json_response


class Operations:
    """Gives results at once, or in the long way: 202, then the operation, then its result."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: dict[str, Any] = {}
        self._running: dict[str, int] = {}
        self.polls: int | None = None
        """How often an operation says ``Running`` before it has ``Succeeded``; None answers with 200 at once."""

    def result(self, request: Request, document: Any) -> Response:
        """The result of a call that may take the long way; *document* None has none."""
        if self.polls is None:
            return Response(200) if document is None else json_response(200, document)
        identity = str(uuid.uuid4())
        with self._lock:
            self._results[identity] = document
            self._running[identity] = self.polls
        location = f"{request.base_url}/v1/operations/{identity}"
        return Response(202, {"Location": location, "x-ms-operation-id": identity, "Retry-After": "1"})

    def answer(self, names: list[str]) -> Response:
        """``<id>`` tells the state, ``<id>/result`` the result.

        Raises:
            ApiError: 404 ``OperationNotFound``; 400 ``OperationHasNoResult``.
        """
        with self._lock:
            if not names or names[0] not in self._results:
                raise ApiError(404, "OperationNotFound", "There is no such operation.")
            identity, result = names[0], names[1:] == ["result"]
            if result:
                if self._running[identity] or self._results[identity] is None:
                    raise ApiError(400, "OperationHasNoResult", "The operation has no result.")
                return json_response(200, self._results[identity])
            left = self._running[identity]
            self._running[identity] = max(left - 1, 0)
        if left:
            return json_response(200, {"status": "Running", "percentComplete": 50}, {"Retry-After": "1"})
        return json_response(200, {"status": "Succeeded", "percentComplete": 100})
