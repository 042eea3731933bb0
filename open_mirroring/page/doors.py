"""Access control of the page: which visitors may see mirrors and which may decide.

An app cannot be built without a door.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

TOKEN_COOKIE = "open_mirroring_token"
_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Visitor:
    """A person who was let in. *name* is empty if it is unknown; forms then ask for the name.

    *looks* and *decides* are given a mirror's name. *looks* returns whether the visitor may see the mirror, *decides*
    whether the visitor may decide about the mirror and read its messages.
    """

    name: str = ""
    looks: Callable[[str], bool] = lambda _: True
    decides: Callable[[str], bool] = lambda _: True


class AccessDenied(Exception):
    """The error for a refused request: HTTP status, text, and the address of a login.

    A request for a mirror that the visitor may not see is answered as if the mirror did not exist (404).
    """

    def __init__(self, status: int, what: str, *, login: str = "", asks_token: bool = False) -> None:
        super().__init__(what)
        self.status, self.what, self.login, self.asks_token = status, what, login, asks_token


class Door(Protocol):
    """Checks who a visitor is, and lets the visitor in or refuses the request."""

    async def admit(self, request: Request) -> Visitor:
        """Return the visitor who sent a request. Raises AccessDenied if the visitor is refused."""

    def cookies(self, request: Request) -> Mapping[str, str]:
        """Return cookies to set in the answer, by which the visitor is recognized at the next request."""


class LoopbackDoor:
    """Lets in everyone on this machine; the server must listen on a loopback address only."""

    async def admit(self, request: Request) -> Visitor:
        """Let in every visitor whose request names this machine as host; refuse any other host name.

        The name of another site could be made to point to 127.0.0.1 (DNS rebinding).
        """
        if (request.url.hostname or "") not in _HOSTS:
            raise AccessDenied(421, "this page answers to localhost and 127.0.0.1 only")
        return Visitor()

    def cookies(self, request: Request) -> Mapping[str, str]:
        return {}


@dataclass(frozen=True)
class TokenDoor:
    """Lets in everyone with the token: as ``Authorization: Bearer``, once as ``?token=``, then as a cookie."""

    token: str = field(repr=False)

    async def admit(self, request: Request) -> Visitor:
        """Let in a visitor with the token.

        The token is compared in constant time, so response times do not reveal it.
        """
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        offered = bearer.strip() if scheme.lower() == "bearer" else request.cookies.get(TOKEN_COOKIE, "")
        if not (self._fits(offered) or self._fits(request.query_params.get("token", ""))):
            raise AccessDenied(401, "the token is needed", asks_token=True)
        return Visitor()

    def cookies(self, request: Request) -> Mapping[str, str]:
        """Return the token as a cookie if the request had the token in its URL."""
        return {TOKEN_COOKIE: self.token} if self._fits(request.query_params.get("token", "")) else {}

    def _fits(self, offered: str) -> bool:
        return hmac.compare_digest(offered.encode(), self.token.encode())


def cookie(request: Request, name: str, value: str) -> str:
    """Return a ``Set-Cookie`` header value for a cookie that scripts cannot read and other sites cannot send."""
    answer, path = Response(), request.scope.get("root_path", "") or "/"
    is_secure = request.url.scheme == "https"
    answer.set_cookie(name, value, path=path, secure=is_secure, httponly=True, samesite="strict")
    return answer.headers["set-cookie"]
