"""The fast path of Avro messages: decodes many messages of one structure at once to rows of the change log.

It decodes only messages that meet the same conditions as JSON messages, see
:class:`~spark_jobs.sources.qlik.message.followed.Followed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.row_key import buckets_of_bytes
from spark_jobs.changelog.schema import DELETE, UPDATE
from spark_jobs.sources.contract.decoded import Refusal
from spark_jobs.sources.contract.fast_decoder import NOT_ASKED, RowFields, Transacted
from spark_jobs.sources.qlik.message.avro import Field
from spark_jobs.sources.qlik.message.avro_columns import AvroColumns, Booleans, Rows, Unsupported, texts_of
from spark_jobs.sources.qlik.message.followed import LOGGED, Followed
from spark_jobs.sources.qlik.message.headers import read_headers
from spark_jobs.sources.qlik.positions import qlik_positions
from spark_jobs.sources.qlik.types import is_out_of_range
from spark_jobs.sources.sql_server.json_columns import canonical_column, json_lists, json_objects

Spot = tuple[int, int, int, int]
"""The position of a message's record in a block: the message's index and place, the record's start and end."""
_NOTHING = pa.scalar(None, pa.string())


def record_rows(followed: Followed, content: bytes, spots: Sequence[Spot]) -> list[RowFields]:
    """The rows of those messages for which the exact decoder would certainly give the same rows.

    All other messages are skipped.
    """
    schema = followed.writer
    if schema is None:
        return []
    numbers, places, starts, ends = np.array(spots, np.int64).T
    try:
        read = AvroColumns(schema.parsed, content, starts, ends)
        records = _Records(followed, schema.fields, read.columns, read.is_valid)
        return records.rows(numbers, places)
    except (Unsupported, RecursionError, pa.ArrowInvalid):
        return []


