"""The position that puts all changes of a table in one order: ``(epoch, major, minor, sub)`` (G-01).

*epoch* is the number that the ledger gave to a stream, such as a CES ``logicalid`` or a Qlik load: a stream that is set
up again gets the next number. *major* is the commit (LSN or change sequence), *minor* the place inside it. Both are
texts of fixed width, so that they sort in the order of the source's log. *sub* puts the DELETE half of a key change (0)
before its UPSERT half (1).

Inside a stream a position is written ``major:minor:sub``. Arrival, file order and clocks never decide the order.
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
"""The ``major`` of rows of a source's own full load (Qlik): they are below every change of that load (K-18)."""

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
        """The position inside its stream, ``major:minor:sub``, as stored in the change log; sorts like the position."""
        return position_text(self.major, self.minor, self.sub)

    @property
    def order(self) -> str:
        """The position as a text that sorts over all streams of a table: ``epoch:major:minor:sub``."""
        return position_order(self.epoch, self.text)

    @property
    def transaction(self) -> tuple[int, str]:
        """The part of the position that all changes of one source transaction share."""
        return (self.epoch, self.major)

    @classmethod
    def parse(cls, epoch: int, text: str) -> LogPosition:
        """Parse a position of the form ``major:minor:sub``.

        Raises:
            TerminalError: ``LOG_DAMAGED`` when the text has not exactly three parts or a sub other than 0 or 1.
        """
        parts = text.split(":")
        if len(parts) != 3 or parts[2] not in ("0", "1") or not parts[0] or not parts[1]:
            raise TerminalError(
                "LOG_DAMAGED",
                f"{text!r} is not a log position",
                next_step="positions are written major:minor:sub with sub 0 or 1; the change log holds something else",
            )
        return cls(epoch, parts[0], parts[1], int(parts[2]))


def position_text(major: str, minor: str, sub: int) -> str:
    """The position ``major:minor:sub``, as stored in the change log."""
    return f"{major}:{minor}:{sub}"


def position_order(epoch: int, text: str) -> str:
    """A text that sorts over all streams of a table as its positions do: ``epoch:text``.

    *text* is a position inside its stream, or only its ``major``. A ``major`` sorts below every change of its
    transaction and above those of all earlier ones. So does ``major:minor`` of the first change of a transaction
    (K-80).
    """
    return f"{epoch:0{_ORDINAL_DIGITS}d}:{text}"


def load_epoch(generation: int) -> str:
    """The stream name of rows from an initial load; every generation (begun by a reset) of a table has its own."""
    return f"{_LOAD_EPOCH}{generation})"


def is_load_epoch(epoch: str) -> bool:
    """Whether a stream name stands for rows of an initial load."""
    return epoch.startswith(_LOAD_EPOCH)


def is_of_generation(epoch: str, generation: int) -> bool:
    """Whether changes of a stream count in this generation of their table.

    Rows loaded before a reset never count after it: deleted rows would reappear.
    """
    return not is_load_epoch(epoch) or epoch == load_epoch(generation)


def transaction_at(order: str) -> tuple[int, str]:
    """The stream number and the commit in a position (:attr:`LogPosition.order`); "" gives one below all others."""
    return (
        (int(order[:_ORDINAL_DIGITS]), order[_ORDINAL_DIGITS + 1 :].partition(":")[0]) if order else (LOAD_ORDINAL, "")
    )


def not_below(order: str, ordinals: Mapping[str, int]) -> dict[str, str]:
    """For each stream the lowest position at or above *order*; streams entirely below it are left out.

    *ordinals* are the numbers of the streams, by stream name.
    """
    ordinal, text = int(order[:_ORDINAL_DIGITS]), order[_ORDINAL_DIGITS + 1 :]
    return {epoch: text if at == ordinal else "" for epoch, at in ordinals.items() if at >= ordinal}


def not_above(order: str, ordinals: Mapping[str, int]) -> dict[str, str | None]:
    """For each stream the highest position at or below *order*, None for no limit; streams above it are left out.

    *ordinals* are the numbers of the streams, by stream name.
    """
    ordinal, text = int(order[:_ORDINAL_DIGITS]), order[_ORDINAL_DIGITS + 1 :]
    return {epoch: text if at == ordinal else None for epoch, at in ordinals.items() if at <= ordinal}


def above(highest: str | None) -> str:
    """A text above all positions of the transaction of *highest*, and below those of later ones; None gives "".

    It never falls between two changes of one transaction, because the other changes decide whether the DELETE half of a
    key change removes a row.
    """
    return "" if highest is None else f"{LogPosition.parse(0, highest).major}~"
