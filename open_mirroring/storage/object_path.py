"""Offers a place in object storage by the methods of :class:`pathlib.Path` that readers of source files use."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import IO, Literal, NamedTuple

from open_mirroring.storage.object_store import ObjectReplaced, ObjectStat, ObjectStore, StorageRoot, open_store

_FIRST_READ, _MOST_READ = 2**17, 2**23
"""One request brings so many bytes at least; reading on and on, up to so many."""


class Held(NamedTuple):
    """An object that is read as it was looked at; *content* are its bytes from *start* on that were fetched then."""

    stat: ObjectStat
    start: int = 0
    content: bytes = b""


class ObjectStatus(NamedTuple):
    """What :class:`os.stat_result` says of a file, as far as readers ask, and the object's version."""

    st_size: int
    st_mtime: float
    st_mtime_ns: int
    version: str


@dataclass(frozen=True)
class ObjectPath:
    """A place in a container; *held* are objects that are read as they were looked at.

    It holds the login, secret included, and goes to workers in the function that they run. Its text shows no secret.
    """

    root: StorageRoot = field(repr=False)
    key: str
    held: Mapping[str, Held] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)

    def __reduce__(self) -> tuple[type[ObjectPath], tuple[StorageRoot, str]]:
        # What is held belongs to the task that looked at it.
        return ObjectPath, (self.root, self.key)

    def __truediv__(self, name: str) -> ObjectPath:
        return replace(self, key=f"{self.key}/{name}" if self.key else name)

    def __str__(self) -> str:
        address = self.root.address
        base = address.text.removesuffix(address.path).removesuffix("/") if address.path else address.text
        return f"{base}/{self.key}" if self.key else base

    @property
    def store(self) -> ObjectStore:
        """The container's store."""
        return open_store(self.root)

    @property
    def name(self) -> str:
        """The last part of the place; the container's name for all of it."""
        return self.key.rpartition("/")[2] or self.root.address.container

    @property
    def parent(self) -> ObjectPath:
        """The folder around it."""
        return replace(self, key=self.key.rpartition("/")[0])

    @property
    def parents(self) -> tuple[ObjectPath, ...]:
        """The folders around it, the nearest first."""
        return () if not self.key else (self.parent, *self.parent.parents)

    def with_name(self, name: str) -> ObjectPath:
        """Another name in the same folder."""
        return self.parent / name

    def relative(self, key: str) -> str:
        """The name of an object below this place, relative to it."""
        return key[len(self.key) + 1 :] if self.key else key

    def is_file(self) -> bool:
        """Whether there is an object of this name; asked once in a process, for a folder does not become a file."""
        return bool(self.key) and _is_object(self.root, self.key)

    def is_dir(self) -> bool:
        """Whether an object lies below this place now."""
        return next(self.store.objects(self.key), None) is not None

    def exists(self) -> bool:
        """Whether there is an object of this name now."""
        try:
            self.store.stat(self.key)
        except FileNotFoundError:
            return False
        return True

    def stat(self) -> ObjectStatus:
        """The object as it is now.

        Raises:
            FileNotFoundError: there is none.
        """
        found = self.store.stat(self.key)
        seconds = found.modified.timestamp()
        return ObjectStatus(found.size, seconds, int(seconds * 1e9), found.version)

    def read_bytes(self) -> bytes:
        """All of the object.

        Raises:
            FileNotFoundError: there is none.
        """
        return self.store.read(self.key)

    def create(self, content: bytes) -> str:
        """Write the object, which does not exist, in one step, and return its ETag.

        Raises:
            FileExistsError: there is one.
        """
        return self.store.create(self.key, content)

    def open(self, mode: Literal["rb"] = "rb") -> IO[bytes]:
        """The object, to be read from any place; what is read is of one and the same object.

        Raises:
            FileNotFoundError: there is none.
        """
        held = self.held.get(self.key) or self._begun()
        return io.BufferedReader(_Reader(self.store, held), 2**16)

    def _begun(self) -> Held:
        """The object with its first bytes: who opens it reads it, and one request tells both."""
        try:
            return self.look(0, _FIRST_READ)
        except ObjectReplaced:  # it has no byte
            return Held(self.store.stat(self.key))

    def glob(self, pattern: Literal["*"]) -> Iterator[ObjectPath]:
        """The objects directly in this folder."""
        return (replace(self, key=found.name) for found in self.store.folders(self.key)[1])

    def look(self, start: int = 0, end: int = 0) -> Held:
        """The object as it is now, with the bytes from *start* to *end*.

        Raises:
            FileNotFoundError: there is none.
        """
        content, stat = self.store.read_range(self.key, start, end)
        return Held(stat, start, content)

    def holding(self, held: Held) -> ObjectPath:
        """This place, whose object of that name is read as it was looked at, or not at all."""
        return replace(self, held=MappingProxyType({**self.held, held.stat.name: held}))


Place = Path | ObjectPath
"""Where files of a source are: a local path, or a place in object storage."""


@lru_cache(maxsize=1024)
def _is_object(root: StorageRoot, key: str) -> bool:
    return ObjectPath(root, key).exists()


class _Reader(io.RawIOBase):
    """One object as a file. A request brings more than was asked for: files are read on, and seldom here and there."""

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
