"""Sources in object storage, in real servers of it, end as the same files in a local folder do (S-03, S-06)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from open_mirroring.config.tables import ProofExport
from open_mirroring.errors import TerminalError
from spark_jobs.initial_load import load
from spark_jobs.prove import ProofOptions, prove
from tests.e2e.test_crashes import EXTRACT, PUBLISH
from tests.e2e.test_histories import TABLES, assert_mirrored, history
from tests.object_storage import KINDS, Storage
from tests.pipeline import Pipeline
from tests.shop import Shop, judge
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery, Message
from workload_generator.history import History
from workload_generator.qlik_change_tables import ChangeTableOptions, stored_changes
from workload_generator.qlik_file_target import FileFormat, change_files
from workload_generator.transports import capture_files, json_lines


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest, storage_servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    """A place in object storage, whose connection ``store`` is set."""
    place = storage_servers.new(request.param)
    monkeypatch.setenv("AIRFLOW_CONN_STORE", place.connection)
    return place


def at(storage: Storage) -> dict[str, str]:
    return {"path": storage.address, "connection": "store"}


def test_capture_windows(storage: Storage, tmp_path: Path, spark) -> None:
    """S-03, S-06, C-93: a run is killed after it bound them, then one of them is replaced, and put back."""
    made = history(seed=5)
    messages = render(made.changes, CesOptions(max_data_bytes=2_000), Delivery(partitions=3, duplicates=0.05, seed=5))
    pipeline = Pipeline(tmp_path, spark, TABLES, source={"transport": "capture", "layout": None, **at(storage)})
    files = list(capture_files(messages))
    for tick in range(2):
        for name, content in files[len(files) * tick // 2 : len(files) * (tick + 1) // 2]:
            storage.deliver(name, content)
        if not tick and storage.kind == "azure":
            pipeline.killed("extract_changes", "extract.bound")
            storage.deliver(files[0][0], files[1][1])
            with pytest.raises(TerminalError, match="SOURCE_REWRITTEN"):
                pipeline.extract()
            storage.deliver(*files[0])
        pipeline.tick()
    assert_mirrored(pipeline, made)


def test_lines_that_grow(storage: Storage, tmp_path: Path, spark) -> None:
    """S-03, S-06: a file that is written anew with more lines behind the old ones goes on where it was read to."""
    made = history(seed=8)
    lines = json_lines(render(made.changes, CesOptions(max_data_bytes=2_000), Delivery(seed=8)), layout="wrapped")
    pipeline = Pipeline(tmp_path, spark, TABLES, source=at(storage))
    ends = [at for at, byte in enumerate(lines) if byte == ord("\n")]
    half = ends[len(ends) // 2] + 20  # in the middle of a line
    storage.deliver("2026/lines.jsonl", lines[:half])
    extracted, _ = pipeline.tick()
    assert extracted.withheld == ["2026/lines.jsonl"]
    # Bound, and longer before it is read.
    storage.deliver("2026/lines.jsonl", lines[: ends[-2] + 1])
    if storage.kind == "s3":
        pipeline.killed("extract_changes", "extract.bound")
    storage.deliver("2026/lines.jsonl", lines)
    pipeline.tick()
    pipeline.tick()
    assert_mirrored(pipeline, made)


def test_files_of_a_qlik_file_target(storage: Storage, tmp_path: Path, spark) -> None:
    """S-03, T-40 to T-42: a data file is read once its metadata file is whole."""
    file_format: FileFormat = "csv" if storage.kind == "azure" else "parquet"
    made = history(seed=40)
    options = ChangeTableOptions(binary_mask=file_format == "parquet")
    source = {"format": "qlik-change-table", "layout": None, **at(storage)}
    pipeline = Pipeline(tmp_path, spark, TABLES, source=source)
    files = [*change_files(stored_changes(made.changes, options), options, file_format, rows_per_file=60)]
    cut = len(files) // 2 | 1  # between a data file and its metadata file
    for part in (files[:cut], files[cut:]):
        for name, content in part:
            storage.deliver(name, content)
        pipeline.tick()
    assert_mirrored(pipeline, made)


def shop_in(storage: Storage, folder: Path, spark: Any, file_format: str) -> Shop:
    """A shop whose export and stream are in object storage, not loaded yet."""
    shop = Shop(folder, spark, file_format, rows=60, publish={"max_rows_per_file": 30})
    pipeline = shop.pipeline
    document = yaml.safe_load(pipeline.file.read_text(encoding="utf-8"))
    document["source"] |= at(storage.below("stream"))
    document["landing_zone"]["tables"] = "tables"
    for table in document["tables"]:
        export = table["initial_load"]
        export |= {"path": f"{storage.address}/export/{table['source']}", "connection": "store"}
        export["stream_from"] = {"file": f"{storage.address}/export/export.json"}
    pipeline.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    deliver(shop.export, storage.below("export"))
    deliver(pipeline.source, storage.below("stream"))
    return shop


def test_an_export_and_the_stream_behind_it(storage: Storage, tmp_path: Path, spark) -> None:
    """S-03, G-08: first rows from an export beside the Capture files."""
    shop = shop_in(storage, tmp_path, spark, "parquet" if storage.kind == "azure" else "csv")
    pipeline = shop.pipeline
    load(pipeline.mirror, pipeline.ledger, spark)
    shop.go_on(10)
    deliver(pipeline.source, storage.below("stream"))
    pipeline.tick()
    judge(pipeline, shop.state)


@pytest.mark.long
@pytest.mark.parametrize("file_format", ["parquet", "csv"])
def test_an_export_proves_what_it_loaded(file_format: str, storage: Storage, tmp_path: Path, spark) -> None:
    """S-03, G-43: a proof reads an export where a load does, which was killed at every fault point."""
    pipeline = shop_in(storage, tmp_path, spark, file_format).pipeline
    for fault in PUBLISH:
        pipeline.killed("initial_load", fault)
    load(pipeline.mirror, pipeline.ledger, spark)
    pipeline.tick()
    tables = {table.source: table.initial_load for table in pipeline.mirror.tables}
    if file_format == "parquet":
        seen = storage.below("mirrored")
        deliver(pipeline.target, seen)
        text = pipeline.file.read_text(encoding="utf-8")
        pipeline.file.write_text(text.replace("tables: tables", f"tables: {json.dumps(at(seen))}"), encoding="utf-8")
    exports = {
        source: ProofExport(format=given.format, path=given.path, connection=given.connection, types=given.types)
        for source, given in tables.items()
    }
    proved = prove(pipeline.mirror, pipeline.ledger, spark, None, ProofOptions(exports, settle_seconds=0)).tables
    assert {source: one["verdict"] for source, one in proved.items()} == dict.fromkeys(tables, "EQUAL"), proved


def deliver(folder: Path, storage: Storage) -> None:
    """Everything in a local folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            storage.deliver(path.relative_to(folder).as_posix(), path.read_bytes())