class _Records:
    """Records of one structure as columns: headers, and both images as texts."""

    def __init__(self, followed: Followed, fields: Sequence[Field], read: Mapping[str, Any], is_sure: Booleans) -> None:
        self._followed, self._names = followed, [field.name for field in fields]
        self._sure, self._headers = is_sure & read["headers"].is_there, read["headers"].columns
        data, before = read["data"], read.get("beforeData") or Rows(np.zeros(len(is_sure), bool), {})
        self._has_data, self._has_before = data.is_there, before.is_there
        self._new = {field.name: self._texts(data, field) for field in fields}
        self._old = {field.name: self._texts(before, field) for field in fields}
        self._sure &= self._has_data | self._has_before

    def _texts(self, image: Rows, field: Field) -> pa.Array:
        """The texts of a column of an image; a value without one makes its record unsure."""
        if not image.columns:
            return pa.nulls(len(self._sure), pa.string())
        column = image.columns[field.name]
        if isinstance(column, Rows):
            raise Unsupported(field.name)
        texts = texts_of(column, field.logical, field.scale)
        self._sure &= _booleans(pc.equal(column.is_null(), texts.is_null()))
        return texts

    def rows(self, numbers: Any, places: Any) -> list[RowFields]:
        followed, is_pair = self._followed, self._has_data & self._has_before
        differ = {n: ~_same(new, self._old[n]) & is_pair for n, new in self._new.items()}
        image = {name: self._image(name) for name in self._names}
        for name in followed.key:
            self._sure &= _booleans(image[name].is_valid()) & ~differ[name]
        operations, kinds = self._judged(differ)
        is_set = kinds != DELETE
        for name, bounds in followed.ranges:
            outside = [text is not None and is_out_of_range(text, *bounds) for text in image[name].to_pylist()]
            self._sure &= ~(np.array(outside, bool) & is_set)
        positions = self._positions(operations, places, is_set)
        types = [followed.structure.by_name[name].log_type() for name in followed.key]
        keys = [
            canonical_column(kind, convert, image[name])
            for kind, convert, name in zip(types, followed.convert, followed.key, strict=True)
        ]
        for key in keys:
            self._sure &= _booleans(key.is_valid())
        chosen = pa.array(np.flatnonzero(self._sure))
        if not len(chosen):
            return []
        lines = json_objects(self._names, [image[name].take(chosen) for name in self._names])
        images = lines.cast(pa.binary()).to_pylist()
        canonical = json_lists([key.take(chosen) for key in keys]).cast(pa.binary()).to_pylist()
        at = chosen.to_numpy()
        sets, ops = is_set[at].tolist(), kinds[at].tolist()
        return list(
            zip(
                numbers[at].tolist(),
                repeat(followed.number),
                positions.take(chosen).cast(pa.binary()).to_pylist(),
                ops,
                canonical,
                buckets_of_bytes(canonical),
                repeat(True),
                [line if is_set else None for line, is_set in zip(images, sets, strict=True)],
                [None if is_set else line for line, is_set in zip(images, sets, strict=True)],
                self._marks(chosen, (kinds == UPDATE) & is_pair, images),
                self._transactions(chosen),
            )
        )

    def _image(self, name: str) -> pa.Array:
        if self._has_data.all():
            return self._new[name]
        return pc.if_else(pa.array(self._has_data), self._new[name], self._old[name])

    def _header(self, name: str, *kinds: pa.DataType) -> pa.Array:
        column = self._headers.get(name)
        if column is None:
            return pa.nulls(len(self._sure), kinds[0])
        if isinstance(column, Rows) or column.type not in kinds:
            raise Unsupported(name)
        return column

    def _judged(self, differ: Mapping[str, Booleans]) -> tuple[Any, Any]:
        """Each record's operation, and that of its row; headers and images that do not agree make it unsure."""
        followed, shape = self._followed, self._has_data * 2 + self._has_before
        parts = [
            self._header("operation", pa.string()),
            self._header("changeMask", pa.binary(), pa.string()),
            self._header("columnMask", pa.binary(), pa.string()),
        ]
        coded, values = shape.astype(np.int64), list[list[Any]]()
        for column in parts:
            found = column.dictionary_encode()
            values.append([*found.dictionary.to_pylist(), None])
            codes = found.indices.fill_null(len(values[-1]) - 1).to_numpy()
            coded = coded * len(values[-1]) + codes
        forms, form_of = np.unique(coded, return_inverse=True)
        is_sure, operations, denied = np.zeros(len(forms), bool), list[str](), list[Sequence[str]]()
        for at, form in enumerate(forms.tolist()):
            members = []
            for known in reversed(values):
                form, code = divmod(form, len(known))
                members.append(known[code])
            columns, change, operation = members
            has_data, has_before = form >= 2, bool(form % 2)
            sequence = "1" * followed.sequence_digits
            said = {"operation": operation, "changeSequence": sequence, "changeMask": change, "columnMask": columns}
            operations.append(operation or "")
            denied.append(())
            try:
                headers = read_headers({"headers": said}, followed.sequence_digits)
            except Refusal:
                continue
            is_sure[at] = followed.is_sure(headers, has_data=has_data, has_before=has_before)
            if has_data and has_before:
                denied[-1] = followed.unchanged(headers)
        self._sure &= is_sure[form_of]
        for name in {name for names in denied for name in names}:
            self._sure &= ~(np.array([name in names for names in denied])[form_of] & differ[name])
        logged = np.array([LOGGED.get(operation, "") for operation in operations])
        return np.array(operations)[form_of], logged[form_of]

    def _positions(self, operations: Any, places: Any, is_set: Booleans) -> pa.Array:
        digits = self._followed.sequence_digits
        is_load = pa.array(operations == "REFRESH")
        sequences = pc.if_else(is_load, "0" * digits, self._header("changeSequence", pa.string()))
        is_sequence = pc.match_substring_regex(sequences, f"^[0-9]{{{digits}}}$")
        is_above = pc.or_(is_load, pc.match_substring_regex(sequences, "[1-9]"))
        counters = self._header("transactionEventCounter", pa.int64()).fill_null(0)
        self._sure &= _booleans(pc.and_(is_sequence, is_above).fill_null(False)) & _booleans(
            pc.greater_equal(counters, 0)
        )
        counters = pc.if_else(is_load, pa.array(places), counters)
        return qlik_positions(sequences, pc.if_else(pa.array(is_set), "1", "0"), counters)

    def _marks(self, chosen: pa.Array, is_update: Booleans, images: Sequence[bytes]) -> list[int | None]:
        marks: list[int | None] = [None] * len(images)
        spots = np.flatnonzero(is_update[chosen.to_numpy()]) if self._followed.is_marked else np.array([], np.int64)
        old = [self._old[name].take(chosen.take(pa.array(spots))) for name in self._names]
        lines = json_objects(self._names, old).cast(pa.binary()).to_pylist()
        for spot, line in zip(spots.tolist(), lines, strict=True):
            marks[spot] = self._followed.mark(line, images[spot])
        return marks

    def _transactions(self, chosen: pa.Array) -> Iterable[Transacted]:
        if not self._followed.logs_transactions:
            return repeat(NOT_ASKED, len(chosen))
        columns = [self._header(name, pa.string()).take(chosen) for name in ("timestamp", "transactionId")]
        parts = [pc.if_else(pc.equal(one, ""), _NOTHING, one).cast(pa.binary()).to_pylist() for one in columns]
        return zip(*parts, strict=True)


def _same(one: pa.Array, other: pa.Array) -> Booleans:
    equal = pc.or_(pc.equal(one, other).fill_null(False), pc.and_(one.is_null(), other.is_null()))
    return _booleans(equal)


def _booleans(values: pa.Array) -> Booleans:
    found: Booleans = values.to_numpy(zero_copy_only=False)
    return found
