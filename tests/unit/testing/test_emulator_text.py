"""The emulator reads delimited text as its metadata describe it, and nothing else (F-17, F-20 to F-25, F-90)."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.testing.emulator_zone import MARKER, Row, Zone, error_of, items, put, recreate

COLUMNS = [{"Name": "id", "DataType": "Int32", "IsNullable": False}, {"Name": "name", "DataType": "String"}]
TSV: dict[str, Any] = {
    "SchemaDefinition": {"Columns": COLUMNS},
    "FileFormat": "DelimitedText",
    "FileExtension": "tsv",
    "FileFormatTypeProperties": {
        "FirstRowAsHeader": True,
        "RowSeparator": "\n",
        "ColumnSeparator": "\t",
        "QuoteCharacter": "'",
        "EscapeCharacter": "\\",
        "NullValue": "N/A",
        "Encoding": "UTF-8",
    },
}
HEADER = f"id\tname\t{MARKER}\n"


def form(**typed: Any) -> dict[str, Any]:
    """The metadata of the tests with other ``FileFormatTypeProperties``; None takes one out."""
    properties = {**TSV["FileFormatTypeProperties"], **typed}
    return {**TSV, "FileFormatTypeProperties": {k: v for k, v in properties.items() if v is not None}}


def columns(*pairs: tuple[str, str]) -> dict[str, Any]:
    listed = [{"Name": name, "DataType": kind} for name, kind in pairs]
    return {**TSV, "SchemaDefinition": {"Columns": listed}}


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    return Zone(tmp_path)


def _text(folder: Path, number: int, text: str | bytes, extension: str = "tsv") -> Path:
    return put(folder, number, text.encode() if isinstance(text, str) else text, extension=extension)


def _rewrite(folder: Path, document: dict[str, Any]) -> None:
    (folder / "_metadata.json").write_text(json.dumps({"keyColumns": ["id"], **document}))


def test_a_table_of_text_goes_the_way_of_every_table(zone: Zone) -> None:
    """F-21, F-30, F-31, F-34 to F-36: numbers, markers, order, moving away; Parquet under its numbers is no data."""
    folder = zone.folder(**TSV)
    _text(folder, 1, "id\tname\n1\t'one'\n2\ttwo\n")
    _text(folder, 2, HEADER + "1\tN/A\t2\n3\tthree\t4\n")
    _text(folder, 3, HEADER + "2\tzwei\t4\n")
    put(folder, 4, items([(4, 9, "x")]))
    service = zone.service()
    assert [(done.number, done.rows) for done in service.poll()] == [(1, 2), (2, 2), (3, 1)]
    assert zone.rows() == [(2, "zwei"), (3, "three")]
    assert sorted(path.name for path in folder.glob("0*")) == [f"{3:020d}.tsv", f"{4:020d}.parquet"]
    assert len(list((folder / "_FilesReadyToDelete").glob("*.tsv"))) == 2
    assert zone.service().poll() == []
    assert error_of(service) is None


def test_parquet_needs_no_column_types_and_no_format(zone: Zone) -> None:
    """F-17: keys are all that its metadata say."""
    folder = zone.folder()
    put(folder, 1, items([(4, 1, "x")]))
    _text(folder, 2, HEADER + "2\ty\t4\n")
    service = zone.service()
    assert [done.number for done in service.poll()] == [1]
    assert error_of(service) is None


def test_defaults_are_those_of_csv(zone: Zone) -> None:
    """F-21, F-22: without FileFormat, a comma, CR LF, double quotes, a backslash before a quote, UTF-8, empty NULL.

    In quotes or not: the service decides NULL by the text alone.
    """
    document = {
        "SchemaDefinition": {"Columns": COLUMNS},
        "FileExtension": "csv",
        "FileFormatTypeProperties": {"FirstRowAsHeader": True},
    }
    folder = zone.folder(**document)
    _text(
        folder, 1, f'id,name,{MARKER}\r\n1,"a \\"b\\", \r\né \\\\ \\n",4\r\n2,,4\r\n3,"",4\r\n4,plain \\ text,4', "csv"
    )
    zone.service().poll()
    assert zone.rows() == [(1, 'a "b", \r\né \\ \\n'), (2, None), (3, None), (4, "plain \\ text")]


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        pytest.param({"RowSeparator": "\r"}, "id\tname\r1\t'x\ty'\r2\tN/A\r", id="carriage return"),
        pytest.param({"RowSeparator": "\r\n"}, "id\tname\r\n1\t'x\ty'\r\n2\tN/A\r\n", id="CR LF"),
        pytest.param({"ColumnSeparator": ";"}, "id;name\n1;x\ty\n2;N/A\n", id="semicolon"),
        pytest.param({"ColumnSeparator": "|"}, "id|name\n1|x\ty\n2|N/A\n", id="bar"),
        pytest.param({"QuoteCharacter": '"'}, 'id\tname\n1\t"x\ty"\n2\tN/A\n', id="double quotes"),
        pytest.param({"QuoteCharacter": "", "ColumnSeparator": ","}, "id,name\n1,x\ty\n2,N/A\n", id="no quotes"),
        pytest.param({"NullValue": "null"}, "id\tname\n1\t'x\ty'\n2\tnull\n", id="another NULL"),
        pytest.param({"Encoding": "utf-16"}, "id\tname\n1\t'x\ty'\n2\tN/A\n", id="utf-16"),
        pytest.param({"Encoding": "windows-1252"}, "id\tname\n1\t'x\ty'\n2\tN/A\n", id="windows-1252"),
        pytest.param({}, "\ufeffid\tname\n1\t'x\ty'\n2\tN/A", id="byte order mark, no end of line at the end"),
    ],
)
def test_every_documented_property_is_followed(zone: Zone, typed: dict[str, Any], text: str) -> None:
    """F-22."""
    folder = zone.folder(**form(**typed))
    _text(folder, 1, text.encode(typed.get("Encoding", "utf-8")))
    service = zone.service()
    service.poll()
    assert error_of(service) is None
    assert zone.rows() == [(1, "x\ty"), (2, None)]


@pytest.mark.parametrize(
    ("escape", "written", "read"),
    [
        ("\\", r"'it\'s \\ \n'", "it's \\ \\n"),
        ("/", r"'it/'s \ //'", "it's \\ /"),
        ('"', "'it\"'s'", "it's"),
        ("", "'it s'", "it s"),
    ],
)
def test_quotes_inside_quotes_are_escaped(zone: Zone, escape: str, written: str, read: str) -> None:
    """F-22: the escape character says how."""
    folder = zone.folder(**form(EscapeCharacter=escape))
    _text(folder, 1, f"id\tname\n1\t{written}\n")
    zone.service().poll()
    assert zone.rows() == [(1, read)]


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8), min_size=1, max_size=4))
def test_what_another_writer_of_csv_quotes_is_read_back(values: list[str]) -> None:
    """F-22: doubled quotes, separators and line ends inside values, written by the standard library."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerows([["id", "name"], *enumerate(values)])
    typed = {"RowSeparator": "\r\n", "ColumnSeparator": ",", "QuoteCharacter": '"', "EscapeCharacter": '"'}
    with TemporaryDirectory() as root:
        zone = Zone(Path(root))
        _text(zone.folder(**form(**typed)), 1, buffer.getvalue())
        zone.service().poll()
        assert zone.rows() == sorted(((at, value) for at, value in enumerate(values)), key=repr)


