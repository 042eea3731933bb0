"""Converts one data message of a mirrored table to rows of the change log (K-16 to K-31).

An UPDATE that changes the key becomes two rows at one log position: the first row removes the old key (``sub`` 0), the
second row sets the new key (``sub`` 1) (G-03, K-31). Public source: Qlik Help, *Metadata and data messages*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from open_mirroring.changes.row_key import encode_key, key_bucket
from spark_jobs.changelog.schema import CHANGE, DELETE, INSERT, KEY_LEFT, UPDATE, LogRow
from spark_jobs.sources.contract.decoded import Refusal, shown
from spark_jobs.sources.qlik.masks import MaskOrder, readings
from spark_jobs.sources.qlik.message.headers import Headers, Mask, read_headers, transaction_of
from spark_jobs.sources.qlik.message.images import Image, Row, TableImages


class MessageContext(NamedTuple):
    """Origin, place and table of a message, and its epoch: the setting ``source.load``."""

    origin: str
    place: int
    table: str
    load: str


class Masks(NamedTuple):
    """The change mask and column mask of a message: bit *n* is the column with ordinal *n* + 1; None for no mask."""

    change: int | None
    column: int | None


def change(
    record: Mapping[str, Any],
    is_avro: bool,
    images: TableImages,
    order: MaskOrder,
    sequence_digits: int,
    at: MessageContext,
) -> list[LogRow]:
    """Converts one data message to rows of the change log; raises a Refusal if the message is invalid.

    *at* has the message's origin, place and table.
    """
    read = images.avro_image if is_avro else images.json_image
    try:
        data, before = read(record.get("data"), "data"), read(record.get("beforeData"), "beforeData")
        headers = read_headers(record, sequence_digits)
        rows = _rows(headers, data, before, images, order, at)
        if not images.logs_transactions:
            return rows
        committed, transaction = transaction_of(record)
        return [row._replace(committed=committed, transaction=transaction) for row in rows]
    except Refusal as refusal:
        if refusal.key is not None or refusal.code in ("KEY_INVALID", "OLD_KEY_MISSING"):
            raise
        key = _key_alone(record, read, images)
        raise Refusal(refusal.code, refusal.reason, key) from refusal


def _key_alone(record: Mapping[str, Any], read: Callable[[Any, str], Image | None], images: TableImages) -> str | None:
    """The key of an unreadable change; None if no image contains it, or one has another row's."""
    keys: set[str] = set()
    for name in ("data", "beforeData"):
        values = record.get(name)
        if not isinstance(values, Mapping):
            continue
        try:
            image = read({column: values[column] for column in images.key if column in values}, name)
            if image is not None and images.holds_key(image):
                texts = images.key_texts(image)
                keys |= {encode_key(texts)} if texts else set()
        except Refusal:
            return None
    return keys.pop() if len(keys) == 1 else None


def _rows(
    headers: Headers,
    data: Image | None,
    before: Image | None,
    images: TableImages,
    order: MaskOrder,
    at: MessageContext,
) -> list[LogRow]:
    masks = read_masks(headers, data, before, images, order)
    if headers.operation == "DELETE":
        return [_delete(headers, data, before, images, at)]
    if data is None:
        raise Refusal("ROW_INVALID", f"{headers.operation} without data")
    image = images.present(data, masks.column)
    texts = images.key_texts(image)
    if headers.operation != "UPDATE":
        _refuse_another_row(before, texts, images, headers.operation)
        # A column that was not sent is not NULL, even in a new row: it has to be completed, as in an update (K-23).
        op = INSERT if images.shows_all(image) else UPDATE
        if op == UPDATE and images.full_rows:
            raise Refusal("ROW_INVALID", f"{headers.operation} without all columns, and `full_rows` promises them")
        image = images.filled(image) if op == INSERT else image
        return [_row(headers, at, 1, op, texts, images.after(image), is_set=True)]
    _refuse_denied_change(image, before, masks, images)
    row_set = _row(headers, at, 1, UPDATE, texts, images.after(image), is_set=True)
    if images.full_rows and not row_set.whole:
        raise Refusal("ROW_INVALID", "UPDATE without all columns, and `full_rows` promises them")
    if before is not None and images.key and images.same_key(before, image):
        return [row_set._replace(had=images.mark(before, image))]
    if not (before is not None and images.holds_key(before)):
        _refuse_two_meanings(headers, data, masks, images, order)
    old_texts = _old_key(before, masks, images, texts)
    if old_texts == texts:
        return [row_set]
    known = {n: value for n, value in (before or {}).items() if value is not None or _is_known(n, masks, images)}
    if all(value is None or name in images.key for name, value in known.items()):
        # A source may log only the keys of old rows, with null for the rest; a mask shows nothing about it (T-94).
        known = {name: value for name, value in known.items() if name in images.key}
    left = images.before(known)
    return [_row(headers, at, 0, KEY_LEFT, old_texts, left, is_set=False), row_set]


