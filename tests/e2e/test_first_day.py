"""The first day of a table: what the mirror file said wrongly is mended in the mirror file, and that is all (G-69).

Through the command line, in every format, until something of the table is at the target.
"""

from __future__ import annotations

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
    """Mend the mirror file."""
    document = yaml.safe_load(told.pipeline.file.read_text())
    document["tables"][0] |= settings
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
