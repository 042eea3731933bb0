"""Tasks as bytes without a login: the logins of places in object storage are kept apart, each under a number."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

from open_mirroring.storage.object_store import StorageRoot


def packed_tasks(tasks: Sequence[Any]) -> tuple[list[bytes], list[StorageRoot]]:
    """Tasks as bytes that hold no secret of a storage, and the logins that they are unpacked with."""
    roots: list[StorageRoot] = []
    return [_packed(task, roots) for task in tasks], roots


def unpacked_task(packed: bytes, roots: Sequence[StorageRoot]) -> Any:
    """The task that was packed."""
    return _Unpickler(io.BytesIO(packed), roots).load()


def _packed(task: Any, roots: list[StorageRoot]) -> bytes:
    into = io.BytesIO()
    _Pickler(into, roots).dump(task)
    return into.getvalue()


class _Pickler(pickle.Pickler):
    def __init__(self, into: io.BytesIO, roots: list[StorageRoot]) -> None:
        super().__init__(into, pickle.HIGHEST_PROTOCOL)
        self._roots = roots

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, StorageRoot):
            return None
        if value not in self._roots:
            self._roots.append(value)
        return self._roots.index(value)


class _Unpickler(pickle.Unpickler):
    def __init__(self, packed: io.BytesIO, roots: Sequence[StorageRoot]) -> None:
        super().__init__(packed)
        self._roots = roots

    def persistent_load(self, at: int) -> StorageRoot:
        return self._roots[at]
