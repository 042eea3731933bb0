"""Reads UPDATE rows of change tables: changed columns, the meaning of NULL, changes of the key (T-19 to T-25, T-32).

With a before image (T-11), no mask is needed; without it, the mask shows whether the key changed. Public source: Qlik
help, *Change tables*: meaning and byte order of ``change_mask``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal

from spark_jobs.changelog.schema import DELETE, INSERT
from spark_jobs.sources.contract.decoded import Refusal, shown
from spark_jobs.sources.qlik.change_table.rows import MASK, RowLayout, Values
from spark_jobs.sources.qlik.masks import MaskOrder, places, readings
from spark_jobs.sources.sql_server.type_text import is_large
from spark_jobs.sources.sql_server.types import is_same_value

MaskReading = Literal["msb_text", "le_bytes"]
MaskReadings = Mapping[MaskReading, frozenset[int]]
"""Indexes of the changed columns, by each way to read a mask, the preferred one first."""


def read_mask(layout: RowLayout, values: Values, order: MaskOrder) -> MaskReadings | None:
    """The possible readings of a row's mask; None without a mask or with an empty one, which shows nothing (T-22)."""
    text = layout.header(MASK, values)
    return None if is_no_mask(text) else mask_readings(layout, text or "", order)


def is_no_mask(text: str | None) -> bool:
    """Whether a change mask is absent: NULL, or without a digit."""
    return text is None or text.strip().lower() in ("", "0x")


@lru_cache(maxsize=4096)
def mask_readings(layout: RowLayout, text: str, order: MaskOrder) -> MaskReadings:
    """The possible readings of a mask; shared by all rows with that mask, so never modified."""
    found: dict[MaskReading, frozenset[int]] = {}
    problem: Refusal | None = None
    for one in _orders(layout, order):
        bits = _bits(layout, text, one)
        if any(bit >= layout.width for bit in bits):
            what = f"the change mask {shown(text)} names column {max(bits)} (from 0) of {layout.width}"
            problem = problem or Refusal("MASK_INVALID", what)
        elif bits & layout.header_places:
            problem = problem or Refusal("MASK_INVALID", f"the change mask {shown(text)} names a header column")
        else:
            found[one] = bits
    if problem is not None and not found:
        raise problem
    return found


def choose_reading(
    layout: RowLayout,
    order: MaskOrder,
    masks: Iterable[MaskReadings],
    pairs: Iterable[tuple[MaskReadings, frozenset[int]]],
) -> MaskReading:
    """The order in which the masks of a table are read: the preferred one that no mask and no pair contradicts.

    *pairs* are readings and the indexes of differing columns. One that matches no reading shows nothing about the
    order.
    """
    orders = _orders(layout, order)
    possible = list(orders)
    for mask in masks:
        possible = [one for one in possible if one in mask]
    unrefuted = list(possible)
    for mask, different in pairs:
        if not any(different <= places for places in mask.values()):
            continue
        unrefuted = [one for one in unrefuted if different <= mask[one]]
    return (unrefuted or possible or orders)[0]


def differing(layout: RowLayout, before: Values, after: Values) -> frozenset[int]:
    """The indexes of the mirrored columns that an UPDATE changed; masks do not show large objects (T-25)."""
    places = [*layout.key_places, *layout.value_places()]
    return frozenset(at for at in places if before[at] != after[at] and not is_large(layout.types[at]))


def judged_places(layout: RowLayout) -> tuple[int, ...]:
    """Indexes at which a mask can contradict a pair: no key (T-60), no large object, which masks omit (T-25)."""
    return tuple(at for at in layout.value_places() if not is_large(layout.types[at]))


def refuse_denied_change(
    layout: RowLayout, after: Values, before_layout: RowLayout, before: Values, mask: MaskReadings, *, sparse: bool
) -> None:
    """Refuse an UPDATE whose before image differs in a column that no reading of its mask names (T-63).

    If updates are *sparse*, a NULL may be a missing column, and shows nothing (T-32).
    """
    there = {name: at for at, name in before_layout.kept}
    names = dict(layout.kept)
    different = []
    for at in judged_places(layout):
        was = there.get(names[at])
        if was is None or before_layout.types[was] != layout.types[at]:
            continue
        old, new = before[was], after[at]
        if sparse and (old is None or new is None):
            continue
        if not is_same_value(layout.types[at], old, new):
            different.append(at)
    if not different or any(places.issuperset(different) for places in mask.values()):
        return
    (places, *_) = mask.values()
    denied = next((at for at in different if at not in places), different[0])
    raise Refusal(
        "MASK_INVALID",
        f"the change mask says that {shown(names[denied])} did not change, but the before image has another value",
    )


def has_no_bit(layout: RowLayout, mask: MaskReadings) -> bool:
    """Whether an existing mask names no column. Zero bytes alone may be left out, and are no mask (T-22)."""
    return not layout.structure.binary_mask and not any(mask.values())


def tells_nothing(layout: RowLayout, mask: MaskReadings) -> bool:
    """Whether the mask of an UPDATE names no column, and not because only large objects changed (T-03, T-25)."""
    return not any(mask.values()) and not layout.has_large


def refuse_mask_without_bits(layout: RowLayout, operation: str, values: Values, mask: MaskReadings) -> None:
    """Refuse a mask of an INSERT or DELETE that names nothing: it should name inserted columns, or the key (T-21)."""
    if not has_no_bit(layout, mask):
        return
    if operation == INSERT and any(values[at] is not None for at, _ in layout.kept):
        raise Refusal("MASK_INVALID", "the change mask of an INSERT names no column, but the row has values")
    if operation == DELETE and layout.key_places:
        raise Refusal("MASK_INVALID", "the change mask of a DELETE names no column, not even its key")


def absent_columns(
    layout: RowLayout, after: Values, before: Values | None, changed: frozenset[int] | None
) -> tuple[Values, frozenset[int]]:
    """What a sparse UPDATE leaves out (T-32): its values, completed where that is certain, and what stays unknown.

    A NULL is a value if the mask names its column; else the before image has the value of the column.
    """
    absent: set[int] = set()
    values = list(after)
    for at in layout.value_places():
        if after[at] is not None or (changed is not None and at in changed):
            continue
        trusted = changed is not None and not is_large(layout.types[at])
        if trusted and before is not None and before[at] is not None:
            values[at] = before[at]
        else:
            absent.add(at)
    return tuple(values), frozenset(absent)


def _bits(layout: RowLayout, text: str, order: MaskReading) -> frozenset[int]:
    digits = text.strip().removeprefix("0x").removeprefix("0X")
    try:
        mask = bytes.fromhex(digits) if layout.structure.binary_mask else digits
        return frozenset(places(readings(mask, order)[0]))
    except ValueError as error:
        raise Refusal("MASK_INVALID", f"the change mask {shown(text)} cannot be read: {error}") from None


def _orders(layout: RowLayout, order: MaskOrder) -> tuple[MaskReading, ...]:
    if order != "auto":
        return (order,)
    return ("le_bytes", "msb_text") if layout.structure.binary_mask else ("msb_text", "le_bytes")
