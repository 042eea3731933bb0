"""Corrects a mirrored table: publishes the rows of some keys once more, as the source has them now.

A correction is a batch of the change log, so the plan rule publishes it like any other change and nothing bypasses the
protocol. Its changes stand above every transaction of the table that was logged before the source was read, and
below every later one. This is right because a logged change was committed before that, so the rows that were read
contain it; later changes are newer than these rows and win.
"""

from __future__ import annotations

from open_mirroring.changes.log_position import above, position_text
from open_mirroring.errors import TerminalError
from open_mirroring.protocols.proving import Kind, Proof, ProofVerdict

CORRECTABLE = (Kind.MISSING, Kind.EXTRA, Kind.DIFFERENT)
"""A key that is there twice is no key of the target's: no change of it takes one of the two away."""


def keys_to_correct(proof: Proof, keyed: bool) -> tuple[str, ...]:
    """The keys whose rows a correction publishes.

    Raises:
        TerminalError: ``CORRECTION_REFUSED`` where no correction makes the table equal.
    """
    keys = tuple(key.key for key in proof.keys if key.kind in CORRECTABLE)
    reason = ""
    if proof.verdict is not ProofVerdict.DIFFERENT:
        reason = "no key of it is proved to differ"
    elif not keyed:
        reason = "a table without key takes inserts only"
    elif len(proof.keys) < proof.differing:
        reason = f"{proof.differing} keys differ, and only {len(proof.keys)} are named"
    elif len(keys) < len(proof.keys):
        reason = f"{len(proof.keys) - len(keys)} keys are there more than once"
    if reason:
        raise TerminalError("CORRECTION_REFUSED", reason, way_out="find the cause, then `open-mirroring reload-table`")
    return keys


def position_above(highest: str | None, stream_from: str | None, *, removes: bool) -> str:
    """Where a correction's change stands in the newest incarnation of a table's stream.

    Above the transaction of *highest* and that from which the stream is published over the load, below all others.

    Raises:
        TerminalError: ``CORRECTION_REFUSED`` when no change of the table was ever logged.
    """
    if highest is None:
        raise TerminalError(
            "CORRECTION_REFUSED",
            "no change of the table was logged yet: nothing tells where a correction stands in its order",
            way_out="find the cause, then `open-mirroring reload-table`",
        )
    major = above(highest)
    if stream_from is not None and stream_from > major:
        major = f"{stream_from}~"
    # The half of a position that removes a key is 0, the half that sets a row 1.
    return position_text(major, "0", 0 if removes else 1)
