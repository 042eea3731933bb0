"""Sources in object storage, in real servers of it, end as the same files in a local folder do (S-03, S-06)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from spark_jobs.initial_load import load
from tests.e2e.test_histories import TABLES, assert_mirrored, history
from tests.object_storage import KINDS, Storage
from tests.pipeline import Pipeline
from tests.shop import Shop, judge
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery
from workload_generator.qlik_change_tables import ChangeTableOptions, stored_changes
from workload_generator.qlik_file_target import change_files
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
    """S-03, C-93: Capture files in date folders, the first run killed after it bound them."""
    made = history(seed=5)
    messages = render(made.changes, CesOptions(max_data_bytes=2_000), Delivery(partitions=3, duplicates=0.05, seed=5))
    pipeline = Pipeline(tmp_path, spark, TABLES, source={"transport": "capture", "layout": None, **at(storage)})
    files = list(capture_files(messages))
    for tick in range(2):
        for name, content in files[len(files) * tick // 2 : len(files) * (tick + 1) // 2]:
            storage.deliver(name, content)
        if not tick and storage.kind == "s3":
            pipeline.killed("extract_changes", "extract.bound")
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
    if storage.kind == "azure":
        pipeline.killed("extract_changes", "extract.bound")
    storage.deliver("2026/lines.jsonl", lines)
    pipeline.tick()
    pipeline.tick()
    assert_mirrored(pipeline, made)


@pytest.mark.parametrize("file_format", ["csv", "parquet"])
def test_files_of_a_qlik_file_target(file_format: str, storage: Storage, tmp_path: Path, spark) -> None:
    """S-03, T-40 to T-42: a data file is read once its metadata file is whole."""
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


@pytest.mark.parametrize("file_format", ["parquet", "csv"])
def test_an_export_and_the_stream_behind_it(file_format: str, storage: Storage, tmp_path: Path, spark) -> None:
    """S-03, G-08: first rows from an export beside the Capture files, the load killed half-way; a changed one stops."""
    shop = Shop(tmp_path, spark, file_format, rows=60, publish={"max_rows_per_file": 30})
    pipeline = shop.pipeline
    document = yaml.safe_load(pipeline.file.read_text(encoding="utf-8"))
    document["source"] |= at(storage.below("stream"))
    for table in document["tables"]:
        export = table["initial_load"]
        export |= {"path": f"{storage.address}/export/{table['source']}", "connection": "store"}
        export["stream_from"] = {"file": f"{storage.address}/export/export.json"}
    pipeline.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    deliver(shop.export, storage.below("export"))
    deliver(pipeline.source, storage.below("stream"))
    if (storage.kind, file_format) == ("azure", "parquet"):
        pipeline.killed("initial_load", "publish.staged")
    load(pipeline.mirror, pipeline.ledger, spark)
    shop.go_on(10)
    deliver(pipeline.source, storage.below("stream"))
    pipeline.tick()
    judge(pipeline, shop.state)


def deliver(folder: Path, storage: Storage) -> None:
    """Everything in a local folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            storage.deliver(path.relative_to(folder).as_posix(), path.read_bytes())
