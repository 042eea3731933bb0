"""Messages as files: Event Hubs Capture, and lines of JSON.

Capture: Avro container files ``{namespace}/{hub}/{partition}/{yyyy}/{MM}/{dd}/{HH}/{mm}/{ss}.avro`` of records
``EventData``, one file per partition and window, empty if there were no messages (C-93; public source: Microsoft Learn,
*Capture events through Azure Event Hubs*). Files are created as bytes first, so that the same messages give the same
bytes; :func:`write_files` makes each visible completely, by a rename.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import fastavro

from workload_generator.delivery import Message

_PROPERTIES = {"type": "map", "values": ["long", "double", "string", "bytes"]}
EVENT_DATA: Any = fastavro.parse_schema(
    {
        "type": "record",
        "name": "EventData",
        "namespace": "Microsoft.ServiceBus.Messaging",
        "fields": [
            {"name": "SequenceNumber", "type": "long"},
            {"name": "Offset", "type": "string"},
            {"name": "EnqueuedTimeUtc", "type": "string"},
            {"name": "SystemProperties", "type": _PROPERTIES},
            {"name": "Properties", "type": _PROPERTIES},
            {"name": "Body", "type": ["null", "bytes"]},
        ],
    }
)
"""The record of a Capture file, parsed."""

WINDOW = timedelta(minutes=5)
"""The default length of a Capture window."""

_OFFSET_STEP = 4096


def capture_files(
    messages: Sequence[Message],
    *,
    partitions: int = 3,
    namespace: str = "ehns-shop",
    hub: str = "cdc",
    window: timedelta = WINDOW,
    codec: Literal["deflate", "null"] = "deflate",
) -> Iterator[tuple[str, bytes]]:
    """The Capture files of *messages*: (path below the capture folder, content), window by window.

    Each partition has a file for each window, from the first to one after the last: some are empty, the last always. A
    file's ``SequenceNumber`` are the messages' offsets; its ``Offset`` is an opaque rising text.
    """
    if not messages:
        return
    by_place: dict[tuple[datetime, int], list[dict[str, Any]]] = {}
    for message in messages:
        record = _event_data(message)
        start = window_start(_moment(message.enqueued), window)
        by_place.setdefault((start, message.partition), []).append(record)
    start, last = min(by_place)[0], max(by_place)[0]
    while start <= last + window:
        for partition in range(partitions):
            path = f"{namespace}/{hub}/{partition}/{start:%Y/%m/%d/%H/%M/%S}.avro"
            buffer = io.BytesIO()
            # A random marker, the default, would make every file different each time.
            marker = hashlib.md5(path.encode(), usedforsecurity=False).digest()
            records = by_place.get((start, partition), [])
            fastavro.writer(buffer, EVENT_DATA, records, codec=codec, sync_marker=marker)
            yield path, buffer.getvalue()
        start += window


def window_start(moment: datetime, window: timedelta = WINDOW) -> datetime:
    """The beginning of the window of *moment*; windows are counted from the beginning of 1970."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return epoch + (moment - epoch) // window * window


def json_lines(messages: Iterable[Message], *, topic: str = "cdc", layout: Literal["wrapped", "bare"]) -> bytes:
    """One message per line, in order of arrival.

    Args:
        messages: what to write.
        topic: topic of wrapped lines.
        layout: ``wrapped`` with topic, partition, offset, timestamp, key (base64 or null), headers, encoding (``utf8``
            or ``base64``) and value; ``bare`` is the body alone.

    Raises:
        ValueError: when a bare body is not one line of text, as Avro never is.
    """
    lines = []
    for message in messages:
        if layout == "bare":
            if not message.body.startswith(b"{") or b"\n" in message.body:
                raise ValueError(f"message {message.partition}/{message.offset} is not one line of JSON")
            lines.append(message.body)
        else:
            lines.append(_wrapped(message, topic).encode())
    return b"".join(line + b"\n" for line in lines)


def compressed(content: bytes) -> bytes:
    """*content* in gzip; the same bytes each time."""
    return gzip.compress(content, mtime=0)


def write_files(folder: Path, files: Iterable[tuple[str, bytes]]) -> list[Path]:
    """Write (path below *folder*, content); each file appears atomically, and replaces an older one."""
    written = []
    for path, content in files:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        written.append(target)
    return written


def _event_data(message: Message) -> dict[str, Any]:
    moment = _moment(message.enqueued)
    half_day = "AM" if moment.hour < 12 else "PM"
    clock = f"{moment.hour % 12 or 12}:{moment:%M:%S} {half_day}"
    return {
        "SequenceNumber": message.offset,
        "Offset": str(message.offset * _OFFSET_STEP),
        "EnqueuedTimeUtc": f"{moment.month}/{moment.day}/{moment.year} {clock}",
        "SystemProperties": {"x-opt-partition-key": message.key.decode()} if message.key else {},
        "Properties": {},
        "Body": message.body,
    }


def _wrapped(message: Message, topic: str) -> str:
    try:
        encoding, value = "utf8", message.body.decode()
    except UnicodeDecodeError:
        encoding, value = "base64", base64.b64encode(message.body).decode()
    line = {
        "topic": topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.enqueued,
        "key": None if message.key is None else base64.b64encode(message.key).decode(),
        "headers": [],
        "encoding": encoding,
        "value": value,
    }
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
