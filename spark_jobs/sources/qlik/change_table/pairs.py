"""What rows of change tables show only together: pairs of before and after image, and how masks are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

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
from spark_jobs.sources.qlik.change_table.updates import MaskReading, MaskReadings, choose_reading, differing
from spark_jobs.sources.qlik.masks import MaskOrder
from spark_jobs.sources.qlik.positions import SEQUENCE_DIGITS

BEFORE = "B"
_TRUNCATE = "TRUNCATE"
_NAMES = {"INSERT": INSERT, "UPDATE": UPDATE, "DELETE": DELETE, "BEFOREIMAGE": BEFORE}


class ReadRow(NamedTuple):
    """A row with a readable header. *mask* is its mask, or why there is none; not set for before images."""

    row: ChangeRow
    layout: RowLayout
    operation: str
    sequence: str
    mask: MaskReadings | Refusal | None

    @property
    def identity(self) -> str:
        """The common identity of a before image and its UPDATE (T-11): the sequence, in one length, and the table."""
        return self.sequence + self.layout.source


class Together:
    """Rows of one call, analyzed together."""

    def __init__(self, entries: Iterable[ReadRow], order: MaskOrder) -> None:
        self._order = order
        self._befores: dict[str, list[ReadRow]] = {}
        self._updates: dict[RowLayout, list[ReadRow]] = {}
        self._updated: set[str] = set()
        self._readings: dict[RowLayout, MaskReading] = {}
        self._with_images: set[str] = set()
        for entry in entries:
            if entry.operation == BEFORE:
                self._with_images.add(entry.layout.source)
                known = self._befores.setdefault(entry.identity, [])
                if not known or all(content(entry.row) != content(one.row) for one in known):
                    known.append(entry)
            elif entry.operation == UPDATE:
                self._updated.add(entry.identity)
                self._updates.setdefault(entry.layout, []).append(entry)

    def befores(self, update: ReadRow) -> Sequence[ReadRow]:
        """The distinct before images of an UPDATE: one, unless the source contradicts itself."""
        return self._befores.get(update.identity, ())

    def has_update(self, before: ReadRow) -> bool:
        """Whether the UPDATE of a before image is among the rows."""
        return before.identity in self._updated

    def tell_another_key(self, update: ReadRow, key: str | None) -> bool:
        """Whether an unreadable UPDATE may concern another row than that of *key* (G-03)."""
        try:
            return any(before.layout.key(before.row.values) != key for before in self.befores(update))
        except Refusal:
            return True

    def has_images(self, table: str) -> bool:
        """Whether any row of a table is a before image: then the source stores one for every UPDATE (T-19)."""
        return table in self._with_images

    def reading(self, layout: RowLayout) -> MaskReading:
        """How the masks of a table are read, decided by all of them (T-24)."""
        found = self._readings.get(layout)
        if found is None:
            found = self._readings[layout] = self._judged(layout)
        return found

    def _judged(self, layout: RowLayout) -> MaskReading:
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
    """Operation and sequence of a row."""
    sequence = (layout.header(SEQUENCE, values) or "").strip()
    is_number = sequence.isascii() and sequence.isdigit()
    if len(sequence) != SEQUENCE_DIGITS or not is_number or not sequence.strip("0"):
        what = f"change_seq {shown(sequence)} is not {SEQUENCE_DIGITS} digits, or is zero: it has no place in the order"
        raise Refusal("HEADER_INVALID", what)
    return operation_of(layout.header(OPERATION, values), layout.header(OPERATION_NAME, values)), sequence


@lru_cache(maxsize=1024)
def operation_of(oper: str | None, name: str | None) -> str:
    """The operation in ``change_oper``, unless ``operation`` contradicts it (T-12, T-15)."""
    if name is not None and name.strip().upper() == _TRUNCATE:
        raise Refusal("TABLE_EMPTIED", "the source table was truncated: all its rows are gone without a change each")
    code = (oper or "").strip()
    if code not in (INSERT, UPDATE, DELETE, BEFORE):
        raise Refusal("MESSAGE_INVALID", f"change_oper {shown(code)} is none of I, U, D, B")
    if name is not None and _NAMES.get(name.strip().upper()) != code:
        raise Refusal("ROW_INVALID", f"change_oper says {code}, but operation says {shown(name)}")
    return code