def read_masks(
    headers: Headers, data: Image | None, before: Image | None, images: TableImages, order: MaskOrder
) -> Masks:
    """Both masks of a message, in the bit order that is possible and that the row images do not contradict (T-24)."""
    if headers.change_mask is None and headers.column_mask is None:
        return Masks(None, None)
    possible = possible_masks(headers.change_mask, headers.column_mask, order, images.structure.bits)
    if len(possible) == 1:
        return possible[0]
    right = [masks for masks in possible if not _is_contradicted(masks, headers, data, before, images)]
    if len(right) > 1 and isinstance(headers.column_mask, bytes) and headers.operation != "DELETE":
        one, other = (masks.column or 0 for masks in right)
        name = images.lacks(data or {}, one ^ other)
        if name is not None:
            what = f"columnMask {shown(headers.column_mask)} says by one order of its bytes that {shown(name)} is NULL"
            raise Refusal("MASK_INVALID", f"{what}, and by the other that it was not sent: set `mask_order`")
    return (right or possible)[0]


@lru_cache(maxsize=4096)
def possible_masks(change: Mask, column: Mask, order: MaskOrder, bits: int) -> tuple[Masks, ...]:
    """The distinct readings of a message's two masks, the likeliest first.

    *bits* is the highest ordinal of the table's columns; a reading that names a higher bit is not possible.
    """
    is_text = isinstance(column or change, str)
    likely: tuple[MaskOrder, ...] = ("msb_text", "le_bytes") if is_text else ("le_bytes", "msb_text")
    candidates = [
        Masks(_number(change, one), _number(column, one)) for one in (likely if order == "auto" else (order,))
    ]
    possible = [masks for masks in candidates if not ((masks.change or 0) | (masks.column or 0)) >> bits]
    if not possible:
        raise Refusal(
            "MASK_INVALID",
            f"changeMask {shown(change)} or columnMask {shown(column)} names a column beyond the {bits} of the table",
        )
    return tuple(dict.fromkeys(possible))


def _number(mask: Mask, order: MaskOrder) -> int | None:
    if mask is None:
        return None
    try:
        return readings(mask, order)[0]
    except ValueError as error:
        raise Refusal("MASK_INVALID", str(error)) from error


def _is_contradicted(
    masks: Masks, headers: Headers, data: Image | None, before: Image | None, images: TableImages
) -> bool:
    columns = [column for column in images.structure.columns if not column.is_large]
    if headers.operation == "DELETE":
        # Only the key is marked, and other consumers saw rows without their values (K-21).
        marked = masks.change
        return marked is not None and bool(marked & ~images.key_bits) and not images.key_differs
    if masks.column is not None and data is not None:
        for column in columns:
            if not masks.column & column.bit and data.get(column.name) is not None:
                return True
    if masks.change is not None and data is not None and before is not None:
        for column in columns:
            value, old = data.get(column.name), before.get(column.name)
            if value is not None and old is not None and (value != old) > bool(masks.change & column.bit):
                return True
        return _denied(data, before, masks, images) is not None
    return False


