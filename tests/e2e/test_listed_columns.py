"""`columns` of a mirror file: spelled otherwise, renamed, or never told, in every format (G-67, G-73, G-74)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from open_mirroring.operate.exit_codes import Exit
from tests.e2e.test_dropped_columns_formats import (
    FIRST,
    RENAMED,
    SOURCES,
    CesLines,
    Change,
    ChangeTableFiles,
    QlikMessages,
    Source,
    expected,
)

SHORT_FORM = (CesLines, ChangeTableFiles, QlikMessages)
KINDS = [pytest.param(kind, marks=() if kind in SHORT_FORM else pytest.mark.long) for kind in SOURCES]


def listing(told: Source, *columns: str) -> Source:
    """The same mirror with `columns` for its table."""
    document = yaml.safe_load(told.pipeline.file.read_text())
    document["tables"][0]["columns"] = list(columns)
    told.pipeline.file.write_text(yaml.safe_dump(document, sort_keys=False))
    return told


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_listed_whatever_their_case_and_a_name_that_never_comes_is_told_g67_g74(
    kind: type[Source], tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    told = listing(kind(tmp_path, spark), "id", "NAME", "City", "prize")
    assert told.tick(*FIRST) == Exit.DONE
    assert told.rows == [{"id": str(at), "name": "Ada", "city": "Linz"} for at in (1, 2, 3)]
    assert "COLUMN_UNTOLD: `columns` lists 'prize'" in capsys.readouterr().out


@pytest.mark.parametrize("kind", KINDS)
def test_a_listed_column_that_is_gone_is_asked_for_where_the_source_can_rename_g73(
    kind: type[Source], tmp_path: Path, spark: Any
) -> None:
    told = listing(kind(tmp_path, spark), "id", "name", "city", "price")
    assert told.tick(*FIRST) == Exit.DONE
    after = [Change("INS", 4, 10, RENAMED), Change("UPD", 2, 11, RENAMED, "Eve")]
    if told.renames:
        assert told.tick(*after) == Exit.TABLES_STOPPED
        assert told.stop == "RENAME_POSSIBLE"
        assert told.rows == expected((1, "Ada", "1.50"), (2, "Ada", "1.50"), (3, "Ada", "1.50"))
        assert told.decide("--dropped", "price") == Exit.DONE
        after = []
    assert told.tick(*after) == Exit.DONE
    assert told.gone == ["price"]
    assert told.rows == expected((1, "Ada", "1.50"), (2, "Eve", None), (3, "Ada", "1.50"), (4, "Ada", None))
    assert told.tick(Change("INS", 6, 20, RENAMED)) == Exit.DONE, "it is asked once"
