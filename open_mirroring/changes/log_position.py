"""The total order of a table's changes.

A log position is ``(epoch, major, minor, sub)`` (G-01). *epoch* is the ordinal that the ledger gave to a stream
incarnation (a CES ``logicalid`` GUID, a Qlik load). *major* is the commit (LSN, change sequence) and *minor* the
position inside it. Both are texts of fixed width, so that they sort in the order of the log. *sub* puts the DELETE half
of a key change (0) before its UPSERT half (1).

Inside an epoch a position is written ``major:minor:sub``. Arrival, file order and clocks never decide the order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from open_mirroring.errors import TerminalError

_ORDINAL_DIGITS = 6
_LOAD_EPOCH = "(initial load "
LOAD_ORDINAL = -1
"""The ordinal of loaded rows in the log: below every stream of their table."""


LOAD_MAJOR = "0" * 16
"""The position of a source's own full load: its rows are below every change of their load (K-18)."""

BEGINS_EMPTY = ""
"""The first position of a table that was empty when its stream began: all changes count."""


class LogPosition(NamedTuple):
    """A change's position in the total order of its table; compares field by field."""

    epoch: int
    major: str
    minor: str
    sub: int

    @property
    def text(self) -> str:
        """The position inside its epoch, as stored in the change log; sorts like the position."""
        return position_text(self.major, self.minor, self.sub)

    @property
    def order(self) -> str:
        """The position over all epochs of a table as one text that sorts like it."""
        return position_order(self.epoch, self.text)

    @property
    def transaction(self) -> tuple[int, str]:
        """The part of the position that all changes of one source transaction share."""
        return (self.epoch, self.major)

    @classmethod
    def parse(cls, epoch: int, text: str) -> LogPosition:
        """Read back what :attr:`text` wrote.

        Raises:
            TerminalError: ``LOG_DAMAGED`` when the text has not exactly three parts or a sub other than 0 or 1.
        """
        parts = text.split(":")
        if len(parts) != 3 or parts[2] not in ("0", "1") or not parts[0] or not parts[1]:
            raise TerminalError(
                "LOG_DAMAGED",
                f"{text!r} is not a log position",
                way_out="positions are written major:minor:sub with sub 0 or 1; the change log holds something else",
            )
        return cls(epoch, parts[0], parts[1], int(parts[2]))


def position_text(major: str, minor: str, sub: int) -> str:
    """The sortable text of a position inside its epoch."""
    return f"{major}:{minor}:{sub}"


def position_order(epoch: int, text: str) -> str:
    """A text that sorts over all epochs of a table as its positions do.

    *text* is a position inside its epoch, or only its ``major``. A ``major`` sorts below every change of its
    transaction and above those of all earlier ones. So does ``major:minor`` of the first change of a transaction
    (K-80).
    """
    return f"{epoch:0{_ORDINAL_DIGITS}d}:{text}"


def load_epoch(generation: int) -> str:
    """The incarnation of loaded rows in the log; each generation of a table has its own."""
    return f"{_LOAD_EPOCH}{generation})"


def is_load_epoch(epoch: str) -> bool:
    """Whether an incarnation contains loaded rows."""
    return epoch.startswith(_LOAD_EPOCH)


def is_of_generation(epoch: str, generation: int) -> bool:
    """Whether changes of an incarnation count in a generation of their table.

    Rows loaded for another generation never do: old rows would reappear.
    """
    return not is_load_epoch(epoch) or epoch == load_epoch(generation)


def transaction_at(order: str) -> tuple[int, str]:
    """The transaction, as ordinal and ``major``, of a position over all incarnations; "" is below all."""
    return (
        (int(order[:_ORDINAL_DIGITS]), order[_ORDINAL_DIGITS + 1 :].partition(":")[0]) if order else (LOAD_ORDINAL, "")
    )


def not_below(order: str, ordinals: Mapping[str, int]) -> dict[str, str]:
    """For each incarnation the lowest text at or above *order*; incarnations entirely below it are left out."""
    ordinal, text = int(order[:_ORDINAL_DIGITS]), order[_ORDINAL_DIGITS + 1 :]
    return {epoch: text if at == ordinal else "" for epoch, at in ordinals.items() if at >= ordinal}


def not_above(order: str, ordinals: Mapping[str, int]) -> dict[str, str | None]:
    """For each incarnation the highest text at or below *order*, None for no limit; higher ones are left out."""
    ordinal, text = int(order[:_ORDINAL_DIGITS]), order[_ORDINAL_DIGITS + 1 :]
    return {epoch: text if at == ordinal else None for epoch, at in ordinals.items() if at <= ordinal}


def above(highest: str | None) -> str:
    """The lowest text above every position of the transaction of *highest*; None: below every text.

    It never falls between two changes of one transaction, because the other changes decide whether the half of a key
    change removes a row.
    """
    return "" if highest is None else f"{LogPosition.parse(0, highest).major}~"
