"""The format of a table's delimited text files, and its description in ``_metadata.json`` (F-20 to F-25).

Three settings are fixed, because another choice could only lose data: UTF-8, a header line, and double quotes that are
doubled inside quoted text. Public source: Microsoft Learn, *Open mirroring landing zone requirements and format*.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

DATA_TYPES = {
    "bool": "Boolean",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "float32": "Single",
    "float64": "Double",
    "string": "String",
    "binary": "ByteArray",
    "date": "IDate",
    "timestamp": "DateTime",
}
"""The types that text files can have, with the target's names for them (F-24); decimals have none."""

QUOTE = '"'
NULL_TEXT = "__null__"
"""The default text for NULL, which hardly any value equals (F-22)."""


class TextFormat(NamedTuple):
    """The format of a table's text files, which cannot change as long as the table exists (F-23, F-90).

    *extension* has no dot. *null* is the text for NULL; no value may equal this text. *columns* are all columns of the
    files in order, each with its type.
    """

    extension: str
    column_separator: str
    row_separator: str
    null: str
    columns: tuple[tuple[str, str], ...]

    def to_json(self) -> str:
        """The format as JSON for the ledger; equal formats give equal strings."""
        return json.dumps(self._asdict(), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> TextFormat:
        document = json.loads(text)
        return cls(**{**document, "columns": tuple((name, kind) for name, kind in document["columns"])})

    def properties(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the properties of the format in ``_metadata.json``, except the key columns (F-20 to F-24).

        The row marker is not among the columns in these properties.
        """
        return {
            "SchemaDefinition": {
                "Columns": [
                    {"Name": name, "DataType": DATA_TYPES[kind], "IsNullable": name not in keys}
                    for name, kind in self.columns
                ]
            },
            "FileFormat": "CSV" if (self.extension, self.column_separator) == ("csv", ",") else "DelimitedText",
            "FileExtension": self.extension,
            "FileFormatTypeProperties": {
                "FirstRowAsHeader": True,
                "RowSeparator": self.row_separator,
                "ColumnSeparator": self.column_separator,
                "QuoteCharacter": QUOTE,
                "EscapeCharacter": QUOTE,
                "NullValue": self.null,
                "Encoding": "UTF-8",
            },
        }