_TYPED: Sequence[tuple[str, str, Any, list[str]]] = [
    ("Double", "-1.5e3", -1500.0, ["1,5", "nan", "1e999", " 1", ""]),
    ("Single", "0.5", 0.5, ["1e39", "half"]),
    ("Int16", "-32768", -32768, ["32768", "1.0", "0x10"]),
    ("Int32", "2147483647", 2147483647, ["2147483648", "1_000"]),
    ("Int64", "-9223372036854775808", -(2**63), ["9223372036854775808", "one"]),
    ("DateTime", "2025-06-17 14:30:00", datetime(2025, 6, 17, 14, 30, tzinfo=UTC), ["2025-06-17", "17.06.2025 14:30"]),
    ("IDate", "2025-06-17", date(2025, 6, 17), ["2025-06-17 14:30:00", "2025-02-30"]),
    ("ITime", "14:30:00", "14:30:00", ["25:00:00", "2025-06-17 14:30:00"]),
    ("String", "N / A", "N / A", []),
    ("Boolean", "true", True, ["1", "yes"]),
    ("ByteArray", base64.b64encode(b"\0\xff").decode(), b"\0\xff", ["0x00FF", "é"]),
]


@pytest.mark.parametrize(("kind", "text", "value", "wrong"), _TYPED, ids=[kind for kind, *_ in _TYPED])
def test_each_documented_type_takes_its_values_only(
    zone: Zone, kind: str, text: str, value: Any, wrong: list[str]
) -> None:
    """F-24; how bytes and times are spelled is assumed."""
    folder = zone.folder(**columns(("id", "Int32"), ("v", kind)))
    _text(folder, 1, f"id\tv\n1\t{text}\n2\tN/A\n")
    service = zone.service()
    service.poll()
    assert zone.rows() == [(1, value), (2, None)]
    for bad in wrong:
        _text(folder, 2, f"id\tv\n3\t{bad}\n")
        assert service.poll() == []
        assert error_of(service) == "InvalidTextFile", bad


