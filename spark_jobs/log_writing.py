"""Writing log files in a worker: rows in, sorted Parquet and its statistics out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.change_log import file_path
from spark_jobs.change_log_schema import CHANGE, FRAGMENT, INSERT, LOG_SCHEMA, UPDATE, LogRow

ROWS_PER_FILE = 200_000
"""A worker holds at most about this many rows before it writes a file: memory stays flat however large the batch."""
# Small row groups: publishing reads one table or a few key buckets of a file that is sorted by them.
_ROW_GROUP = 20_480


class LogWriter:
    """Collects the rows of one task and writes them as finished log files, never half a file under its name."""

    def __init__(self, root: Path, batch: int, attempt: str, task: int) -> None:
        self._root, self._batch, self._attempt, self._task = root, batch, attempt, task
        self._rows: list[LogRow] = []
        self._files: list[dict[str, Any]] = []
        self._columns: dict[str, dict[str, tuple[bool, str]]] = {}
        self._fragments: dict[str, tuple[str, str, list[str]]] = {}

    def add(self, rows: Iterable[LogRow]) -> None:
        """Take rows; a file is written whenever enough have come together."""
        self._rows.extend(rows)
        if len(self._rows) >= ROWS_PER_FILE:
            self._flush()

    def finish(self) -> dict[str, Any]:
        """Write what is left; the task's part of the manifest: ``files``, ``columns`` and ``fragments``."""
        if self._rows:
            self._flush()
        columns = {table: [[c, *seen] for c, seen in lists.items()] for table, lists in self._columns.items()}
        return {"files": self._files, "columns": columns, "fragments": self._fragments}

    def _flush(self) -> None:
        table = log_table(self._rows, self._batch)
        self._rows = []
        # Two digits per task are plenty of files (20 million rows); the task number keeps names apart.
        relative = file_path(self._batch, self._attempt, self._task * 100 + len(self._files))
        size = write_durably(self._root / relative, table)
        changes = table.filter(pc.equal(table["kind"], CHANGE))
        self._note_columns(changes)
        self._note_fragments(table.filter(pc.equal(table["kind"], FRAGMENT)), relative)
        self._files.append({"path": relative, "rows": table.num_rows, "size": size, "tables": position_bounds(changes)})

    def _note_columns(self, changes: pa.Table) -> None:
        rows = changes.filter(pc.is_in(changes["op"], pa.array([INSERT, UPDATE])))
        seen = rows.group_by(["tbl", "cols"]).aggregate([("whole", "max"), ("pos", "min")])
        for line in seen.to_pylist():
            lists = self._columns.setdefault(line["tbl"], {})
            whole, first = lists.get(line["cols"], (False, line["pos_min"]))
            lists[line["cols"]] = (whole or bool(line["whole_max"]), min(first, line["pos_min"]))

    def _note_fragments(self, rows: pa.Table, file: str) -> None:
        for line in rows.group_by(["fragment_of", "epoch", "pos"]).aggregate([]).to_pylist():
            self._fragments.setdefault(line["fragment_of"], (line["epoch"], line["pos"], []))[2].append(file)


def log_table(rows: Sequence[LogRow], batch: int) -> pa.Table:
    """Log rows as one Arrow table in the order in which publishing reads them: by table, then key bucket."""
    by_field = zip(*rows, strict=True) if rows else ([] for _ in LogRow._fields)
    arrays = {
        name: pa.array(values, LOG_SCHEMA.field(name).type)
        for name, values in zip(LogRow._fields, by_field, strict=True)
    }
    arrays["batch"] = pa.repeat(pa.scalar(batch, pa.int64()), len(rows))
    table = pa.Table.from_arrays([arrays[name] for name in LOG_SCHEMA.names], schema=LOG_SCHEMA)
    return table.sort_by([("tbl", "ascending"), ("bucket", "ascending")])


def position_bounds(changes: pa.Table) -> dict[str, dict[str, list[Any]]]:
    """Per table and epoch ``[rows, lowest position, highest position]``."""
    bounds: dict[str, dict[str, list[Any]]] = {}
    grouped = changes.group_by(["tbl", "epoch"]).aggregate([("pos", "count"), ("pos", "min"), ("pos", "max")])
    for line in grouped.to_pylist():
        bounds.setdefault(line["tbl"], {})[line["epoch"]] = [line["pos_count"], line["pos_min"], line["pos_max"]]
    return bounds


def write_durably(path: Path, table: pa.Table) -> int:
    """Write a Parquet file under a name used once and push it to disk; its length in bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as sink:
        pq.write_table(table, sink, compression="zstd", row_group_size=_ROW_GROUP)
        sink.flush()
        os.fsync(sink.fileno())
    return path.stat().st_size
