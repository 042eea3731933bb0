"""Decides who may look and who may decide. Every app needs a door, so no one is let in by default."""

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
    """A person who was let in: by *name*, or empty if the forms ask for it.

    *looks* and *decides* say whether they may look at a mirror, or decide about it and see what its messages hold.
    """

    name: str = ""
    looks: Callable[[str], bool] = lambda _: True
    decides: Callable[[str], bool] = lambda _: True


class AccessDenied(Exception):
    """A visitor who gets no answer: the HTTP status, what to say, and where to log in.

    Where a visitor may not look, there is nothing (404).
    """

    def __init__(self, status: int, what: str, *, login: str = "", asks_token: bool = False) -> None:
        super().__init__(what)
        self.status, self.what, self.login, self.asks_token = status, what, login, asks_token


class Door(Protocol):
    """Lets visitors in, or refuses them."""

    async def admit(self, request: Request) -> Visitor:
        """Who asks. Raises AccessDenied if they may not."""

    def cookies(self, request: Request) -> Mapping[str, str]:
        """What to set in an answer, so that the visitor is known next time."""


class LoopbackDoor:
    """Lets in whoever is on this machine: the server has to listen on a loopback address only."""

    async def admit(self, request: Request) -> Visitor:
        """A page of another site, whose name was made to point here, is refused by the name that it asked for."""
        if (request.url.hostname or "") not in _HOSTS:
            raise AccessDenied(421, "this page answers to localhost and 127.0.0.1 only")
        return Visitor()

    def cookies(self, request: Request) -> Mapping[str, str]:
        """None."""
        return {}


@dataclass(frozen=True)
class TokenDoor:
    """Lets in whoever has the token: as ``Authorization: Bearer``, once as ``?token=``, then as a cookie."""

    token: str = field(repr=False)

    async def admit(self, request: Request) -> Visitor:
        """Compare in constant time."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        offered = bearer.strip() if scheme.lower() == "bearer" else request.cookies.get(TOKEN_COOKIE, "")
        if not (self._fits(offered) or self._fits(request.query_params.get("token", ""))):
            raise AccessDenied(401, "the token is needed", asks_token=True)
        return Visitor()

    def cookies(self, request: Request) -> Mapping[str, str]:
        """The token, when it came in the address."""
        return {TOKEN_COOKIE: self.token} if self._fits(request.query_params.get("token", "")) else {}

    def _fits(self, offered: str) -> bool:
        return hmac.compare_digest(offered.encode(), self.token.encode())


def cookie(request: Request, name: str, value: str) -> str:
    """The header that sets a cookie which no script reads and no other site sends."""
    answer, path = Response(), request.scope.get("root_path", "") or "/"
    is_secure = request.url.scheme == "https"
    answer.set_cookie(name, value, path=path, secure=is_secure, httponly=True, samesite="strict")
    return answer.headers["set-cookie"]
