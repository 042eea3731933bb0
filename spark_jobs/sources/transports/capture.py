"""Reads Event Hubs Capture: Avro container files, one record per message (C-93).

Public source: Microsoft Learn, *Capture events through Azure Event Hubs*; Apache Avro specification.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, cast

import fastavro

from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.contract.avro_codecs import refuse_missing_codec
from spark_jobs.sources.contract.decoded import Damage
from spark_jobs.sources.transports.source_files import MAX_RAW, open_source

SUFFIXES = (".avro",)

# Exceptions of reading a damaged container, from its own checks and from decompression.
UNREADABLE = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, RecursionError, MemoryError)


def read_capture(root: Place, name: str, size: int) -> Iterator[RawMessage | Damage]:
    """The messages in the first *size* bytes of a capture file, each at its sequence number.

    A damaged or truncated container ends with one :class:`Damage`: the rest cannot be separated into messages.
    """
    with open_source(root / name) as file:
        prefix = _Prefix(file, size)
        good = 0
        try:
            blocks: Any = fastavro.block_reader(cast(IO[bytes], prefix))
            good = prefix.tell()
            for block in blocks:
                for record in block:
                    yield _message(record, name)
                if block.bytes_.read(1):
                    raise ValueError(f"a block of {block.num_records} records holds more than these")
                good = prefix.tell()
            if good != size:
                raise ValueError(f"the file ends at byte {good}, but {size} bytes were bound")
        except UNREADABLE as error:
            refuse_missing_codec(error)
            file.seek(good)
            yield Damage(name, good, "FILE_DAMAGED", _described(error), file.read(min(MAX_RAW, max(0, size - good))))


def _message(record: Any, origin: str) -> RawMessage:
    number, body = record["SequenceNumber"], record["Body"]
    if not isinstance(number, int) or not (body is None or isinstance(body, bytes)):
        raise TypeError("a record without a complete SequenceNumber and bytes as Body is not a captured event")
    return RawMessage(origin, number, body)


class _Prefix:
    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._size, self._at = file, size, 0

    def read(self, count: int = -1) -> bytes:
        left = self._size - self._at
        content = self._file.read(left if count < 0 else min(count, left))
        self._at += len(content)
        return content

    def tell(self) -> int:
        return self._at


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]
