"""Columns that land as the mirror file says (G-110): changes, and tables built anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import event
from tests.e2e.test_dropped_columns_formats import (
    FIRST,
    FULL,
    CesLines,
    Change,
    ChangeTableFiles,
    Debezium,
    QlikMessages,
    Source,
)
from tests.e2e.test_first_day import declare
from tests.pipeline import Pipeline, in_order


@pytest.mark.parametrize("kind", [CesLines, QlikMessages, ChangeTableFiles, Debezium])
def test_a_published_table_takes_other_types_once_it_is_built_again_but_for_its_key_g110(
    kind: type[Source],
    tmp_path: Path,
    spark: Any,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """G-110, G-66: the log holds what the source told, so no load is needed; what it holds by a key stays by that."""
    story = kind(tmp_path, spark, types={"ID": "string"})
    assert story.tick(*FIRST) == Exit.DONE
    update = Change("UPD", 2, 11, FULL, "Eve")
    if kind in (CesLines, QlikMessages):  # the others tell the price as text
        document = yaml.safe_load(story.pipeline.file.read_text())
        document["landing_zone"]["tables"] = "tables"
        document["tables"][0]["types"] |= {"PRICE": "decimal(12,4)"}
        story.pipeline.file.write_text(yaml.safe_dump(document))
        story.tick(update)
        assert "`types` lands 'price' as decimal(12,4), which is published as decimal(8,2)" in caplog.text
        for _ in range(3):
            story.tick()
        assert story.tick() == Exit.DONE, capsys.readouterr().out
        assert {row["price"] for row in story.rows} == {"1.5000"}
    else:
        assert story.tick(update) == Exit.DONE
    found = story.pipeline.mirrored(*story.source.split("."))
    assert sorted((row["id"], row["name"]) for row in found) == [("1", "Ada"), ("2", "Eve"), ("3", "Ada")]
    declare(story, types={})
    assert main(["tick", str(story.pipeline.file)]) == Exit.TERMINAL
    assert "TABLE_REDECLARED" in capsys.readouterr().err


def test_a_key_with_seven_digits_of_a_second_lands_as_text_g110(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-02, G-69, G-110: two keys that differ in the seventh digit stay two; said on the first day, nothing is lost."""
    table = {"source": "dbo.orders", "target": "dbo/orders", "key": ["made"]}
    pipeline = Pipeline(tmp_path, spark, [table], source={"layout": "bare"})
    cols = (("made", "datetime2(7)"), ("name", "nvarchar(9)"))

    def line(operation: str, digit: int, at: int) -> bytes:
        row = {"made": f"2024-01-01 10:00:00.123456{digit}", "name": f"n{at}"}
        images = (None, row) if operation == "DEL" else (row, None)
        return event(operation, *images, cols=cols, commit=at) + b"\n"

    pipeline.deliver("a.jsonl", line("INS", 1, 10) + line("INS", 2, 11) + line("INS", 3, 12))
    assert main(["tick", str(pipeline.file)]) == Exit.TABLES_STOPPED
    assert "`types: {column: string}`" in str(pipeline.letters()[0])
    document = yaml.safe_load(pipeline.file.read_text())
    document["tables"][0]["types"] = {"made": "string"}
    pipeline.file.write_text(yaml.safe_dump(document))
    pipeline.deliver("b.jsonl", line("DEL", 2, 13))
    assert main(["tick", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.service.poll()
    found = in_order(pipeline.mirrored("dbo", "orders"), ["made"])
    assert [(row["made"], row["name"]) for row in found] == [
        ("2024-01-01T10:00:00.1234561", "n10"),
        ("2024-01-01T10:00:00.1234563", "n12"),
    ]
    assert main(["reconcile", str(pipeline.file)]) == Exit.DONE


def test_check_refuses_what_the_source_announces_otherwise_g110(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = [
        {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], "types": {"name": "int64"}},
        {"source": "dbo.keyed", "target": "dbo/keyed", "key": ["id"], "types": {"id": "decimal(12,2)"}},
        {"source": "dbo.sound", "target": "dbo/sound", "key": ["id"], "types": {"id": "int64", "lost": "string"}},
    ]
    pipeline = Pipeline(tmp_path, spark, tables, source={"layout": "bare"})
    pipeline.deliver("a.jsonl", b"".join(event(tbl=name) + b"\n" for name in ("orders", "keyed", "sound")))
    assert main(["check", str(pipeline.file), "--sample", "100"]) != Exit.DONE
    found = [line for line in capsys.readouterr().out.splitlines() if "tables[" in line]
    assert sum("TYPE_UNSUPPORTED" in line and "cannot land as" in line for line in found) == 2, found
    document = yaml.safe_load(pipeline.file.read_text())
    document["tables"] = tables[2:]
    pipeline.file.write_text(yaml.safe_dump(document))
    assert main(["check", str(pipeline.file), "--sample", "100"]) == Exit.DONE
    assert "NOT_SEEN: tables[0].types: the source has no column 'lost'" in capsys.readouterr().out
    for types in ({"name": "varchar(3)"}, {"name": "decimal(39,2)"}, {"gone": "string"}):
        document = yaml.safe_load(pipeline.file.read_text())
        document["tables"] = [{**tables[0], "columns": ["id", "name"], "types": types}]
        pipeline.file.write_text(yaml.safe_dump(document))
        assert main(["check", str(pipeline.file)]) != Exit.DONE
        out = "".join(capsys.readouterr())
        assert "TYPE_UNSUPPORTED" in out or "CONFIG_INVALID" in out, json.dumps(types)
