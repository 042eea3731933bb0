"""Reads from a Delta table's log what delta-rs does not return: deletion vectors, and the time of a commit.

delta-rs finds no deletion vectors if there is a blank in the table's address in object storage. delta-rs also blocks
all threads while it asks a remote storage for the time of a commit. Public source: the Delta protocol; RoaringBitmap,
*Format specification*.
"""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import unquote
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from open_mirroring.storage.arrow_files import arrow_files, arrow_path
from open_mirroring.storage.object_path import Place

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10})|\.[0-9a-f-]{36})?\.(?:json|parquet)")
_WANTED = ["add.path", "add.deletionVector", "sidecar.path"]
_MAGIC, _NO_RUNS, _RUNS = 1681511377, 12346, 12347
_BITMAP_BYTES, _ARRAY_MOST, _OFFSETS_FROM = 8192, 4096, 4
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_UUID_CHARACTERS = 20

Positions = npt.NDArray[np.int64]


class DeletionVector(NamedTuple):
    """Where the positions of a file's deleted rows are stored, as the Delta log describes it."""

    storage: str
    text: str
    offset: int
    size: int
    rows: int

    def positions(self, table: Place) -> Positions:
        """The positions of the deleted rows in their file, ascending; raises ValueError or OSError if it is damaged."""
        try:
            found = _positions(self._content(table))
        except struct.error as error:
            raise ValueError(f"a deletion vector ends too early: {error}") from None
        if len(found) != self.rows:
            raise ValueError(f"a deletion vector has {len(found)} rows, and {self.rows} by the log")
        return found

    def _content(self, table: Place) -> bytes:
        if self.storage == "i":
            return _decoded(self.text)[: self.size]
        if self.storage != "u":
            raise ValueError(f"a deletion vector is kept outside of the table (storage type {self.storage!r})")
        folder, name = self.text[:-_UUID_CHARACTERS], UUID(bytes=_decoded(self.text[-_UUID_CHARACTERS:]))
        with ((table / folder if folder else table) / f"deletion_vector_{name}.bin").open("rb") as file:
            file.seek(self.offset)
            size, content = int.from_bytes(file.read(4)), file.read(self.size)
            if size != self.size or int.from_bytes(file.read(4)) != zlib.crc32(content):
                raise ValueError("a deletion vector has another size or checksum than is said of it")
        return content


def deletion_vectors(table: Place, version: int) -> dict[str, DeletionVector | None]:
    """The deletion vector (or None) of each file of *version*, and of some older files, by path in the table."""
    log = table / "_delta_log"
    names = [path.name for path in log.glob("*")]
    begun, checkpoint = _newest_checkpoint(names, version)
    found: dict[str, DeletionVector | None] = {}
    for name in checkpoint:
        found.update(_vectors(_actions(log, name)))
    commits = sorted((int(one[1]), name) for name in names if (one := _COMMIT.fullmatch(name)))
    for number, name in commits:
        if begun < number <= version:
            found.update(_vectors(_actions(log, name)))
    return found


def committed_at(table: Place, version: int) -> datetime:
    """When a version was committed, by its commit entry or else by the entry's file time.

    Raises OSError if the version's entry is missing.
    """
    file = table / "_delta_log" / f"{version:020}.json"
    entry = (action.get("commitInfo") for action in _actions(table / "_delta_log", file.name))
    stamp = next((info["timestamp"] for info in entry if info and "timestamp" in info), None)
    return datetime.fromtimestamp(file.stat().st_mtime if stamp is None else stamp / 1000, UTC)


def _newest_checkpoint(names: Iterable[str], version: int) -> tuple[int, list[str]]:
    """The version and file names of the newest complete checkpoint; -1 and an empty list if there is none."""
    parts: dict[tuple[int, int, str], list[str]] = defaultdict(list)
    for name in names:
        if found := _CHECKPOINT.fullmatch(name):
            parts[int(found[1]), int(found[2] or 1), "" if found[2] else name].append(name)
    whole = [(at, there) for (at, count, _), there in parts.items() if at <= version and len(there) == count]
    return max(whole, default=(-1, []))


def _actions(log: Place, name: str) -> Iterator[Mapping[str, Any]]:
    file = log / name
    if name.endswith(".json"):
        with file.open("rb") as lines:
            actions = [msgspec.json.decode(line) for line in lines if line.strip()]
    else:
        with pq.ParquetFile(arrow_path(file), filesystem=arrow_files(file)) as checkpoint:
            actions = checkpoint.read(columns=_WANTED).to_pylist()
    for action in actions:
        if sidecar := action.get("sidecar"):
            yield from _actions(log / "_sidecars", unquote(sidecar["path"]))
        yield action


def _vectors(actions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, DeletionVector | None]]:
    for added in filter(None, (action.get("add") for action in actions)):
        entry = added.get("deletionVector")
        names = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
        values: list[Any] = [entry.get(name) or 0 for name in names] if entry else []
        yield unquote(added["path"]), DeletionVector(*values) if entry else None


def _decoded(text: str) -> bytes:
    return base64.b85decode(text.translate(str.maketrans(_Z85, _B85)))


def _positions(content: bytes) -> Positions:
    magic, count = struct.unpack_from("<IQ", content)
    if magic != _MAGIC:
        raise ValueError(f"a deletion vector has the unknown format {magic}")
    at, parts = 12, [np.empty(0, np.int64)]
    for _ in range(count):
        (high,) = struct.unpack_from("<I", content, at)
        found, at = _bitmap(content, at + 4)
        parts.append(found + (high << 32))
    return np.concatenate(parts)


def _bitmap(content: bytes, at: int) -> tuple[Positions, int]:
    """Decode the 32-bit bitmap that begins at *at*; returns its positions, and where the next one begins."""
    cookie, count = struct.unpack_from("<II", content, at)
    runs = np.zeros(0, np.uint8)
    if cookie & 0xFFFF == _RUNS:
        count, at = (cookie >> 16) + 1, at + 4
        flags = np.frombuffer(content, np.uint8, -(-count // 8), at)
        runs, at = np.unpackbits(flags, bitorder="little"), at + len(flags)
    elif cookie == _NO_RUNS:
        at += 8
    else:
        raise ValueError(f"a deletion vector has a bitmap of the unknown kind {cookie}")
    described = np.frombuffer(content, "<u2", 2 * count, at).reshape(-1, 2).astype(np.int64)
    at += 4 * count + (4 * count if not len(runs) or count >= _OFFSETS_FROM else 0)
    parts = [np.empty(0, np.int64)]
    for number, (high, less_one) in enumerate(described.tolist()):
        if len(runs) and runs[number]:
            pairs = np.frombuffer(content, "<u2", 2 * int.from_bytes(content[at : at + 2], "little"), at + 2)
            at += 2 + pairs.nbytes
            starts, more = pairs.reshape(-1, 2).T.astype(np.int64)
            found = np.arange((more + 1).sum()) + np.repeat(starts - np.cumsum(more + 1) + more + 1, more + 1)
        elif less_one < _ARRAY_MOST:
            found = np.frombuffer(content, "<u2", less_one + 1, at)
            at += found.nbytes
        else:
            bits = np.frombuffer(content, np.uint8, _BITMAP_BYTES, at)
            found, at = np.flatnonzero(np.unpackbits(bits, bitorder="little")), at + _BITMAP_BYTES
        parts.append(found.astype(np.int64) + (high << 16))
    return np.concatenate(parts), at
