"""The part of a table in a mirror file that says that its files are delimited text (F-20 to F-25).

Public source: Microsoft Learn, *Open mirroring landing zone requirements and format*.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from open_mirroring.config import names
from open_mirroring.config.section import ColumnName, Section
from open_mirroring.landing_zone.layout import PARQUET
from open_mirroring.landing_zone.text_format import DATA_TYPES, TextFormat


class DelimitedText(Section):
    """Files of delimited text instead of Parquet; the columns stand for the life of the table (F-23)."""

    columns: dict[ColumnName, str] = Field(
        min_length=1,
        description="Every column in order with its landing type, as docs/types.md has it for the source: "
        f"{', '.join(DATA_TYPES)}. Text has no decimals (F-24) and takes no other column later (F-90).",
    )
    extension: str = Field(
        default="csv",
        description="Extension of the files, without the dot (F-21).",
        json_schema_extra={"pattern": "^[a-z0-9]{1,16}$"},
    )
    column_separator: Literal[",", ";", "|", "\t"] = Field(default=",", description="Between two values (F-22).")
    row_separator: Literal["\r\n", "\n", "\r"] = Field(default="\r\n", description="Behind each row (F-22).")
    null_value: Literal["", "N/A", "null"] = Field(
        default="", description="What stands for NULL, without quotes; texts are in quotes, empty ones too (F-22)."
    )

    @field_validator("columns")
    @classmethod
    def _columns(cls, columns: dict[str, str]) -> dict[str, str]:
        names.check_distinct(list(columns))
        for name, kind in columns.items():
            if kind not in DATA_TYPES:
                what = f"delimited text has no type {kind!r} for the column {name!r} (F-24)"
                way_out = f"choose from {', '.join(DATA_TYPES)}; with a decimal column leave `delimited_text` out"
                raise names.refusal("TYPE_UNSUPPORTED", what, way_out)
        return columns

    @field_validator("extension")
    @classmethod
    def _extension(cls, extension: str) -> str:
        letters = extension.isascii() and extension.isalnum() and extension == extension.lower()
        if not letters or len(extension) > 16 or extension == PARQUET:
            way_out = "up to 16 lower-case letters and digits: csv, tsv, psv"
            raise names.refusal("VALUE_INVALID", f"{extension!r} can be no extension of text files", way_out)
        return extension

    @property
    def text_format(self) -> TextFormat:
        """What the ledger keeps of it."""
        return TextFormat(
            self.extension, self.column_separator, self.row_separator, self.null_value, tuple(self.columns.items())
        )
