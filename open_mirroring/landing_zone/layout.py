"""The layout of a landing zone: names of folders and files, and the content of the small JSON files.

No other module builds names of files or folders in a landing zone. Rules (public source: Microsoft Learn, *Open
mirroring landing zone requirements and format* and *Open mirroring best practices*; ids as in ``docs/rules``): F-02,
F-03 folders, F-05 underscore names, F-10 to F-16 metadata, F-30 compressions, F-31 numbers, F-36 processed folders,
F-50 to F-54 row markers.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Literal

from open_mirroring.errors import TerminalError


class RowMarker(IntEnum):
    """The value of the column ``__rowMarker__``, which states what Fabric does with a row.

    In tables with a key only ``UPSERT`` and ``DELETE`` are written. For ``INSERT`` Fabric does not look for an
    existing key, so a row that is applied twice would be duplicated (F-51).
    """

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    UPSERT = 4


ROW_MARKER = "__rowMarker__"
Compression = Literal["zstd", "snappy", "gzip", "none"]
"""Compressions that the target can read (F-30)."""
DEFAULT_COMPRESSION: Compression = "zstd"
METADATA_FILE = "_metadata.json"
PARTNER_EVENTS_FILE = "_partnerEvents.json"
PARTNER_NAME = "open_mirroring"
"""The default publisher name: the same for all mirrored databases (F-06)."""
INCARNATION_FILE = "_incarnation.json"
PUBLISHER_FOLDER = "_publisher"
"""Where the zone has its fencing token: an empty object that a ledger renames before it publishes (F-33)."""
DEFAULT_SCHEMA = "dbo"
"""The schema of a table whose folder names none (F-03)."""
SCRATCH_FOLDER = "_scratchPad"
"""Reserved for staging; never a table (F-05)."""
PROCESSED_FOLDER = "_ProcessedFiles"
READY_TO_DELETE_FOLDER = "_FilesReadyToDelete"
PROCESSED_FOLDERS = (PROCESSED_FOLDER, READY_TO_DELETE_FOLDER)
"""Where the service moves applied files (F-36), in the order in which a file moves."""

PARQUET = "parquet"
"""The extension of data files that are not delimited text (F-21)."""
_NUMBERED = re.compile(r"([0-9]{20})\.([A-Za-z0-9]+)")
_DEVICE_NAMES = {"con", "prn", "aux", "nul", *(f"com{n}" for n in range(1, 10)), *(f"lpt{n}" for n in range(1, 10))}
_MAX_NAME = 128


def file_name(number: int, extension: str = PARQUET) -> str:
    """The name of a numbered data file: ``1`` → ``00000000000000000001.parquet`` (F-31)."""
    if not 1 <= number < 10**20:
        raise TerminalError("CONFIG_INVALID", f"{number} is not a file number", next_step="numbers run from 1")
    return f"{number:020d}.{extension}"


def file_number(name: str, extension: str = PARQUET) -> int | None:
    """Return the number in the name of a data file; None for another form of name or another extension."""
    match = _NUMBERED.fullmatch(name)
    return int(match[1]) if match and match[2] == extension and int(match[1]) > 0 else None


def processed_paths(folder: str, processed: str, name: str) -> tuple[str, str]:
    """Return the two paths where an applied file may be: in the table's processed folder, or in the zone's (F-36)."""
    return f"{folder}/{processed}/{name}", f"{processed}/{folder}/{name}"


def places_of(folder: str, name: str) -> list[str]:
    """Return all paths at which a data file of a table may be, in the order in which Fabric moves the file (F-36)."""
    moved = (path for processed in PROCESSED_FOLDERS for path in processed_paths(folder, processed, name))
    return [f"{folder}/{name}", *moved]


def folders_of(folder: str) -> list[str]:
    """Return the folders with files of a table: its own, and its folders in the zone's processed folders (F-36)."""
    return [folder, *(f"{processed}/{folder}" for processed in PROCESSED_FOLDERS)]


def table_folder(schema: str | None, table: str) -> str:
    """Return the table's folder below the zone: ``<schema>.schema/<table>``, or just ``<table>`` (F-02, F-03).

    The folder is just ``<table>`` if *schema* is None.

    Raises:
        TerminalError: ``CONFIG_INVALID`` when schema or table is not safe as a folder name.
    """
    check_name(table)
    if schema is None:
        return table
    check_name(schema)
    return f"{schema}.schema/{table}"


def split_table_folder(folder: str) -> tuple[str | None, str]:
    """Split a table's folder into schema and table; the schema is None if the folder contains no schema (F-03)."""
    schema, _, table = folder.rpartition("/")
    return schema.removesuffix(".schema") or None, table


def staging_folder(folder: str, generation: int) -> str:
    """Return the folder for the table's files that are not published yet.

    The staging folder is inside the table's folder, so that a reset deletes both. Each reset begins a new generation,
    and each generation has its own staging folder.
    """
    return f"{folder}/_stage-{generation}"


