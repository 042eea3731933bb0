"""The format of a table's delimited text, as its ``_metadata.json`` gives it (F-20 to F-24).

Source: Microsoft Learn, landing zone format. Three things are undocumented and assumed: only the documented values are
allowed; without ``FileFormat``, any property of delimited text makes it a table of text; the columns may list the
marker or not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from fabric_emulator.failures import invalid_metadata
from open_mirroring.landing_zone.layout import ROW_MARKER

DATA_TYPES: Mapping[str, pa.DataType] = {
    "Double": pa.float64(),
    "Single": pa.float32(),
    "Int16": pa.int16(),
    "Int32": pa.int32(),
    "Int64": pa.int64(),
    "DateTime": pa.timestamp("us", tz="UTC"),
    "IDate": pa.date32(),
    # A Delta table has no time of day, so it stays text (assumed).
    "ITime": pa.string(),
    "String": pa.string(),
    "Boolean": pa.bool_(),
    "ByteArray": pa.binary(),
}
"""The documented data types (F-24), and their types in the mirrored table."""

_TELLING = ("schemadefinition", "fileformattypeproperties", "fileextension")
_EXTENSION = re.compile(r"\.?([A-Za-z0-9]{1,16})")


class TextColumn(NamedTuple):
    """A column of the ``SchemaDefinition``; *data_type* is a name of :data:`DATA_TYPES`."""

    name: str
    data_type: str
    nullable: bool


class TextFormat(NamedTuple):
    """The properties that are needed to read a file.

    *extension* has no dot; *quote* and *escape* may be empty; *null* is the text of NULL.
    """

    extension: str
    columns: tuple[TextColumn, ...]
    row_separator: str
    column_separator: str
    quote: str
    escape: str
    null: str
    encoding: str


def read_text_format(properties: Mapping[str, Any]) -> TextFormat | None:
    """The text format in a table's metadata; None for Parquet files.

    Raises:
        TableFailure: ``InvalidMetadata`` when a property is missing or has an undocumented value.
    """
    file_format = properties.get("fileformat")
    if file_format is None:
        if not any(name in properties for name in _TELLING):
            return None
        file_format = "CSV"
    if file_format == "Parquet":
        return None
    if file_format not in ("CSV", "DelimitedText"):
        raise invalid_metadata(f"FileFormat is {file_format!r}, neither CSV nor DelimitedText (F-21).")
    extension = properties.get("fileextension")
    match = _EXTENSION.fullmatch(extension) if isinstance(extension, str) else None
    if match is None or match[1] == "parquet":
        raise invalid_metadata(f"FileExtension is {extension!r}; delimited text needs one such as 'tsv' (F-21).")
    if file_format == "CSV" and match[1] != "csv":
        raise invalid_metadata(f"FileExtension is {extension!r}: FileFormat has to be DelimitedText then (F-21).")
    typed = _names_folded(properties.get("fileformattypeproperties"), "FileFormatTypeProperties")
    if typed.get("firstrowasheader") is not True:
        raise invalid_metadata("FirstRowAsHeader has to be true (F-20).")
    return TextFormat(
        extension=match[1],
        columns=_columns(properties.get("schemadefinition")),
        row_separator=_chosen(typed, "RowSeparator", "\r\n", ("\r\n", "\n", "\r")),
        column_separator=_chosen(typed, "ColumnSeparator", ",", (",", ";", "|", "\t")),
        quote=_chosen(typed, "QuoteCharacter", '"', ('"', "'", "")),
        escape=_chosen(typed, "EscapeCharacter", "\\", ("\\", "/", '"', "")),
        # The default is undocumented (assumed: an empty field).
        null=_chosen(typed, "NullValue", ""),
        encoding=_encoding(_chosen(typed, "Encoding", "UTF-8")),
    )


def _columns(definition: Any) -> tuple[TextColumn, ...]:
    listed = _names_folded(definition, "SchemaDefinition").get("columns")
    if not isinstance(listed, list) or not listed:
        raise invalid_metadata("SchemaDefinition has no Columns (F-23).")
    columns: list[TextColumn] = []
    for entry in listed:
        properties = _names_folded(entry, "a column of SchemaDefinition")
        name, data_type = properties.get("name"), properties.get("datatype")
        nullable = properties.get("isnullable", True)
        if not isinstance(name, str) or not name or not isinstance(nullable, bool):
            raise invalid_metadata(f"{entry!r} is no column: Name, DataType, IsNullable (F-23).")
        if name == ROW_MARKER:
            continue
        if not isinstance(data_type, str) or data_type not in DATA_TYPES:
            raise invalid_metadata(f"column {name!r} has the DataType {data_type!r}, not one of the documented (F-24).")
        columns.append(TextColumn(name, data_type, nullable))
    folded = {column.name.casefold() for column in columns}
    if len(folded) != len(columns):
        raise invalid_metadata("SchemaDefinition has columns that differ in case at most.")
    return tuple(columns)


def _chosen(properties: Mapping[str, Any], name: str, default: str, allowed: Collection[str] | None = None) -> str:
    value = properties.get(name.casefold(), default)
    if not isinstance(value, str) or (allowed is not None and value not in allowed):
        raise invalid_metadata(f"{name} is {value!r}, none of the documented values (F-22).")
    return value


def _encoding(name: str) -> str:
    try:
        " ".encode(name)
    except LookupError as error:
        raise invalid_metadata(f"Encoding is {name!r}, which is none (F-22).") from error
    return name


def _names_folded(document: Any, what: str) -> dict[str, Any]:
    # Official examples use both spellings of property names (F-11).
    if not isinstance(document, dict):
        raise invalid_metadata(f"{what} is {document!r}, no JSON object.")
    return {name.casefold(): value for name, value in document.items()}
