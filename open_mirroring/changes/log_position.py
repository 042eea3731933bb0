"""The position that puts all changes of a table in one order: ``(epoch, major, minor, sub)`` (G-01).

*epoch* is the number that the ledger gave to a stream. A stream is one enabling of change event streaming
(``logicalid``) or one full load by a Qlik task; each new stream of a table gets the next number. *major* is the commit
(LSN or change sequence), *minor* the place inside the commit. Both are strings of fixed width that sort in the order of
the source's transaction log. *sub* puts the DELETE half of a key change (0) before its UPSERT half (1).

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
    """The position of a change in the total order of its table; positions compare field by field."""

    epoch: int
    major: str
    minor: str
    sub: int

    @property
    def text(self) -> str:
        """The position inside its stream, ``major:minor:sub``, as the string in the change log; sorts in order."""
        return position_text(self.major, self.minor, self.sub)

    @property
    def order(self) -> str:
        """The position over all streams of a table, ``epoch:major:minor:sub``, as a string that sorts in order."""
        return position_order(self.epoch, self.text)

    @property
    def transaction(self) -> tuple[int, str]:
        """The part of the position that all changes of one source transaction share."""
        return (self.epoch, self.major)

    @classmethod
    def parse(cls, epoch: int, text: str) -> LogPosition:
        """Parse the string ``major:minor:sub``, a position inside the stream with the number *epoch*.

        Raises ``LOG_DAMAGED`` if *text* does not have exactly three parts, if major or minor is empty, or if sub is
        neither 0 nor 1.
        """
        parts = text.split(":")
        if len(parts) != 3 or parts[2] not in ("0", "1") or not parts[0] or not parts[1]:
            raise TerminalError(
                "LOG_DAMAGED",
                f"{text!r} is not a log position",
                next_step="restore the change log from a backup: a position has the form major:minor:sub",
            )
        return cls(epoch, parts[0], parts[1], int(parts[2]))


def position_text(major: str, minor: str, sub: int) -> str:
    """The position ``major:minor:sub`` as a string, as stored in the change log."""
    return f"{major}:{minor}:{sub}"


def position_order(epoch: int, text: str) -> str:
    """The position ``epoch:text`` as a string that sorts over all streams of a table.

    *text* is a position inside its stream, or only the beginning of a position. A beginning ``major`` sorts below every
    change of its transaction and above all changes of earlier transactions. So does the beginning ``major:minor`` of
    the first change of a transaction (K-80).
    """
    return f"{epoch:0{_ORDINAL_DIGITS}d}:{text}"


def load_epoch(generation: int) -> str:
    """The stream name of rows from an initial load.

    *generation* counts the resets of the table. Each generation has a stream name of its own, because rows that were
    loaded before a reset do not count after it.
    """
    return f"{_LOAD_EPOCH}{generation})"


def is_load_epoch(epoch: str) -> bool:
    """Whether a stream name means rows of an initial load."""
    return epoch.startswith(_LOAD_EPOCH)


def is_of_generation(epoch: str, generation: int) -> bool:
    """Whether changes of a stream count in this generation of their table; a reset begins the next generation.

    Rows that were loaded before a reset do not count after the reset. They would bring back rows that the source has
    deleted since.
    """
    return not is_load_epoch(epoch) or epoch == load_epoch(generation)


def transaction_at(order: str) -> tuple[int, str]:
    """The stream number and the commit of the position *order*; the empty string gives a transaction below all others.

    *order* is a string as :attr:`LogPosition.order` returns it.
    """
    return (
        (int(order[:_ORDINAL_DIGITS]), order[_ORDINAL_DIGITS + 1 :].partition(":")[0]) if order else (LOAD_ORDINAL, "")
    )


def not_below(order: str, ordinals: Mapping[str, int]) -> dict[str, str]:
    """For each stream its lowest position at or above *order*; streams that are entirely below *order* are left out.

    *ordinals* are the numbers of the streams by stream name.
    """
    ordinal, text = int(order[:_ORDINAL_DIGITS]), order[_ORDINAL_DIGITS + 1 :]
    return {epoch: text if at == ordinal else "" for epoch, at in ordinals.items() if at >= ordinal}


def not_above(order: str, ordinals: Mapping[str, int]) -> dict[str, str | None]:
    """For each stream its highest position at or below *order* (None: no limit); streams above *order* are left out.

    *ordinals* are the numbers of the streams by stream name.
    """
    ordinal, text = int(order[:_ORDINAL_DIGITS]), order[_ORDINAL_DIGITS + 1 :]
    return {epoch: text if at == ordinal else None for epoch, at in ordinals.items() if at <= ordinal}


def above(highest: str | None) -> str:
    """A sort key behind all positions of the transaction of *highest*, and before those of later transactions.

    None gives the empty string, which comes before every position. The sort key never falls between two changes of one
    transaction. To split a transaction would be wrong: its other changes decide whether the DELETE half of a key change
    removes a row.
    """
    return "" if highest is None else f"{LogPosition.parse(0, highest).major}~"
