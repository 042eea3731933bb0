"""Reads Avro: damage is told apart from a compression that this machine has no library for."""

from __future__ import annotations

import io
import re
from typing import Any

import fastavro

from open_mirroring.errors import TerminalError

UNREADABLE = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, RecursionError, MemoryError)
"""Exceptions that the Avro reader was seen to raise on foreign or damaged bytes."""
_MISSING = re.compile(r"(\w+) codec is supported but you need to install one of the following libraries: \((.+)\)")


def refuse_missing_codec(error: BaseException) -> None:
    """Raise our own error where reading a container failed because a library is missing: the container is sound."""
    if found := _MISSING.search(str(error)):
        package = found[2].rstrip(",").replace("'", "")
        raise TerminalError(
            "INSTALLATION_INCOMPLETE",
            f"the file is compressed with {found[1]}, and the Python package {package} is not installed on the machine "
            "that reads it. Nothing of it was read, and nothing is lost",
            way_out=f"install {package} on every machine that reads the source (`pip install 'fastavro[codecs]'`), "
            "then run again",
        ) from error


def only_record(datum: bytes, schema: Any) -> dict[str, Any]:
    """One record that consists of all the bytes; one of :data:`UNREADABLE` if they are none."""
    stream = io.BytesIO(datum)
    record: Any = fastavro.schemaless_reader(stream, schema, None)
    if stream.tell() != len(datum):
        raise ValueError(f"{len(datum) - stream.tell()} bytes are left over")
    return record  # type: ignore[no-any-return]
