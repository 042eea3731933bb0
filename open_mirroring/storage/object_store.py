"""The operations on object storage that the product needs: list, stat, read, create once, delete; and their logins.

One class on top of obstore serves Azure, OneLake and S3. Local files are read by :class:`pathlib.Path`, which is
faster. A login may be sent to a worker in memory; as a string it shows no secret. A token is never sent: every process
requests its own token (S-04). Public source: obstore, *API reference*; Microsoft Learn, *Blob service REST API*; Amazon
S3, *API reference*.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import parse_qs

from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.remote.entra import STORAGE_AUDIENCE, EntraLogin, TokenSource
from open_mirroring.storage.address import StorageAddress

if TYPE_CHECKING:
    from obstore.store import AzureCredential
    from obstore.store import ObjectStore as Service

_LISTED_AT_ONCE = 1000
_PIECE, _TRIES = 2**23, 3
_ASK_AGAIN = timedelta(minutes=1)
"""After this time obstore asks for the token again. Tokens are cached until they expire, so asking costs nothing."""
_TIMEOUT = timedelta(seconds=60)
_RETRIES: Any = {"max_retries": 8, "retry_timeout": timedelta(seconds=90)}
_STATUS = re.compile(r"(?:status code\W{1,40}|\(code: )(\d{3})\b")
"""The HTTP status in the text of an error, of a single request or of a part of a delete request."""
_COLOURS = re.compile(r"\x1b\[\d*m")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>|\(code: ([A-Z]\w{1,59})\)$", re.MULTILINE)
"""The service's code in a failed answer, or at the end of the error of one key in a delete request, which has no
status."""
_DENIED = {"AccessDenied", "AccountProblem", "AllAccessDisabled", "ExpiredToken", "Forbidden", "InvalidAccessKeyId"}
_LOGIN_OF_THE_MACHINE = ("/latest/api/token", "/latest/meta-data", "security-credentials")
"""Parts of the addresses at which an Amazon machine gets its login."""
_NO_CONTAINER = ("ContainerNotFound", "NoSuchBucket", "FilesystemNotFound", "ContainerBeingDeleted")


class ObjectStat(NamedTuple):
    """An object as listed or requested. Its *etag* changes whenever the object is written again."""

    name: str
    size: int
    etag: str
    modified: datetime

    @property
    def version(self) -> str:
        """A string that differs for every other object or version under this name."""
        return f"{self.size}:{self.etag}"


class ObjectReplaced(TerminalError):
    """The error when an object was replaced by another of the same name before it was read: ``SOURCE_REWRITTEN``."""


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


@dataclass(frozen=True)
class StorageRoot:
    """A container with its login, which may contain a secret. Workers get the container with their tasks."""

    address: StorageAddress
    login: Login


class ObjectStore:
    """The objects of one container. Messages show the container (*where*) and the name of the *connection*.

    Every method raises ``ACCESS_DENIED``, ``PLACE_MISSING`` or ``SERVICE_REFUSED`` (terminal) if storage refuses a
    call, ``UNREACHABLE`` (transient) if there is no answer, and errors of the login. Messages never show the address
    of a call, because it may be signed.
    """

    def __init__(
        self, service: Service, where: str, connection: str = "", credentials: AzureCredentials | None = None
    ) -> None:
        self._service, self._where, self._connection, self._credentials = service, where, connection, credentials

    def objects(self, folder: str) -> Iterator[ObjectStat]:
        """Return all objects below a folder, unsorted; with an empty *folder*, all objects of the container.

        An object with the name of the folder itself is left out.
        """
        with self._our_errors(folder):
            for chunk in self._service.list(folder or None, chunk_size=_LISTED_AT_ONCE):
                yield from (_stat(one) for one in chunk if one["path"] != folder)

    def folders(self, folder: str) -> tuple[list[str], list[ObjectStat]]:
        """The folders and the objects directly in a folder, sorted."""
        with self._our_errors(folder):
            found = self._service.list_with_delimiter(folder or None)
        objects = [_stat(one) for one in found["objects"] if one["path"] != folder]
        return sorted(found["common_prefixes"]), sorted(objects)

    def stat(self, name: str) -> ObjectStat:
        """Return the current state of an object. Raises FileNotFoundError if the object does not exist."""
        with self._our_errors(name):
            return _stat(self._service.head(name))

    def read(self, name: str, *, etag: str = "") -> bytes:
        """Return the complete content of an object. Raises FileNotFoundError if the object does not exist.

        With *etag*, raises ObjectReplaced if the object has another version than this one.
        """
        return self._get(name, {}, etag)[0]

    def read_range(self, name: str, start: int, end: int, *, etag: str = "") -> tuple[bytes, ObjectStat]:
        """Return the bytes from *start* to *end* (at most to the object's end), and the state of the object.

        Raises FileNotFoundError if the object does not exist. Raises ObjectReplaced if the object has another version
        than *etag*, if it ends at or before *start*, or if it is replaced again and again.
        """
        if end <= start:
            return b"", self.stat(name)
        for _ in range(_TRIES):
            try:
                return self._pieces(name, start, end, etag)
            except ObjectReplaced:
                if etag:
                    raise
        return self._pieces(name, start, end, etag)

    def _pieces(self, name: str, start: int, end: int, etag: str) -> tuple[bytes, ObjectStat]:
        # Requests have a timeout, so each asks for little.
        first, stat = self._get(name, {"range": (start, min(end, start + _PIECE))}, etag)
        pieces, end = [first], min(end, stat.size)
        for at in range(start + len(first), end, _PIECE):
            pieces.append(self._get(name, {"range": (at, min(end, at + _PIECE))}, stat.etag)[0])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), stat

    def _get(self, name: str, options: Any, etag: str) -> tuple[bytes, ObjectStat]:
        if etag:
            options["if_match"] = f'"{etag}"'
        with self._our_errors(name):
            found = self._service.get(name, options=options)
            return bytes(found.bytes()), _stat(found.meta)

    def create(self, name: str, content: bytes) -> str:
        """Write a new object in one step, and return its ETag. Raises FileExistsError if the object exists."""
        # Only a put in one piece can be conditional: no service has a create mode for multipart uploads.
        with self._our_errors(name):
            etag = self._service.put(name, content, mode="create", use_multipart=False)["e_tag"]
        return _bare(etag)

    def delete(self, name: str) -> None:
        """Remove an object, if the object exists."""
        try:
            with self._our_errors(name):
                self._service.delete(name)
        except FileNotFoundError:
            pass

    @contextmanager
    def _our_errors(self, name: str) -> Iterator[None]:
        from obstore import exceptions as e

        try:
            yield
        except (e.AlreadyExistsError, FileExistsError):
            raise FileExistsError(17, "the object exists", f"{self._where}: {name}") from None
        except e.PreconditionError:
            raise self._replaced(name) from None
        except FileNotFoundError as error:
            if _code(error) in _NO_CONTAINER:
                raise self._no_container() from None
            raise FileNotFoundError(2, "there is no such object", f"{self._where}: {name}") from None
        except e.BaseError as error:
            raise self.our_error(error, name) from None

    def credential(self) -> AzureCredential | None:
        """Return the current Azure credential (a token is valid for some minutes); None for an access key of S3."""
        return None if self._credentials is None else self._credentials()

    def our_error(self, error: Exception, name: str) -> MirroringError:
        """Convert an error of obstore or delta-rs into one of ours.

        The message shows only the HTTP status and the service's code; other parts of the error may contain a signed
        address.
        """
        from obstore import exceptions as e

        if self._credentials is not None and self._credentials.error is not None:
            return self._credentials.error
        status, code = _STATUS.search(_COLOURS.sub("", str(error))), _code(error)
        said = ", ".join(part for part in (f"status {status[1]}" if status else "", code) if part)
        number = int(status[1]) if status else 0
        if code in _NO_CONTAINER or (number == 404 and isinstance(error, e.GenericError)):
            return self._no_container()
        if number == 416:
            return self._replaced(name)
        denied = isinstance(error, e.PermissionDeniedError | e.UnauthenticatedError)
        if any(part in str(error) for part in _LOGIN_OF_THE_MACHINE):
            denied, said = True, "neither this machine nor its environment has a login"
        if denied or number in (401, 403) or code in _DENIED:
            if self._credentials is not None and (end := self._credentials.expired):
                said = f"its shared access signature expired at {end:%Y-%m-%d %H:%M} UTC"
            return TerminalError(
                "ACCESS_DENIED",
                f"the storage refuses what connection {self._connection!r} signs in with: {said or 'no login'}",
                where=self._where,
                next_step="correct the key, signature or login of the connection; give it the right to list and read "
                "there (Storage Blob Data Reader; s3:ListBucket and s3:GetObject), for a change log also to write and "
                "delete; or open the storage's firewall",
            )
        if 300 <= number < 500 and number not in (408, 409, 429):
            return TerminalError(
                "SERVICE_REFUSED",
                f"the storage refuses a request about {name!r}: {said}",
                where=self._where,
                next_step="compare the address in the mirror file, and the region and endpoint in the connection, with "
                "what the cloud's portal shows for the container",
            )
        return TransientError(
            "UNREACHABLE",
            f"the storage does not answer: {said or 'no connection'}",
            where=self._where,
            next_step="the next run goes on; if it stays so, compare the account's or endpoint's name, and look at the "
            "network between here and there",
        )

    def _replaced(self, name: str) -> ObjectReplaced:
        return ObjectReplaced(
            "SOURCE_REWRITTEN",
            f"another object is under the name {name!r} now",
            where=self._where,
            next_step="restore the object: it must stay as it is until the batch is committed. Deliver the other "
            "one under a new name",
        )

    def _no_container(self) -> TerminalError:
        return TerminalError(
            "PLACE_MISSING",
            "there is no such container or bucket",
            where=self._where,
            next_step="fix its name in the address, or create it",
        )


@lru_cache(maxsize=64)
def open_store(root: StorageRoot) -> ObjectStore:
    """Return the store of a container. A process has one store for each container, to share connections and tokens."""
    where = root.address.container_text
    login = root.login
    if isinstance(login, S3Login):
        from obstore.store import S3Store

        given: Any = {"config": s3_options(login)}
        if login.key_id:
            # Without it, obstore would add a session token of the environment to the access key.
            given["credential_provider"] = lambda: {
                "access_key_id": login.key_id,
                "secret_access_key": login.secret,
                "token": login.token or None,
                "expires_at": None,
            }
        options = {"client_options": _client(login.endpoint), "retry_config": _RETRIES}
        service = S3Store(root.address.container, **given, **options)
        return ObjectStore(service, where, login.connection)
    credentials = AzureCredentials(login)
    return ObjectStore(_azure(root.address, login, credentials), where, login.connection, credentials)


def _azure(address: StorageAddress, login: AzureLogin, credentials: AzureCredentials) -> Service:
    from obstore.store import AzureStore

    endpoint = login.endpoint or address.host
    return AzureStore(
        address.container,
        account_name=address.account or login.account,
        endpoint=endpoint,
        use_emulator=False,
        skip_signature=False,
        client_options=_client(endpoint),
        retry_config=_RETRIES,
        credential_provider=credentials,
    )


def s3_options(login: S3Login) -> dict[str, str]:
    """Return the options for a login to S3, by the names that obstore and delta-rs share; they contain secrets."""
    given = {
        "aws_region": login.region,
        "aws_access_key_id": login.key_id,
        "aws_secret_access_key": login.secret,
        "aws_session_token": login.token,
        "aws_endpoint": login.endpoint,
        "aws_virtual_hosted_style_request": "false" if login.endpoint else "",
        # Two drivers must never commit the same version, and without this option obstore refuses to create an object.
        "aws_conditional_put": "etag",
    }
    return {option: value for option, value in given.items() if value}


def _client(endpoint: str) -> Any:
    return {"allow_http": endpoint.startswith("http://"), "timeout": _TIMEOUT, "connect_timeout": timedelta(seconds=10)}


def _stat(found: Any) -> ObjectStat:
    return ObjectStat(found["path"], found["size"], _bare(found["e_tag"]), found["last_modified"])


def _bare(etag: str | None) -> str:
    """The ETag without quotes, because services quote it in some answers only."""
    return (etag or "").removeprefix("W/").strip('"')


def _code(error: Exception) -> str:
    found = _CODE.search(str(error))
    return (found[1] or found[2]) if found else ""
