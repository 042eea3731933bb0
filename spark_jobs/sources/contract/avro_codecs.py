"""Reads Avro records. A missing compression library is an incomplete installation, not a damaged file."""

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
    """Raises ``INSTALLATION_INCOMPLETE`` if *error* shows that a compression library is missing.

    Without this check a sound file would be reported as damaged.
    """
    if found := _MISSING.search(str(error)):
        package = found[2].rstrip(",").replace("'", "")
        raise TerminalError(
            "INSTALLATION_INCOMPLETE",
            f"the file is compressed with {found[1]}, and the Python package {package} is not installed on the machine "
            "that reads it. Nothing of it was read, and nothing is lost",
            next_step=f"install {package} on every machine that reads the source (`pip install 'fastavro[codecs]'`), "
            "then run again",
        ) from error


def only_record(datum: bytes, schema: Any) -> dict[str, Any]:
    """The one record in *datum*, read by *schema*.

    Raises one of :data:`UNREADABLE` if *datum* is not exactly one record.
    """
    stream = io.BytesIO(datum)
    record: Any = fastavro.schemaless_reader(stream, schema, None)
    if stream.tell() != len(datum):
        raise ValueError(f"{len(datum) - stream.tell()} bytes are left over")
    return record  # type: ignore[no-any-return]
