"""The initial load from exports: equal to the source, resumed where it was killed, refused as a whole (G-08, F-57)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fault_points import FAULT_POINTS
from open_mirroring.landing_zone.data_file import read_footer
from tests.pipeline import Pipeline
from tests.shop import SHOP, Shop, judge


def load(pipeline: Pipeline, only: list[str] | None = None) -> Any:
    from spark_jobs.initial_load import load as run

    return run(pipeline.mirror, pipeline.ledger, pipeline._spark, only)


def state_of(pipeline: Pipeline, source: str) -> Any:
    return pipeline.reader.tables()[source]


@pytest.mark.parametrize("file_format", ["parquet", "csv"])
def test_load_and_stream_end_equal_to_the_source(file_format: str, tmp_path: Path, spark) -> None:
    """G-08, C-76, I6, F-57: marker-free files first, then the changes since the export, wherever they overlap.

    F-42: the load does not wait for the target, which finds all of its files when it first looks.
    """
    shop = Shop(tmp_path, spark, file_format, rows=230, publish={"max_rows_per_file": 100})
    # Part of the stream is in the log before the load, part comes after it.
    shop.pipeline.extract()
    assert shop.pipeline.publish().files == {}, "a table whose load is pending publishes no change"
    loaded = load(shop.pipeline)
    assert loaded.stopped == loaded.held == {}
    assert {source: sum(numbers) for source, numbers in loaded.files.items()} == dict.fromkeys(SHOP, 1 + 2 + 3)
    for source in SHOP:
        schema = pq.read_schema(shop.pipeline.zone / state_of(shop.pipeline, source).folder / f"{1:020d}.parquet")
        assert "__rowMarker__" not in schema.names
        assert [f.name for f in schema if not f.nullable] == SHOP[source]
    shop.go_on()
    shop.pipeline.tick()
    judge(shop.pipeline, shop.state)
    again = load(shop.pipeline)
    assert (again.files, again.rows) == ({}, {}), "what is loaded stays as it is"
    assert {state_of(shop.pipeline, source).start.load_state for source in SHOP} == {"loaded"}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("publish.intended", marks=pytest.mark.long),
        pytest.param("publish.staged", marks=pytest.mark.long),
        "publish.sealed:2",
        "publish.renamed:6",
        pytest.param("publish.confirmed:2", marks=pytest.mark.long),
    ],
)
def test_a_killed_load_is_resumed(fault: str, tmp_path: Path, spark, monkeypatch: pytest.MonkeyPatch) -> None:
    """D14: only chunks that were not confirmed are read again; numbers stay unbroken and the state equal."""
    assert fault.partition(":")[0] in FAULT_POINTS
    # An intent has twice as many chunks as there are cores: four, so that eleven are three intents everywhere.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:ActiveProcessorCount=2")
    shop = Shop(tmp_path, spark, "parquet", rows=1_050, publish={"max_rows_per_file": 100})
    pipeline = shop.pipeline
    pipeline.killed("initial_load", fault)
    done = {
        s: len(t.start.load_plan.done) for s, t in pipeline.reader.tables().items() if t.start.load_plan is not None
    }
    assert set(done.values()) <= {0, 4, 8}, "it died in the middle"
    pipeline.service.poll()
    loaded = load(pipeline)
    assert loaded.stopped == {}
    for source in SHOP:
        state = state_of(pipeline, source)
        assert (state.start.load_state, state.row.confirmed) == ("loaded", 11)
        assert pipeline.numbers(state.folder) == list(range(1, 12))
        counted = sum(file.rows for file in pipeline.reader.published(state.id, 1))
        assert counted == sum(pq.read_metadata(f).num_rows for f in (shop.export / source).glob("*.parquet"))
    assert [*pipeline.zone.rglob("_stage-*/*")] == [], "objects of the killed run are swept"
    shop.go_on()
    pipeline.tick()
    judge(pipeline, shop.state)


def mirror_of(folder: Path, spark: Any, tables: dict[str, dict[str, Any]], **settings: Any) -> Pipeline:
    """A mirror of `dbo.<name>` for each name, loaded from the export in the folder's entry of that name."""
    described = [
        {
            "source": f"dbo.{name}",
            "target": name,
            "key": ["id"],
            "initial_load": {"format": "parquet", "path": str(folder / name), "stream_from": "beginning", **load},
        }
        for name, load in tables.items()
    ]
    return Pipeline(folder / "mirror", spark, described, **settings)


