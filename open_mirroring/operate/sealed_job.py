"""Hands a job to a driver on a cluster: the job, its mirror file and connections, as one encrypted text.

A cluster shows a program's arguments on its pages and in its logs. So the text is encrypted and authenticated (Fernet)
with a key that the cluster itself gives to the driver.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography.fernet import Fernet, InvalidToken

from open_mirroring.errors import TerminalError

_MAKE_A_KEY = "make one: openssl rand -base64 32 | tr '+/' '-_'"
ARGUMENT_BYTES = 120_000
"""Linux passes no argument of 128 KiB or more to a program."""


class JobOrder(NamedTuple):
    """One job for a driver elsewhere; it leaves the job's end in the ledger under *run*, made for this alone.

    *mirror* and *text* are name and text of the mirror file, *home* is where its relative paths start. *arguments* come
    behind the mirror file; *connections* are environment variables.
    """

    run: str
    job: str
    mirror: str
    text: str
    home: str
    arguments: Sequence[str]
    connections: Mapping[str, str]


def sealed(order: JobOrder, key: str) -> str:
    """The order as text of letters, digits, ``-``, ``_`` and ``=``; raises ``INSTALLATION_INCOMPLETE``."""
    text = _fernet(key, "the connection").encrypt(zlib.compress(json.dumps(order).encode())).decode()
    if len(text) > ARGUMENT_BYTES:
        what = f"mirror file and connections are {len(text):,} bytes as sealed text, of at most {ARGUMENT_BYTES:,}"
        way_out = "name the tables by patterns, split the mirror, or let the driver run in client mode"
        raise _refused(what, order.mirror, way_out)
    return text


def opened(text: str, key_file: Path) -> JobOrder:
    """What was sealed, by the key in a file; raises ``INSTALLATION_INCOMPLETE``."""
    try:
        key = key_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        way_out = "let the cluster copy the key's file to the driver, readable for its user"
        raise _refused(f"the key cannot be read: {type(error).__name__}", str(key_file), way_out) from None
    try:
        document = json.loads(zlib.decompress(_fernet(key, str(key_file)).decrypt(text)))
    except (InvalidToken, zlib.error, ValueError):
        way_out = "copy the key of the connection that the Spark connection names as `job-key` to the driver"
        raise _refused("the job was sealed by another key than the driver's", str(key_file), way_out) from None
    return JobOrder(*document)


def _fernet(key: str, where: str) -> Fernet:
    try:
        return Fernet(key)
    except ValueError:
        raise _refused("the key is not 32 bytes in URL-safe base64", where, _MAKE_A_KEY) from None


def _refused(what: str, where: str, way_out: str) -> TerminalError:
    return TerminalError("INSTALLATION_INCOMPLETE", what, where=where, way_out=way_out)
