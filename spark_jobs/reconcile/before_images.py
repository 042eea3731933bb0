"""Finds logged updates and deletes that contradict earlier changes: then changes are missing (G-190).

A contradiction is reported only if no complete series of changes could contain it. One kind is an update of a row that
was deleted, or that was never inserted. The other kind is old values that differ from the row that the earlier change
wrote.

The old values of a change (its before image) are compared only with the change of the same key directly before. Both
must be in the same epoch and have the same columns. The earlier change must not be a row of a full load, initial load
or correction. A row that leaves a key in the same transaction in which another row came to the key is skipped (G-03,
G-115, G-135). Large objects, and NULL in old values, are skipped because the source may not have sent them (C-71, K-22,
T-94).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby
from os.path import splitext
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.storage.object_path import Place
from open_mirroring.storage.object_store import ObjectReplaced
from spark_jobs.changelog.reading import log_rows
from spark_jobs.changelog.schema import CHANGE, DELETE, INSERT, KEY_LEFT, LOAD_MAJOR, image_mark
from spark_jobs.sources.sql_server.type_text import is_large

_LINES = 10_000
_UNSEEN, _UNKNOWN, _GONE = "unseen", "unknown", "gone"
_KEY_SHOWN = 60
_decode_image = msgspec.json.Decoder(dict[str, str | None]).decode


class Change(NamedTuple):
    """The fields of a logged change that the search for contradictions reads."""

    epoch: str
    key: str
    pos: str
    batch: int
    op: str
    cols: str
    whole: bool
    row: str | None
    before: str | None
    had: int | None
    origin: str
    place: int

    @property
    def transaction(self) -> str:
        """The transaction, within its epoch."""
        return self.pos.partition(":")[0]


class ImagesTask(NamedTuple):
    """The key buckets of one table (*low* inclusive, *high* exclusive) to search for contradictions.

    *above* maps each epoch to search to a position. Changes up to this position may be incomplete, so only later
    changes are searched. Only changes of batches after *behind* are reported. *begins* is whether the change log has
    all changes of the table from its first row on.
    """

    root: Place
    files: tuple[str, ...]
    source: str
    low: int
    high: int
    above: Mapping[str, str]
    behind: int
    begins: bool


class Contradicted(NamedTuple):
    """How many changes contradict earlier changes; and batch, position and description of the first of them."""

    changes: int
    batch: int
    pos: str
    first: str


def look_for_contradictions(task: ImagesTask) -> Contradicted | None:
    """Search the task's key buckets; None if there is no contradiction.

    If a file is unreadable, the result has batch 0.
    """
    rows = log_rows(task.root, task.files)
    wanted = (pc.field("kind") == CHANGE) & (pc.field("tbl") == task.source) & pc.field("key").is_valid()
    bucket = pc.field("bucket")
    try:
        leaving = rows.to_table(columns=["epoch", "pos"], filter=wanted & (pc.field("op") == KEY_LEFT))
        table = rows.to_table(columns=list(Change._fields), filter=wanted & (bucket >= task.low) & (bucket < task.high))
    except (OSError, pa.ArrowException, ObjectReplaced):
        return Contradicted(0, 0, "", "")
    moved = {(line["epoch"], line["pos"]) for line in leaving.to_pylist()}
    ordered = table.sort_by(
        [("epoch", "ascending"), ("key", "ascending"), ("pos", "ascending"), ("batch", "ascending")]
    )
    changes = (Change(**line) for batch in ordered.to_batches(max_chunksize=_LINES) for line in batch.to_pylist())
    counted = (one for one in changes if one.epoch in task.above and one.pos > task.above[one.epoch])
    found = [pair for pair in contradictions(counted, moved, begins=task.begins) if pair[0].batch > task.behind]
    if not found:
        return None
    one, what = min(found, key=lambda pair: (pair[0].batch, pair[0].pos))
    key = one.key if len(one.key) <= _KEY_SHOWN else f"{one.key[:_KEY_SHOWN]}…"
    return Contradicted(len(found), one.batch, one.pos, f"{what}, at {one.origin}:{one.place}, key {key}")


def contradictions(
    changes: Iterable[Change], moved: Collection[tuple[str, str]], *, begins: bool
) -> Iterator[tuple[Change, str]]:
    """Yield each change that contradicts earlier changes, with a message; *moved* are the positions of key changes."""
    for _, of_key in groupby(changes, key=lambda one: (one.epoch, one.key)):
        state: Change | str = _UNSEEN
        came = last = ""
        for one in of_key:
            if one.pos == last:
                continue
            last = one.pos
            if "~" in one.pos or one.transaction == LOAD_MAJOR:
                state = _UNKNOWN
            elif one.op in (DELETE, KEY_LEFT):
                if isinstance(state, Change) and came != one.transaction and not _may_leave(state, one):
                    yield one, "a row left that had other values"
                state = _UNKNOWN if came == one.transaction else _GONE
            else:
                if one.op == INSERT or (one.epoch, f"{one.pos[:-1]}0") in moved:
                    is_free = state is _GONE or (state is _UNSEEN and begins)
                    came = "" if is_free else one.transaction
                elif state is _GONE:
                    yield one, "a deleted row was updated"
                elif state is _UNSEEN and begins:
                    yield one, "a row was updated that was never inserted"
                elif isinstance(state, Change) and not _may_become(state, one):
                    yield one, "a row was updated that had other values"
                state = one


def _may_become(row: Change, update: Change) -> bool:
    if update.had is None or not row.whole or row.row is None or not _are_alike(row, update):
        return True
    return image_mark(row.row.encode()) == update.had


def _may_leave(row: Change, leaving: Change) -> bool:
    if leaving.before is None or row.row is None or not _are_alike(row, leaving):
        return True
    values, old, compared = _decode_image(row.row), _decode_image(leaving.before), _compared(row.cols)
    return all(
        values.get(name, value) == value for name, value in old.items() if value is not None and name in compared
    )


def _are_alike(one: Change, other: Change) -> bool:
    """Whether two changes write values in the same way: files of another format may have other digits of a time."""
    return one.cols == other.cols and splitext(one.origin)[1] == splitext(other.origin)[1]


@lru_cache(maxsize=1024)
def _compared(cols: str) -> frozenset[str]:
    return frozenset(name for name, sql_type, _ in msgspec.json.decode(cols) if not is_large(sql_type))
