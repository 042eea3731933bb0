"""A path in object storage, with those methods of :class:`pathlib.Path` that readers of source files use.

Also the address of a Delta table for delta-rs. delta-rs keeps a login as long as a table is open, so a new token is
requested each time a table is opened (S-04). Public source: delta-rs, *Object store configuration*; object_store,
``AzureConfigKey`` and ``AmazonS3ConfigKey``.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Literal, NamedTuple

from open_mirroring.storage.object_store import (
    AzureLogin,
    ObjectReplaced,
    ObjectStat,
    ObjectStore,
    S3Login,
    StorageRoot,
    open_store,
    s3_options,
)

_FIRST_READ, _MOST_READ = 2**17, 2**23
"""Bytes of the first request, and of the largest one when more is read ahead."""


class Held(NamedTuple):
    """One version of an object; *content* are the bytes from *start* on that were read together with the version."""

    stat: ObjectStat
    start: int = 0
    content: bytes = b""


class ObjectStatus(NamedTuple):
    """The fields of :class:`os.stat_result` that readers of source files need, and the object's version."""

    st_size: int
    st_mtime: float
    st_mtime_ns: int
    version: str


@dataclass(frozen=True)
class ObjectPath:
    """A path in a container. The objects in *held* are read in exactly the version that is held.

    The path contains the login, and is sent to workers with their tasks. As a string the path shows no secret.
    """

    root: StorageRoot = field(repr=False)
    key: str
    held: Mapping[str, Held] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)

    def __reduce__(self) -> tuple[type[ObjectPath], tuple[StorageRoot, str]]:
        # Held objects belong to the task that looked at them.
        return ObjectPath, (self.root, self.key)

    def __truediv__(self, name: str) -> ObjectPath:
        return replace(self, key=f"{self.key}/{name}" if self.key else name)

    def __str__(self) -> str:
        base = self.root.address.container_text
        return f"{base}/{self.key}" if self.key else base

    @property
    def store(self) -> ObjectStore:
        return open_store(self.root)

    @property
    def name(self) -> str:
        """The last part of the path; for the root, the name of the container."""
        return self.key.rpartition("/")[2] or self.root.address.container

    @property
    def parent(self) -> ObjectPath:
        return replace(self, key=self.key.rpartition("/")[0])

    @property
    def parents(self) -> tuple[ObjectPath, ...]:
        return () if not self.key else (self.parent, *self.parent.parents)

    def with_name(self, name: str) -> ObjectPath:
        return self.parent / name

    def relative(self, key: str) -> str:
        """Return the name of the object *key* relative to this folder."""
        return key[len(self.key) + 1 :] if self.key else key

    def is_file(self) -> bool:
        """Whether an object has this name.

        The process caches the answer, because a folder does not become an object.
        """
        return bool(self.key) and _is_object(self.root, self.key)

    def is_dir(self) -> bool:
        """Whether any object exists below this path now."""
        return next(self.store.objects(self.key), None) is not None

    def exists(self) -> bool:
        """Whether an object of this name exists now."""
        try:
            self.store.stat(self.key)
        except FileNotFoundError:
            return False
        return True

    def stat(self) -> ObjectStatus:
        """Return the current state of the object. Raises FileNotFoundError if the object does not exist."""
        found = self.store.stat(self.key)
        seconds = found.modified.timestamp()
        return ObjectStatus(found.size, seconds, int(seconds * 1e9), found.version)

    def read_bytes(self) -> bytes:
        """Return the complete content of the object. Raises FileNotFoundError if the object does not exist."""
        return self.store.read(self.key)

    def create(self, content: bytes) -> str:
        """Write a new object in one step, and return its ETag. Raises FileExistsError if the object exists."""
        return self.store.create(self.key, content)

    def open(self, mode: Literal["rb"] = "rb") -> IO[bytes]:
        """Open the object for random access; all bytes are read from one version of the object.

        Raises FileNotFoundError if the object does not exist.
        """
        held = self.held.get(self.key)
        if held is None:
            try:
                held = self.look(0, _FIRST_READ)  # with its first bytes: a file that is opened is also read
            except ObjectReplaced:  # it is empty
                held = Held(self.store.stat(self.key))
        return io.BufferedReader(_Reader(self.store, held), 2**16)

    def glob(self, pattern: Literal["*"]) -> Iterator[ObjectPath]:
        """The objects directly in this folder."""
        return (replace(self, key=found.name) for found in self.store.folders(self.key)[1])

    def look(self, start: int = 0, end: int = 0) -> Held:
        """Read the current version of the object, with the bytes from *start* to *end*.

        Raises FileNotFoundError if the object does not exist.
        """
        content, stat = self.store.read_range(self.key, start, end)
        return Held(stat, start, content)

    def holding(self, held: Held) -> ObjectPath:
        """Return this path with *held* as the version to read.

        Reading raises ObjectReplaced if the object has another version by then.
        """
        return replace(self, held=MappingProxyType({**self.held, held.stat.name: held}))


Place = Path | ObjectPath
"""The place of source files: a local path, or a path in object storage."""


@lru_cache(maxsize=1024)
def _is_object(root: StorageRoot, key: str) -> bool:
    return ObjectPath(root, key).exists()


class _Reader(io.RawIOBase):
    """Reads one object as a file. Requests read ahead, because files are mostly read from start to end."""

    def __init__(self, store: ObjectStore, held: Held) -> None:
        self._store, self._stat = store, held.stat
        self._start, self._content = held.start, held.content
        self._at, self._ahead = 0, _FIRST_READ

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._stat.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        wanted = min(len(buffer), self._stat.size - self._at)
        if wanted <= 0:
            return 0
        within = self._at - self._start
        if not 0 <= within < len(self._content):
            self._ahead = min(2 * self._ahead, _MOST_READ) if within == len(self._content) else _FIRST_READ
            end = min(self._stat.size, self._at + max(wanted, self._ahead))
            self._content, _ = self._store.read_range(self._stat.name, self._at, end, etag=self._stat.etag)
            self._start, within = self._at, 0
        given = self._content[within : within + wanted]
        buffer[: len(given)] = given
        self._at += len(given)
        return len(given)


def delta_address(place: Place) -> tuple[str, dict[str, str] | None]:
    """Return the URI of the Delta table at a place, and delta-rs' storage options, which contain secrets.

    For a local folder the storage options are None.
    """
    if isinstance(place, Path):
        return str(place), None
    login, address = place.root.login, place.root.address
    if isinstance(login, S3Login):
        options = s3_options(login)
        if login.endpoint.startswith("http://"):
            options["aws_allow_http"] = "true"
        return f"s3://{address.container}/{place.key}", options
    # This form names the account: with az:// and an emulator, releases of delta-rs wrote to the container's root.
    domain = address.host.partition("//")[2].replace(".blob.", ".dfs.", 1) or f"{login.account}.dfs.core.windows.net"
    return f"abfss://{address.container}@{domain}/{place.key}", _azure(place, login)


def _azure(place: ObjectPath, login: AzureLogin) -> dict[str, str]:
    address = place.root.address
    credential: Mapping[str, Any] = place.store.credential() or {}
    secrets = {"access_key": "account_key", "sas_token": "sas_key", "token": "bearer_token"}
    options = {option: str(credential[name]) for name, option in secrets.items() if name in credential}
    options["account_name"] = address.account or login.account
    endpoint = login.endpoint or address.host
    if endpoint:
        options["endpoint"] = endpoint
    if endpoint.startswith("http://"):
        options["allow_http"] = "true"
    return options
