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


def declare(told: Source, **settings: Any) -> None:
    """Mend what the mirror file says of the table."""
    _mend(told, lambda document: document["tables"][0].update(settings))


def declare_mirror(told: Source, **settings: Any) -> None:
    """Mend what the mirror file says of the mirror."""
    _mend(told, lambda document: document.update(settings))


def _mend(told: Source, mend: Callable[[dict[str, Any]], None]) -> None:
    document = yaml.safe_load(told.pipeline.file.read_text())
    mend(document)
    told.pipeline.file.write_text(yaml.safe_dump(document, sort_keys=False))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_wrong_key_is_mended_in_the_mirror_file_and_the_table_goes_on(
    kind: type[Source], tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-69, I1: twice wrong, then right; what came in between is there, too, and nothing twice."""
    told = kind(tmp_path, spark)
    declare(told, key=["nr"])
    assert told.tick(*FIRST) == Exit.TABLES_STOPPED
    assert told.stop == "KEY_UNKNOWN"
    assert told.tick() == Exit.TABLES_STOPPED, "nothing was mended"
    declare(told, key=["number"])
    assert told.tick() == Exit.TABLES_STOPPED
    assert told.stop == "KEY_UNKNOWN"
    capsys.readouterr()
    declare(told, key=["id"], target="other/orders")
    assert told.tick(UPDATED) == Exit.DONE, capsys.readouterr().out
    assert told.stop is None
    found = told.pipeline.mirrored("other", "orders")
    assert sorted((int(row["id"]), row["name"], str(row["price"])) for row in found) == ROWS
    assert main(["dead-letters", str(told.pipeline.file)]) == Exit.DONE
    assert main(["reconcile", str(told.pipeline.file)]) == Exit.DONE
    assert told.tick() == Exit.DONE


def test_a_key_that_is_taken_away_lets_the_table_go_on_too(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-69, F-12; and nobody can lift the stop, or reset the table, before what was rejected is read again."""
    told = CesLines(tmp_path, spark)
    declare(told, key=["nr"])
    assert told.tick(*FIRST) == Exit.TABLES_STOPPED
    declare(told, key=[])
    main(["status", str(told.pipeline.file)])
    assert told.stop == "KEY_MENDED"
    capsys.readouterr()
    assert main(["resume", str(told.pipeline.file), "--table", told.source, "--why", "x"]) == Exit.TERMINAL
    assert "COMMAND_REFUSED" in capsys.readouterr().err
    reset = ["--table", told.source, "--reason", "x", "--approved-by", "Ada", "--wait", "0"]
    assert main(["reload-table", str(told.pipeline.file), *reset]) == Exit.TERMINAL
    assert "LOAD_NEEDED" in capsys.readouterr().err
    assert told.tick() == Exit.DONE
    assert sorted(row["id"] for row in told.rows) == ["1", "2", "3"]


def test_a_run_that_is_killed_while_it_reads_again_is_finished_by_the_next_one(tmp_path: Path, spark: Any) -> None:
    """G-69, I19: the mended key is not forgotten, and nothing is read again twice."""
    told = CesLines(tmp_path, spark)
    declare(told, key=["nr"])
    assert told.tick(*FIRST) == Exit.TABLES_STOPPED
    declare(told, key=["id"])
    told.pipeline.killed("extract_changes", "extract.sealed")
    assert told.stop == "KEY_MENDED"
    assert told.tick() == Exit.DONE
    assert [(row["id"], row["name"]) for row in told.rows] == [("1", "Ada"), ("2", "Ada"), ("3", "Ada")]
    changes = [row["pos"] for row in told.pipeline.logged() if row["kind"] == "change"]
    assert len(changes) == len(set(changes)) == len(FIRST)


def test_a_key_is_mended_without_a_reset_while_the_target_has_nothing_of_the_table(tmp_path: Path, spark: Any) -> None:
    """G-69, F-13, F-92: runs that publish no row leave no folder, so the target was told no key."""
    told = CesLines(tmp_path, spark)
    declare(told, key=["nr"])
    assert told.tick() == Exit.DONE
    assert told.tick(*FIRST) == Exit.TABLES_STOPPED
    declare(told, key=["id"])
    assert told.tick(UPDATED) == Exit.DONE
    assert sorted((int(row["id"]), row["name"], row["price"]) for row in told.rows) == ROWS
    assert main(["reconcile", str(told.pipeline.file)]) == Exit.DONE
