"""Finds out whether Fabric or open_mirroring made keys differ, by what the published files contain of these keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from open_mirroring.landing_zone.layout import ROW_MARKER, RowMarker, file_name, places_of
from open_mirroring.landing_zone.store import LandingZoneStore
from open_mirroring.ledger.reading import PublishedFile, TableState
from spark_jobs.proof.keys import differing_keys
from spark_jobs.proof.mirrored_files import may_hold
from spark_jobs.proof.rows import HashKeys, OfKeys, Part, Work, fitted, key_texts
from spark_jobs.proof.sides import Side

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_MOST_BYTES = 2 * 2**30
"""So much is read of our files at most: a key that none of them has would lead through all that are kept."""


@dataclass(frozen=True)
class PublishedRows(Side):
    """The rows of some keys as they are after all published files are applied.

    Attributes:
        seen: the keys in those published files that are still in the landing zone.
        is_complete: whether all files since the first are still in the landing zone, or all keys were seen.
    """

    spark: SparkSession
    table: pa.Table
    seen: frozenset[str]
    is_complete: bool

    size = 0

    def lines(self, work: Work, part: Part | None = None) -> Iterator[pa.RecordBatch]:
        return work([self.table])

    def frame(self, work: Work, schema: str, part: Part | None = None) -> DataFrame:
        from spark_jobs.runtime.worker_tasks import sealed_frame

        table = self.table
        return sealed_frame(self.spark, lambda _: work([table]), [None], schema)


def published_rows(
    spark: SparkSession, store: LandingZoneStore, state: TableState, files: Sequence[PublishedFile], keys: OfKeys
) -> PublishedRows:
    """Read the published files of a table, newest first, back to the oldest file still in the landing zone."""
    shape, wanted = keys.shape, keys.values.num_rows
    found: dict[str, pa.Table] = {}
    seen, is_complete, left = set[str](), True, _MOST_BYTES
    for file in reversed(files):
        if len(seen) == wanted or not is_complete:
            break
        left -= file.size
        if left < 0:
            is_complete = False
            break
        with ExitStack() as stack:
            places = places_of(state.folder, file_name(file.number, state.extension))
            local = next((path for place in places if (path := stack.enter_context(store.fetch(place)))), None)
            is_complete = local is not None
            for rows, is_deleted in () if local is None else _rows(local, state, keys):
                texts = key_texts(rows, shape).to_pylist()
                last = {text: at for at, text in enumerate(texts) if text not in seen}
                found |= {text: rows.slice(at, 1) for text, at in last.items() if not is_deleted[at]}
                seen |= last.keys()
    table = pa.concat_tables(found.values()) if found else shape.schema.empty_table()
    return PublishedRows(spark, table, frozenset(seen), is_complete)


def _rows(local: Path, state: TableState, keys: OfKeys) -> Iterator[tuple[pa.Table, list[bool]]]:
    """The rows of keys in one file, named as at the source, in one piece; and which of them are deletes."""
    at_source = {target.casefold(): source for source, target in state.columns.renamed.items()}
    with pq.ParquetFile(local) as file:
        named = {name: at_source.get(name.casefold(), name) for name in file.schema_arrow.names}
        groups = [at for at in range(file.num_row_groups) if may_hold(file.metadata.row_group(at), named, keys)]
        if groups:
            rows = file.read_row_groups(groups, use_threads=False).rename_columns(list(named.values()))
            markers = rows[ROW_MARKER] if ROW_MARKER in named else pa.nulls(rows.num_rows, pa.int32())
            found = keys.rows(fitted(rows, keys.shape).append_column(ROW_MARKER, markers))
            is_deleted = [marker == RowMarker.DELETE for marker in found[ROW_MARKER].to_pylist()]
            yield found.drop_columns(ROW_MARKER), is_deleted


def whose_fault(ours: PublishedRows, source: Side, keys: OfKeys, named: Sequence[str]) -> list[str]:
    """Messages: how many of the keys that differ at the target differ because of Fabric, and how many do not."""
    work = HashKeys(keys.shape, None, keys)
    differ = set(differing_keys(ours.spark, (source, ours), work, None, len(named))["key"].to_pylist())
    known = [key for key in named if ours.is_complete or key in ours.seen]
    wrong = sum(key in differ for key in known)
    said = {
        "the published files have them as the source has them: the mirroring service lost or changed them": len(known)
        - wrong,
        "the published files do not have them as the source has them: they were lost or changed before": wrong,
        "it is unknown who changed them: the files that had them are not kept": len(named) - len(known),
    }
    return [f"{count} of {len(named)} named rows: {what}" for what, count in said.items() if count]
