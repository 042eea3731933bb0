"""Does what is needed with files in object storage: list, stat, read a range or the whole, create once, delete.

One class over obstore, whatever service holds the objects, so that a test of one store is a test of all. A file of a
local folder is read by :class:`pathlib.Path` itself, which is faster.

Public source: obstore, *API reference*; Microsoft Learn, *Blob service REST API*; Amazon S3, *API reference*.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.storage.address import StorageAddress
from open_mirroring.storage.logins import AzureCredentials, AzureLogin, Login, S3Login, s3_credentials

if TYPE_CHECKING:
    from obstore.store import AzureCredential
    from obstore.store import ObjectStore as Service

_LISTED_AT_ONCE = 1000
_PIECE, _TRIES = 2**23, 3
_TIMEOUT = timedelta(seconds=60)
_RETRIES: Any = {"max_retries": 8, "retry_timeout": timedelta(seconds=90)}
_STATUS = re.compile(r"(?:status code\W{1,40}|\(code: )(\d{3})\b")
"""As a single request tells it, or one of the parts of which a request to delete consists."""
_COLOURS = re.compile(r"\x1b\[\d*m")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>|\(code: ([A-Z]\w{1,59})\)$", re.MULTILINE)
"""In an answer that failed, and at the end of what is said of one key of a request to delete, which has no status."""
_DENIED = {"AccessDenied", "AccountProblem", "AllAccessDisabled", "ExpiredToken", "Forbidden", "InvalidAccessKeyId"}
_LOGIN_OF_THE_MACHINE = ("/latest/api/token", "/latest/meta-data", "security-credentials")
"""In the addresses at which a machine of Amazon's is asked for its login."""
_NO_CONTAINER = ("ContainerNotFound", "NoSuchBucket", "FilesystemNotFound", "ContainerBeingDeleted")


class ObjectStat(NamedTuple):
    """An object as it was listed or asked for; *etag* is another text whenever it was written anew."""

    name: str
    size: int
    etag: str
    modified: datetime

    @property
    def version(self) -> str:
        """What tells this object from every other one under its name."""
        return f"{self.size}:{self.etag}"


class ObjectReplaced(TerminalError):
    """Another object stands under a name than the one that was bound: ``SOURCE_REWRITTEN``."""


@dataclass(frozen=True)
class StorageRoot:
    """A container with the login to it: a plain value, which holds a secret.

    It goes to workers in the function that they run, never in the data of a job.
    """

    address: StorageAddress
    login: Login

    def __str__(self) -> str:
        return self.address.text


