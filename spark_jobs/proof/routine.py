"""Chooses what a proof compares of a table: all rows, or only the ranges that are due and changed keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from open_mirroring.changes.log_position import not_below
from open_mirroring.ledger.proofs import RecordedProof
from open_mirroring.ledger.reading import LedgerReader, TableState
from open_mirroring.protocols.coverage import Coverage, Rotation
from open_mirroring.protocols.proving import CellSum, Position, Proof
from open_mirroring.storage.object_path import Place
from spark_jobs.proof.keys import LoggedChanges
from spark_jobs.proof.rows import OfKeys, OfRanges, Shape, are_asked_by_key
from spark_jobs.proof.sides import Source, Split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCAN_ABOVE = 10
"""If more than one row in so many changed, reading all rows is cheaper than asking for these."""


@dataclass(frozen=True)
class Scope:
    """What one proof compares of a table.

    Attributes:
        at: when the proof began.
        before: the last proof of the table's generation.
        coverage: what earlier proofs compared; None if this is not recorded for the table.
        ranges: the numbers of the ranges to compare; None for the entire table.
        asks: whether the next proof asks for the keys that changed since this one.
        keys: the keys whose rows this proof asks for.
        compared: the coverage after this proof, if it decides for all compared rows whether they are equal.
    """

    at: datetime
    before: RecordedProof | None = None
    coverage: Coverage | None = None
    ranges: frozenset[int] | None = None
    asks: bool = False
    keys: OfKeys | None = None
    compared: Coverage | None = None

    @property
    def known(self) -> Coverage | None:
        """What earlier proofs of the table compared."""
        return None if self.before is None else self.before.coverage

    @property
    def borders(self) -> Sequence[str] | None:
        """The borders of the ranges, while a round (in which each range is compared once) is not over; else None."""
        known = self.known
        return None if known is None or known.is_round_over or not known.column else known.borders

    @property
    def is_idle(self) -> bool:
        """Whether this proof has nothing to compare."""
        return self.ranges == frozenset() and self.keys is None

    def part(self, shape: Shape) -> OfRanges | None:
        """The ranges to compare, as a part of the table; None to compare all rows."""
        return None if self.ranges is None else OfRanges(shape, self.ranges)

    def covering(self, split: Split | None) -> Scope:
        """This scope with the coverage of earlier proofs, converted to the present borders in *split*."""
        column, texts = ("", ()) if split is None else (split.column, split.texts)
        known = self.known
        if known is None or known.column != column:
            return replace(self, coverage=Coverage.new(self.at, column, texts))
        if split is None or self.borders is not None:
            return replace(self, coverage=known)
        return replace(self, coverage=known.cut(self.at, split.typed(known.borders), texts, split.borders))

    def chosen(self, rotation: Rotation, shape: Shape, asked: pa.Array | None, rows: int) -> Scope:
        """This scope with the ranges and keys that are due.

        *asked* are the keys whose rows to ask for, or None if the source cannot be asked by key; *rows* is the number
        of rows of the target table, 0 if unknown.
        """
        assert self.coverage is not None
        due = self.coverage.due(rotation, self.at)
        if len(due) == shape.ranges or (asked is not None and 0 < rows < len(asked) * _SCAN_ABOVE):
            return replace(self, asks=asked is not None)
        keys = None if asked is None else OfKeys.of(asked, shape)
        return replace(self, ranges=due, asks=asked is not None, keys=keys)

    def looked(self, sums: Mapping[int, CellSum], shape: Shape, rows: int, at: Position, until: str | None) -> Scope:
        """This scope after the first comparison, which gave the *sums* of the source's cells.

        *rows* and *at* are the number of rows and the position of the target table, *until* is its published position.
        """
        if self.coverage is None:
            return self
        counted = dict.fromkeys(range(shape.ranges) if self.ranges is None else self.ranges, 0)
        for cell, one in sums.items():
            counted[cell // shape.buckets] += one.rows
        compared = replace(self.coverage.after(self.at, counted, at.batch, until), table_rows=rows)
        return replace(self, compared=compared)

    def after(self, proof: Proof, differing: Collection[int], *, is_decided: bool) -> Coverage | None:
        """The coverage after a proof; ranges without a decision count as not compared, and a later proof compares them.

        If the source cannot be asked by key, *differing* ranges count as not compared too: else the next proof would
        not show the difference.
        """
        coverage = self.compared if is_decided and self.compared is not None else self.known
        if coverage is None or not proof.differing:
            return coverage
        again = () if self.asks or self.ranges is None else differing
        proved = tuple(None if number in again else at for number, at in enumerate(coverage.proved))
        return replace(coverage, proved=proved, differed_at=proof.proved_at)

    def is_known(self, proof: Proof) -> bool:
        """Whether the last proof already found every difference that *proof* found."""
        found = () if self.before is None else self.before.proof.keys
        return {key.key for key in proof.keys} <= {key.key for key in found} and len(proof.keys) == proof.differing


def keys_to_ask(
    spark: SparkSession, reader: LedgerReader, root: Place, state: TableState, source: Source, scope: Scope
) -> pa.Array | None:
    """The keys that changed since the last proof or differed in it; None if the source cannot be asked by key."""
    coverage, before = scope.known, scope.before
    if not are_asked_by_key(source.columns, state.keys, state.columns.salted):
        return None
    if before is None or coverage is None:
        return pa.array([], pa.string())
    epochs = reader.epochs([state.id]).get(state.id, {})
    reaching = {} if coverage.position is None else not_below(coverage.position, epochs)
    changed = LoggedChanges.since(reader, root, state.source, coverage.batch, reaching).keys(spark)
    named = pa.array([one.key for one in before.proof.keys], pa.string())
    return pa.chunked_array([changed, named]).unique()