def test_the_shortest_value_of_all_chunks_is_kept_for_what_the_stream_shows_later_g86(
    tmp_path: Path, spark_on_demand
) -> None:
    """What is typed is refused at once, before anything is published; numbers are measured by nobody."""
    for name in ("told", "untold", "full"):
        parquet(tmp_path / name / "a.parquet", id=pa.array(["abcde", "fgh  "]), v=pa.array([1, 2], INT))
        last = pa.array(["xy" if name != "full" else "xy   ", "vwxyz"])
        parquet(tmp_path / name / "b.parquet", id=last, v=pa.array([3, 4], INT))
    told = {"types": {"id": "char(5)"}}
    tables = {"told": told, "untold": {}, "full": told}
    pipeline = mirror_of(tmp_path, spark_on_demand, tables, publish={"max_rows_per_file": 2})
    assert "VALUE_INVALID" in load(pipeline).stopped.pop("dbo.told")
    plans = {s: t.start.load_plan for s, t in pipeline.reader.tables().items()}
    assert [plan and plan.shortest for plan in (plans["dbo.untold"], plans["dbo.full"])] == [{"id": 2}, {"id": 5}]
    pipeline.service.poll()
    assert [len(pipeline.mirrored("dbo", name)) for name in ("untold", "full")] == [4, 4]


def one_table(folder: Path, spark: Any, **settings: Any) -> Pipeline:
    """A mirror of `dbo.t`, whose export is in `t`, beside `dbo.good`."""
    parquet(folder / "good" / "a.parquet", id=pa.array([1, 2], INT))
    return mirror_of(folder, spark, {"t": {}, "good": {}}, **settings)


