"""Whatever is written as delimited text is read back as it was, by a reader that knows the metadata only."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_emulator.delimited_text import read_delimited_text
from fabric_emulator.text_format import read_text_format
from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.arrow_schema import file_schema
from open_mirroring.landing_zone.delimited_text import bytes_digest, write_text_file
from open_mirroring.landing_zone.layout import ROW_MARKER, describes, metadata_document
from open_mirroring.landing_zone.schema import LandingColumn
from open_mirroring.landing_zone.text_format import NULL_TEXT, TextFormat

_LARGEST = 3.4028234663852886e38
_TEXTS = st.text(alphabet=st.one_of(st.characters(codec="utf-8"), st.sampled_from(",;|\t\r\n\"'\\N/Aul")))
VALUES: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "id": ("bool", st.booleans()),
    'a "b"': ("int16", st.integers(-(2**15), 2**15 - 1)),
    "c,d;|": ("int32", st.integers(-(2**31), 2**31 - 1)),
    "tab\t": ("int64", st.integers(-(2**63), 2**63 - 1)),
    "line\r\n": ("float32", st.floats(-_LARGEST, _LARGEST, width=32)),
    "N/A": ("float64", st.floats(allow_nan=False, allow_infinity=False)),
    "null": ("string", _TEXTS),
    "größe": ("binary", st.binary()),
    "x.y": ("date", st.dates(min_value=date(1, 1, 1))),
    " ": ("timestamp", st.datetimes(min_value=datetime(1, 1, 1), timezones=st.just(UTC))),
}
COLUMNS = tuple((name, kind) for name, (kind, _) in VALUES.items())
FORMATS = st.builds(
    TextFormat,
    st.sampled_from(["csv", "tsv"]),
    st.sampled_from([",", ";", "|", "\t"]),
    st.sampled_from(["\r\n", "\n", "\r"]),
    st.sampled_from(["", "N/A", "null", NULL_TEXT]),
    st.just(COLUMNS),
)
ROW = st.tuples(*(values if name == "id" else st.none() | values for name, (_, values) in VALUES.items()))
SCHEMA = file_schema([LandingColumn(*column) for column in COLUMNS], ["id"], marker=True)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(text=FORMATS, lines=st.lists(st.tuples(ROW, st.sampled_from([2, 4])), max_size=5))
def test_text_is_read_back_as_it_was(text: TextFormat, lines: list[tuple[tuple[Any, ...], int]]) -> None:
    """F-20 to F-25: NULL apart from every value, separators and line ends in values.

    A value that is the text of NULL is refused, for the service would read it as NULL (F-22).
    """
    columns = [*zip(*((*row, marker) for row, marker in lines), strict=True)] or [()] * len(SCHEMA)
    rows = pa.table([pa.array(list(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "1"
        if any(_spelled(value) == text.null for row, _ in lines for value in row):
            with pytest.raises(TerminalError, match="stands for NULL"):
                write_text_file(path, rows, SCHEMA, text)
            return
        written = write_text_file(path, rows, SCHEMA, text)
        content = path.read_bytes()
        assert written == (len(lines), len(content), bytes_digest(path))
    document = json.loads(metadata_document(["id"], text.properties(["id"])))
    described = read_text_format({name.casefold(): value for name, value in document.items()})
    assert described is not None and described.extension == text.extension
    found = read_delimited_text(content, "1", described)
    assert found.column_names[-1] == ROW_MARKER
    assert found.to_pylist() == rows.to_pylist()


def _spelled(value: Any) -> str | None:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def test_the_metadata_are_those_of_the_documentation() -> None:
    """F-17, F-21, F-22, F-23, F-24: types, format, spelling; without them a table of text cannot be read."""
    text = TextFormat("tsv", "\t", "\n", "N/A", (("id", "int32"), ("at", "timestamp")))
    document = metadata_document(["id"], text.properties(["id"]))
    assert json.loads(document) == {
        "keyColumns": ["id"],
        "fileDetectionStrategy": "SequentialFileName",
        "SchemaDefinition": {
            "Columns": [
                {"Name": "id", "DataType": "Int32", "IsNullable": False},
                {"Name": "at", "DataType": "DateTime", "IsNullable": True},
            ]
        },
        "FileFormat": "DelimitedText",
        "FileExtension": "tsv",
        "FileFormatTypeProperties": {
            "FirstRowAsHeader": True, "RowSeparator": "\n", "ColumnSeparator": "\t", "QuoteCharacter": '"',
            "EscapeCharacter": '"', "NullValue": "N/A", "Encoding": "UTF-8",
        },
    }  # fmt: skip
    assert TextFormat("csv", ",", "\n", "", text.columns).properties([])["FileFormat"] == "CSV"
    assert TextFormat.from_json(text.to_json()) == text
    assert describes(document, ["id"], text.properties(["id"]))
    assert not describes(document.replace(b"N/A", b"null"), ["id"], text.properties(["id"])), "F-23: it stands"
    assert not describes(document, ["at"], text.properties(["at"]))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_what_text_cannot_hold_is_refused(tmp_path: Path, value: float | None) -> None:
    """F-24, I26: never a text that a reader would take for something else, nor a key that is NULL."""
    schema = file_schema([LandingColumn("id", "float64")], ["id"], marker=True)
    text = TextFormat("csv", ",", "\n", "", (("id", "float64"),))
    rows = pa.table([pa.array([value], pa.float64()), pa.array([4], pa.int32())], names=schema.names)
    with pytest.raises(TerminalError, match="FILE_UNFIT"):
        write_text_file(tmp_path / "1", rows, schema, text)
