"""Access control: who may see mirrors, and who may decide. An app cannot be built without a door."""

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
    """A person who was let in; *name* is empty if it is unknown, then forms ask for it.

    Given a mirror's name, *looks* returns whether they may see it, *decides* whether they may decide about it and read
    its messages.
    """

    name: str = ""
    looks: Callable[[str], bool] = lambda _: True
    decides: Callable[[str], bool] = lambda _: True


class AccessDenied(Exception):
    """The request is refused: HTTP status, text, and the address of a login.

    A mirror that the visitor may not see is answered like a missing one (404).
    """

    def __init__(self, status: int, what: str, *, login: str = "", asks_token: bool = False) -> None:
        super().__init__(what)
        self.status, self.what, self.login, self.asks_token = status, what, login, asks_token


class Door(Protocol):
    """Checks who a visitor is, and lets them in or refuses them."""

    async def admit(self, request: Request) -> Visitor:
        """Return the visitor; raises AccessDenied."""

    def cookies(self, request: Request) -> Mapping[str, str]:
        """Cookies to set in the answer, so that the visitor is known at the next request."""


class LoopbackDoor:
    """Lets in everyone on this machine; the server must listen on a loopback address only."""

    async def admit(self, request: Request) -> Visitor:
        """Refuse other host names: another site's name could be made to point to 127.0.0.1 (DNS rebinding)."""
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
        """Compare the token in constant time, so that response times do not reveal it."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        offered = bearer.strip() if scheme.lower() == "bearer" else request.cookies.get(TOKEN_COOKIE, "")
        if not (self._fits(offered) or self._fits(request.query_params.get("token", ""))):
            raise AccessDenied(401, "the token is needed", asks_token=True)
        return Visitor()

    def cookies(self, request: Request) -> Mapping[str, str]:
        """The token as a cookie, if it came in the URL."""
        return {TOKEN_COOKIE: self.token} if self._fits(request.query_params.get("token", "")) else {}

    def _fits(self, offered: str) -> bool:
        return hmac.compare_digest(offered.encode(), self.token.encode())


def cookie(request: Request, name: str, value: str) -> str:
    """A ``Set-Cookie`` header value that scripts cannot read and other sites cannot send."""
    answer, path = Response(), request.scope.get("root_path", "") or "/"
    is_secure = request.url.scheme == "https"
    answer.set_cookie(name, value, path=path, secure=is_secure, httponly=True, samesite="strict")
    return answer.headers["set-cookie"]
