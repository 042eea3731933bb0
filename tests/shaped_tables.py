"""Random histories told by each source in slices, late and repeated, by runs that are killed in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.pipeline import Pipeline
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery, Message
from workload_generator.history import Change
from workload_generator.qlik_change_tables import ChangeTableOptions, stored_changes
from workload_generator.qlik_file_target import change_files
from workload_generator.qlik_messages import QlikMessageOptions
from workload_generator.qlik_messages import render as render_qlik
from workload_generator.transports import json_lines

Files = Sequence[Sequence[tuple[str, bytes]]]
"""The files of each tick."""


def _in_slices(messages: list[Message], ticks: int) -> Files:
    ordered = sorted(messages, key=lambda message: (message.enqueued, message.partition, message.offset))
    parts = [ordered[len(ordered) * at // ticks : len(ordered) * (at + 1) // ticks] for at in range(ticks)]
    # The first part comes once more with the last one.
    files = [[(f"{at}.jsonl", json_lines(part, layout="wrapped"))] for at, part in enumerate(parts)]
    files[-1].append(("again.jsonl", json_lines(parts[0], layout="wrapped")))
    return files


def ces(made: Any, seed: int, ticks: int) -> Files:
    """Change events, split, late and repeated."""
    delivery = Delivery(partitions=3, disorder=40, duplicates=0.05, seed=seed)
    return _in_slices(render(made.changes, CesOptions(max_data_bytes=1_700), delivery), ticks)


def qlik_messages(made: Any, seed: int, ticks: int) -> Files:
    """Messages of a Qlik task, with replayed transactions."""
    options = QlikMessageOptions(replays=0.2, seed=seed)
    delivery = Delivery(partitions=3, scheme="key", duplicates=0.05, seed=seed)
    return _in_slices(render_qlik(made, options, delivery), ticks)


def change_tables(made: Any, seed: int, ticks: int) -> Files:
    """Files of change tables, in any order."""
    options = ChangeTableOptions()
    files = [*change_files(stored_changes(made.changes, options), options, "csv", rows_per_file=17)]
    pairs = [files[at : at + 2] for at in range(0, len(files), 2)]
    Random(seed).shuffle(pairs)
    cut = [pairs[len(pairs) * at // ticks : len(pairs) * (at + 1) // ticks] for at in range(ticks)]
    return [[file for pair in part for file in pair] for part in cut]


FORMS: Mapping[str, tuple[Callable[[Any, int, int], Files], Mapping[str, Any]]] = {
    "ces": (ces, {}),
    "messages": (qlik_messages, {"format": "qlik-message"}),
    "change tables": (change_tables, {"format": "qlik-change-table", "transport": "files", "layout": None}),
}


def mirrored(
    form: str, made: Any, folder: Path, spark: Any, tables: Sequence[Mapping[str, Any]], **settings: Any
) -> Pipeline:
    """A pipeline that has mirrored a whole history, over two kills, and has nothing to do any more."""
    tell, source = FORMS[form]
    pipeline = Pipeline(folder, spark, tables, source=source, **settings)
    for at, files in enumerate(tell(made, 7, 3)):
        for name, content in files:
            pipeline.deliver(name, content)
        if at == 1:
            pipeline.killed("extract_changes", "extract.sealed")
        if at == 2:
            pipeline.extract()
            pipeline.killed("publish_changes", "publish.renamed")
        code = main(["tick", str(pipeline.file)])
        pipeline.service.poll()
    assert code == main(["tick", str(pipeline.file)]) == Exit.DONE
    assert main(["reconcile", str(pipeline.file)]) == Exit.DONE
    return pipeline


def commits(made: Any) -> Iterator[Change]:
    """The changes of a history in their order."""
    return iter(sorted(made.changes, key=lambda one: (one.txn, one.seq)))


def plain(row: Mapping[str, Any]) -> str:
    """A row as a text that can be counted."""
    return json.dumps({name: str(row[name]) for name in sorted(row)})
