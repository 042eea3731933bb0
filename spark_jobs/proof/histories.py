"""Finds the keys whose history contradicts itself or the current table (G-194, G-195).

A history is a mirrored table with one row for each change or version of another table, the current table. Both tables
are read from the target, never from the source. Each table is read once, as keys, hashes of rows and the columns that
only a history has, into a temporary database on disk, because a history may be larger than memory. The change log is
then read for the found keys only, because its changes may explain a contradiction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.log_position import is_load_epoch, load_epoch, not_below
from open_mirroring.landing_zone.digest import row_hashes
from open_mirroring.landing_zone.schema import extra_columns
from open_mirroring.ledger.reading import LedgerReader, TableState
from open_mirroring.operate.words import amount
from open_mirroring.protocols.proving import Kind
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.reading import log_rows
from spark_jobs.changelog.schema import CHANGE, DELETE, KEY_LEFT, LOAD_MAJOR
from spark_jobs.proof.keys import LoggedChanges
from spark_jobs.proof.mirrored_files import Target
from spark_jobs.proof.rows import Shape, fitted, key_texts
from spark_jobs.sources.sql_server.target_columns import times

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTENTS = ("log_position", "operation", "valid_from", "valid_to", "is_current")
"""The properties of a change that are compared, as far as the history has them."""
_COLUMNS = {
    column.name: one for one, column in zip(CONTENTS, extra_columns((one, "") for one in CONTENTS), strict=True)
}
TWICE, OVERLAP, HOLE, NEWEST = (
    "a change is there twice",
    "versions overlap",
    "a version is missing between two others",
    "the newest row is not that of the table",
)
_VERSIONS = f"""
  WITH following AS (
    SELECT *, lead(log_position) OVER w AS next_position, lead(valid_from) OVER w AS next_from,
      lead(operation) OVER w AS next_operation
    FROM history WINDOW w AS (PARTITION BY id ORDER BY log_position)),
  newest AS (SELECT id, arg_max(content, log_position) AS content FROM history WHERE is_current GROUP BY id)
  SELECT id, '{Kind.DOUBLED}' AS kind, '{TWICE}' AS why, NULL::BIGINT AS ended FROM following
    WHERE next_position = log_position
  UNION ALL SELECT id, '{Kind.DIFFERENT}', '{OVERLAP}', NULL FROM following
    WHERE is_current AND next_position > log_position
  UNION ALL SELECT id, '{Kind.DIFFERENT}', CASE WHEN valid_to > next_from THEN '{OVERLAP}' ELSE '{HOLE}' END, valid_to
    FROM following WHERE valid_to > next_from OR (valid_to < next_from AND next_operation NOT IN ('insert', 'load'))"""
_CHANGES = f"""
  WITH of_table AS (
    SELECT *, string_split(log_position, ':')[1:2] AS commit,
      first_value(operation) OVER (PARTITION BY id ORDER BY log_position DESC, operation = 'delete') AS last
    FROM history LEFT JOIN (SELECT id, content AS now FROM held) USING (id)),
  newest AS (
    SELECT id, content FROM (
      SELECT id, content, operation FROM of_table QUALIFY row_number() OVER (PARTITION BY id ORDER BY commit DESC,
        -- Rows may exchange their keys: then another row's delete comes after the row that took its key.
        (last = 'delete' AND operation <> 'delete' AND content IS NOT DISTINCT FROM now) DESC,
        log_position DESC, operation = 'delete') = 1)
    WHERE operation <> 'delete')
  SELECT id, '{Kind.DOUBLED}' AS kind, '{TWICE}' AS why, NULL::BIGINT AS ended FROM history
    GROUP BY id, log_position, operation HAVING count(*) > 1"""
_OF_TABLE = f"""
  UNION ALL SELECT coalesce(held.id, newest.id), CASE WHEN newest.id IS NULL THEN '{Kind.MISSING}'
      WHEN held.id IS NULL THEN '{Kind.EXTRA}' ELSE '{Kind.DIFFERENT}' END, '{NEWEST}', NULL
    FROM held FULL JOIN newest ON held.id = newest.id WHERE held.content IS DISTINCT FROM newest.content"""


def contradictions(table: Target, history: Target, shape: Shape, *, has_versions: bool, most: int) -> pa.Table:
    """The first *most* contradictions between a table and its history: ``key``, ``kind``, ``why``, and ``ended``.

    *ended* is the time when a version ended without a next version at the same time: the history is wrong unless the
    change log has a delete at this time.
    """
    import duckdb

    query = (_VERSIONS if has_versions else _CHANGES) + _OF_TABLE
    with TemporaryDirectory() as folder, duckdb.connect(Path(folder) / "proof.duckdb") as db:
        for name, side in (("held", table), ("history", history)):
            ids = pa.struct([shape.field(key) for key in shape.keys])
            schema = pa.schema([pa.field("id", ids), *_REDUCED])
            db.register("rows_read", pa.RecordBatchReader.from_batches(schema, _reduced(side, shape, schema)))
            db.execute(f"CREATE TABLE {name} AS SELECT * FROM rows_read")
        found = db.sql(f"SELECT * FROM ({query}) ORDER BY ALL LIMIT {most}").to_arrow_table()
    ids = pa.Table.from_struct_array(found["id"].combine_chunks())
    return found.drop_columns("id").append_column("key", key_texts(fitted(ids, shape), shape))


_SPELLED = ("int", "string", "date", "decimal")
"""The types of key columns whose values have the same form in the change log and in the found keys."""
_REDUCED = (
    pa.field("content", pa.struct([pa.field("low", pa.uint64()), pa.field("high", pa.uint64())])),
    pa.field("log_position", pa.string()),
    pa.field("operation", pa.string()),
    pa.field("valid_from", pa.int64()),
    pa.field("valid_to", pa.int64()),
    pa.field("is_current", pa.bool_()),
)


def _reduced(side: Target, shape: Shape, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The key of each row, the hash of its other columns, and what a history records of it."""
    for rows in side.rows_here():
        typed = fitted(rows, shape)
        others = typed.drop_columns([*shape.keys])
        hashes = row_hashes(others) if others.num_columns else np.zeros((2, typed.num_rows), np.uint64)
        ids = typed.select(shape.keys).combine_chunks().to_struct_array()
        content = pa.StructArray.from_arrays([pa.array(lane) for lane in hashes], ["low", "high"])
        found: dict[str, pa.Array | pa.ChunkedArray] = {"id": ids, "content": content}
        for name, recorded in _COLUMNS.items():
            kind = schema.field(recorded).type
            found[recorded] = rows[name].cast(kind) if name in rows.column_names else pa.nulls(rows.num_rows, kind)
        yield from pa.table(found, schema=schema).to_batches()


