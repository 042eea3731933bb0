"""Reads the stream position from which changes follow an export (G-08)."""

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
    """``beginning``, or the commit LSN ``XXXXXXXX:XXXXXXXX:XXXX`` (C-32) from which the stream covers the export.

    Raises ``STREAM_FROM_INVALID`` when its file is missing or does not say it; what the storage raises.
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
            reason = f"holds no stream position under {_KEY!r}"
    raise TerminalError(
        "STREAM_FROM_INVALID",
        f"the file that shows where the export begins in the stream {reason}",
        where=str(file),
        way_out=f"write a JSON object with {_KEY!r}: the last commit LSN before the export began, or 'beginning'",
    )
