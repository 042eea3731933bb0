"""UPDATE rows of change tables: which columns changed, what a NULL means, whether the key changed (T-19 to T-25, T-32).

The before image of an UPDATE is a row of its own with the same ``change_seq`` (T-11). With it, nothing has to be read
out of a mask; without it, the mask tells whether the key changed.

Public source: Qlik help, *Change tables*: meaning and byte order of ``change_mask``. As text a mask is one hexadecimal
number, most significant digit first; how a target stores it as bytes is taken from the documentation and can be set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal

from spark_jobs.sources.decoded import Refusal, shown
from spark_jobs.sources.qlik_change_table_rows import MASK, RowLayout, Values
from spark_jobs.sources.qlik_masks import MaskOrder, places, readings
from spark_jobs.sources.sql_server_types import is_large

Reading = Literal["msb_text", "le_bytes"]
Readings = Mapping[Reading, frozenset[int]]
"""Places of the columns that changed, by each way in which a mask can be read, the preferred one first."""


def read_mask(layout: RowLayout, values: Values, order: MaskOrder) -> Readings | None:
    """The possible readings of a row's mask; None without a mask, as an empty one is: it tells nothing (T-22).

    A reading that names a header column, or a column that the table does not have, is impossible (T-24).

    Raises:
        Refusal: ``MASK_INVALID`` when it is no mask or names a header column; ``MASK_TOO_LONG`` when it names columns
            that the table does not have.
    """
    text = layout.header(MASK, values)
    return None if is_no_mask(text) else mask_readings(layout, text or "", order)


def is_no_mask(text: str | None) -> bool:
    """Whether a change mask is absent: NULL, or without a digit."""
    return text is None or text.strip().lower() in ("", "0x")


@lru_cache(maxsize=4096)
def mask_readings(layout: RowLayout, text: str, order: MaskOrder) -> Readings:
    """The possible readings of a mask; shared by all rows that have it, and so never changed.

    Raises:
        Refusal: as :func:`read_mask`.
    """
    found: dict[Reading, frozenset[int]] = {}
    problem: Refusal | None = None
    for one in _orders(layout, order):
        bits = _bits(layout, text, one)
        if any(bit >= layout.width for bit in bits):
            what = f"the change mask {shown(text)} names column {max(bits)} (from 0) of {layout.width}"
            problem = problem or Refusal("MASK_TOO_LONG", what)
        elif bits & layout.header_places:
            problem = problem or Refusal("MASK_INVALID", f"the change mask {shown(text)} names a header column")
        else:
            found[one] = bits
    if problem is not None and not found:
        raise problem
    return found


def choose_reading(
    layout: RowLayout, order: MaskOrder, masks: Iterable[Readings], pairs: Iterable[tuple[Readings, frozenset[int]]]
) -> Reading:
    """The order in which the masks of a table are read: the preferred one that no mask and no pair speaks against.

    Args:
        layout: the table.
        order: the setting; only ``auto`` leaves a choice.
        masks: the possible readings of every mask at hand.
        pairs: the readings of those with a before image, and the places at which this differs.
    """
    orders = _orders(layout, order)
    possible = list(orders)
    for mask in masks:
        possible = [one for one in possible if one in mask]
    unrefuted = list(possible)
    for mask, different in pairs:
        unrefuted = [one for one in unrefuted if different <= mask[one]]
    return (unrefuted or possible or orders)[0]


def differing(layout: RowLayout, before: Values, after: Values) -> frozenset[int]:
    """The places of the mirrored columns that an UPDATE changed; large objects are not told in masks (T-25)."""
    places = [*layout.key_places, *layout.value_places()]
    return frozenset(at for at in places if before[at] != after[at] and not is_large(layout.type_at(at)))


def absent_columns(
    layout: RowLayout, after: Values, before: Values | None, changed: frozenset[int] | None
) -> tuple[Values, frozenset[int]]:
    """What a sparse UPDATE leaves out (T-32): its values, completed where that is certain, and what stays unknown.

    A NULL is a value if the mask names its column. Otherwise the column did not change, so the before image tells it;
    where that has NULL too, or there is none, nobody knows.
    """
    absent: set[int] = set()
    values = list(after)
    for at in layout.value_places():
        if after[at] is not None or (changed is not None and at in changed):
            continue
        trusted = changed is not None and not is_large(layout.type_at(at))
        if trusted and before is not None and before[at] is not None:
            values[at] = before[at]
        else:
            absent.add(at)
    return tuple(values), frozenset(absent)


def _bits(layout: RowLayout, text: str, order: Reading) -> frozenset[int]:
    digits = text.strip().removeprefix("0x").removeprefix("0X")
    try:
        mask = bytes.fromhex(digits) if layout.structure.binary_mask else digits
        return frozenset(places(readings(mask, order)[0]))
    except ValueError as error:
        raise Refusal("MASK_INVALID", f"the change mask {shown(text)} cannot be read: {error}") from None


def _orders(layout: RowLayout, order: MaskOrder) -> tuple[Reading, ...]:
    if order != "auto":
        return (order,)
    return ("le_bytes", "msb_text") if layout.structure.binary_mask else ("msb_text", "le_bytes")
