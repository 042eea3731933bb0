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
        raise TerminalError(
            "INSTALLATION_INCOMPLETE",
            f"mirror file and connections are {len(text):,} bytes as sealed text, of at most {ARGUMENT_BYTES:,}",
            where=order.mirror,
            way_out="name the tables by patterns, split the mirror, or let the driver run in client mode",
        )
    return text


def opened(text: str, key_file: Path) -> JobOrder:
    """What was sealed, by the key in a file; raises ``INSTALLATION_INCOMPLETE``."""
    try:
        key = key_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TerminalError(
            "INSTALLATION_INCOMPLETE",
            f"the key cannot be read: {type(error).__name__}",
            where=str(key_file),
            way_out="let the cluster copy the key's file to the driver, readable for its user",
        ) from None
    try:
        document = json.loads(zlib.decompress(_fernet(key, str(key_file)).decrypt(text)))
    except (InvalidToken, zlib.error, ValueError):
        raise TerminalError(
            "INSTALLATION_INCOMPLETE",
            "the job was sealed by another key than the driver's",
            where=str(key_file),
            way_out="copy the key of the connection that the Spark connection names as `job-key` to the driver",
        ) from None
    return JobOrder(*document)


def _fernet(key: str, where: str) -> Fernet:
    try:
        return Fernet(key)
    except ValueError:
        what = "the key is not 32 bytes in URL-safe base64"
        raise TerminalError("INSTALLATION_INCOMPLETE", what, where=where, way_out=_MAKE_A_KEY) from None
