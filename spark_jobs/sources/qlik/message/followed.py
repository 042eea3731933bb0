"""Proves that a message is a plain change of a known structure, and creates the change's row (K-16 to K-31).

Public source: Qlik Help, *Metadata and data messages*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import msgspec

from open_mirroring.changes.row_key import encode_key, key_bucket
from open_mirroring.errors import TerminalError
from spark_jobs.changelog.schema import DELETE, INSERT, UPDATE, image_mark
from spark_jobs.sources.contract.decoded import Refusal
from spark_jobs.sources.contract.fast_decoder import NOT_ASKED, RowFields, Transacted
from spark_jobs.sources.qlik.masks import MaskOrder
from spark_jobs.sources.qlik.message.avro import DataSchema
from spark_jobs.sources.qlik.message.changes import possible_masks
from spark_jobs.sources.qlik.message.headers import OPERATIONS, Headers, Mask
from spark_jobs.sources.qlik.message.images import TableImages
from spark_jobs.sources.qlik.message.patterns import JsonColumn, JsonPattern, json_pattern
from spark_jobs.sources.qlik.message.structures import Structure
from spark_jobs.sources.qlik.types import is_out_of_range

_UNQUOTED = frozenset({"bit", "tinyint", "smallint", "int", "bigint", "real", "float"})
"""Types of the log whose values have no quotes in JSON (K-35)."""
LOGGED = {"REFRESH": INSERT, "INSERT": INSERT, "UPDATE": UPDATE, "DELETE": DELETE}
"""The log's operation of each operation of a message."""
_MASKS_KEPT = 4096
"""Masks cached per structure: a table has few, and a hostile stream must not exhaust the memory."""
_decode_image = msgspec.json.Decoder(dict[str, str | None]).decode
_NAMES = {name.encode(): name for name in OPERATIONS}


