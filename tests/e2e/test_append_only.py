"""Tables that are only appended to: files without marker column, and an update or delete stops them (G-191)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.e2e.test_dropped_columns_formats import FULL, CesLines, Change
from tests.e2e.test_first_day import declare
from tests.e2e.test_lost_ledger import forget, said
from tests.e2e.test_rebuild_ledger import APPLY
from tests.shaped_tables import FORMS, mirrored, plain
from workload_generator.history import SHOP_TABLES, random_history
from workload_generator.sql_values import typed

TABLES = [
    {"source": t.full_name, "target": f"shop/{t.name}", "key": [], "append_only": True} for t in SHOP_TABLES
]  # fmt: skip


def has_markers(pipeline: Any) -> set[bool]:
    """Whether the files of the zone have a marker column."""
    files = [path for path in pipeline.zone.rglob("*.parquet") if path.stem.isdigit()]
    return {"__rowMarker__" in pq.read_schema(path).names for path in files}


@pytest.mark.parametrize("form", FORMS)
def test_inserts_land_once_in_files_without_markers_g191(form: str, tmp_path: Path, spark: Any) -> None:
    """G-191, F-57, G-127: late, repeated and over kills."""
    made = random_history(91, 40)
    made = replace(made, changes=[change for change in made.changes if change.op == "I"])
    pipeline = mirrored(form, made, tmp_path, spark, TABLES, publish={"max_rows_per_file": 3})
    for table in SHOP_TABLES:
        types = {column.name: column.sql_type for column in table.columns}
        rows = [change.after for change in made.changes if change.table.full_name == table.full_name]
        expected = [{name: typed(types[name], text) for name, text in row.items()} for row in rows if row]
        found = pipeline.mirrored("shop", table.name)
        assert Counter(map(plain, found)) == Counter(map(plain, expected)), table.name
    assert has_markers(pipeline) == {False}


def test_an_update_stops_the_table_and_the_setting_may_change_g191(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-191, F-12: the deep check and a rebuilt ledger read both kinds of files."""
    story = CesLines(tmp_path, spark, key=[], append_only=True)
    assert story.tick(Change("INS", 1, 1, FULL)) == Exit.DONE, capsys.readouterr().out
    assert has_markers(story.pipeline) == {False}
    declare(story, append_only=False)
    assert story.tick(Change("INS", 2, 2, FULL)) == Exit.DONE
    declare(story, append_only=True)
    assert story.tick(Change("INS", 3, 3, FULL)) == Exit.DONE
    assert [row["id"] for row in story.rows] == ["1", "2", "3"] and has_markers(story.pipeline) == {False, True}
    assert main(["reconcile", str(story.pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    forget(story.pipeline)
    code, text = said(capsys, story.pipeline, "rebuild-ledger", *APPLY)
    assert code == Exit.DONE, text
    assert story.tick(Change("UPD", 1, 4, FULL, "Eve")) == Exit.TABLES_STOPPED
    assert story.stop == "KEYLESS_CHANGE" and [row["id"] for row in story.rows] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"key": ["id"]}, "set `key: []`"),
        ({"key": [], "delimited_text": {"columns": {"id": "int32"}}}, "keep their marker column"),
    ],
)
def test_check_refuses_what_does_not_go_with_it_g191(
    settings: dict[str, Any], what: str, tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    story = CesLines(tmp_path, spark, append_only=True, **settings)
    assert main(["check", str(story.pipeline.file)]) != Exit.DONE
    assert what in "".join(capsys.readouterr())