class Where(NamedTuple):
    """Where a mirror's source and change log are; *storage* is None for local folders."""

    folder: Path
    storage: Storage | None

    def deliver(self, name: str, content: bytes) -> None:
        """Put a finished file there."""
        if self.storage is not None:
            self.storage.deliver(name, content)
            return
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def at(self, name: str) -> dict[str, str]:
        """The setting of a path."""
        return {"path": str(self.folder / name)} if self.storage is None else at(self.storage.below(name))


@pytest.fixture(params=["local", *KINDS])
def where(
    request: pytest.FixtureRequest, tmp_path: Path, storage_servers, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Where]:
    """A local folder, or a place in object storage whose connection ``store`` is set."""
    if request.param == "local":
        yield Where(tmp_path / "there", None)
        return
    place = storage_servers.new(request.param)
    monkeypatch.setenv("AIRFLOW_CONN_STORE", place.connection)
    yield Where(tmp_path, place)


def _events(made: History) -> list[Message]:
    return render(made.changes, CesOptions(max_data_bytes=1_700), Delivery(partitions=3, duplicates=0.05, seed=6))


def lines(made: History) -> Iterable[tuple[str, bytes]]:
    """Change events in files of JSON lines."""
    messages = _events(made)
    for first in range(0, len(messages), 20):
        yield f"{first:06d}.jsonl", json_lines(messages[first : first + 20], layout="wrapped")


def capture(made: History) -> Iterable[tuple[str, bytes]]:
    """Change events in Capture files, ten times slower: so there are more windows than runs, none of them of all."""
    messages = _events(made)
    first = datetime.fromisoformat(messages[0].enqueued)
    moments = [first + 10 * (datetime.fromisoformat(message.enqueued) - first) for message in messages]
    slower = [m._replace(enqueued=moment.isoformat()) for m, moment in zip(messages, moments, strict=True)]
    return capture_files(slower, window=timedelta(seconds=1))


def qlik(made: History, file_format: FileFormat) -> Iterable[tuple[str, bytes]]:
    """Changes in the files of a Qlik file target."""
    options = ChangeTableOptions(binary_mask=file_format == "parquet")
    return change_files(stored_changes(made.changes, options), options, file_format, rows_per_file=12)


SOURCES: dict[str, tuple[Callable[[History], Iterable[tuple[str, bytes]]], dict[str, Any]]] = {
    "lines": (lines, {}),
    "capture": (capture, {"transport": "capture", "layout": None}),
    "qlik csv": (partial(qlik, file_format="csv"), {"format": "qlik-change-table", "layout": None}),
    "qlik parquet": (partial(qlik, file_format="parquet"), {"format": "qlik-change-table", "layout": None}),
}
FAULTS = (*EXTRACT, *PUBLISH)


@pytest.mark.long
@pytest.mark.parametrize("runs", [1, 7, "killed"])
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_ends_equal_wherever_it_lies(
    source: str, runs: int | str, where: Where, tmp_path: Path, spark: Any
) -> None:
    """S-03, S-06, S-09: in one run, in seven, and in as many as there are fault points, each killed at another one."""
    made = history(seed=6)
    files_of, settings = SOURCES[source]
    log = where.at("the log")
    pipeline = Pipeline(
        tmp_path / "mirror",
        spark,
        TABLES,
        source={**settings, **where.at("stream")},
        change_log=log if where.storage else log["path"],
        # Few rows a file, so that one publication has several numbers to be killed between.
        publish={"max_rows_per_file": 3},
    )
    files = list(files_of(made))
    faults = FAULTS if runs == "killed" else ["none"] * int(runs)
    assert len(files) > len(faults)
    for run, fault in enumerate(faults):
        for name, content in files[len(files) * run // len(faults) : len(files) * (run + 1) // len(faults)]:
            where.deliver(f"stream/{name}", content)
        if fault in PUBLISH:
            pipeline.extract()
        if fault != "none":
            pipeline.killed("extract_changes" if fault in EXTRACT else "publish_changes", fault)
            pipeline.service.poll()
        _, published = pipeline.tick()
        assert not published.stopped
    assert_mirrored(pipeline, made)
    assert [batch for batch, _, _ in pipeline.reader.batches()] == [*range(1, len(faults) + 1)]
