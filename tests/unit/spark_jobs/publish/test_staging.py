"""A staged object is proved before anybody relies on it: read back from the store, whatever the store did with it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from open_mirroring.errors import MirroringError, TransientError
from open_mirroring.landing_zone.arrow_schema import file_schema
from open_mirroring.landing_zone.data_file import Footer, write_data_file
from open_mirroring.landing_zone.load_columns import LoadColumn
from open_mirroring.landing_zone.local_store import LocalStore
from open_mirroring.landing_zone.opening import LocalZone
from open_mirroring.landing_zone.schema import LandingColumn
from open_mirroring.landing_zone.store import ObjectInfo
from open_mirroring.landing_zone.text_format import TextFormat
from open_mirroring.protocols.publishing import StagedFile
from spark_jobs.changelog.schema import CHANGE, LogRow
from spark_jobs.changelog.writing import log_table
from spark_jobs.load.task import LoadTarget, stage_no_rows
from spark_jobs.plan.table_plan import PlanColumns, TablePlan
from spark_jobs.publish.staging import StageTarget, StageTask, create_staged, stage

SCHEMA = file_schema([LandingColumn("id", "int64"), LandingColumn("name", "string")], ["id"], marker=True)
FOLDER = "dbo.schema/t"
NAME = f"{FOLDER}/_stage-1/00000000000000000001.a.0000"
FOOTER = Footer("shop", "t", 1, 1, 0, 1, "changes")


class Unfaithful(LocalStore):
    """A store that says it created an object and has made something else of it."""

    def __init__(self, root: Path, harm: str) -> None:
        super().__init__(root)
        self._harm = harm

    def create(self, path: str, content: bytes | Path) -> ObjectInfo | None:
        assert isinstance(content, Path)
        data = content.read_bytes()
        if self._harm == "cut":
            return super().create(path, data[:-1])
        if self._harm == "torn":
            # As long as announced, so that only reading it tells.
            created = super().create(path, data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
        else:
            created = super().create(path, data)
        if self._harm == "swept":
            self.delete(path)
        return created


def staged(store: LocalStore, tmp_path: Path, marker: int = 4) -> StagedFile:
    rows = pa.table([pa.array([1, 2]), pa.array(["a", None]), pa.array([marker] * 2, pa.int32())], schema=SCHEMA)
    local = tmp_path / "local.parquet"
    written = write_data_file(local, rows, SCHEMA, FOOTER)
    return create_staged(store, NAME, local, written, SCHEMA, ["id"], "a", "b")


def test_a_sound_object_is_named_with_its_etag_and_digest(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "zone")
    file = staged(store, tmp_path)
    found = store.stat(NAME)
    assert found is not None
    assert (file.object_name, file.etag, file.rows, file.size) == (NAME, found.etag, 2, found.size)


@pytest.mark.parametrize(
    ("harm", "code"), [("cut", "CHANGED_MEANWHILE"), ("swept", "CHANGED_MEANWHILE"), ("torn", "FILE_UNFIT")]
)
def test_an_object_that_is_not_what_was_written_is_never_sealed(tmp_path: Path, harm: str, code: str) -> None:
    """F-38, I11: nothing partial or damaged gets a number."""
    with pytest.raises(MirroringError, match=code):
        staged(Unfaithful(tmp_path / "zone", harm), tmp_path)


def test_markers_are_proved_in_what_came_back(tmp_path: Path) -> None:
    """F-50, F-51: a keyed table never gets an insert that looks for no key."""
    with pytest.raises(MirroringError, match="FILE_UNFIT"):
        staged(LocalStore(tmp_path / "zone"), tmp_path, marker=0)


class Silent(LocalStore):
    """A store that creates the first object and does not tell."""

    silent = True

    def create(self, path: str, content: bytes | Path) -> ObjectInfo | None:
        created = super().create(path, content)
        if self.silent:
            self.silent = False
            raise TransientError("UNREACHABLE", "no answer", next_step="run again")
        return created


def test_a_creation_without_an_answer_is_not_sent_again_o_08(tmp_path: Path) -> None:
    """O-08: it may have happened, so the next name is tried; nothing refers to what the first one may have left."""
    store = Silent(tmp_path / "zone")
    file = staged(store, tmp_path)
    assert file.object_name == f"{NAME}.1"
    assert {info.path for info in store.list("")} == {NAME, f"{NAME}.1"}


def test_a_staging_name_is_used_once(tmp_path: Path) -> None:
    """O-10."""
    store = LocalStore(tmp_path / "zone")
    first = staged(store, tmp_path)
    with pytest.raises(MirroringError, match="CHANGED_MEANWHILE"):
        staged(store, tmp_path)
    found = store.stat(NAME)
    assert found is not None
    assert found.etag == first.etag


def changes_task(log: Path, text: TextFormat | None = None) -> StageTask:
    """Four inserted rows of one table, two of them in each file."""
    cols = '[["id","bigint",0],["name","nvarchar(9)",1]]'
    rows = [
        LogRow(
            *(CHANGE, "o", at, "dbo.t", 0, "e", f"{at:020X}:{0:020d}:0", "I", f'["{at}"]', cols, True),
            f'{{"id":"{at}","name":"n"}}',
        )
        for at in range(1, 5)
    ]
    pq.write_table(log_table(rows, 1), log / "1.parquet")
    columns = (LandingColumn("id", "int64"), LandingColumn("name", "string"))
    types = {"id": "bigint", "name": "nvarchar(9)"}
    plan = TablePlan("dbo.t", ("id",), 0, {"e": 0}, PlanColumns(columns, types), ("1.parquet",))
    return ((plan, StageTarget(FOLDER, 2, FOOTER, text=text)),)


@pytest.mark.parametrize("kind", ["changes", "load"])
def test_workers_create_staged_objects_under_names_used_once_o_10(tmp_path: Path, kind: str) -> None:
    """O-07, O-10, F-05, F-38: in staging alone, no data file's name or Spark's; a repeated task is no conflict."""
    zone, store = LocalZone(tmp_path / "zone"), LocalStore(tmp_path / "zone")
    target = LoadTarget(FOLDER, ("id",), (LoadColumn("id", "int64", "bigint"),), 2, FOOTER)
    names: list[str] = []
    for _ in range(2):
        if kind == "changes":
            (table,) = stage(tmp_path, zone, None, changes_task(tmp_path))
            files = table.files
        else:
            files = (stage_no_rows(zone, target),)
        names += [file.object_name for file in files]
        assert all(store.stat(file.object_name) == (file.object_name, file.size, file.etag) for file in files)
    assert len(names) == (4 if kind == "changes" else 2) == len(set(names))
    assert {info.path for info in store.list("")} == set(names)
    for name in names:
        folder, _, base = name.rpartition("/")
        assert folder == f"{FOLDER}/_stage-1" and base.startswith(f"{1:020d}."), "swept by its number"
        assert not base.endswith(".parquet")


def test_every_file_of_text_has_its_marker_last_f_25(tmp_path: Path) -> None:
    """F-20, F-25, F-50: in the header, and in each row."""
    text = TextFormat("csv", ",", "\n", "", (("id", "int64"), ("name", "string")))
    (table,) = stage(tmp_path, LocalZone(tmp_path / "zone"), None, changes_task(tmp_path, text))
    contents = [LocalStore(tmp_path / "zone").read(file.object_name) for file in table.files]
    assert len(contents) == 2
    for content in contents:
        assert content is not None
        header, *rows = content.data.decode().splitlines()
        assert header == '"id","name","__rowMarker__"'
        assert len(rows) == 2 and all(row.endswith(',"n",4') for row in rows)


def test_values_that_their_column_does_not_take_stop_their_table_alone_g65(tmp_path: Path) -> None:
    """Whatever cannot be cast: the other tables of the worker are published."""
    cols = '[["id","int",0],["v","int",1]]'
    rows = [
        LogRow(
            CHANGE,
            "o",
            at,
            f"dbo.t{at}",
            0,
            "e",
            f"{at:020X}:1:1",
            "I",
            '["1"]',
            cols,
            True,
            '{"id":"1","v":"16777217"}',
        )
        for at in (1, 2)
    ]
    log = tmp_path / "log"
    log.mkdir()
    pq.write_table(log_table(rows, 1), log / "a.parquet")
    tables = []
    for at, kind in enumerate(("float32", "int32"), 1):
        columns = PlanColumns((LandingColumn("id", "int32"), LandingColumn("v", kind)), {"id": "int", "v": "int"})
        plan = TablePlan(f"dbo.t{at}", ("id",), 0, {"e": 0}, columns, ("a.parquet",))
        tables.append((plan, StageTarget(f"dbo.schema/t{at}", 10, FOOTER)))
    stopped, good = stage(log, LocalZone(tmp_path / "zone"), None, tuple(tables))
    assert stopped.stop is not None and stopped.stop[0] == "SCHEMA_CHANGED" and "'v'" in stopped.stop[1]
    assert good.stop is None and [file.rows for file in good.files] == [1]
