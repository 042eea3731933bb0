"""Converts Qlik's change sequences to log positions, for change tables and messages (G-01, T-10).

The first 16 digits of a change sequence are the time of the commit; they are the major part of a log position. All
further digits, usually 19, are a number. Public source: Qlik help, *Change tables* (``change_seq``).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.log_position import position_text

SEQUENCE_DIGITS = 35
"""The number of digits of a change sequence, unless the mirror file sets another."""

TIME_DIGITS = 16
_COUNTER_DIGITS = 20
FIRST_COUNTER = f"{1:0{_COUNTER_DIGITS}d}"
"""The end of the position of a transaction's first change, if changes are counted (K-25)."""


def is_sequence(text: str, digits: int = SEQUENCE_DIGITS) -> bool:
    """Whether *text* is a change sequence: exactly *digits* digits, as another length would not sort correctly."""
    return len(text) == digits and text.isascii() and text.isdecimal()


def qlik_position(sequence: str, sub: int, counter: int = 0) -> str:
    """The log position of a change inside its Qlik full load: *sub* is 0 to remove a row and 1 to set one (G-03).

    *counter* is the number of the change in its transaction, or, for a row of a full load, its offset.
    """
    return position_text(sequence[:TIME_DIGITS], f"{sequence[TIME_DIGITS:]}{counter:0{_COUNTER_DIGITS}d}", sub)


def qlik_positions(sequences: pa.Array, subs: pa.Array, counters: pa.Array) -> pa.Array:
    """The :func:`qlik_position` of each row of three columns."""
    texts = pc.ascii_lpad(counters.cast(pa.string()), _COUNTER_DIGITS, "0")
    major, rest = pc.utf8_slice_codeunits(sequences, 0, TIME_DIGITS), pc.utf8_slice_codeunits(sequences, TIME_DIGITS)
    return pc.binary_join_element_wise(major, pc.binary_join_element_wise(rest, texts, ""), subs, ":")
