"""The first day of a table: what the mirror file said wrongly is mended in the mirror file, and that is all (G-69).

Through the command line, in every format, until something of the table is at the target.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.e2e.test_dropped_columns_formats import (
    FIRST,
    FULL,
    CesAvroLines,
    CesLines,
    Change,
    ChangeTableFiles,
    Debezium,
    QlikMessages,
    Source,
)

FORMATS = [CesLines, CesAvroLines, Debezium, ChangeTableFiles, QlikMessages]
ROWS = [(1, "Ada", "1.50"), (2, "Eve", "1.50"), (3, "Ada", "1.50")]
UPDATED = Change("UPD", 2, 11, FULL, "Eve")


def declare(story: Source, **settings: Any) -> None:
    """Mend what the mirror file says of the table."""
    _mend(story, lambda document: document["tables"][0].update(settings))


def declare_mirror(story: Source, **settings: Any) -> None:
    """Mend what the mirror file says of the mirror."""
    _mend(story, lambda document: document.update(settings))


def _mend(story: Source, mend: Callable[[dict[str, Any]], None]) -> None:
    document = yaml.safe_load(story.pipeline.file.read_text())
    mend(document)
    story.pipeline.file.write_text(yaml.safe_dump(document, sort_keys=False))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_wrong_key_is_fixed_in_the_mirror_file_and_the_table_goes_on(
    kind: type[Source], tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-69, I1: twice wrong, then right; what came in between is there, too, and nothing twice."""
    story = kind(tmp_path, spark)
    declare(story, key=["nr"])
    assert story.tick(*FIRST) == Exit.TABLES_STOPPED
    assert story.stop == "KEY_UNKNOWN"
    assert story.tick() == Exit.TABLES_STOPPED, "nothing was mended"
    declare(story, key=["number"])
    assert story.tick() == Exit.TABLES_STOPPED
    assert story.stop == "KEY_UNKNOWN"
    capsys.readouterr()
    declare(story, key=["id"], target="other/orders")
    assert story.tick(UPDATED) == Exit.DONE, capsys.readouterr().out
    assert story.stop is None
    found = story.pipeline.mirrored("other", "orders")
    assert sorted((int(row["id"]), row["name"], str(row["price"])) for row in found) == ROWS
    assert main(["dead-letters", str(story.pipeline.file)]) == Exit.DONE
    assert main(["reconcile", str(story.pipeline.file)]) == Exit.DONE
    assert story.tick() == Exit.DONE


def test_a_key_that_is_taken_away_lets_the_table_go_on_too(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-69, F-12; and nobody can lift the stop, or reset the table, before what was rejected is read again."""
    story = CesLines(tmp_path, spark)
    declare(story, key=["nr"])
    assert story.tick(*FIRST) == Exit.TABLES_STOPPED
    declare(story, key=[])
    main(["status", str(story.pipeline.file)])
    assert story.stop == "KEY_CORRECTED"
    capsys.readouterr()
    assert main(["resume", str(story.pipeline.file), "--table", story.source, "--why", "x"]) == Exit.TERMINAL
    assert "COMMAND_REFUSED" in capsys.readouterr().err
    reset = ["--table", story.source, "--reason", "x", "--approved-by", "Ada", "--wait", "0"]
    assert main(["reload-table", str(story.pipeline.file), *reset]) == Exit.TERMINAL
    assert "LOAD_NEEDED" in capsys.readouterr().err
    assert story.tick() == Exit.DONE
    assert sorted(row["id"] for row in story.rows) == ["1", "2", "3"]


def test_a_run_that_is_killed_while_it_reads_again_is_finished_by_the_next_one(tmp_path: Path, spark: Any) -> None:
    """G-69, I19: the mended key is not forgotten, and nothing is read again twice."""
    story = CesLines(tmp_path, spark)
    declare(story, key=["nr"])
    assert story.tick(*FIRST) == Exit.TABLES_STOPPED
    declare(story, key=["id"])
    story.pipeline.killed("extract_changes", "extract.sealed")
    assert story.stop == "KEY_CORRECTED"
    assert story.tick() == Exit.DONE
    assert [(row["id"], row["name"]) for row in story.rows] == [("1", "Ada"), ("2", "Ada"), ("3", "Ada")]
    changes = [row["pos"] for row in story.pipeline.logged() if row["kind"] == "change"]
    assert len(changes) == len(set(changes)) == len(FIRST)


def test_a_key_is_fixed_without_a_reset_while_the_target_has_nothing_of_the_table(tmp_path: Path, spark: Any) -> None:
    """G-69, F-13, F-92: runs that publish no row leave no folder, so the target was reported no key."""
    story = CesLines(tmp_path, spark)
    declare(story, key=["nr"])
    assert story.tick() == Exit.DONE
    assert story.tick(*FIRST) == Exit.TABLES_STOPPED
    declare(story, key=["id"])
    assert story.tick(UPDATED) == Exit.DONE
    assert sorted((int(row["id"]), row["name"], row["price"]) for row in story.rows) == ROWS
    assert main(["reconcile", str(story.pipeline.file)]) == Exit.DONE
