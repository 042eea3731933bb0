"""Encrypts a job with its mirror file and connections into one argument, for a Spark driver on a cluster.

A cluster shows the arguments of programs on its pages and in its logs, so the argument must show no secret. The key
(Fernet) is stored on the cluster, which gives the key to the driver as a file. In Fabric the key is a secret in a key
vault.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography.fernet import Fernet, InvalidToken

from open_mirroring.errors import TerminalError

_MAKE_A_KEY = "make one: openssl rand -base64 32 | tr '+/' '-_'"
ARGUMENT_BYTES = 120_000
"""Linux accepts no program argument of 128 KiB or more."""
_VAULT_SECRET = re.compile(
    r"(https://[a-z0-9-]+\.vault\.(?:azure\.net|azure\.cn|usgovcloudapi\.net))/secrets/([0-9A-Za-z-]+)"
)


class JobOrder(NamedTuple):
    """One job for a driver on a cluster.

    The driver records the job's end in the ledger under the id *run*. *mirror* and *text* are name and content of the
    mirror file; relative paths in this file start at *home*. *arguments* follow the mirror file on the command line.
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
    """Encrypt a job into a string that is safe as an argument of a program.

    Raises ``INSTALLATION_INCOMPLETE`` if the key is malformed, or the string becomes too long for an argument.
    """
    text = _fernet(key, "the connection").encrypt(zlib.compress(json.dumps(order).encode())).decode()
    if len(text) > ARGUMENT_BYTES:
        what = f"mirror file and connections are {len(text):,} bytes as sealed text, of at most {ARGUMENT_BYTES:,}"
        next_step = "name the tables by patterns, split the mirror, or let the driver run in client mode"
        raise _refused(what, order.mirror, next_step)
    return text


def opened(text: str, key_file: str) -> JobOrder:
    """Decrypt a job with the key in *key_file*, a file or a secret in a key vault.

    Raises ``INSTALLATION_INCOMPLETE`` if the key is unreadable, or is not the key with which the job was encrypted.
    """
    try:
        key = _key(key_file).strip()
    except Exception as error:  # whatever Fabric's own library raises
        next_step = "let the driver's user read the key's file, or the job's identity read the secret of the key vault"
        raise _refused(f"the key cannot be read: {type(error).__name__}", key_file, next_step) from None
    try:
        document = json.loads(zlib.decompress(_fernet(key, key_file).decrypt(text)))
    except (InvalidToken, zlib.error, ValueError):
        next_step = "copy the key of the connection that the Spark connection names as `job-key` to the driver"
        raise _refused("the job was sealed by another key than the driver's", key_file, next_step) from None
    return JobOrder(*document)


def _key(place: str) -> str:
    """The key in a file, or in a secret that Fabric's own library reads in the name of the job's identity."""
    if not (secret := _VAULT_SECRET.fullmatch(place)):
        return Path(place).read_text(encoding="ascii")
    import notebookutils  # type: ignore[import-not-found,unused-ignore] # only Fabric has it

    return str(notebookutils.credentials.getSecret(f"{secret[1]}/", secret[2]))


def _fernet(key: str, where: str) -> Fernet:
    try:
        return Fernet(key)
    except ValueError:
        raise _refused("the key is not 32 bytes in URL-safe base64", where, _MAKE_A_KEY) from None


def _refused(what: str, where: str, next_step: str) -> TerminalError:
    return TerminalError("INSTALLATION_INCOMPLETE", what, where=where, next_step=next_step)
