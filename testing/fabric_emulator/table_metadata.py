"""Reads a table's ``_metadata.json`` (F-10 to F-24, Microsoft Learn: landing zone format)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from fabric_emulator.failures import invalid_metadata
from fabric_emulator.text_format import TextFormat, read_text_format
from open_mirroring.landing_zone.layout import METADATA_FILE

_SEQUENTIAL, _BY_TIME = "sequentialfilename", "lastupdatetimefiledetection"


class TableMetadata(NamedTuple):
    """The metadata that the emulator needs.

    *keys* are the key columns, empty for a table that accepts inserts only (F-12). *upsert_by_default* is the meaning
    of a row without marker (F-15). *text* is the format of its files, None for Parquet. *by_time* means that its files
    have any names and are read in the order of their times (F-14, F-43).
    """

    keys: tuple[str, ...] = ()
    upsert_by_default: bool = False
    text: TextFormat | None = None
    by_time: bool = False

    @property
    def extension(self) -> str:
        """The extension of the table's data files, without the dot."""
        return "parquet" if self.text is None else self.text.extension


def read_metadata(folder: Path) -> TableMetadata | None:
    """Read a table folder's metadata; None when it has none.

    Raises:
        TableFailure: ``InvalidMetadata`` when it is not a JSON object or a property is invalid.
    """
    try:
        content = (folder / METADATA_FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        document = json.loads(content)
    except ValueError as error:
        raise invalid_metadata(f"it is no JSON: {error}.") from error
    if not isinstance(document, dict):
        raise invalid_metadata("it is no JSON object.")
    # Official examples use both spellings (F-11).
    properties = {name.casefold(): value for name, value in document.items()}
    strategy = properties.get("filedetectionstrategy", _SEQUENTIAL)
    if not isinstance(strategy, str) or strategy.casefold() not in (_SEQUENTIAL, _BY_TIME):
        raise invalid_metadata(
            f"fileDetectionStrategy is {strategy!r}, neither SequentialFileName nor LastUpdateTimeFileDetection (F-14)."
        )
    upsert = properties.get("isupsertdefaultrowmarker", False)
    if not isinstance(upsert, bool):
        raise invalid_metadata(f"isUpsertDefaultRowMarker is {upsert!r}, not true or false.")
    keys = _keys(properties.get("keycolumns"))
    if upsert and not keys:
        raise invalid_metadata("isUpsertDefaultRowMarker needs keyColumns (F-12).")
    return TableMetadata(keys, upsert, read_text_format(properties), strategy.casefold() == _BY_TIME)


def _keys(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(key, str) and key for key in value):
        raise invalid_metadata(f"keyColumns is {value!r}, not a list of column names.")
    if len(set(value)) != len(value):
        raise invalid_metadata(f"keyColumns names a column twice: {value!r}.")
    return tuple(value)
