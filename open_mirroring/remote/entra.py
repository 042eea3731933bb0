"""Logins to Entra ID and their access tokens.

A login may be sent to a worker in memory; tokens are never sent. Messages show no secret. Of an error of the identity
service, messages show only the codes. Public source: Microsoft Learn, *OAuth 2.0 client credentials flow*, *Entra
authentication error codes*; RFC 6749 (4.4, 5.2); audiences: O-02, R-03.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import quote, urlencode

from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.remote.http_service import Answer, HttpService, NoAnswer, Request, described


class AuthorizedService:
    """An :class:`~open_mirroring.remote.http_service.HttpService` with an access token in every call.

    A token that the service refuses is renewed once. If the service refuses the new token too, the error is terminal.
    """

    def __init__(self, service: HttpService, login: EntraLogin, audience: str) -> None:
        self._service, self._login = service, login
        self._tokens = TokenSource(login, audience)

    def send(self, request: Request) -> Answer:
        """Send the request with an access token, and return the answer.

        Raises the errors of :meth:`HttpService.send`, and ``ACCESS_DENIED`` if the login has no permission or gets no
        token. Raises ``UNREACHABLE`` if the token was refused for a call that must not be repeated: the outcome of the
        call is unknown.
        """
        token = self._tokens.token()
        for last in (False, True):
            signed = request.with_headers({"Authorization": f"Bearer {token}"})
            answer = self._service.send(signed)
            if answer.status == 401 and not last:
                token = self._tokens.renewed(token)
                if not request.repeatable:
                    raise self._service.unknown(request, NoAnswer(described(answer)))
            elif answer.status in (401, 403):
                raise self._denied(request, answer)
            else:
                return answer
        raise AssertionError("the second call returns or raises")

    def _denied(self, request: Request, answer: Answer) -> TerminalError:
        return TerminalError(
            "ACCESS_DENIED",
            f"{self._service.name} refuses this login: {described(answer)}",
            where=f"connection {self._login.connection}: {request}",
            next_step="give the identity Contributor in the workspace, or read and write on the item; the tenant must "
            "let service principals use Fabric APIs, and OneLake be reached from outside Fabric",
        )


STORAGE_AUDIENCE = "https://storage.azure.com/.default"
FABRIC_AUDIENCE = "https://api.fabric.microsoft.com/.default"
PUBLIC_AUTHORITY = "https://login.microsoftonline.com"

Auth = Literal["service_principal", "workload_identity", "managed_identity", "cli"]
AUTHS: tuple[Auth, ...] = get_args(Auth)

_AHEAD_SECONDS = 300.0
_CODE = re.compile(r"AADSTS\d+")


@dataclass(frozen=True)
class EntraLogin:
    """An identity and how it signs in.

    Only a service principal has a *secret*; other identities use their environment.
    """

    connection: str
    auth: Auth
    tenant_id: str = ""
    client_id: str = ""
    secret: str = field(default="", repr=False)
    authority: str = PUBLIC_AUTHORITY


class Token(NamedTuple):
    """An access token, its expiry, and the time from which it is renewed, both in seconds since 1970."""

    text: str
    expires: float
    renew_from: float


class TokenSource:
    """Access tokens of one login for one audience, cached until shortly before expiry; safe for several threads."""

    def __init__(self, login: EntraLogin, audience: str, clock: Callable[[], float] = time.time) -> None:
        self._login, self._audience, self._clock = login, audience, clock
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._credential: Any = None

    def token(self) -> str:
        """Return a valid token. A cached token is renewed some minutes before it expires.

        Raises ``ACCESS_DENIED`` when the login is refused. Raises ``UNREACHABLE`` when no new token can be requested
        and the cached token has expired.
        """
        with self._lock:
            now = self._clock()
            if self._token is None or now >= self._token.renew_from:
                try:
                    is_own = self._login.auth == "service_principal"
                    text, expires = self._by_secret(now) if is_own else self._by_platform()
                    self._token = Token(text, expires, expires - min(_AHEAD_SECONDS, (expires - now) / 2))
                except TransientError:
                    if self._token is None or now >= self._token.expires:
                        raise
            return self._token.text

    def renewed(self, refused: str) -> str:
        """Return a new token in place of *refused*, a token that a service refused before it expired.

        Raises ``ACCESS_DENIED`` when the login is refused, and ``UNREACHABLE`` when no new token can be requested.
        """
        with self._lock:
            if self._token is not None and self._token.text == refused:
                self._token = None
        return self.token()

    def _by_secret(self, now: float) -> tuple[str, float]:
        form = {
            "grant_type": "client_credentials",
            "client_id": self._login.client_id,
            "client_secret": self._login.secret,
            "scope": self._audience,
        }
        service = HttpService(self._login.authority, "Entra ID", timeout_seconds=30)
        request = Request(
            "POST",
            f"/{quote(self._login.tenant_id, safe='')}/oauth2/v2.0/token",
            repeatable=True,
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            body=urlencode(form).encode(),
        )
        try:
            answer = service.send(request)
        except TransientError as error:
            raise self._unavailable(error.what) from None
        try:
            document = json.loads(answer.body)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            document = {}
        token, seconds = document.get("access_token"), document.get("expires_in")
        if answer.status == 200 and isinstance(token, str) and token and isinstance(seconds, int | str):
            return token, now + float(seconds)
        raise self._refused(_described(answer, document))

    def _by_platform(self) -> tuple[str, float]:
        # Imported here, because the import takes half a second and a login with a secret does not need it.
        from azure.core.exceptions import AzureError, ClientAuthenticationError

        try:
            if self._credential is None:
                self._credential = _credential(self._login)
            found = self._credential.get_token(self._audience)
        except ClientAuthenticationError as error:
            # The error's text may quote what was sent, so only its kind and code are shown.
            code = _CODE.search(str(error))
            raise self._refused(f"{type(error).__name__}{', ' + code.group() if code else ''}") from None
        except (AzureError, ValueError, OSError) as error:
            raise self._unavailable(type(error).__name__) from None
        return found.token, float(found.expires_on)

    def _refused(self, said: str) -> TerminalError:
        return TerminalError(
            "ACCESS_DENIED",
            f"Entra ID gives no token for {self._audience}: {said}",
            where=f"connection {self._login.connection}",
            next_step=f"correct tenant_id, client id or secret of the connection, or what {self._login.auth} needs "
            "where this process runs; an AADSTS code is explained in Microsoft's list of them",
        )

    def _unavailable(self, said: str) -> TransientError:
        return TransientError(
            "UNREACHABLE",
            f"no token could be asked for: {said}",
            where=f"connection {self._login.connection}",
            next_step="the next run goes on; if it stays so, look at the network between here and Entra ID",
        )


def _credential(login: EntraLogin) -> Any:
    from azure.identity import AzureCliCredential, ManagedIdentityCredential, WorkloadIdentityCredential

    named = {key: value for key, value in (("tenant_id", login.tenant_id), ("client_id", login.client_id)) if value}
    match login.auth:
        case "workload_identity":
            return WorkloadIdentityCredential(**named)
        case "managed_identity":
            return ManagedIdentityCredential(client_id=login.client_id or None)
        case _:
            return AzureCliCredential(tenant_id=login.tenant_id)


def _described(answer: Answer, document: dict[str, Any]) -> str:
    code = _CODE.search(str(document.get("error_description", "")))
    error = str(document.get("error", ""))
    parts = [f"status {answer.status}", error if re.fullmatch(r"[a-z_]{1,40}", error) else "", code and code.group()]
    return ", ".join(part for part in parts if part)