class ObjectStore:
    """The objects of one container.

    Every method raises ``ACCESS_DENIED``, ``PLACE_MISSING`` or ``SERVICE_REFUSED`` (terminal), or
    ``UNREACHABLE`` (transient), and what the login raises. No error shows an address that was called: it may
    be signed.

    Args:
        service: the store of obstore.
        where: the container, for people.
        connection: the name of the connection, for people; empty where there is none.
        credentials: keeps an error of the login.
    """

    def __init__(
        self, service: Service, where: str, connection: str = "", credentials: AzureCredentials | None = None
    ) -> None:
        self._service, self._where, self._connection, self._credentials = service, where, connection, credentials

    def objects(self, folder: str) -> Iterator[ObjectStat]:
        """All objects below a folder (empty: all), in no order.

        What a folder itself is kept as, an object without a byte on some services, is not listed.
        """
        with self._our_errors(folder):
            for chunk in self._service.list(folder or None, chunk_size=_LISTED_AT_ONCE):
                yield from (_stat(one) for one in chunk if one["path"] != folder)

    def folders(self, folder: str) -> tuple[list[str], list[ObjectStat]]:
        """The folders directly below a folder, and the objects directly in it, sorted."""
        with self._our_errors(folder):
            found = self._service.list_with_delimiter(folder or None)
        objects = [_stat(one) for one in found["objects"] if one["path"] != folder]
        return sorted(found["common_prefixes"]), sorted(objects)

    def stat(self, name: str) -> ObjectStat:
        """An object as it is now.

        Raises:
            FileNotFoundError: there is none.
        """
        with self._our_errors(name):
            return _stat(self._service.head(name))

    def read(self, name: str, *, etag: str = "") -> bytes:
        """All of an object; with *etag* only of the very one.

        Raises:
            FileNotFoundError: there is none.
            ObjectReplaced: it is another one.
        """
        return self._get(name, {}, etag)[0]

    def read_range(self, name: str, start: int, end: int, *, etag: str = "") -> tuple[bytes, ObjectStat]:
        """The bytes from *start* to *end*, or to the end, with the object that they are of; as :meth:`read`.

        Raises:
            ObjectReplaced: also when it is shorter than *start*, or replaced again and again while it is read.
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
        # A request has a time to end in, so none asks for much.
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
        """Write an object that does not exist, in one step, and return its ETag.

        Raises:
            FileExistsError: there is one.
        """
        # Only a put in one piece can be conditional: no service has a create mode for uploads of many parts.
        with self._our_errors(name):
            etag = self._service.put(name, content, mode="create", use_multipart=False)["e_tag"]
        return _bare(etag)

    def delete(self, name: str) -> None:
        """Take an object away; it is no matter if there is none."""
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
        """What the store of Azure signs in with now: a token holds for some minutes. None: an access key of S3's.

        Raises:
            MirroringError: what the login raises.
        """
        return None if self._credentials is None else self._credentials()

    def our_error(self, error: Exception, name: str) -> MirroringError:
        """Turn an error of obstore or delta-rs into ours.

        Of its text only the status and the service's own code are shown: the rest may hold a signed address.
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
                way_out="correct the key, signature or login of the connection; give it the right to list and read "
                "there (Storage Blob Data Reader; s3:ListBucket and s3:GetObject), for a change log also to write and "
                "delete; or open the storage's firewall",
            )
        if 300 <= number < 500 and number not in (408, 409, 429):
            return TerminalError(
                "SERVICE_REFUSED",
                f"the storage refuses a request about {name!r}: {said}",
                where=self._where,
                way_out="compare the address with that of the container in the portal, region and endpoint of the "
                "connection with the container's",
            )
        return TransientError(
            "UNREACHABLE",
            f"the storage does not answer: {said or 'no connection'}",
            where=self._where,
            way_out="the next run goes on; if it stays so, compare the account's or endpoint's name, and look at the "
            "network between here and there",
        )

    def _replaced(self, name: str) -> ObjectReplaced:
        return ObjectReplaced(
            "SOURCE_REWRITTEN",
            f"another object stands under the name {name!r} now",
            where=self._where,
            way_out="what was bound must stay as it is until it is read: put the object back, and deliver the other "
            "one under a new name",
        )

    def _no_container(self) -> TerminalError:
        return TerminalError(
            "PLACE_MISSING",
            "there is no such container or bucket",
            where=self._where,
            way_out="mend its name in the address, or create it",
        )


@lru_cache(maxsize=64)
def open_store(root: StorageRoot) -> ObjectStore:
    """The store of a container; a process has one of each, so that connections and tokens are shared."""
    where = root.address.text.removesuffix(root.address.path).removesuffix("/") if root.address.path else str(root)
    login = root.login
    if isinstance(login, S3Login):
        return ObjectStore(_s3(root.address.container, login), where, login.connection)
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


def _s3(bucket: str, login: S3Login) -> Service:
    from obstore.store import S3Store

    given: Any = {"region": login.region} if login.region else {}
    if login.endpoint:
        given |= {"endpoint": login.endpoint, "virtual_hosted_style_request": False}
    if login.key_id:
        given["credential_provider"] = s3_credentials(login)
    # Without it a put in create mode is refused.
    given["conditional_put"] = "etag"
    return S3Store(bucket, client_options=_client(login.endpoint), retry_config=_RETRIES, **given)


def _client(endpoint: str) -> Any:
    return {"allow_http": endpoint.startswith("http://"), "timeout": _TIMEOUT, "connect_timeout": timedelta(seconds=10)}


def _stat(found: Any) -> ObjectStat:
    return ObjectStat(found["path"], found["size"], _bare(found["e_tag"]), found["last_modified"])


def _bare(etag: str | None) -> str:
    """Services quote an ETag in one answer and not in another."""
    return (etag or "").removeprefix("W/").strip('"')


def _code(error: Exception) -> str:
    found = _CODE.search(str(error))
    return (found[1] or found[2]) if found else ""
