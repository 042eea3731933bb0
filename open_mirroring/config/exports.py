"""Reads from which position of the stream changes are published over the rows of an export (G-08)."""

from __future__ import annotations

import json

from pydantic_core import PydanticCustomError

from open_mirroring.config.models import Mirror
from open_mirroring.config.names import stream_position
from open_mirroring.config.storage import place_of
from open_mirroring.config.tables import ExportLoad, StreamFromFile
from open_mirroring.errors import TerminalError

_KEY = "stream_from"


def stream_from(mirror: Mirror, load: ExportLoad) -> str:
    """Return the position from which changes of the stream follow the export: a commit LSN, or ``beginning``.

    The position is the setting `stream_from` of *load* in the mirror file, or is in the JSON file that `stream_from`
    names. An LSN has the form ``XXXXXXXX:XXXXXXXX:XXXX`` (C-32). Raises ``STREAM_FROM_INVALID`` if the JSON file is
    missing or contains no position. Raises errors of the object storage if the JSON file cannot be read there.
    """
    if not isinstance(load.stream_from, StreamFromFile):
        return load.stream_from
    file = place_of(mirror, load.stream_from.file, load.connection)
    try:
        content = json.loads(file.read_bytes())
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    except ValueError:
        reason = "is no JSON"
    else:
        position = content.get(_KEY) if isinstance(content, dict) else None
        try:
            return stream_position(str(position))
        except PydanticCustomError:
            reason = f"contains no stream position under {_KEY!r}"
    raise TerminalError(
        "STREAM_FROM_INVALID",
        f"the file that shows where the export begins in the stream {reason}",
        where=str(file),
        next_step=f"write a JSON object with {_KEY!r}: the last commit LSN before the export began, or 'beginning'",
    )
