"""Ordinary CES messages, taken from blocks of lines with readers made for their columns.

The exact decoder (:mod:`spark_jobs.sources.ces`) is the definition. A message is taken only where the same reader
(msgspec), told beforehand what must stand there, proves that the exact decoder would give the same row: the envelope
by its bytes, the list of columns by a text read before, the rest by types that leave no freedom, key and position by
being said twice alike. Pieces of split events, key changes, other spellings and everything damaged are left.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.errors import TerminalError
from spark_jobs.change_log_schema import CHANGE, DELETE, HELD_SCHEMA, INSERT, UPDATE
from spark_jobs.sources.ces import CesDecoder
from spark_jobs.sources.ces_changes import bucket
from spark_jobs.sources.ces_envelope import read_data, read_event
from spark_jobs.sources.ces_heads import Heads, HeadTemplate, fixed_texts
from spark_jobs.sources.ces_rows import CUT_LENGTH, key_json
from spark_jobs.sources.decoded import Refusal
from spark_jobs.sources.line_blocks import LineBlock
from spark_jobs.sources.sql_server_type_text import read_type
from spark_jobs.sources.sql_server_types import BinaryText, key_converter

_LONGEST = CUT_LENGTH // 8
"""Longer lines are left: in none of these can a value have been cut at the source (C-50)."""
_MOST_LISTS = 1000
_SEEK_HEAD = 20
_SEPARATOR = '],"pkkey":['
_SEPARATOR_SPELLED = rb"],\"pkkey\":["
"""Ends the list of columns; a quote inside any text of the payload would be escaped once more."""
_AS_TEXT = len(rb"],") + 1
"""What follows the separator's comma and backslash begins with a quote: a JSON text by itself, to the message's end."""


class _Part(msgspec.Struct, gc=False):
    columnname: str
    value: str


class _Transaction(msgspec.Struct, gc=False):
    commitlsn: str
    sequencenumber: int


class _RestOfSource(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    pkkey: list[_Part]
    transaction: _Transaction | None = None


class _Images(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    old: str | None
    current: str | None


_SCHEMA = pa.schema(
    [HELD_SCHEMA.field(name) for name in ("kind", "tbl", "bucket", "epoch", "pos", "op", "key", "cols", "whole")]
    + [HELD_SCHEMA.field(name) for name in ("row", "before", "origin", "place")]
)
_decode_text = msgspec.json.Decoder(str).decode
_decode_source = msgspec.json.Decoder(_RestOfSource).decode
_decode_images = msgspec.json.Decoder(_Images).decode
_encode = msgspec.json.encode


class _KnownList(NamedTuple):
    """A column list of a table: how its images are read, and how its keys become canonical.

    *number* is its place among those of mirrored tables; *source* is None for another table, where nothing else is
    needed. *prove* reads an image exactly: one that writing it again does not prove, for a name may stand there twice.
    """

    number: int
    source: str | None = None
    cols: str | None = None
    keys: tuple[str, ...] = ()
    read: Callable[[str], Any] = _decode_text
    key_of: Callable[[Any], Any] = str
    others: tuple[str, ...] = ()
    convert: tuple[Callable[[str], str], ...] = ()
    prove: Callable[[str], Any] = str


class Ordinary(NamedTuple):
    """What was taken from a block: rows of the log, one per change, and the numbers of all lines that were taken.

    The lines that gave no row are of tables that are not mirrored.
    """

    rows: pa.Table
    lines: npt.NDArray[np.int64]


class OrdinaryCes:
    """Takes ordinary messages from blocks; it knows the column lists that it met, so keep one for many blocks.

    Args:
        decoder: the exact decoder, whose answers these are.
    """

    def __init__(self, decoder: CesDecoder) -> None:
        self._decoder = decoder
        self._longest = min(_LONGEST, decoder.settings.max_message_bytes)
        self._template: HeadTemplate | None = None
        self._lists: dict[bytes, _KnownList | None] = {}
        self._known: list[_KnownList] = []

    def take(self, block: LineBlock) -> Ordinary:
        """The ordinary messages of a block as rows, columns of :data:`HELD_SCHEMA` in the order of their lines."""
        heads = self._heads(block)
        if heads is None:
            return Ordinary(_SCHEMA.empty_table(), np.zeros(0, np.int64))
        rows: list[tuple[Any, ...]] = []
        foreign: list[int] = []
        content, lists = block.content, self._lists
        lines, starts, ends = heads.lines.tolist(), heads.starts.tolist(), heads.ends.tolist()
        for at, (start, end) in enumerate(zip(starts, ends, strict=True)):
            found = content.find(_SEPARATOR_SPELLED, start, end)
            head = content[start:found]
            known = lists.get(head)
            if known is None:
                if found < 0 or head in lists:
                    continue
                known = self._learn(head, content[block.starts[lines[at]] : end + 1])
                if known is None:
                    continue
            try:
                row = _row(known, heads, at, _decode_text(content[found + _AS_TEXT : end]))
            except (Refusal, msgspec.DecodeError, ValueError, RecursionError):
                continue  # the exact decoder says what is wrong with it
            if row is None:
                continue
            if known.source is None:
                foreign.append(at)
            else:
                rows.append(row)
        at = [row[0] for row in rows]
        return Ordinary(self._table(block, heads, rows), heads.lines[at + foreign])

    def _heads(self, block: LineBlock) -> Heads | None:
        heads = self._template.heads(block, self._longest) if self._template else None
        if heads is None or len(heads.lines) < len(block.starts) // 2:
            # The source writes in another way than before: look how.
            for start, end in zip(block.starts[:_SEEK_HEAD].tolist(), block.ends[:_SEEK_HEAD].tolist(), strict=True):
                template = HeadTemplate.of(block.content[start:end])
                if template is not None:
                    self._template = template
                    return template.heads(block, self._longest)
        return heads

    def _learn(self, head: bytes, message: bytes) -> _KnownList | None:
        """The list of columns that a message carries, if it is one that can be taken; learned once."""
        if len(self._lists) >= _MOST_LISTS:
            return None
        self._lists[head] = None
        try:
            payload = read_event(message).data
            if isinstance(payload, str) and payload.partition(_SEPARATOR)[0] == _decode_text(head + b'"'):
                known = self._list_of(payload, _decode_text(head + b'"'))
                self._lists[head] = known
                if known is not None and known.source is not None:
                    self._known.append(known)
        except (Refusal, TerminalError, msgspec.DecodeError, ValueError):
            pass  # the exact decoder says what is wrong with it
        return self._lists[head]

    def _list_of(self, payload: str, head: str) -> _KnownList | None:
        data = read_data(payload)
        source, table = data.eventsource, self._decoder.table_of(data)
        cols = msgspec.json.decode(source.cols)
        spelled = {"eventsource": {"db": source.db, "schema": source.schema, "tbl": source.tbl, "cols": cols}}
        if _encode(spelled).decode() != head + "]}}":
            return None  # other members, the same one twice, white space: whatever it is, it is not ordinary
        if table is None:
            return _KnownList(-1)
        columns = table.columns(bytes(source.cols))
        names = columns.names
        if not table.key or columns.kept != names or not table.key_names < set(names):
            return None
        fields = {name: f"f{at}" for at, name in enumerate(names)}
        image = msgspec.defstruct(
            "Image",
            [(field, str | None) for field in fields.values()],
            rename={field: name for name, field in fields.items()},
            forbid_unknown_fields=True,
            gc=False,
        )
        others = tuple(field for name, field in fields.items() if name not in table.key_names)
        # fmt: off
        return _KnownList(
            len(self._known), table.source, columns.text, table.key, msgspec.json.Decoder(image).decode,
            operator.attrgetter(*(fields[name] for name in table.key)),
            others,
            tuple(_canonical(columns.types[name], self._decoder.settings.binary) for name in table.key),
            columns.read,
        )
        # fmt: on

    def _table(self, block: LineBlock, heads: Heads, rows: list[tuple[Any, ...]]) -> pa.Table:
        if not rows:
            return _SCHEMA.empty_table()
        at, operations, numbers, keys, whole, images = zip(*rows, strict=True)
        places = np.array(at)
        codes = pa.array(numbers, pa.int32())
        constant = pa.array(np.zeros(len(rows), np.int32))
        pairs = list(zip(operations, images, strict=True))
        # fmt: off
        columns = [
            pa.DictionaryArray.from_arrays(constant, [CHANGE]),
            pa.DictionaryArray.from_arrays(codes, pa.array([one.source for one in self._known], pa.string())),
            pa.array(map(bucket, keys), pa.int16()),
            pc.utf8_lower(fixed_texts(heads.epochs[places])).dictionary_encode(),
            fixed_texts(heads.positions[places]),
            pa.array(operations, pa.string()).dictionary_encode(),
            pa.array(keys, pa.string()),
            pa.DictionaryArray.from_arrays(codes, pa.array([one.cols for one in self._known], pa.string())),
            pa.array(whole, pa.bool_()),
            pa.array([None if op == DELETE else image for op, image in pairs], pa.binary()).cast(pa.string()),
            pa.array([image if op == DELETE else None for op, image in pairs], pa.binary()).cast(pa.string()),
            pa.DictionaryArray.from_arrays(constant, [block.origin]),
            pa.array(block.starts[heads.lines[places]] + block.place),
        ]
        # fmt: on
        return pa.Table.from_arrays(columns, schema=_SCHEMA)


def _row(known: _KnownList, heads: Heads, at: int, text: str) -> tuple[Any, ...] | None:
    """The fields of a proven row: its place among the heads, operation, list, key, whether it is whole, and image.

    Nothing if it is not proven, or one of the errors of reading it; an empty row if its table is not mirrored.
    """
    rest, _, row = text.partition(',"eventrow":')
    if row[-1:] != "}":
        return None
    source, images = _decode_source('{"' + rest), _decode_images(row[:-1])
    if known.source is None:
        return ()
    transaction = source.transaction
    if transaction is not None and (
        transaction.sequencenumber != heads.sequences[at] or transaction.commitlsn.replace(":", "") != heads.lsns[at]
    ):
        return None
    operation, old, current = heads.operations[at], images.old, images.current
    if operation == DELETE:
        if old is None or (current != "{}" and current is not None):
            return None
        old, current = None, old
    elif current is None or (operation == INSERT and old != "{}" and old is not None):
        return None
    image = known.read(current)
    written = _encode(image)
    if written != current.encode():
        known.prove(current)
    key, parts = known.key_of(image), source.pkkey
    if len(parts) != len(known.keys):
        return None
    if len(parts) == 1:
        if parts[0].value != key or parts[0].columnname != known.keys[0]:
            return None
        texts = [known.convert[0](key)]
    else:
        if [(part.columnname, part.value) for part in parts] != list(zip(known.keys, key, strict=True)):
            return None
        texts = [convert(value) for convert, value in zip(known.convert, key, strict=True)]
    whole = True
    if operation == UPDATE:
        whole = False
        if old != "{}" and old is not None:
            before = known.read(old)
            if _encode(before) != old.encode():
                known.prove(old)
            if known.key_of(before) != key:
                return None
            whole = any(getattr(image, name) == getattr(before, name) for name in known.others)
    return at, operation, known.number, key_json(texts), whole, written


def _canonical(sql_type: str, binary: BinaryText) -> Callable[[str], str]:
    """The converter of a key column, with the numbers that are canonical as they stand taken first."""
    convert = key_converter(sql_type, binary)
    if read_type(sql_type).name not in ("int", "bigint"):
        return convert

    def number(text: str) -> str:
        # Up to nine digits fit both types.
        is_plain = len(text) < 10 and text.isascii() and text.isdigit() and text[0] != "0"
        return text if is_plain else convert(text)

    return number