@pytest.mark.parametrize("kind", ["Decimal", "decimal(10,2)", "int32", "Timestamp", None])
def test_other_types_are_none(zone: Zone, kind: str | None) -> None:
    """F-24: there is no decimal among them."""
    folder = zone.folder(**columns(("id", "Int32"), ("v", kind)))  # type: ignore[arg-type]
    _text(folder, 1, "id\tv\n1\t1\n")
    service = zone.service()
    assert service.poll() == []
    assert error_of(service) == "InvalidMetadata"


_BAD_METADATA = {
    "F-20 no header row": form(FirstRowAsHeader=False),
    "F-20 header row not said": form(FirstRowAsHeader=None),
    "F-21 no extension": {name: value for name, value in TSV.items() if name != "FileExtension"},
    "F-21 no extension of text": {**TSV, "FileExtension": "parquet"},
    "F-21 another extension is no CSV": {**TSV, "FileFormat": "CSV"},
    "F-21 the same by default": {name: value for name, value in TSV.items() if name != "FileFormat"},
    "F-21 another format": {**TSV, "FileFormat": "Json"},
    "F-22 column separator": form(ColumnSeparator=":"),
    "F-22 row separator": form(RowSeparator="\n\n"),
    "F-22 quote": form(QuoteCharacter="`"),
    "F-22 escape": form(EscapeCharacter="^"),
    "F-22 encoding": form(Encoding="klingon"),
    "F-22 no encoding of text": form(Encoding="hex"),
    "F-22 NULL": form(NullValue=0),
    "F-23 no columns": {**TSV, "SchemaDefinition": {}},
    "F-23 a column without name": {**TSV, "SchemaDefinition": {"Columns": [{"DataType": "Int32"}]}},
    "F-23 two columns of one name": columns(("id", "Int32"), ("ID", "Int32")),
}


@pytest.mark.parametrize("document", _BAD_METADATA.values(), ids=_BAD_METADATA)
def test_metadata_of_text_must_be_complete_and_documented(zone: Zone, document: dict[str, Any]) -> None:
    """F-20 to F-23: mended metadata heal the table."""
    folder = zone.folder(**document)
    _text(folder, 1, HEADER + "1\tx\t4\n")
    service = zone.service()
    assert service.poll() == []
    assert error_of(service) == "InvalidMetadata"
    _rewrite(folder, TSV)
    assert len(service.poll()) == 1


