"""Encrypts a job with its mirror file and connections into one argument, for a Spark driver on a cluster.

A cluster shows the arguments of programs on its pages and in its logs. The key (Fernet) is stored on the cluster, which
gives it to the driver as a file.
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
"""Linux accepts no program argument of 128 KiB or more."""


class JobOrder(NamedTuple):
    """One job for a driver on a cluster.

    The driver records the job's end in the ledger under the id *run*. *mirror* and *text* are name and content of the
    mirror file, and relative paths in it start at *home*. *arguments* follow the mirror file on the command line;
    *connections* are environment variables.
    """

    run: str
    job: str
    mirror: str
    text: str
    home: str
    arguments: Sequence[str]
    connections: Mapping[str, str]


def sealed(order: JobOrder, key: str) -> str:
    """Encrypt the job into text that is safe as an argument; ``INSTALLATION_INCOMPLETE`` for a bad key or long text."""
    text = _fernet(key, "the connection").encrypt(zlib.compress(json.dumps(order).encode())).decode()
    if len(text) > ARGUMENT_BYTES:
        what = f"mirror file and connections are {len(text):,} bytes as sealed text, of at most {ARGUMENT_BYTES:,}"
        next_step = "name the tables by patterns, split the mirror, or let the driver run in client mode"
        raise _refused(what, order.mirror, next_step)
    return text


def opened(text: str, key_file: Path) -> JobOrder:
    """Decrypt a job with the key in a file; raises ``INSTALLATION_INCOMPLETE`` if the key is unreadable or differs."""
    try:
        key = key_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        next_step = "let the cluster copy the key's file to the driver, readable for its user"
        raise _refused(f"the key cannot be read: {type(error).__name__}", str(key_file), next_step) from None
    try:
        document = json.loads(zlib.decompress(_fernet(key, str(key_file)).decrypt(text)))
    except (InvalidToken, zlib.error, ValueError):
        next_step = "copy the key of the connection that the Spark connection names as `job-key` to the driver"
        raise _refused("the job was sealed by another key than the driver's", str(key_file), next_step) from None
    return JobOrder(*document)


def _fernet(key: str, where: str) -> Fernet:
    try:
        return Fernet(key)
    except ValueError:
        raise _refused("the key is not 32 bytes in URL-safe base64", where, _MAKE_A_KEY) from None


def _refused(what: str, where: str, next_step: str) -> TerminalError:
    return TerminalError("INSTALLATION_INCOMPLETE", what, where=where, next_step=next_step)
