"""Columns that have another name at the target (G-120): changes, lost ledgers, tables built anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from open_mirroring.landing_zone.layout import key_columns_of
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.e2e.test_dropped_columns_formats import (
    FIRST,
    FULL,
    RENAMED,
    CesLines,
    Change,
    QlikMessages,
    Source,
)
from tests.e2e.test_first_day import declare
from tests.e2e.test_lost_ledger import forget, said
from tests.e2e.test_rebuild_ledger import APPLY
from tests.pipeline import in_order

RENAME = {"ID": "number", "name": "city", "city": "name"}


def landed(*rows: tuple[int, str, str | None], **more: Any) -> list[dict[str, Any]]:
    return [{"number": str(i), "city": n, "name": "Linz", "price": p, **more} for i, n, p in rows]


def found(story: Source) -> list[dict[str, Any]]:
    rows = in_order(story.pipeline.mirrored(*story.source.split(".")), ["number"])
    return [{name: None if value is None else str(value) for name, value in row.items()} for row in rows]


@pytest.mark.parametrize("kind", [CesLines, pytest.param(QlikMessages, marks=pytest.mark.long)])
def test_columns_land_under_other_names_and_drift_speaks_of_the_sources_g120(
    kind: type[Source], tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str], caplog: Any
) -> None:
    """G-120, G-60, G-80: a key, two names that change places, a collision, other names later, a lost ledger."""
    story = kind(tmp_path, spark, columns={"rename": RENAME})
    document = yaml.safe_load(story.pipeline.file.read_text())
    document["landing_zone"]["tables"] = "tables"
    story.pipeline.file.write_text(yaml.safe_dump(document))
    assert story.tick(*FIRST) == Exit.DONE, capsys.readouterr().out
    folder = next(story.pipeline.zone.rglob("_metadata.json"))
    assert key_columns_of(folder.read_bytes()) == ("number",)
    assert story.tick(Change("UPD", 2, 11, FULL, "Eve")) == Exit.DONE
    assert found(story) == landed((1, "Ada", "1.50"), (2, "Eve", "1.50"), (3, "Ada", "1.50"))

    declare(story, columns={"rename": {**RENAME, "cost": "PRICE"}})
    assert story.tick() == Exit.DONE, "nothing is published under the new name yet"
    after = [Change("INS", 4, 20, RENAMED)]
    assert story.tick(*after) == Exit.TABLES_STOPPED
    assert story.stop == "COLUMN_NAME_INVALID"
    caplog.clear()
    main(["status", str(story.pipeline.file)])
    assert "columns 'price' and 'cost' would both land as 'PRICE'" in capsys.readouterr().out
    declare(story, columns={"rename": RENAME})
    assert main(["resume", str(story.pipeline.file), "--table", story.source, "--why", "mended"]) == Exit.DONE
    if story.renames:
        assert story.tick() == Exit.TABLES_STOPPED
        assert story.stop == "RENAME_POSSIBLE"
        assert story.decide("--dropped", "price") == Exit.DONE
    assert story.tick() == Exit.DONE, capsys.readouterr().out
    assert story.gone == ["price"]
    rows = landed((1, "Ada", "1.50"), (2, "Eve", "1.50"), (3, "Ada", "1.50"), cost=None)
    assert found(story) == [*rows, *landed((4, "Ada", None), cost="2.50")]

    forget(story.pipeline)
    code, text = said(capsys, story.pipeline, "rebuild-ledger", *APPLY)
    assert code == Exit.DONE, text
    assert story.tick(Change("UPD", 3, 30, RENAMED, "Zoe")) == Exit.DONE, capsys.readouterr().out
    assert main(["reconcile", str(story.pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    assert found(story)[2] == landed((3, "Zoe", None), cost="2.50")[0]

    declare(story, columns={"rename": {"id": "number"}})
    story.tick(Change("INS", 5, 40, RENAMED))
    assert "`rename` lands 'name' as 'name', which is published as 'city'" in caplog.text
    for _ in range(4):
        story.tick()
    assert story.tick() == Exit.DONE, capsys.readouterr().out
    assert [(row["number"], row["name"], row["city"]) for row in found(story)] == [
        ("1", "Ada", "Linz"), ("2", "Eve", "Linz"), ("3", "Zoe", "Linz"), ("4", "Ada", "Linz"), ("5", "Ada", "Linz")
    ]  # fmt: skip
    declare(story, columns=None)
    capsys.readouterr()
    assert main(["tick", str(story.pipeline.file)]) == Exit.TERMINAL
    assert "TABLE_REDECLARED" in capsys.readouterr().err