_BAD_FILES = {
    "F-20 no header": "1\tx\t4\n",
    "zero bytes": "",
    "only a byte order mark": "\ufeff",
    "a column that is not declared": f"id\tname\tmore\t{MARKER}\n1\tx\ty\t4\n",
    "a column that is missing": f"id\t{MARKER}\n1\t4\n",
    "another order": f"name\tid\t{MARKER}\nx\t1\t4\n",
    "a column twice": f"id\tid\tname\t{MARKER}\n1\t1\tx\t4\n",
    "too short a row": HEADER + "1\tx\n",
    "an empty line": HEADER + "1\tx\t4\n\n2\ty\t4\n",
    "an open quote": HEADER + "1\t'x\t4\n",
    "text behind a quote": HEADER + "1\t'x'y\t4\n",
    "a bare quote": HEADER + "1\tO'Brien\t4\n",
    "another row separator": HEADER.replace("\n", "\r\n") + "1\tx\t4\r\n",
    "another encoding": (HEADER + "1\té\t4\n").encode("latin-1"),
    "compressed": b"\x1f\x8b\x08\x00",
    "NULL where none may be": HEADER + "N/A\tx\t4\n",
}


@pytest.mark.parametrize("content", _BAD_FILES.values(), ids=_BAD_FILES)
def test_a_file_that_is_not_as_described_latches_its_table(zone: Zone, content: str | bytes) -> None:
    """F-20, F-22, F-23, F-38, F-40: nothing of it is applied, and a valid file under its name heals."""
    folder = zone.folder(**TSV)
    _text(folder, 1, content)
    service = zone.service()
    assert service.poll() == []
    assert error_of(service) == "InvalidTextFile"
    assert not zone.exists()
    _text(folder, 1, HEADER + "1\tx\t4\n")
    assert len(service.poll()) == 1


@pytest.mark.parametrize(
    "rows", [HEADER + "1\tx\tN/A\n", HEADER + "1\tx\t3\n", f"{MARKER}\tid\tname\n4\t1\tx\n", "id\tname\n1\tx\n"]
)
def test_a_marker_of_text_is_as_strict_as_any_and_stays_f25(zone: Zone, rows: str) -> None:
    """F-25, F-50: null, unknown, not the last column, or dropped after it was there."""
    folder = zone.folder(**TSV)
    _text(folder, 1, HEADER + "2\ty\t4\n")
    _text(folder, 2, rows)
    service = zone.service()
    assert [done.number for done in service.poll()] == [1]
    assert error_of(service) == "InvalidRowMarker"
    assert zone.rows() == [(2, "y")]


_CHANGED: dict[str, tuple[dict[str, Any], Row, str]] = {
    "added": (columns(("id", "Int32"), ("name", "String"), ("m", "String")), (2, "y", "z"), "id\tname\tm\n2\ty\tz\n"),
    "dropped": (columns(("id", "Int32")), (2,), "id\n2\n"),
    "retyped": (columns(("id", "Int64"), ("name", "String")), (2, "y"), "id\tname\n2\ty\n"),
    "renamed": (columns(("id", "Int32"), ("title", "String")), (2, "y"), "id\ttitle\n2\ty\n"),
    "moved": (columns(("name", "String"), ("id", "Int32")), ("y", 2), "name\tid\ny\t2\n"),
}  # fmt: skip


@pytest.mark.parametrize(("document", "row", "text"), _CHANGED.values(), ids=_CHANGED)
def test_columns_of_text_never_change(zone: Zone, document: dict[str, Any], row: Row, text: str) -> None:
    """F-23, F-90: what Parquet may do, text may not; a recreated folder has the new columns."""
    folder = zone.folder(**TSV)
    _text(folder, 1, "id\tname\n1\tx\n")
    service = zone.service()
    service.poll()
    _rewrite(folder, document)
    _text(folder, 2, text)
    assert service.poll() == []
    assert error_of(service) == "SchemaMergeFailure"
    assert zone.rows() == [(1, "x")]
    _text(recreate(zone, folder, **document), 1, text)
    assert len(service.poll()) == 1
    assert zone.rows() == [row]


def test_keys_may_be_added_to_a_table_of_text(zone: Zone) -> None:
    """F-13: keyColumns are no part of what F-90 keeps as it is."""
    folder = zone.folder(keys=None, **columns(("id", "Int32"), ("name", "String")))
    _text(folder, 1, "id\tname\n1\tx\n")
    service = zone.service()
    service.poll()
    _rewrite(folder, columns(("id", "Int32"), ("name", "String")))
    _text(folder, 2, HEADER + "1\ty\t4\n")
    service.poll()
    assert error_of(service) is None
    assert zone.rows() == [(1, "y")]
