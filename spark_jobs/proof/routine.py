"""Chooses what one proof compares of a table: all, or the part that is due and the keys that changed since."""

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
from spark_jobs.proof.logged_keys import LoggedChanges
from spark_jobs.proof.part import OfKeys, OfRanges, are_asked_by_key
from spark_jobs.proof.rows import Shape
from spark_jobs.proof.sides import Source, Split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCAN_ABOVE = 10
"""If more than one row in so many changed, reading all rows is cheaper than asking for these."""


@dataclass(frozen=True)
class Scope:
    """What one proof compares of a table.

    Attributes:
        at: when it began.
        before: the last proof of the table's generation.
        coverage: what was compared before; None: it is not kept for this table.
        ranges: the numbers of the ranges to compare; None: the entire table.
        asks: whether the next proof asks for the keys that changed since this one.
        keys: the keys to ask for now.
        compared: the coverage if this proof decides all that it looked at.
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
        """The coverage after the last proof."""
        return None if self.before is None else self.before.coverage

    @property
    def borders(self) -> Sequence[str] | None:
        """The borders of a round that is not over."""
        known = self.known
        return None if known is None or known.is_round_over or not known.column else known.borders

    @property
    def is_idle(self) -> bool:
        """Whether nothing of the table is due."""
        return self.ranges == frozenset() and self.keys is None

    def part(self, shape: Shape) -> OfRanges | None:
        """The ranges to compare; None: all rows."""
        return None if self.ranges is None else OfRanges(shape, self.ranges)

    def covering(self, split: Split | None) -> Scope:
        """The same with what was compared before, by the borders of now."""
        column, texts = ("", ()) if split is None else (split.column, split.texts)
        known = self.known
        if known is None or known.column != column:
            return replace(self, coverage=Coverage.new(self.at, column, texts))
        if split is None or self.borders is not None:
            return replace(self, coverage=known)
        return replace(self, coverage=known.cut(self.at, split.typed(known.borders), texts, split.borders))

    def chosen(self, rotation: Rotation, shape: Shape, asked: pa.Array | None, rows: int) -> Scope:
        """The same with what is due.

        *asked* are keys to ask for, None: impossible; *rows* the target has, 0: unknown.
        """
        assert self.coverage is not None
        due = self.coverage.due(rotation, self.at)
        if len(due) == shape.ranges or (asked is not None and 0 < rows < len(asked) * _SCAN_ABOVE):
            return replace(self, asks=asked is not None)
        keys = None if asked is None else OfKeys.of(asked, shape)
        return replace(self, ranges=due, asks=asked is not None, keys=keys)

    def looked(self, sums: Mapping[int, CellSum], shape: Shape, rows: int, at: Position, until: str | None) -> Scope:
        """The same after the first look: *sums* of the source's cells; how many *rows* the target has, and its place.

        *until* is the table's published position.
        """
        if self.coverage is None:
            return self
        counted = dict.fromkeys(range(shape.ranges) if self.ranges is None else self.ranges, 0)
        for cell, one in sums.items():
            counted[cell // shape.buckets] += one.rows
        compared = replace(self.coverage.after(self.at, counted, at.batch, until), table_rows=rows)
        return replace(self, compared=compared)

    def after(self, proof: Proof, differing: Collection[int], *, is_decided: bool) -> Coverage | None:
        """The coverage after a proof; what is not decided counts as not compared, and comes up again.

        So do *differing* ranges where keys cannot be asked for: the next proof would not show the difference.
        """
        coverage = self.compared if is_decided and self.compared is not None else self.known
        if coverage is None or not proof.differing:
            return coverage
        again = () if self.asks or self.ranges is None else differing
        proved = tuple(None if number in again else at for number, at in enumerate(coverage.proved))
        return replace(coverage, proved=proved, differed_at=proof.proved_at)

    def is_known(self, proof: Proof) -> bool:
        """Whether all that differs was found by the last proof, too."""
        found = () if self.before is None else self.before.proof.keys
        return {key.key for key in proof.keys} <= {key.key for key in found} and len(proof.keys) == proof.differing


def keys_to_ask(
    spark: SparkSession, reader: LedgerReader, root: Place, state: TableState, source: Source, scope: Scope
) -> pa.Array | None:
    """The keys that changed since the last proof, and those that differed in it; None: the source cannot be asked."""
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
