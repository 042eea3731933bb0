"""Says how a table's files of delimited text are written, and what its metadata say about it (F-20 to F-25).

Where the format allows a choice that could only lose something, the choice is fixed: UTF-8, a header line, double
quotes that are doubled inside quoted text.

Public source: Microsoft Learn, *Open mirroring landing zone requirements and format*.
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
"""The landing types that text can hold, and what the target calls them (F-24); decimals have none."""

QUOTE = '"'
NULL_TEXT = "__null__"
"""What stands for NULL unless the mirror file says otherwise: a text that hardly any value is (F-22)."""


class TextFormat(NamedTuple):
    """How a table's files of text are written; it stands for the life of its folder (F-23, F-90).

    *extension* has no dot; *null* is the text of a NULL, which no value may be; *columns* are all columns in their
    order, each with its landing type.
    """

    extension: str
    column_separator: str
    row_separator: str
    null: str
    columns: tuple[tuple[str, str], ...]

    def to_json(self) -> str:
        """The ledger's text: equal for equal formats."""
        return json.dumps(self._asdict(), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> TextFormat:
        """Read back what :meth:`to_json` wrote."""
        document = json.loads(text)
        return cls(**{**document, "columns": tuple((name, kind) for name, kind in document["columns"])})

    def properties(self, keys: Sequence[str]) -> dict[str, Any]:
        """What ``_metadata.json`` says beside the keys (F-20 to F-24); the marker is no column of the table."""
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
