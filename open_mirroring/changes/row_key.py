"""The key of a row as one string, and the hash bucket of that string.

Every module that writes a key uses this one. With several encodings, two spellings of a key would become two rows in
the target table.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable
from json.encoder import encode_basestring

KEY_BUCKETS = 64
"""The number of hash buckets, so that a large table can be published in parallel.

The change log stores the bucket of every change. With another number or hash function, the log would have to be
rewritten."""

NO_BUCKET = -1
"""The bucket of rows without a key."""


def encode_key(values: Iterable[str]) -> str:
    """Encode the values of a key as a compact JSON array (G-02).

    *values* are in the order of the setting `key` in the mirror file, each in the canonical spelling of its type. So
    ``1.0`` and ``1.00`` of one decimal type, or two spellings of a GUID, give the same key.
    """
    return "[" + ",".join([encode_basestring(value) for value in values]) + "]"


def key_bucket(key: str | None) -> int:
    """The hash bucket of an encoded key; :data:`NO_BUCKET` for None."""
    return NO_BUCKET if key is None else bucket_of_bytes(key.encode())


def bucket_of_bytes(key: bytes) -> int:
    """The hash bucket of an encoded key in UTF-8, from 0 to 63."""
    return zlib.crc32(key) % KEY_BUCKETS


def buckets_of_bytes(keys: Iterable[bytes]) -> list[int]:
    """The hash buckets of many encoded keys, in the order of the keys."""
    return [checksum % KEY_BUCKETS for checksum in map(zlib.crc32, keys)]


def columns_lacking(key: Collection[str], announced: Collection[str]) -> list[str]:
    """The columns of the source's key *announced* that the configured *key* lacks, compared without case (G-83).

    *key* is the setting `key` in the mirror file. If it lacks a column of the source's key, two rows of the source may
    have the same key in the target table. A setting with a column that the source's key lacks is not checked: the
    operator may have chosen another unique index.
    """
    ours, theirs = {name.lower() for name in key}, {name.lower() for name in announced}
    return sorted(name for name in announced if name.lower() not in ours) if ours < theirs else []
