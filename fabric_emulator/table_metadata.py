"""What a table's ``_metadata.json`` asks for (F-10 to F-18, Microsoft Learn: landing zone format)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from fabric_emulator.failures import TableFailure, bad_file
from open_mirroring.landing_zone.layout import METADATA_FILE

_SEQUENTIAL = "sequentialfilename"


class TableMetadata(NamedTuple):
    """What the emulator needs of it.

    *keys* are the key columns, empty for a table that takes inserts only (F-12); *upsert_by_default* says what a row
    without marker is (F-15).
    """

    keys: tuple[str, ...] = ()
    upsert_by_default: bool = False


def read_metadata(folder: Path) -> TableMetadata | None:
    """Read a table folder's metadata; None when it has none.

    Raises:
        TableFailure: ``InvalidMetadata`` when it is no JSON object or a property has an impossible value,
            ``UnsupportedMetadata`` for delimited text (F-20 to F-25) and files in order of their time (F-43), which
            this emulator does not speak.
    """
    try:
        content = (folder / METADATA_FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        document = json.loads(content)
    except ValueError as error:
        raise _invalid(f"it is no JSON: {error}.") from error
    if not isinstance(document, dict):
        raise _invalid("it is no JSON object.")
    # Both spellings stand in official examples.
    properties = {name.casefold(): value for name, value in document.items()}
    strategy = properties.get("filedetectionstrategy", _SEQUENTIAL)
    if not isinstance(strategy, str) or strategy.casefold() != _SEQUENTIAL:
        raise _unsupported(f"fileDetectionStrategy is {strategy!r}")
    text_format = properties.get("fileformat")
    if text_format is not None and str(text_format).casefold() != "parquet":
        raise _unsupported(f"FileFormat is {text_format!r}")
    upsert = properties.get("isupsertdefaultrowmarker", False)
    if not isinstance(upsert, bool):
        raise _invalid(f"isUpsertDefaultRowMarker is {upsert!r}, not true or false.")
    keys = _keys(properties.get("keycolumns"))
    if upsert and not keys:
        raise _invalid("isUpsertDefaultRowMarker needs keyColumns (F-12).")
    return TableMetadata(keys, upsert)


def _keys(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(key, str) and key for key in value):
        raise _invalid(f"keyColumns is {value!r}, not a list of column names.")
    if len(set(value)) != len(value):
        raise _invalid(f"keyColumns names a column twice: {value!r}.")
    return tuple(value)


def _invalid(what: str) -> TableFailure:
    return bad_file("InvalidMetadata", f"{METADATA_FILE} cannot be used: {what}")


def _unsupported(what: str) -> TableFailure:
    return bad_file("UnsupportedMetadata", f"{METADATA_FILE}: {what}; the emulator reads numbered Parquet files only.")
