"""Finds the keys that changed since a position, in the change log."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.reading import log_rows
from spark_jobs.changelog.schema import CHANGE, ROW_BYTES
from spark_jobs.runtime.tasks import run_job, tasks_wanted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS_PER_CORE = 3


@dataclass(frozen=True)
class LoggedChanges:
    """The rows of some files of the change log that meet the condition *chosen*; *rows* is about their number."""

    root: Place
    files: Sequence[str]
    chosen: pc.Expression
    rows: int

    @classmethod
    def since(
        cls, reader: LedgerReader, root: Place, source: str, batch: int, reaching: Mapping[str, str]
    ) -> LoggedChanges:
        """The changes of a table in batches above *batch*, and the changes at or above the position of each stream.

        *reaching* maps the epoch of each stream (one enabling of streaming or one Qlik full load) to the position.
        """
        committed, chosen = reader.mirror().committed, pc.field("batch") > batch
        contents = list(reader.contents({source: batch}, committed).get(source, ()))
        if reaching:
            contents += reader.history(source, committed, reaching)
            for epoch, text in reaching.items():
                chosen |= (pc.field("epoch") == epoch) & (pc.field("pos") >= text)
        chosen &= (pc.field("kind") == CHANGE) & (pc.field("tbl") == source)
        files = sorted({file for part in contents for file in part.files})
        return cls(root, files, chosen, sum(part.rows for part in contents))

    def keys(self, spark: SparkSession, among: pa.Array | None = None) -> pa.Array:
        """The keys of the changes, each once; if *among* is given, only keys that are in *among*."""
        size = self.rows * ROW_BYTES
        tasks = min(len(self.files), tasks_wanted(spark, size, _TASKS_PER_CORE))
        look = partial(_keys, self.root, self.chosen, among)
        parts = [self.files[at::tasks] for at in range(tasks)]
        found: Collection[pa.Array] = run_job(spark, "look for keys in the log", look, parts, size)
        return pa.chunked_array(found, pa.string()).unique()


def _keys(root: Place, chosen: pc.Expression, among: pa.Array | None, files: Sequence[str]) -> pa.Array:
    if among is not None:
        chosen &= pc.field("key").isin(among)
    return log_rows(root, files).to_table(columns=["key"], filter=chosen, use_threads=False)["key"].unique()