def check_name(name: str) -> None:
    """Refuse a name that could leave its folder, is hidden, or that some stores would confuse with another name.

    Raises:
        TerminalError: ``CONFIG_INVALID`` with the reason, when the name is refused.
    """
    reason = _why_unsafe(name)
    if reason:
        raise TerminalError(
            "CONFIG_INVALID",
            f"the name {name!r} {reason}",
            next_step="choose another `target` for this table; the source may keep its name",
        )


def _why_unsafe(name: str) -> str | None:
    if not name:
        return "is empty"
    if len(name) > _MAX_NAME:
        return f"is longer than {_MAX_NAME} characters"
    if unicodedata.normalize("NFC", name) != name:
        return "is not in Unicode normal form C"
    # Letters of any script, digits and a few harmless signs. Anything else (separators, control and bidirectional
    # characters, quotes, wildcards) has a meaning in some path, URL or SQL.
    bad = [c for c in name if not (c.isalnum() or c in "_- $#@." or unicodedata.category(c) in ("Mn", "Mc"))]
    if bad:
        return f"contains {bad[0]!r}"
    if name.startswith("_"):
        return "starts with an underscore: the service ignores it"
    if name[0] in " ." or name[-1] in " .":
        return "starts or ends with a dot or a blank"
    if name.casefold().endswith(".schema"):
        return "ends with '.schema', which marks a schema folder"
    if name.casefold().split(".")[0] in _DEVICE_NAMES:
        return "is a device name"
    return None


def name_identity(name: str) -> str:
    """Normalize a name: names that a storage would confuse, by case or Unicode form, get the same result (F-02)."""
    return unicodedata.normalize("NFKC", name).casefold()


def metadata_document(key_columns: Sequence[str], properties: Mapping[str, object] | None = None) -> bytes:
    """Return the content of a table's ``_metadata.json`` (F-11, F-12).

    A table without key columns accepts inserts only. *properties* describe delimited text (F-20 to F-24); Parquet
    needs none (F-17). ``fileDetectionStrategy`` has its default value (F-14), and is written so that a reader of the
    file sees the value.
    """
    document: dict[str, object] = {}
    if key_columns:
        document["keyColumns"] = list(key_columns)
    document["fileDetectionStrategy"] = "SequentialFileName"
    document |= properties or {}
    return json.dumps(document, ensure_ascii=False, indent=2).encode()


def key_columns_of(document: bytes) -> tuple[str, ...]:
    """Return the key columns in the content of a ``_metadata.json``.

    The case of the property's name does not matter (F-11).

    Raises:
        TerminalError: ``METADATA_CHANGED`` when the content is not a JSON object, or its key columns are not a list of
            names.
    """
    try:
        content = json.loads(document)
        keys: object = next((v for k, v in content.items() if k.casefold() == "keycolumns"), [])
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise ValueError("keyColumns is not a list of names")
    except (ValueError, AttributeError) as error:
        raise TerminalError(
            "METADATA_CHANGED",
            f"{METADATA_FILE} cannot be read: {error}",
            next_step="restore the file that this table was created with, or reset the table",
        ) from error
    return tuple(keys)


def describes(document: bytes, key_columns: Sequence[str], properties: Mapping[str, object] | None) -> bool:
    """Whether a ``_metadata.json`` has these key columns and these properties of delimited text (F-13, F-23)."""
    try:
        if key_columns_of(document) != tuple(key_columns):
            return False
    except TerminalError:
        return False
    return properties is None or json.loads(document) == json.loads(metadata_document(key_columns, properties))


def partner_events_document(
    partner: str, source_type: str, source_version: str | None, information: Mapping[str, str]
) -> bytes:
    """Return the content of ``_partnerEvents.json`` at a zone's root, which names publisher and source (F-06)."""
    version = {} if source_version is None else {"sourceVersion": source_version}
    source = {"sourceType": source_type, **version, "additionalInformation": dict(information)}
    return json.dumps({"partnerName": partner, "sourceInfo": source}, ensure_ascii=False, indent=2).encode()


def incarnation_document(incarnation: str, mirror: str = "") -> bytes:
    """Return the content of ``_incarnation.json``: the id of a table's folder (I12), and its owning mirror (G-175).

    A folder that was re-created has no such marker file, or a marker file with another id.
    """
    return json.dumps({"incarnation": incarnation, **({"mirror": mirror} if mirror else {})}).encode()


def incarnation_of(document: bytes) -> tuple[str | None, str]:
    """Parse the content of a marker file: the id (None if unreadable), and the mirror (empty if unknown)."""
    try:
        found = json.loads(document)
        incarnation, mirror = found["incarnation"], found.get("mirror", "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, ""
    return incarnation if isinstance(incarnation, str) else None, mirror if isinstance(mirror, str) else ""
