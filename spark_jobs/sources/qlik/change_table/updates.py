"""Reads UPDATE rows of change tables: changed columns, the meaning of NULL, changes of the key (T-19 to T-25, T-32).

If the UPDATE has a before image (T-11), no change mask is needed; if it has none, the mask shows whether the key
changed. Public source: Qlik help, *Change tables*: meaning and byte order of ``change_mask``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from spark_jobs.changelog.schema import DELETE, INSERT, UPDATE
from spark_jobs.sources.contract.decoded import Refusal, shown
from spark_jobs.sources.qlik.change_table.rows import (
    OPERATION,
    OPERATION_NAME,
    SEQUENCE,
    ChangeRow,
    RowLayout,
    Values,
    content,
)
from spark_jobs.sources.qlik.masks import MaskOrder, places, readings
from spark_jobs.sources.qlik.positions import SEQUENCE_DIGITS, is_sequence
from spark_jobs.sources.sql_server.type_text import is_large
from spark_jobs.sources.sql_server.types import is_same_value

BEFORE = "B"
_TRUNCATE = "TRUNCATE"
_NAMES = {"INSERT": INSERT, "UPDATE": UPDATE, "DELETE": DELETE, "BEFOREIMAGE": BEFORE}
MaskReading = Literal["msb_text", "le_bytes"]
MaskReadings = Mapping[MaskReading, frozenset[int]]
"""Indexes of the changed columns, by each way to read a mask, the preferred one first."""


@lru_cache(maxsize=4096)
def read_mask(layout: RowLayout, text: str | None, order: MaskOrder) -> MaskReadings | None:
    """The possible readings of a change mask; None if the mask is NULL or has no digit, which shows nothing (T-22).

    All rows with this mask share the result, so never modify it.
    """
    if text is None or text.strip().lower() in ("", "0x"):
        return None
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
    """The bit order in which the change masks of a table are read.

    It is the first possible order that no mask and no pair contradicts. If there is none, only the masks decide; if
    they contradict every order, the first one is taken. *masks* are the readings of single masks. *pairs* are the
    readings of an UPDATE's mask, with the indexes of the columns in which the UPDATE differs from its before image. A
    pair that contradicts every order is ignored.
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
    """The indexes of the mirrored columns that an UPDATE changed, without large objects, which masks omit (T-25)."""
    places = [*layout.key_places, *layout.judged_places]
    return frozenset(at for at in places if before[at] != after[at])


def refuse_denied_change(
    layout: RowLayout, after: Values, before_layout: RowLayout, before: Values, mask: MaskReadings, *, sparse: bool
) -> None:
    """Raises a Refusal if an UPDATE and its before image differ in a column that the mask says is unchanged (T-63).

    All possible readings of the mask are tried. If updates are *sparse*, a NULL may be a column that was not sent, so
    it is not compared (T-32).
    """
    there = {name: at for at, name in before_layout.kept}
    names = dict(layout.kept)
    different = []
    for at in layout.judged_places:
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
    """Whether a text mask names no column. A binary mask of zeros does not count: it means "no mask" (T-22)."""
    return not layout.structure.binary_mask and not any(mask.values())


def shows_nothing(layout: RowLayout, mask: MaskReadings) -> bool:
    """Whether the mask of an UPDATE names no column, in a table without large objects (T-03, T-25).

    In a table with large objects, such a mask may mean that only large objects changed.
    """
    return not any(mask.values()) and not layout.has_large


def refuse_mask_without_bits(layout: RowLayout, operation: str, values: Values, mask: MaskReadings) -> None:
    """Raises a Refusal if the mask of an INSERT or DELETE names no column, although it must (T-21).

    The mask of an INSERT must name a column if the row has values. The mask of a DELETE must name the key if the table
    has a key.
    """
    if not has_no_bit(layout, mask):
        return
    if operation == INSERT and any(values[at] is not None for at, _ in layout.kept):
        raise Refusal("MASK_INVALID", "the change mask of an INSERT names no column, but the row has values")
    if operation == DELETE and layout.key_places:
        raise Refusal("MASK_INVALID", "the change mask of a DELETE names no column, not even its key")


def absent_columns(
    layout: RowLayout, after: Values, before: Values | None, changed: frozenset[int] | None
) -> tuple[Values, frozenset[int]]:
    """Completes an UPDATE that leaves columns out (T-32).

    Returns all values, and the indexes of the values that stay unknown. *changed* are the indexes of the columns that
    the change mask names; None if there is no mask. A NULL in *after* is a value if its index is in *changed*. For any
    other NULL the value is taken from *before*, the before image. The value stays unknown in three cases: the column is
    a large object, there is no mask, or *before* has no value.
    """
    absent: set[int] = set()
    values = list(after)
    for at in layout.value_places:
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


