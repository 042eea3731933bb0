"""A ledger that is lost, emptied, restored or another one, beside what it published: every door says so (G-31)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from open_mirroring.errors import TerminalError
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main as command_line
from tests.ces_messages import event
from tests.e2e.test_reload_table import ORDERS, deliver, mirror_of, orders, row
from tests.pipeline import Pipeline


def set_to(pipeline: Pipeline, **settings: Any) -> None:
    document = yaml.safe_load(pipeline.file.read_text(encoding="utf-8"))
    pipeline.file.write_text(yaml.safe_dump({**document, **settings}, sort_keys=False), encoding="utf-8")


def forget(pipeline: Pipeline) -> None:
    for file in pipeline.folder.glob("ledger.db*"):
        file.unlink()


def lose(pipeline: Pipeline, how: str) -> None:
    if how == "another url":
        set_to(pipeline, ledger="sqlite:///other.db")
        return
    forget(pipeline)
    if how == "empty file":
        (pipeline.folder / "ledger.db").touch()
    if how == "new ledger":
        assert pipeline.ledger


def published(folder: Path, spark: Any) -> Pipeline:
    """Two publications; the service has moved the first file away."""
    pipeline = mirror_of(folder, spark, ORDERS)
    for number, name in enumerate(("Ada", "Eve"), 1):
        deliver(pipeline, f"{number}.jsonl", event("INS", row(number, name), commit=10 + number))
        pipeline.tick()
    return pipeline


def said(capsys: Any, pipeline: Pipeline, command: str, *more: str) -> tuple[int, str]:
    capsys.readouterr()
    code = command_line([command, str(pipeline.file), *more])
    story = capsys.readouterr()
    return code, story.out + story.err


@pytest.mark.parametrize("how", ["no file", "empty file", "new ledger", "another url"])
@pytest.mark.parametrize("log", ["log", "no log"])
def test_every_door_says_that_the_ledger_is_lost_g_31(how: str, log: str, tmp_path: Path, spark, capsys: Any) -> None:
    """G-31: none begins anew, none says that all is well, and looking leaves nothing behind."""
    pipeline = published(tmp_path, spark)
    files = sorted(str(path) for path in pipeline.zone.rglob("*"))
    if log == "no log":
        shutil.rmtree(pipeline.log)
    lose(pipeline, how)
    there = sorted(path.name for path in pipeline.folder.iterdir())
    for command, exit_code in (("check", Exit.USAGE), ("status", Exit.TABLES_STOPPED)):
        code, text = said(capsys, pipeline, command)
        assert (code, "LEDGER_LOST" in text) == (exit_code, True), (command, text)
        if how in ("no file", "another url"):
            assert sorted(path.name for path in pipeline.folder.iterdir()) == there, "looking creates nothing"
    for command in ("tick", "initial-load", "replay-dead-letters", "reconcile"):
        code, text = said(capsys, pipeline, command)
        if command == "initial-load" and log == "no log":
            assert code == Exit.DONE, "no table has a load, and nothing is done"
            continue
        assert code in (Exit.TERMINAL, Exit.TABLES_STOPPED), (command, text)
        assert "LEDGER_LOST" in text or (command == "reconcile" and "LEDGER_BEHIND" in text), (command, text)
    assert sorted(str(path) for path in pipeline.zone.rglob("*")) == files
    assert pipeline.log.exists() == (log == "log") and pipeline.reader.mirror().committed == 0


def test_an_older_ledger_is_behind_the_log_also_when_the_source_has_nothing_new(
    tmp_path: Path, spark, capsys: Any
) -> None:
    """G-31: a restored backup whose source was cleaned up; with the newest ledger it goes on as if nothing was."""
    pipeline = mirror_of(tmp_path, spark, ORDERS)
    deliver(pipeline, "1.jsonl", event("INS", row(1, "Ada"), commit=11))
    pipeline.tick()
    shutil.copytree(pipeline.folder, tmp_path / "backup", ignore=shutil.ignore_patterns("zone", "log", "tables"))
    deliver(pipeline, "2.jsonl", event("INS", row(2, "Eve"), commit=12))
    pipeline.extract()
    shutil.copytree(pipeline.folder, tmp_path / "newest", ignore=shutil.ignore_patterns("zone", "log", "tables"))
    (pipeline.source / "2.jsonl").unlink()
    forget(pipeline)
    for file in (tmp_path / "backup").glob("ledger.db*"):
        shutil.copy(file, pipeline.folder)
    for command in ("check", "status", "tick"):
        code, text = said(capsys, pipeline, command)
        assert code != Exit.DONE and "LEDGER_LOST" in text and "up to 2, the ledger knows 1" in text
    forget(pipeline)
    for file in (tmp_path / "newest").glob("ledger.db*"):
        shutil.copy(file, pipeline.folder)
    pipeline.tick()
    assert [found["name"] for found in orders(pipeline)] == ["Ada", "Eve"]


def test_a_change_log_that_is_gone_is_not_begun_again(tmp_path: Path, spark, capsys: Any) -> None:
    """G-31, I29: the ledger knows batches that no log holds; restored, it goes on."""
    pipeline = published(tmp_path, spark)
    pipeline.log.rename(tmp_path / "moved")
    deliver(pipeline, "3.jsonl", event("UPD", row(1, "Ida"), row(1, "Ada"), commit=20))
    code, text = said(capsys, pipeline, "tick")
    assert code == Exit.TERMINAL and "LOG_DAMAGED" in text and not pipeline.log.exists()
    (tmp_path / "moved").rename(pipeline.log)
    assert said(capsys, pipeline, "resume", "--table", "dbo.orders", "--why", "restored")[0] == Exit.DONE
    pipeline.tick()
    assert [found["name"] for found in orders(pipeline)] == ["Ida", "Eve"]


def test_another_mirrors_zone_is_refused_by_its_name_g_175(tmp_path: Path, spark, capsys: Any) -> None:
    """I23: two mirrors with two ledgers and one target; and a zone that was emptied while the ledger knows K."""
    pipeline = published(tmp_path, spark)
    second = Pipeline(tmp_path / "second", spark, [ORDERS], source={"layout": "bare"}, mirror="second")
    set_to(second, landing_zone={"store": "local", "path": str(pipeline.zone)})
    code, text = said(capsys, second, "check")
    assert code == Exit.USAGE and "MIRROR_CLASH" in text and f"{pipeline.mirror.name!r}" in text
    code, text = said(capsys, second, "tick")
    assert code == Exit.TERMINAL and "MIRROR_CLASH" in text and f"{pipeline.mirror.name!r}" in text
    shutil.rmtree(pipeline.zone)
    pipeline.zone.mkdir()
    code, text = said(capsys, pipeline, "tick")
    assert code == Exit.TABLES_STOPPED and "INCARNATION_CHANGED" in text


def test_one_name_for_two_mirror_files_with_other_tables_is_refused(tmp_path: Path, spark) -> None:
    """One ledger, one mirror name, other tables: what the first file named is not forgotten (F-71)."""
    pipeline = published(tmp_path, spark)
    set_to(pipeline, tables=[{"source": "dbo.notes", "target": "dbo/notes", "key": ["id"]}])
    with pytest.raises(TerminalError, match="TABLE_REDECLARED"):
        pipeline.tick()