def parquet(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


INT = pa.int32()
BAD_EXPORTS: dict[str, tuple[str, dict[str, Any], Callable[[Path], object]]] = {
    "KEY_INVALID": ("a.parquet, row 2", {}, lambda p: parquet(p / "a.parquet", id=pa.array([1, None], INT))),
    "KEY_INVALID across chunks": (
        "b.parquet, row 1",
        {},
        lambda p: [
            parquet(p / "a.parquet", id=pa.array([1, 7, 3], INT)),
            parquet(p / "b.parquet", id=pa.array([7, 8], INT)),
        ],
    ),
    "VALUE_INVALID by SQL type": (
        "a.parquet, row 2",
        {"types": {"id": "tinyint"}},
        lambda p: parquet(p / "a.parquet", id=pa.array([255, 256], INT)),
    ),
    "VALUE_INVALID beyond the calendar": (
        "a.parquet, row 2",
        {},
        lambda p: parquet(
            p / "a.parquet", id=pa.array([1, 2], INT), at=pa.array([0, 300_000 * 10**12], pa.timestamp("us"))
        ),
    ),
    "VALUE_INVALID in CSV": (
        "a.csv, row 3",
        {"format": "csv", "types": {"id": "int", "d": "decimal(5,2)"}},
        lambda p: _text(p / "a.csv", 'id,d\n1,"1.5"\n2,\n3,1.555\n'),
    ),
    "LOAD_INVALID truncated CSV": (
        "a.csv",
        {"format": "csv", "types": {"id": "int", "d": "varchar(9)"}},
        lambda p: _text(p / "a.csv", 'id,d\n1,"x"\n2,"y'),
    ),
    "LOAD_INVALID ragged CSV": (
        "a.csv",
        {"format": "csv", "types": {"id": "int", "d": "varchar(9)"}},
        lambda p: _text(p / "a.csv", "id,d\n1,2,3\n"),
    ),
    "TYPE_UNSUPPORTED": ("", {}, lambda p: parquet(p / "a.parquet", id=pa.array([1], INT), l=pa.array([[1]]))),
    "COLUMN_NAME_INVALID": (
        "a.csv",
        {"format": "csv", "types": {"id": "int"}},
        lambda p: _text(p / "a.csv", "id,id\n1,1\n"),
    ),
    "LOAD_INVALID without a type": (
        "a.csv",
        {"format": "csv", "types": {"id": "int"}},
        lambda p: _text(p / "a.csv", "id,x\n1,1\n"),
    ),
    "LOAD_INVALID without a column": (
        "a.csv",
        {"format": "csv", "types": {"id": "int", "gone": "int"}},
        lambda p: _text(p / "a.csv", "id\n1\n"),
    ),
}


def _text(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


@pytest.fixture(scope="module")
def bad_load(tmp_path_factory: pytest.TempPathFactory, spark_on_demand) -> tuple[Pipeline, Any]:
    """One run over all bad exports, a table each, and a good one among them."""
    folder = tmp_path_factory.mktemp("bad_exports")
    tables = {f"t{place}": described for place, (_, described, _) in enumerate(BAD_EXPORTS.values())}
    for name, (_, _, make) in zip(tables, BAD_EXPORTS.values(), strict=True):
        make(folder / name)
    parquet(folder / "t5x" / "a.parquet", id=pa.array([1, 2], INT))
    pipeline = mirror_of(folder, spark_on_demand, {**tables, "t5x": {}}, publish={"max_rows_per_file": 3})
    return pipeline, load(pipeline)


@pytest.mark.parametrize("name", BAD_EXPORTS)
def test_a_bad_export_stops_its_table_alone(name: str, bad_load: tuple[Pipeline, Any]) -> None:
    """G-06: the error names file and row, nothing of the table is published, and the other table is loaded."""
    pipeline, loaded = bad_load
    table = f"t{[*BAD_EXPORTS].index(name)}"
    what = loaded.stopped[f"dbo.{table}"]
    assert what.startswith(name.split()[0] + ":"), what
    assert BAD_EXPORTS[name][0] in what
    assert pipeline.numbers(table) == []
    assert state_of(pipeline, f"dbo.{table}").start.load_state == "pending"
    assert loaded.rows == {"dbo.t5x": 2}


def test_an_empty_table_is_one_file_without_rows(tmp_path: Path, spark_on_demand) -> None:
    """F-41, F-92: with `empty_tables: create` the target learns of the table and its columns."""
    for name in ("a", "b"):
        parquet(tmp_path / "t" / f"{name}.parquet", id=pa.array([], INT), name=pa.array([], pa.string()))
    pipeline = one_table(tmp_path, spark_on_demand, publish={"empty_tables": "create"})
    assert load(pipeline).files["dbo.t"] == [1]
    file = pipeline.zone / "t" / f"{1:020d}.parquet"
    assert (pq.read_metadata(file).num_rows, pq.read_schema(file).names) == (0, ["id", "name"])
    footer = read_footer(file)
    assert footer is not None and (footer.kind, footer.first_number, footer.rows) == ("load", 1, 0)
    pipeline.service.poll()
    assert pipeline.mirrored("dbo", "t") == []


def test_an_export_that_changed_is_not_mixed_with_the_one_that_was_bound(
    tmp_path: Path, spark_on_demand, monkeypatch
) -> None:
    """The load waits until the export is back; nothing was published, and the table is not stopped for good."""
    import spark_jobs.initial_load as job

    path = parquet(tmp_path / "t" / "a.parquet", id=pa.array([1, 2], INT))
    content, times = path.read_bytes(), path.stat()
    pipeline = one_table(tmp_path, spark_on_demand)
    monkeypatch.setattr(job.PublicationDriver, "drive", lambda *_: None)
    load(pipeline)
    monkeypatch.undo()
    assert state_of(pipeline, "dbo.t").start.load_plan is not None
    path.write_bytes(content + b"\0")
    assert load(pipeline).stopped["dbo.t"].startswith("LOAD_CHANGED")
    path.unlink()
    with pytest.raises(TransientError, match="UNREACHABLE"):
        load(pipeline)
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert load(pipeline).rows == {"dbo.t": 2}


def test_an_open_load_is_left_to_its_own_job_and_settings(tmp_path: Path, spark_on_demand) -> None:
    """An unsealed intent of a load is no work of the publish job, and other settings do not continue it."""
    path = parquet(tmp_path / "t" / "a.parquet", id=pa.array([1, 2], INT))
    pipeline = one_table(tmp_path, spark_on_demand)
    pipeline.killed("initial_load", "publish.intended")
    before = state_of(pipeline, "dbo.t").row.intent
    assert before is not None and before.manifest is None
    pipeline.tick()
    after = state_of(pipeline, "dbo.t")
    assert (after.row.intent, after.start.load_state, pipeline.numbers("t")) == (before, "pending", [])
    text = pipeline.file.read_text()
    pipeline.file.write_text(text.replace(f"{path.parent}\n", f"{path}\n"))
    changed = load(pipeline)
    assert changed.stopped["dbo.t"].startswith("LOAD_CHANGED")
    assert changed.rows == {"dbo.good": 2}
    pipeline.file.write_text(text)
    assert load(pipeline).rows == {"dbo.t": 2}


def test_only_the_chosen_tables_are_loaded(tmp_path: Path, spark_on_demand) -> None:
    parquet(tmp_path / "t" / "a.parquet", id=pa.array([1], INT))
    pipeline = one_table(tmp_path, spark_on_demand)
    assert load(pipeline, ["dbo.t"]).rows == {"dbo.t": 1}
    assert state_of(pipeline, "dbo.good").start.load_state == "pending"
    with pytest.raises(TerminalError, match="ARGUMENT_INVALID"):
        load(pipeline, ["dbo.nobody"])