class ReadRow(NamedTuple):
    """A row with a readable header.

    *mask* are the possible readings of its change mask, or a Refusal if the mask cannot be read. *mask* is None for a
    before image, and for a row whose mask is NULL or has no digit.
    """

    row: ChangeRow
    layout: RowLayout
    operation: str
    sequence: str
    mask: MaskReadings | Refusal | None

    @property
    def identity(self) -> str:
        """What a before image and its UPDATE have in common: the ``change_seq`` and the table (T-11)."""
        return self.sequence + self.layout.source


class Together:
    """Rows that are decoded together: matches before images to updates, finds one bit order for a table's masks."""

    def __init__(self, entries: Iterable[ReadRow], order: MaskOrder) -> None:
        self._order = order
        self._befores: dict[str, list[ReadRow]] = {}
        self._updates: dict[RowLayout, list[ReadRow]] = {}
        self.updated: set[str] = set()
        self.reading = cache(self._reading)
        """The bit order in which the change masks of a layout are read, found from all of its masks (T-24)."""
        self._with_images: set[str] = set()
        for entry in entries:
            if entry.operation == BEFORE:
                self._with_images.add(entry.layout.source)
                known = self._befores.setdefault(entry.identity, [])
                if not known or all(content(entry.row) != content(one.row) for one in known):
                    known.append(entry)
            elif entry.operation == UPDATE:
                self.updated.add(entry.identity)
                self._updates.setdefault(entry.layout, []).append(entry)

    def befores(self, update: ReadRow) -> Sequence[ReadRow]:
        """The distinct before images of an UPDATE: at most one, unless the source contradicts itself."""
        return self._befores.get(update.identity, ())

    def show_another_key(self, update: ReadRow, key: str | None) -> bool:
        """Whether an unreadable UPDATE may concern another row than the one with *key* (G-03)."""
        try:
            return any(before.layout.key(before.row.values) != key for before in self.befores(update))
        except Refusal:
            return True

    def has_images(self, table: str) -> bool:
        """Whether any row of a table is a before image; then the source stores one for every UPDATE (T-19)."""
        return table in self._with_images

    def _reading(self, layout: RowLayout) -> MaskReading:
        masks: list[MaskReadings] = []
        pairs: list[tuple[MaskReadings, frozenset[int]]] = []
        for update in self._updates.get(layout, ()):
            if update.mask is None or isinstance(update.mask, Refusal):
                continue
            masks.append(update.mask)
            befores = self.befores(update)
            if len(update.mask) > 1 and len(befores) == 1 and befores[0].layout is layout:
                pairs.append((update.mask, differing(layout, befores[0].row.values, update.row.values)))
        return choose_reading(layout, self._order, masks, pairs)


def read_header(layout: RowLayout, values: Values) -> tuple[str, str]:
    """The operation and the ``change_seq`` of a row. Raises a Refusal if one of the two is not valid."""
    sequence = (layout.header(SEQUENCE, values) or "").strip()
    if not is_sequence(sequence) or not sequence.strip("0"):
        what = f"change_seq {shown(sequence)} is not {SEQUENCE_DIGITS} digits, or is zero: it has no place in the order"
        raise Refusal("HEADER_INVALID", what)
    return operation_of(layout.header(OPERATION, values), layout.header(OPERATION_NAME, values)), sequence


@lru_cache(maxsize=1024)
def operation_of(oper: str | None, name: str | None) -> str:
    """The operation of a row, from its header columns ``change_oper`` and ``operation`` (T-12, T-15).

    *oper* is the value of ``change_oper``, *name* that of ``operation``. Raises a Refusal if *oper* is unknown, if
    *name* contradicts *oper*, or if *name* says that the source table was truncated.
    """
    if name is not None and name.strip().upper() == _TRUNCATE:
        raise Refusal("TABLE_EMPTIED", "the source table was truncated: all its rows are gone without a change each")
    code = (oper or "").strip()
    if code not in (INSERT, UPDATE, DELETE, BEFORE):
        raise Refusal("MESSAGE_INVALID", f"change_oper {shown(code)} is none of I, U, D, B")
    if name is not None and _NAMES.get(name.strip().upper()) != code:
        raise Refusal("ROW_INVALID", f"change_oper says {code}, but operation says {shown(name)}")
    return code
