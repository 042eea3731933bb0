"""Writes data files of delimited text (F-20, F-22, F-24, F-25).

Only strings and Base64 values are quoted. Fabric reads a field as NULL if its text, quoted or not, equals the
configured text for NULL, so no value may equal this text. Timestamps are UTC without a zone. Binary values are written
as Base64, because Fabric documents no form for binary values. The digest of a text file is computed from the file's
bytes.
"""

from __future__ import annotations

import base64
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.landing_zone.data_file import WrittenFile, fitted, invalid_file
from open_mirroring.landing_zone.text_format import QUOTE, TextFormat

_ROWS_AT_ONCE = 65_536


def write_text_file(path: Path, rows: pa.Table, schema: pa.Schema, text: TextFormat) -> WrittenFile:
    """Write one text file: a header line, then the rows, with the row marker as last column (F-25).

    An existing file is replaced. Raises ``FILE_UNFIT`` for rows that do not match the schema, for NaN or an infinity,
    and for a value that equals the configured text for NULL.
    """
    names = [_quoted(pa.array([name])).to_pylist()[0] for name in schema.names]
    with path.open("wb") as file:
        file.write((text.column_separator.join(names) + text.row_separator).encode())
        for batch in fitted(rows, schema, path).to_batches(_ROWS_AT_ONCE):
            if batch.num_rows:
                cells = [_spelled(column, text.null, path) for column in batch.columns]
                lines = pc.binary_join_element_wise(*cells, text.column_separator)
                for line in lines.to_pylist():
                    file.write((line + text.row_separator).encode())
    return WrittenFile(rows.num_rows, path.stat().st_size, bytes_digest(path))


def bytes_digest(path: Path) -> str:
    """Return the digest of a file's bytes as 32 hex digits."""
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def reads_as_null(column: pa.Array, null: str) -> pa.Array:
    """Return a boolean array that is true where a value equals *null*, so that Fabric would read the value as NULL."""
    return pc.equal(_texts(column), null).fill_null(False)


def _texts(column: pa.Array) -> pa.Array:
    """The values of a column as the service reads them: the texts of the fields, without quotes."""
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_binary(kind):
        values = column.to_pylist()
        return pa.array([None if v is None else base64.b64encode(v).decode() for v in values], pa.string())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us")).cast(pa.string())
    # The shortest spelling of the largest float32 lies above its exact value, so a reader may reject it as too large.
    return (column.cast(pa.float64()) if kind == pa.float32() else column).cast(pa.string())


def _quoted(texts: pa.Array) -> pa.Array:
    inside = pc.replace_substring(texts, QUOTE, QUOTE + QUOTE)
    return pc.binary_join_element_wise(QUOTE, inside, QUOTE, "")


def _spelled(column: pa.Array, null: str, path: Path) -> pa.Array:
    kind = column.type
    if pa.types.is_floating(kind) and pc.all(pc.is_finite(column), min_count=0).as_py() is False:
        raise invalid_file(path, "text can hold no infinite number, and none that is not a number")
    texts = _texts(column)
    if pc.any(pc.equal(texts, null)).as_py():
        raise invalid_file(path, f"a value is {null!r}, which stands for NULL in this table's files")
    return (_quoted(texts) if pa.types.is_string(kind) or pa.types.is_binary(kind) else texts).fill_null(null)
