"""The full load of a Qlik file target as first rows of a table (T-30, T-40, T-41)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline import Pipeline
from workload_generator.history import SHOP_TABLES, History, random_history
from workload_generator.qlik_file_target import FileFormat, full_load_files
from workload_generator.transports import write_files

CUSTOMERS = SHOP_TABLES[0]


def loaded(folder: Path, spark: Any, **table: Any) -> tuple[Pipeline, Any]:
    from spark_jobs.initial_load import load

    described = {"source": "dbo.customers", "target": "dbo/customers", "key": ["customer_id"]}
    export = {"format": "qlik-full-load", "path": "export/dbo.customers", "stream_from": "beginning"}
    pipeline = Pipeline(folder, spark, [{**described, "initial_load": export, **table}])
    return pipeline, load(pipeline.mirror, pipeline.ledger, spark, None)


def written(folder: Path, file_format: FileFormat = "csv", *, compressed: bool = False) -> History:
    history = random_history(5, 1, rows=250)
    rows = list(history.initial["dbo.customers"].values())
    write_files(folder / "export", full_load_files(CUSTOMERS, rows, file_format, compressed=compressed))
    return history


@pytest.mark.parametrize(("file_format", "compressed"), [("csv", True), ("json", False), ("parquet", False)])
def test_t40_t43_every_value_arrives_by_the_types_of_the_metadata_files(
    tmp_path: Path, spark, file_format: FileFormat, compressed: bool
) -> None:
    history = written(tmp_path, file_format, compressed=compressed)
    wanted = {
        row["customer_id"]: row
        for row in History(history.tables, history.initial, [], history.initial).typed_final("dbo.customers")
    }
    pipeline, done = loaded(tmp_path, spark)
    assert (done.stopped, done.rows) == ({}, {"dbo.customers": 250})
    pipeline.service.poll()
    found = {row["customer_id"]: row for row in pipeline.mirrored("dbo", "customers")}
    assert found == wanted


def test_t92_a_full_load_of_a_table_that_was_empty_is_complete(tmp_path: Path, spark_on_demand) -> None:
    write_files(tmp_path / "export", full_load_files(CUSTOMERS, [], "json"))
    assert [path.stat().st_size for path in tmp_path.rglob("LOAD*.json")] == [0]
    _, done = loaded(tmp_path, spark_on_demand)
    assert (done.stopped, done.rows) == ({}, {}), "an empty table waits for its first row (F-92)"


def damaged(folder: Path, name: str, old: bytes, new: bytes) -> None:
    path = folder / "export" / "dbo.customers" / name
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


@pytest.mark.parametrize(
    ("code", "story", "spoil"),
    [
        ("LOAD_INVALID", "FILE_DAMAGED", ("LOAD00000002.dfm", b'"recordCount": 100', b'"recordCount": 101')),
        ("LOAD_INVALID", "FILE_DAMAGED", ("LOAD00000002.dfm", b"LOAD00000002.csv", b"LOAD00000001.csv")),
        ("LOAD_INVALID", "FILE_DAMAGED", ("LOAD00000001.csv", b",email,", b",mail,")),
        ("LOAD_INVALID", "'mail'", ("LOAD00000001.dfm", b'"name": "email"', b'"name": "mail"')),
        ("LOAD_INVALID", "FILE_DAMAGED", ("LOAD00000001.csv", b'"', b'x"')),
        ("TYPE_UNSUPPORTED", "'email'", ("LOAD00000001.dfm", b'"email",\n                "type": "STRING"', None)),
        ("LOAD_INVALID", "LOAD00000003", ("LOAD00000003.dfm", None, None)),
        ("LOAD_INVALID", ".LOAD00000009.csv", (".LOAD00000009.csv", None, b"x")),
        ("LOAD_INVALID", "20240101", ("20240101-000000001.csv", None, b"x")),
        ("LOAD_INVALID", "ROWS_MISSING", ("LOAD00000002.dfm", b'"errorCount": 0', b'"errorCount": 1')),
        ("LOAD_INVALID", "LOAD00000009.txt", ("LOAD00000009.txt", None, b"x")),
        ("PLACE_MISSING", "no full load", (None, None, None)),
    ],
)
def test_a_full_load_that_is_not_complete_is_refused_before_anything_is_published(
    tmp_path: Path, spark_on_demand, code: str, story: str, spoil: tuple[str | None, bytes | None, bytes | None]
) -> None:
    """T-41, T-42: bad input of an export; the message says the file and the way out."""
    written(tmp_path)
    folder, (name, old, new) = tmp_path / "export" / "dbo.customers", spoil
    if name is None:
        for path in folder.iterdir():
            path.unlink()
    elif old is None and new is None:
        (folder / name).unlink()
    elif old is None:
        (folder / name).write_bytes(new or b"")
    else:
        damaged(tmp_path, name, old, new if new is not None else old.replace(b"STRING", b"GEOMETRY"))
    pipeline, done = loaded(tmp_path, spark_on_demand)
    stopped = done.stopped["dbo.customers"]
    assert stopped.startswith(code) and story in stopped and str(folder) in stopped
    assert pipeline.numbers("dbo.schema/customers") == []


def test_columns_and_types_can_be_chosen(tmp_path: Path, spark_on_demand) -> None:
    """G-12, T-44: a type of the mirror file goes before the file's own, which may drift."""
    written(tmp_path)
    load = {"format": "qlik-full-load", "path": "export/dbo.customers", "stream_from": "beginning"}
    pipeline, done = loaded(
        tmp_path,
        spark_on_demand,
        columns=["customer_id", "credit"],
        initial_load={**load, "types": {"credit": "decimal(19,4)"}},
    )
    assert done.stopped == {}
    pipeline.service.poll()
    rows = pipeline.mirrored("dbo", "customers")
    assert len(rows) == 250 and {tuple(sorted(row)) for row in rows} == {("credit", "customer_id")}
    assert {row["credit"].as_tuple().exponent for row in rows} == {-4}


def test_a_load_of_a_wider_key_is_refused_before_anything_is_published_g83(tmp_path: Path, spark_on_demand) -> None:
    written(tmp_path)
    for path in (tmp_path / "export" / "dbo.customers").glob("*.dfm"):
        content = json.loads(path.read_bytes())
        for number, column in enumerate(content["dataInfo"]["columns"][:2], 1):
            column["primaryKeyPos"] = number
        path.write_text(json.dumps(content), encoding="utf-8")
    _, done = loaded(tmp_path, spark_on_demand)
    assert "KEY_DIFFERS" in done.stopped["dbo.customers"]
