"""Requests and answers as the endpoints see them, without sockets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Request:
    """One request, its body read.

    *path* is decoded and starts with a slash; *query* has the last value of each parameter; *headers* have names in
    lower case; *base_url* is how the client addressed the server, without a slash at its end.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: dict[str, str]
    body: bytes
    base_url: str


@dataclass
class Response:
    """One answer; *headers* without Content-Length, which the server adds.

    *length* is what a HEAD says in its place.
    """

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    length: int | None = None


class ApiError(Exception):
    """A refused request.

    Args:
        status: HTTP status.
        code: error code of the service, also in ``x-ms-error-code``.
        message: one sentence.
        headers: more headers of the answer.
    """

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})


def json_response(status: int, document: Any, headers: Mapping[str, str] | None = None) -> Response:
    """An answer with a JSON body."""
    body = json.dumps(document, ensure_ascii=False).encode()
    return Response(status, {"Content-Type": "application/json; charset=utf-8", **(headers or {})}, body)