def _denied(data: Image, before: Image, masks: Masks, images: TableImages) -> str | None:
    """The first column that differs between the images although the change mask does not name it (K-69).

    Not checked are the key, which both images have (K-31), and columns that the column mask leaves out (K-23). An old
    row without its key was sent incompletely, so its nulls show nothing.
    """
    if masks.change is None or not images.holds_key(before):
        return None
    for column in images.judged:
        name = column.name
        if masks.change & column.bit or name not in data or name not in before or not _is_known(name, masks, images):
            continue
        if data[name] != before[name] and not images.is_same_value(column, data[name], before[name]):
            return name
    return None


def _refuse_denied_change(image: Image, before: Image | None, masks: Masks, images: TableImages) -> None:
    """Refuse an update whose old row differs outside of its mask (K-69), or that lacks what changed."""
    unsent = 0 if masks.change is None or masks.column is None else masks.change & ~masks.column
    lost = next((column.name for column in images.judged if unsent & column.bit), None)
    if lost is not None:
        what = f"changeMask says that {shown(lost)} changed, and columnMask that it was not sent"
        raise Refusal("MASK_INVALID", what)
    name = None if before is None else _denied(image, before, masks, images)
    if name is not None:
        raise Refusal(
            "MASK_INVALID", f"changeMask says that {shown(name)} did not change, but beforeData has another value"
        )


def _refuse_two_meanings(headers: Headers, data: Image, masks: Masks, images: TableImages, order: MaskOrder) -> None:
    """Refuse an update without its old key whose mask names the key in another possible order of its bytes (K-20)."""
    if masks.change is None or masks.change & images.key_bits or images.keys_never_change:
        return
    others = possible_masks(headers.change_mask, headers.column_mask, order, images.structure.bits)
    if any(
        other.change and other.change & images.key_bits and not _is_contradicted(other, headers, data, None, images)
        for other in others
    ):
        what = f"changeMask {shown(headers.change_mask)} names the key, or does not, by the order of its bytes"
        raise Refusal("OLD_KEY_MISSING", f"{what}, and beforeData does not show the old one: set `mask_order`")


def _is_known(name: str, masks: Masks, images: TableImages) -> bool:
    return masks.column is None or bool(masks.column & images.structure.by_name[name].bit)


def _old_key(before: Image | None, masks: Masks, images: TableImages, texts: list[str]) -> list[str]:
    """The key before an update; if it is not sent, the change mask or the mirror file show it (K-21, K-70)."""
    if images.key and before is not None and images.holds_key(before):
        try:
            return images.key_texts(before)
        except Refusal as refusal:
            raise Refusal(refusal.code, f"beforeData: {refusal.reason}") from refusal
    if masks.change is not None and masks.change & images.key_bits:
        raise Refusal(
            "OLD_KEY_MISSING", "changeMask says that the key changed, but beforeData does not show the old one"
        )
    if masks.change is None and images.key and not images.keys_never_change:
        raise Refusal("OLD_KEY_MISSING", "neither changeMask nor beforeData shows whether the key changed")
    return texts


def _delete(
    headers: Headers, data: Image | None, before: Image | None, images: TableImages, at: MessageContext
) -> LogRow:
    image = data if images.holds_key(data) else before if images.holds_key(before) else None
    if image is None:
        raise Refusal("KEY_INVALID", "neither data nor beforeData of a DELETE has all key columns")
    texts = images.key_texts(image)
    _refuse_another_row(before, texts, images, headers.operation)
    return _row(headers, at, 0, DELETE, texts, images.before(image), is_set=False)


def _refuse_another_row(before: Image | None, texts: list[str], images: TableImages, operation: str) -> None:
    """Refuse two images with different keys where the operation concerns one row: it is unknown which (K-68)."""
    if before is not None and images.key and images.holds_key(before) and images.key_texts(before) != texts:
        raise Refusal("ROW_INVALID", f"data and beforeData of one {operation} have two keys")


def _row(
    headers: Headers, at: MessageContext, sub: int, op: str, texts: list[str], row: Row, *, is_set: bool
) -> LogRow:
    key = encode_key(texts) if texts else None
    return LogRow(
        CHANGE,
        at.origin,
        at.place,
        at.table,
        key_bucket(key),
        at.load,
        headers.position(at.place, sub),
        op,
        key,
        row.cols,
        row.whole if is_set else True,
        row.values if is_set else None,
        None if is_set else row.values,
    )