class Followed:
    """Decodes simple messages of one structure for the fast path; if *images* is None, the table is not mirrored."""

    def __init__(
        self, structure: Structure, number: int, images: TableImages | None, order: MaskOrder, sequence_digits: int
    ) -> None:
        self.structure, self.is_mirrored, self.number = structure, images is not None, number
        self._order, self.sequence_digits = order, sequence_digits
        self.key, self.convert = (images.key, images.key_converters) if images else ((), ())
        self.logs_transactions = images is not None and images.logs_transactions
        self._key_bits = images.key_bits if images else 0
        self._keeps_keys = images is not None and (images.keys_never_change or not images.key)
        self._bits = sum(column.bit for column in structure.columns)
        judged = images.judged if images else ()
        self._outside = lru_cache(_MASKS_KEPT)(lambda mask: tuple(c.name for c in judged if not mask & c.bit))
        self.ranges = tuple(images.ranges.items()) if images else ()
        self.is_marked = images is not None and images.is_marked
        self._has_large = any(column.is_large for column in structure.columns)

    def json_row(self, number: int, place: int, content: bytes, at: int, end: int) -> RowFields | None:
        """The row of the change log for a JSON message; None if the decoder has to read the message.

        The message's row image is in *content* from *at* on; the message ends at *end*.
        """
        if self._json is None:
            return None
        pattern = self._json[content.startswith(b"null", at)]
        found = pattern.fullmatch(content, at, end)
        if found is None:
            return None
        operation, sequence, change, column, counter, before, *key = found.group(*pattern.fields)
        name = _NAMES[operation]
        if name == "REFRESH":
            sequence, counter, change = b"0" * self.sequence_digits, b"0", None
        elif sequence is None or len(sequence) != self.sequence_digits or not sequence.strip(b"0"):
            return None
        headers = Headers(name, sequence.decode(), int(counter or 0), _text(change), _text(column))
        if before and (unchanged := self.unchanged(headers)):
            start = found.start(pattern.fields[5])
            spelled = _chosen(unchanged, msgspec.Raw)
            if spelled(content[at : start - len(b',"beforeData":')]) != spelled(before):
                return None
        if not self.is_sure(headers, has_data=pattern is self._json[0], has_before=before is not None):
            return None
        transacted = NOT_ASKED
        if self.logs_transactions:
            committed, transaction = map(_unquoted, found.group(*pattern.transaction))
            transacted = (committed, transaction)
        image = pattern.image(found)
        had = self.mark(pattern.other_image(before), image) if before and name == "UPDATE" else None
        return self.row(number, place, headers, map(bytes.decode, key), image, had, transacted)

    def mark(self, before: bytes, image: bytes) -> int | None:
        """A short hash of the row before an update, made as :meth:`TableImages.mark` makes it."""
        if self.is_marked and b":null" in before:
            old, new = _decode_image(before), _decode_image(image)
            is_key_alone = all(value is None for name, value in old.items() if name not in self.key)
            if is_key_alone or any(value is None and new[name] is not None for name, value in old.items()):
                return None
        return image_mark(before) if self.is_marked else None

    def is_json(self, content: bytes, at: int, end: int) -> bool:
        """Whether a JSON message is valid, whose row image is in *content* from *at* on, and which ends at *end*."""
        patterns = self._json
        return patterns is not None and bool(patterns[content.startswith(b"null", at)].fullmatch(content, at, end))

    def is_sure(self, headers: Headers, *, has_data: bool, has_before: bool) -> bool:
        """Whether a message is certainly one row with all of its columns (K-22).

        *has_data* and *has_before* are whether the message has a row image after and before the change; both have the
        same key.
        """
        masks = headers.change_mask, headers.column_mask
        marks = _marks(*masks, self._order, self.structure.bits, self._bits, self._key_bits)
        if marks is None:
            return False
        if headers.operation == "DELETE":
            return not self._has_large
        if not (has_data and marks.all_columns):
            return False
        if headers.operation != "UPDATE" or has_before:
            return True
        return self._keeps_keys if marks.key is None else not marks.key

    def unchanged(self, headers: Headers) -> tuple[str, ...]:
        """The columns that have the same value in both row images of an update, by the update's change mask (K-69)."""
        if headers.operation != "UPDATE" or headers.change_mask is None:
            return ()
        masks = headers.change_mask, headers.column_mask
        marks = _marks(*masks, self._order, self.structure.bits, self._bits, self._key_bits)
        if marks is None or marks.change is None:
            return ()  # it is not certain anyway
        return self._outside(marks.change)

    def row(
        self,
        number: int,
        place: int,
        headers: Headers,
        key: Iterable[str],
        image: bytes,
        had: int | None,
        transacted: Transacted,
    ) -> RowFields | None:
        """The row of the change log for a checked change; None if the decoder has to read the message.

        The decoder has to read it if *key* is not a valid key, or if a value is outside the range of its type.
        """
        op = LOGGED[headers.operation]
        is_set = op != DELETE
        if self.ranges and is_set:
            values = _chosen(tuple(name for name, _ in self.ranges), str | None)(image)
            if any(is_out_of_range(v, *bounds) for v, (_, bounds) in zip(values, self.ranges, strict=True)):
                return None
        try:
            texts = [convert(text) for convert, text in zip(self.convert, key, strict=True)]
        except ValueError:
            return None
        canonical = encode_key(texts)
        position = headers.position(place, int(is_set)).encode()
        row, before = (image, None) if is_set else (None, image)
        bucket = key_bucket(canonical)
        return number, self.number, position, op, canonical.encode(), bucket, True, row, before, had, transacted

    @cached_property
    def writer(self) -> DataSchema | None:
        """The writer schema of the structure's Avro records.

        None unless the schema's fields are exactly the structure's columns, in the same order.
        """
        try:
            schema = self.structure.avro
        except (Refusal, TerminalError):
            return None
        names = tuple(field.name for field in schema.fields)
        return schema if schema.is_plain and names == tuple(self.structure.by_name) else None

    @cached_property
    def _json(self) -> tuple[JsonPattern, JsonPattern] | None:
        try:
            columns = tuple(JsonColumn(c.name, c.log_type() not in _UNQUOTED) for c in self.structure.columns)
            return json_pattern(columns, self.key, in_before=False), json_pattern(columns, self.key, in_before=True)
        except (TerminalError, ValueError):
            return None


class _Marks(NamedTuple):
    """The meaning of masks: all columns are sent; one of the key changed, if known (K-70); what changed."""

    all_columns: bool
    key: bool | None
    change: int | None


@lru_cache(maxsize=4096)
def _marks(change: Mask, column: Mask, order: MaskOrder, bits: int, all_bits: int, key_bits: int) -> _Marks | None:
    if change is None and column is None:
        return _Marks(True, None, None)
    try:
        (masks,) = possible_masks(change, column, order, bits)
    except (Refusal, ValueError):
        return None
    key = None if masks.change is None else bool(masks.change & key_bits)
    return _Marks(masks.column is None or masks.column == all_bits, key, masks.change)


@lru_cache(maxsize=_MASKS_KEPT)
def _chosen(names: tuple[str, ...], kind: Any) -> Callable[[bytes], tuple[Any, ...]]:
    fields = [(f"column{number}", kind) for number in range(len(names))]
    renamed = {field: name for (field, _), name in zip(fields, names, strict=True)}
    read = msgspec.json.Decoder(msgspec.defstruct("Chosen", fields, rename=renamed, gc=False)).decode
    return lambda image: msgspec.structs.astuple(read(image))


def _unquoted(text: bytes | None) -> bytes | None:
    return (msgspec.json.decode(text, type=str).encode() or None) if text else None


def _text(mask: bytes | None) -> str | None:
    return mask.decode() if mask else None
