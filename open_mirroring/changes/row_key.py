"""The key of a row as one text, and the bucket of that text.

All modules that write a key use this one. Otherwise two spellings of a key would become two rows in the target.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable
from json.encoder import encode_basestring

KEY_BUCKETS = 64
"""The number of buckets by key, so that a large table can be published in parallel.

The change log stores the bucket of every change and is read by it. With another number or formula, a change is searched
in the wrong bucket, so an existing log would have to be rewritten.
"""

NO_BUCKET = -1
"""The bucket of rows without a key."""


def encode_key(values: Iterable[str]) -> str:
    """The canonical encoding of a key: the canonical texts of its typed values as a compact JSON array (G-02).

    *values* are in the order of the mirror's ``key``. Each is the canonical text of the typed value. So ``1.0`` and
    ``1.00`` of one decimal type, or two spellings of a GUID, are one key.
    """
    return "[" + ",".join([encode_basestring(value) for value in values]) + "]"


def key_bucket(key: str | None) -> int:
    """The bucket of an encoded key in the change log; :data:`NO_BUCKET` without one."""
    return NO_BUCKET if key is None else bucket_of_bytes(key.encode())


def bucket_of_bytes(key: bytes) -> int:
    """The bucket of an encoded key, given as UTF-8 bytes."""
    return zlib.crc32(key) % KEY_BUCKETS


def buckets_of_bytes(keys: Iterable[bytes]) -> list[int]:
    """The buckets of many encoded keys, as :func:`bucket_of_bytes`."""
    return [checksum % KEY_BUCKETS for checksum in map(zlib.crc32, keys)]


def columns_lacking(key: Collection[str], announced: Collection[str]) -> list[str]:
    """The columns of the key announced by the source that *key* lacks, in any case (G-83).

    Without one of them, two rows of the source may have the same key. A key with a column that the announced one lacks
    is a deliberate choice, such as another unique index, and is not checked.
    """
    ours, theirs = {name.lower() for name in key}, {name.lower() for name in announced}
    return sorted(name for name in announced if name.lower() not in ours) if ours < theirs else []
