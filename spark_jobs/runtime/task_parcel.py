"""Values as bytes without a login: the logins of places in object storage are kept apart, each under a number.

Spark keeps tasks in a file for a moment, and a function of more than a megabyte, too: neither may hold a secret (S-04).
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

from pyspark.cloudpickle import CloudPickler

from open_mirroring.storage.object_store import StorageRoot


def packed(value: Any, roots: list[StorageRoot]) -> bytes:
    """A value as bytes that hold no secret of a storage; the logins that it needs are added to *roots*."""
    into = io.BytesIO()
    _Pickler(into, roots).dump(value)  # type: ignore[no-untyped-call]
    return into.getvalue()


def unpacked(content: bytes, roots: Sequence[StorageRoot]) -> Any:
    """The value that was packed."""
    return _Unpickler(io.BytesIO(content), roots).load()


class _Pickler(CloudPickler):
    def __init__(self, into: io.BytesIO, roots: list[StorageRoot]) -> None:
        super().__init__(into, pickle.HIGHEST_PROTOCOL)  # type: ignore[no-untyped-call]
        self._roots = roots

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, StorageRoot):
            return None
        if value not in self._roots:
            self._roots.append(value)
        return self._roots.index(value)


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: io.BytesIO, roots: Sequence[StorageRoot]) -> None:
        super().__init__(content)
        self._roots = roots

    def persistent_load(self, at: int) -> StorageRoot:
        return self._roots[at]
