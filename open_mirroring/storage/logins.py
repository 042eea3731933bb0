"""Logins to object storage, and the credentials that a store requests while it is used.

A login may be sent to a worker in memory; as a string it shows no secret. A token is never sent: every process requests
its own token (S-04).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qs

from open_mirroring.errors import MirroringError
from open_mirroring.remote.entra import STORAGE_AUDIENCE, EntraLogin, TokenSource

if TYPE_CHECKING:
    from obstore.store import AzureCredential, S3Credential

_ASK_AGAIN = timedelta(minutes=1)
"""Tokens are cached until they expire, so asking often costs nothing."""


@dataclass(frozen=True)
class AzureLogin:
    """A login to a storage account or OneLake, by an account key, a shared access signature or Entra ID.

    If *endpoint* (scheme and host) or *account* is empty, the part in the address is used. *secret* is the account key
    or the signature. For a login by Entra ID, *entra* is set instead of *secret*.
    """

    connection: str
    endpoint: str
    account: str
    kind: Literal["key", "sas", "entra"]
    secret: str = field(default="", repr=False)
    entra: EntraLogin | None = None


@dataclass(frozen=True)
class S3Login:
    """A login to S3 by an access key, or, if *key_id* is empty, by the identity of the machine or pod.

    An empty *endpoint* means Amazon's own endpoint, an empty *region* the region that the environment sets.
    """

    connection: str
    endpoint: str
    region: str
    key_id: str
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


Login = AzureLogin | S3Login


class AzureCredentials:
    """Gives the current credential to obstore. *error* keeps our own error, which obstore would hide."""

    def __init__(self, login: AzureLogin) -> None:
        self._login = login
        self._tokens = None if login.entra is None else TokenSource(login.entra, STORAGE_AUDIENCE)
        self.error: MirroringError | None = None

    @property
    def expired(self) -> datetime | None:
        """When a shared access signature expired; None if it is still valid, or if the login is of another kind."""
        until = parse_qs(self._login.secret.removeprefix("?")).get("se", [""])[0] if self._login.kind == "sas" else ""
        try:
            end = datetime.fromisoformat(until)
        except ValueError:
            return None
        end = end.astimezone(UTC) if end.tzinfo else end.replace(tzinfo=UTC)
        return end if end < datetime.now(UTC) else None

    def __call__(self) -> AzureCredential:
        """The current credential."""
        if self._tokens is None:
            if self._login.kind == "sas":
                return {"sas_token": self._login.secret.removeprefix("?"), "expires_at": None}
            return {"access_key": self._login.secret, "expires_at": None}
        try:
            token = self._tokens.token()
        except MirroringError as error:
            self.error = error
            raise
        self.error = None
        return {"token": token, "expires_at": datetime.now(UTC) + _ASK_AGAIN}


def s3_credentials(login: S3Login) -> Callable[[], S3Credential]:
    """Return a function that gives the access key each time obstore asks for credentials."""

    def credential() -> S3Credential:
        return {
            "access_key_id": login.key_id,
            "secret_access_key": login.secret,
            "token": login.token or None,
            "expires_at": None,
        }

    return credential
