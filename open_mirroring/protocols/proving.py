"""Decides whether a mirrored table equals its source: which parts differ, what one look proves, and the verdict.

The functions are pure; other modules read the rows of the two sides (source and target table). Both sides are divided
into the same *cells*, by the hash of a row's key and the range of the source's split column. Each cell is reduced to a
count and a sum of row hashes. If the count and sum of a cell agree, both sides have the same rows in the cell. In the
other cells each key is compared, and a key that differs is a *candidate*. The source may have changed while the two
sides were read. So one look (one comparison of both sides) can prove that a key is equal, but never that it differs.

A key differs for certain under three conditions. First, the key differs in two looks. Second, when the second look
begins, the change log contains everything that the source had sent some time after the first look. That time is long
enough for commits from before the first look to arrive where changes are read. Third, the change log has no change of
the key above the position that the target had at the first look. Under these conditions the target had every change of
the key from before the first look, and the key's row differed all the same.

A correction publishes the rows of some keys again, as the source has them now. A correction is a batch of the change
log, so the plan rule publishes it like any other change, and nothing bypasses the protocol. The changes of a correction
get a position above every transaction of the table that was logged before the source was read, and below every later
transaction. This order is right: the rows that were read contain every transaction logged before, and later
transactions are newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from open_mirroring.changes.log_position import above, position_text
from open_mirroring.errors import TerminalError

BUCKETS_OF_RANGE = 64
"""Key buckets in each range of the split column."""
BUCKETS_OF_TABLE = 1_024
"""Key buckets of a table that is not divided into ranges."""
SHOWN_KEYS = 1_000
"""A proof lists at most so many differing keys, but counts all of them."""


class Kind(StrEnum):
    """How a key differs."""

    MISSING = "missing"
    """Only the source has the row."""
    EXTRA = "extra"
    """Only the target has the row."""
    DIFFERENT = "different"
    """Both have the row, with different values."""
    DOUBLED = "doubled"
    """The key occurs more often on one side than on the other."""


class ProofVerdict(StrEnum):
    """The result of a proof of a table."""

    EQUAL = "EQUAL"
    DIFFERENT = "DIFFERENT"
    UNPROVEN = "UNPROVEN"


class CellSum(NamedTuple):
    """The rows of a cell: their number, and the sums of both halves of their hashes modulo 2⁶⁴."""

    rows: int
    low: int
    high: int


def add_sums(parts: Iterable[Mapping[int, CellSum]]) -> dict[int, CellSum]:
    """Add up the cells of one side (source or target) from several parts; cells without rows are left out."""
    total: dict[int, CellSum] = {}
    for part in parts:
        for cell, one in part.items():
            known = total.get(cell, CellSum(0, 0, 0))
            total[cell] = CellSum(known.rows + one.rows, (known.low + one.low) % 2**64, (known.high + one.high) % 2**64)
    return total


def differing_cells(source: Mapping[int, CellSum], target: Mapping[int, CellSum]) -> list[int]:
    """The numbers of the cells (groups of rows) whose sums differ between source and target, in order."""
    return sorted(cell for cell in source.keys() | target.keys() if source.get(cell) != target.get(cell))


class DifferingKey(NamedTuple):
    """A key (or a row of a table without key) and how it differs.

    *columns* are the differing columns, if both source and target have a row of this key.
    """

    key: str
    kind: Kind
    columns: tuple[str, ...] = ()


class Position(NamedTuple):
    """The progress of a mirrored table when it was compared with its source (a *look*).

    *batch* is the newest batch of the change log of which the target shows all changes. *highest* is the newest change
    of the table in the batches up to *batch*, as ``epoch ordinal:position``; None if there is none.
    """

    batch: int
    highest: str | None


@dataclass(frozen=True)
class Proof:
    """The result of comparing one table with its source.

    Attributes:
        at: the progress of the table at the first look (comparison); the result holds for this or a later progress.
        source: from what the source's rows were read.
        target_version: the version of the target's Delta table in the first look; None if the table does not exist.
        rows_source: rows of the source in the first look; *rows_target* is the number for the target.
        cells: parts that were compared; *cells_differing* of them were compared key by key.
        looks: how often source and target were compared.
        counts: the number of keys that differ for certain, by kind; the number of rows, if the table has no key.
        columns: the number of differing rows by column.
        keys: the first of the keys that differ for certain.
        unproven: the number of keys that are neither proved to be equal nor proved to differ.
        reasons: why keys are unproven, or that only one side has a column.
        code: the code of the problem if the table could not be compared at all; empty if it was compared.
    """

    at: Position
    source: str
    target_version: int | None = None
    rows_source: int = 0
    rows_target: int = 0
    cells: int = 0
    cells_differing: int = 0
    looks: int = 0
    counts: Mapping[Kind, int] = field(default_factory=dict)
    columns: Mapping[str, int] = field(default_factory=dict)
    keys: Sequence[DifferingKey] = ()
    unproven: int = 0
    reasons: Sequence[str] = ()
    code: str = ""
    proved_at: datetime | None = None

    @property
    def verdict(self) -> ProofVerdict:
        """DIFFERENT if a key differs for certain; UNPROVEN if not, but some key is unproven; EQUAL in all other cases.

        If the table could not be compared at all, the verdict is UNPROVEN.
        """
        if self.differing:
            return ProofVerdict.DIFFERENT
        return ProofVerdict.UNPROVEN if self.unproven or self.code else ProofVerdict.EQUAL

    @property
    def differing(self) -> int:
        """The number of keys that differ for certain."""
        return sum(self.counts.values())

    @property
    def rows(self) -> int:
        """The number of keys of source and target together; 0 if the table could not be compared at all."""
        return self.equal + self.differing + self.unproven if not self.code else 0

    @property
    def equal(self) -> int:
        """The number of keys that were equal in at least one comparison."""
        ours = self.counts.get(Kind.EXTRA, 0)
        return max(0, self.rows_source - (self.differing - ours) - self.unproven) if not self.code else 0

    def document(self) -> dict[str, Any]:
        """The proof as plain JSON values. The keys are left out, because they may be many."""
        return {
            "verdict": str(self.verdict),
            "code": self.code,
            "proved_at": None if self.proved_at is None else self.proved_at.isoformat(),
            "published_batch": self.at.batch,
            "position": self.at.highest,
            "source": self.source,
            "target_version": self.target_version,
            "rows_source": self.rows_source,
            "rows_target": self.rows_target,
            "cells": self.cells,
            "cells_differing": self.cells_differing,
            "looks": self.looks,
            "equal": self.equal,
            **{str(kind): self.counts.get(kind, 0) for kind in Kind},
            "columns": dict(self.columns),
            "unproven": self.unproven,
            "reasons": list(self.reasons),
            "all_named": len(self.keys) == self.differing,
        }


def why_behind(ends: Mapping[str, int], bound: Mapping[str, int], open_batch: int | None, open_fragments: int) -> str:
    """Why the change log may lack a change from before a comparison; empty if it has all these changes."""
    unread = sorted(name for name, end in ends.items() if bound.get(name, 0) < end)
    if unread:
        return f"the source had sent more than is in the change log: {', '.join(map(repr, unread[:3]))}"
    if open_batch is not None:
        return f"batch {open_batch} is not in the change log yet"
    if open_fragments:
        return f"{open_fragments} messages wait for their pieces, or for a description of their structure"
    return ""


def common_type(one: str, other: str) -> str | None:
    """The target type of the same family that holds all values of both types exactly; None without one.

    Types of different families, such as an integer and a decimal, have no common type.
    """
    if one == other:
        return one
    (family, a), (other_family, b) = _wide(one), _wide(other)
    if family != other_family:
        return None
    if family == "decimal":
        scale, whole = max(a[1], b[1]), max(a[0] - a[1], b[0] - b[1])
        return f"decimal({whole + scale},{scale})" if whole + scale <= 38 else None
    return f"{family}{max(a[0], b[0])}" if a else None


def _wide(landing: str) -> tuple[str, tuple[int, ...]]:
    """Split a type into its family (such as decimal) and the numbers that make it wider."""
    name, _, digits = landing.partition("(")
    if digits:
        precision, scale = digits.rstrip(")").split(",")
        return name, (int(precision), int(scale))
    for family in ("int", "float"):
        if name.startswith(family):
            return family, (int(name.removeprefix(family)),)
    return name, ()


CORRECTABLE = (Kind.MISSING, Kind.EXTRA, Kind.DIFFERENT)
"""The kinds that a correction can fix. A duplicate key is not among them: no change removes only one of its rows."""


def keys_to_correct(proof: Proof, keyed: bool) -> tuple[str, ...]:
    """The keys whose rows a correction publishes; *keyed* is whether the table has a key.

    Raises ``REPAIR_REFUSED`` if no key is proved to differ, or if a correction cannot make the table equal to its
    source.
    """
    keys = tuple(key.key for key in proof.keys if key.kind in CORRECTABLE)
    reason = ""
    if proof.verdict is not ProofVerdict.DIFFERENT:
        reason = "no key of it is proved to differ"
    elif not keyed:
        reason = "a table without key accepts inserts only"
    elif len(proof.keys) < proof.differing:
        reason = f"{proof.differing} keys differ, and only {len(proof.keys)} are named"
    elif len(keys) < len(proof.keys):
        reason = f"{len(proof.keys) - len(keys)} keys are there more than once"
    if reason:
        raise TerminalError("REPAIR_REFUSED", reason, next_step="find the cause, then `open-mirroring reload-table`")
    return keys


def position_above(highest: str | None, stream_from: str | None, *, removes: bool) -> str:
    """The position that a correction's change gets in the newest stream of a table.

    The position is above the transaction of *highest*, and above *stream_from* (the position from which changes are
    published over the initial load), but below any later transaction. Raises ``REPAIR_REFUSED`` if no change of the
    table was ever logged.
    """
    if highest is None:
        raise TerminalError(
            "REPAIR_REFUSED",
            "no change of the table has been logged yet, so a correction has no position to follow",
            next_step="find the cause, then `open-mirroring reload-table`",
        )
    major = above(highest)
    if stream_from is not None and stream_from > major:
        major = f"{stream_from}~"
    # The half of a position is 0 for removing a key, 1 for setting a row.
    return position_text(major, "0", 0 if removes else 1)
