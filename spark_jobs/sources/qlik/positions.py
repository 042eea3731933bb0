"""Makes log positions of Qlik's change sequences, in change tables as in messages (G-01, T-10).

A change sequence is the time of the commit in 16 digits and a number of 19 digits that grows over a whole task. Changes
of one transaction have the same time: it is what they have in common, and so the major part of their positions.
Different transactions of one hundredth of a second count as one; their order is the same.

Public source: Qlik help, *Change tables* (``change_seq``), *Metadata and data messages* (``changeSequence``).
"""

from __future__ import annotations

from open_mirroring.changes.log_position import position_text

SEQUENCE_DIGITS = 35
"""Of a change sequence, unless the mirror file says otherwise."""

TIME_DIGITS = 16
_COUNTER_DIGITS = 20
FIRST_COUNTER = f"{1:0{_COUNTER_DIGITS}d}"
"""What the place of the first change of a transaction ends with, where changes are counted (K-25)."""


def qlik_position(sequence: str, sub: int, counter: int = 0) -> str:
    """The place of a change inside its load: *sub* 0 removes a row, 1 sets one (G-03).

    Args:
        sequence: digits, of one length throughout a load; all zeros lie below every change (K-18).
        sub: the half of a key change, else 1 for what sets a row and 0 for what removes one.
        counter: the place in the transaction, or the offset of a row of a full load.
    """
    return position_text(sequence[:TIME_DIGITS], f"{sequence[TIME_DIGITS:]}{counter:0{_COUNTER_DIGITS}d}", sub)