class WrongKeys(NamedTuple):
    """The keys whose history contradicts itself or the mirrored table.

    *kinds* has the kind of contradiction by key. *moving* has keys that cannot be judged yet, because they have
    unpublished changes. *reasons* are sentences with the number of wrong keys of each cause.
    """

    kinds: Mapping[str, str]
    moving: pa.Table
    reasons: Sequence[str]


class LogOfHistory(NamedTuple):
    """The logged changes of a table that may explain contradictions between the table and its history."""

    spark: SparkSession
    reader: LedgerReader
    root: Place
    table: TableState
    history: TableState

    def explain(self, found: pa.Table, shape: Shape, batch: int) -> WrongKeys:
        """Leave out contradictions that logged changes explain; both tables have all changes up to *batch*."""
        if not found.num_rows:
            return WrongKeys({}, found, ())
        salted = self.table.columns.salted
        is_spelled = all(shape.type_of(key).startswith(_SPELLED) and key not in salted for key in shape.keys)
        keys = found["key"].combine_chunks()
        is_timed, is_newest = pc.is_valid(found["ended"]), pc.equal(found["why"], NEWEST)
        right = pc.and_(is_timed, self._are_deletes(found) if is_spelled else True)
        unknown = pc.and_(is_newest, pc.invert(self._changed_since(keys, is_spelled=is_spelled)))
        moving = pc.and_(self._are_moving(keys, batch, is_spelled=is_spelled), pc.invert(pc.or_(right, unknown)))
        certain = found.filter(pc.invert(pc.or_(moving, pc.or_(right, unknown))))
        counted = Counter(certain["why"].to_pylist())
        reasons = [f"{amount(count, 'key')}: {why}" for why, count in sorted(counted.items())]
        if count := pc.sum(unknown).as_py():
            reasons.append(f"{amount(count, 'row')} of the table did not change since it began, or was loaded again")
        kinds = dict(zip(certain["key"].to_pylist(), certain["kind"].to_pylist(), strict=True))
        return WrongKeys(kinds, found.filter(moving), reasons)

    def _are_moving(self, keys: pa.Array, batch: int, *, is_spelled: bool) -> pa.Array:
        """Which keys have changes that the table or its history may not have had."""
        found = pa.repeat(False, len(keys))
        for state in (self.table, self.history):
            epochs, position = self.reader.epochs([state.id]).get(state.id, {}), state.row.published_position
            reaching = {} if position is None else not_below(position, epochs)
            changes = LoggedChanges.since(self.reader, self.root, self.table.source, batch, reaching)
            moved = pc.is_in(keys, value_set=changes.keys(self.spark, keys)) if is_spelled else bool(changes.files)
            found = pc.or_(found, moved)
        return found

    def _changed_since(self, keys: pa.Array, *, is_spelled: bool) -> pa.Array:
        """Which keys changed since rows came that the history does not have; all if none did.

        Such rows are those of a reload, and those from before the history was declared.
        """
        mirror = self.reader.mirror()
        contents = self.reader.contents({self.table.source: 0, self.history.source: 0}, mirror.committed)
        parts, own = (contents.get(state.source, ()) for state in (self.table, self.history))
        # Rows of a load that a history does not have as its first rows.
        loads = (
            part.batch
            for part in parts
            if part.lowest.startswith(f"{LOAD_MAJOR}:") or (is_load_epoch(part.epoch) and part.epoch != load_epoch(1))
        )
        began = min((part.batch for part in own), default=mirror.committed + 1)
        is_late = any(part.batch < began for part in parts)
        since = max([mirror.dropped, began - 1 if is_late else 0, *loads])
        if not since or not is_spelled:
            return pa.repeat(not since, len(keys))
        changes = LoggedChanges.since(self.reader, self.root, self.table.source, since, {})
        return pc.is_in(keys, value_set=changes.keys(self.spark, keys))

    def _are_deletes(self, found: pa.Table) -> pa.Array:
        """Which contradictions name a time at which the change log has a delete of their key."""
        timed = found.filter(pc.is_valid(found["ended"]))["key"].combine_chunks()
        if not len(timed):
            return pa.repeat(False, found.num_rows)
        parts = self.reader.contents({self.table.source: 0}, self.reader.mirror().committed)[self.table.source]
        chosen = (pc.field("kind") == CHANGE) & (pc.field("tbl") == self.table.source) & pc.field("key").isin(timed)
        chosen &= pc.field("op").isin([DELETE, KEY_LEFT])
        files = sorted({file for part in parts for file in part.files})
        rows = log_rows(self.root, files).to_table(columns=["key", "committed"], filter=chosen)
        ended = times(rows["committed"].combine_chunks()).cast(pa.int64())
        deleted = _pairs(rows["key"].combine_chunks(), ended)
        asked = _pairs(found["key"].combine_chunks(), found["ended"].combine_chunks())
        return pc.is_in(asked, value_set=deleted, skip_nulls=True)


def _pairs(keys: pa.Array, ended: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pc.cast(ended, pa.string()), keys, "")
