"""Requests and answers for the endpoints, without sockets."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Request:
    """One request with its body.

    *path* is decoded and starts with a slash; *query* has the last value of each parameter; *headers* have names in
    lower case; *base_url* is the client's address of the server, without a trailing slash; *identity* is the
    ``x-ms-request-id`` of the answer; *faults* are kinds of :class:`~fabric_emulator.web.faults.Fault` that the
    endpoint itself has to apply.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: dict[str, str]
    body: bytes
    base_url: str
    identity: str = field(default_factory=lambda: str(uuid.uuid4()))
    faults: frozenset[str] = frozenset()

    @property
    def names(self) -> list[str]:
        """The path without slashes."""
        return [name for name in self.path.split("/") if name]

    def document(self) -> dict[str, Any]:
        """The body as a JSON object; empty when there is no body."""
        try:
            found = json.loads(self.body or b"{}")
        except ValueError as error:
            raise ApiError(400, "InvalidInput", f"The body is no JSON: {error}.") from error
        if not isinstance(found, dict):
            raise ApiError(400, "InvalidInput", "The body is no JSON object.")
        return found


@dataclass
class Response:
    """One answer; *headers* without Content-Length, which the server adds.

    *length* replaces it in the answer to a HEAD.
    """

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    length: int | None = None


Answer = Callable[[Request], Response]


class ApiError(Exception):
    """A refused request."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})


class ConnectionDropped(Exception):
    """The connection ends here without an answer."""


def json_response(status: int, document: Any, headers: Mapping[str, str] | None = None) -> Response:
    """An answer with a JSON body."""
    body = json.dumps(document, ensure_ascii=False).encode()
    return Response(status, {"Content-Type": "application/json; charset=utf-8", **(headers or {})}, body)


def storage_error(error: ApiError, request: Request) -> Response:
    """A refusal in the format of the storage services."""
    message = f"{error.message}\nRequestId:{request.identity}"
    return _refusal(error, {"error": {"code": error.code, "message": message}})


def fabric_error(error: ApiError, request: Request) -> Response:
    """A refusal in the format of the Fabric REST API (``ErrorResponse``)."""
    document = {"requestId": request.identity, "errorCode": error.code, "message": error.message}
    return _refusal(error, document | {"isRetriable": error.status in (429, 503)})


def _refusal(error: ApiError, document: Mapping[str, Any]) -> Response:
    return json_response(error.status, document, {"x-ms-error-code": error.code, **error.headers})
