"""Tokens as Microsoft Entra ID issues them to applications: OAuth 2.0 client credentials, v2.0 and v1.0.

O-02 and R-03 (Microsoft Learn): the store accepts only the storage audience, the Fabric API only its own, so a client
needs two tokens.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from fabric_emulator.web.messages import ApiError, Request, Response, json_response

STORAGE = "https://storage.azure.com"
FABRIC = "https://api.fabric.microsoft.com"


class TokenIssuer:
    """Issues and checks tokens."""

    def __init__(
        self, now: Callable[[], float], lifetime: float = 3600, clients: Mapping[str, str] | None = None
    ) -> None:
        self._now = now
        self._clients = clients
        self._key = os.urandom(32)
        self.lifetime = lifetime

    def issue(self, audience: str, subject: str = "test") -> str:
        """A token for an audience, valid from now on for the lifetime."""
        now = int(self._now())
        claims = {"aud": audience, "iat": now, "nbf": now, "exp": now + int(self.lifetime), "appid": subject}
        signed = f"{_part({'alg': 'HS256', 'typ': 'JWT'})}.{_part(claims)}"
        return f"{signed}.{_base64(self._sign(signed))}"

    def answer(self, request: Request) -> Response:
        """Answer a request to the token endpoint, ``<tenant>/oauth2/v2.0/token`` or ``<tenant>/oauth2/token``.

        Refusals have the format of OAuth 2.0.
        """
        form = dict(parse_qsl(request.body.decode(errors="replace")))
        if form.get("grant_type") != "client_credentials":
            return _oauth_error(400, "unsupported_grant_type", "AADSTS70003: only client_credentials is supported.")
        client = form.get("client_id", "")
        known = client if self._clients is None else self._clients.get(client)
        if not known or (self._clients is not None and known != form.get("client_secret")):
            return _oauth_error(401, "invalid_client", "AADSTS7000215: Invalid client secret provided.")
        audience = (form.get("scope", "").removesuffix("/.default") or form.get("resource", "")).rstrip("/")
        if audience not in (STORAGE, FABRIC):
            return _oauth_error(400, "invalid_scope", f"AADSTS500011: the resource {audience!r} was not found.")
        lifetime = int(self.lifetime)
        token = {"token_type": "Bearer", "expires_in": lifetime, "ext_expires_in": lifetime}
        return json_response(200, token | {"access_token": self.issue(audience, client)})

    @staticmethod
    def describe(request: Request) -> Response:
        """The document ``<tenant>/v2.0/.well-known/openid-configuration``, with which clients find the endpoints."""
        tenant = f"{request.base_url}/{request.names[0]}"
        return json_response(
            200,
            {
                "issuer": f"{tenant}/v2.0",
                "token_endpoint": f"{tenant}/oauth2/v2.0/token",
                "authorization_endpoint": f"{tenant}/oauth2/v2.0/authorize",
            },
        )

    def check(self, request: Request, audience: str) -> None:
        """Accept only a valid token for *audience*."""
        header = request.headers.get("authorization", "")
        if not header:
            raise _unauthorized(request, audience, "NoAuthenticationInformation", "No token was given.")
        claims = self._claims(header.removeprefix("Bearer ")) if header.startswith("Bearer ") else None
        if claims is None:
            raise _unauthorized(request, audience, "InvalidAuthenticationInfo", "This is no token of this issuer.")
        if claims["aud"] != audience:
            raise _unauthorized(
                request, audience, "InvalidAuthenticationInfo", f"The audience {claims['aud']} is not {audience}."
            )
        if claims["exp"] <= self._now():
            raise expired(request, audience)

    def _claims(self, token: str) -> dict[str, Any] | None:
        signed, _, signature = token.rpartition(".")
        if not hmac.compare_digest(_base64(self._sign(signed)), signature):
            return None
        payload = signed.partition(".")[2]
        return dict(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))

    def _sign(self, text: str) -> bytes:
        return hmac.new(self._key, text.encode(), hashlib.sha256).digest()


def expired(request: Request, audience: str) -> ApiError:
    """The answer to an expired token."""
    code = "TokenExpired" if audience == FABRIC else "InvalidAuthenticationInfo"
    return _unauthorized(request, audience, code, "Lifetime validation failed. The token is expired.")


def _unauthorized(request: Request, audience: str, code: str, message: str) -> ApiError:
    challenge = f"Bearer authorization_uri={request.base_url}/emulator/oauth2/authorize resource_id={audience}"
    return ApiError(401, code, message, {"WWW-Authenticate": challenge})


def _oauth_error(status: int, error: str, description: str) -> Response:
    return json_response(status, {"error": error, "error_description": description})


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _part(document: dict[str, Any]) -> str:
    return _base64(json.dumps(document).encode())
