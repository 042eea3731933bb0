"""Counts the rows of the change log in workers, for the deep check.

Workers read the files with Arrow and not with Spark's reader, so that the login to object storage stays out of Spark's
configuration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.errors import TransientError
from open_mirroring.reconciliation.log_check import LogCount, LogFile, LogState, PieceCount
from open_mirroring.storage.object_path import Place
from open_mirroring.storage.object_store import ObjectReplaced
from spark_jobs.changelog.delta_log import COMMIT_FAILED, opened_log, upgraded
from spark_jobs.changelog.reading import log_rows
from spark_jobs.changelog.schema import FRAGMENT
from spark_jobs.runtime.tasks import dealt_out, run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GROUP = ["batch", "kind", "tbl", "epoch"]
_COLUMNS = [*_GROUP, "pos", "fragment_of"]
_Counted = tuple[Sequence[LogCount], Sequence[PieceCount]]


def read_log_state(root: Place, spark: SparkSession, waiting: Collection[str]) -> LogState:
    """Count rows, files, and pieces of *waiting* messages in the change log; a damaged file counts as empty."""
    try:
        table = opened_log(root)
    except TransientError as error:
        if error.code != COMMIT_FAILED:
            raise
        return LogState(unreadable=error.what)
    if table is None:
        return LogState()
    if what := upgraded(table):
        return LogState(unreadable=what)
    actions = table.get_add_actions(flatten=True)
    columns = (actions.column(name).to_pylist() for name in ("path", "num_records", "size_bytes"))
    files = {unquote(path): LogFile(rows or 0, size) for path, rows, size in zip(*columns, strict=True)}
    size = sum(file.size for file in files.values())
    tasks = dealt_out(spark, sorted(files), size)
    counting = partial(_count, root, sorted(waiting))
    return _merged(run_job(spark, "count the change log", counting, tasks, size), files)


def _count(root: Place, waiting: Sequence[str], files: Sequence[str]) -> _Counted:
    rows: list[LogCount] = []
    pieces: list[PieceCount] = []
    for file in files:
        with suppress(OSError, pa.ArrowException, ObjectReplaced):
            found = _counted(root, waiting, file)
            rows += found[0]
            pieces += found[1]
    return rows, pieces


def _counted(root: Place, identities: Sequence[str], file: str) -> _Counted:
    rows: list[LogCount] = []
    pieces: list[PieceCount] = []
    waiting = pa.array(identities, pa.string())
    for batch in log_rows(root, [file]).to_batches(columns=_COLUMNS, use_threads=False):
        some = pa.Table.from_batches([batch])
        groups = some.group_by(_GROUP).aggregate([([], "count_all"), ("pos", "min"), ("pos", "max")])
        for line in groups.to_pylist():
            group = (line["kind"], line["tbl"], line["epoch"])
            # Our rows all have a batch; a row of another writer is counted as batch 0, which was never bound.
            rows.append(LogCount(line["batch"] or 0, *group, line["count_all"], line["pos_min"], line["pos_max"]))
        mine = some.filter(pc.and_(pc.equal(some["kind"], FRAGMENT), pc.is_in(some["fragment_of"], waiting)))
        for line in mine.group_by(["fragment_of", "batch"]).aggregate([([], "count_all")]).to_pylist():
            pieces.append(PieceCount(line["fragment_of"], line["batch"], line["count_all"]))
    return rows, pieces


def _merged(parts: Iterable[_Counted], files: Mapping[str, LogFile]) -> LogState:
    rows: dict[tuple[Any, ...], LogCount] = {}
    pieces = Counter[tuple[str, int]]()
    for part_rows, part_pieces in parts:
        for one in part_rows:
            known = rows.get(one[:4], one._replace(rows=0))
            lowest = min((p for p in (one.lowest, known.lowest) if p is not None), default=None)
            highest = max((p for p in (one.highest, known.highest) if p is not None), default=None)
            rows[one[:4]] = one._replace(rows=one.rows + known.rows, lowest=lowest, highest=highest)
        for piece in part_pieces:
            pieces[piece.identity, piece.batch] += piece.rows
    return LogState([*rows.values()], [PieceCount(*group, count) for group, count in pieces.items()], files)
