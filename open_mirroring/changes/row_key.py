"""The key of a row as one text, and the bucket of that text.

Every module that writes a key writes it here. Otherwise two spellings of one key would become two rows in the target.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable
from json.encoder import encode_basestring

KEY_BUCKETS = 64
"""Changes are spread over this many buckets by key, so that a large table can be published side by side.

The change log holds the bucket of every change and is read by it: with another number or another formula, a change is
looked for in a bucket where it does not lie. A log that is there would have to be written anew.
"""

NO_BUCKET = -1
"""The bucket of rows without a key."""


def encode_key(values: Iterable[str]) -> str:
    """The canonical encoding of a key: the canonical texts of its typed values as a compact JSON array (G-02).

    *values* stand in the order of the mirror's ``key``; each is the canonical text of the typed value, so that
    ``1.0`` and ``1.00`` of one decimal type, or two spellings of a GUID, are one key.
    """
    return "[" + ",".join([encode_basestring(value) for value in values]) + "]"


def key_bucket(key: str | None) -> int:
    """The bucket of an encoded key in the change log; :data:`NO_BUCKET` without one."""
    return NO_BUCKET if key is None else bucket_of_bytes(key.encode())


def bucket_of_bytes(key: bytes) -> int:
    """The bucket of an encoded key that is at hand as UTF-8 bytes."""
    return zlib.crc32(key) % KEY_BUCKETS


def columns_lacking(key: Collection[str], announced: Collection[str]) -> list[str]:
    """The columns that make a key which the source announces wider than *key*, in any case of letters (G-83).

    Two rows of the source may have one value of a key that lacks any. A key with a column that the announced one has
    not is a choice of its own, such as another unique index: of that nothing is known.
    """
    ours, theirs = {name.lower() for name in key}, {name.lower() for name in announced}
    return sorted(name for name in announced if name.lower() not in ours) if ours < theirs else []
