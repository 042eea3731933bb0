"""`check` refuses what the next run would refuse by mirror file, ledger, landing zone and change log."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.field.test_clashing_files import Shop

EDITS = {
    "key": ("target: dbo/items, key: [id]", "target: dbo/items, key: [name]", "TABLE_REDECLARED"),
    "target": ("target: dbo/items", "target: dbo/things", "TABLE_REDECLARED"),
    "taken out": ("  - {source: dbo.items, target: dbo/items, key: [id]}\n", "", "TABLE_REDECLARED"),
    "folder of another": (
        "  - {source: dbo.items, target: dbo/items, key: [id]}\n",
        "  - {source: dbo.items, target: dbo/things, key: [id]}\n  - {source: dbo.new, target: dbo/items, key: [id]}\n",
        "TABLE_REDECLARED",
    ),
    "type": ("dbo/items, key: [id]", "dbo/items, key: [id], types: {price: string}", "SCHEMA_CHANGED"),
    "left out": ("dbo/items, key: [id]", "dbo/items, key: [id], columns: {exclude: [price]}", "SCHEMA_CHANGED"),
    "name": ("dbo/items, key: [id]", "dbo/items, key: [id], columns: {rename: {price: cost}}", "SCHEMA_CHANGED"),
}


@pytest.mark.parametrize(("before", "after", "code"), EDITS.values(), ids=EDITS)
def test_check_refuses_what_the_next_run_refuses(tmp_path: Path, before: str, after: str, code: str) -> None:
    """G-51: it reports the code of the run, and keeps nothing."""
    shop = Shop(tmp_path)
    shop.change("first")
    assert shop.run("check").code == 0, "nothing has run yet"
    assert shop.run("tick").code == 0
    assert shop.run("check").code == 0
    text = shop.file.read_text(encoding="utf-8")
    assert before in text
    shop.file.write_text(text.replace(before, after), encoding="utf-8")
    known = shop.contents()
    checked = shop.run("check")
    assert checked.code == 2 and code in checked.out, checked.text
    assert "dbo.items" in checked.out and "mirror.yaml:" in checked.out and "Next step" in checked.out
    assert shop.contents() == known, "it only looks"
    ticked = shop.run("tick")
    assert ticked.code in (1, 3) and code in ticked.text
    shop.file.write_text(text, encoding="utf-8")
    if ticked.code == 1:
        assert shop.run("check").code == shop.run("tick").code == 0


def test_check_refuses_a_stopped_mirror_and_a_log_that_ends_too_early(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.change("first")
    shop.run("tick")
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        db.execute("UPDATE mirror SET stop_code = 'LOG_CONFLICT', stop_what = 'other files'")
    checked = shop.run("check")
    assert checked.code == 2 and "LOG_CONFLICT" in checked.out
    assert shop.run("tick").code == 1
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        db.execute("UPDATE mirror SET stop_code = NULL, stop_what = NULL")
    shutil.rmtree(tmp_path / "change_log")
    known = shop.contents()
    checked = shop.run("check")
    assert checked.code == 2 and "LOG_DAMAGED" in checked.out
    assert shop.contents() == known
    assert "LOG_DAMAGED" in shop.run("tick").text


def test_what_a_run_accepts_check_accepts(tmp_path: Path) -> None:
    """Another key and target of a table of which nothing was logged, and a table more."""
    shop = Shop(tmp_path)
    shop.file.write_text(
        shop.file.read_text(encoding="utf-8") + "  - {source: dbo.quiet, target: dbo/quiet, key: [id]}\n",
        encoding="utf-8",
    )
    shop.change("first")
    shop.run("tick")
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        db.execute("UPDATE mirrored_table SET established = 0 WHERE source = 'dbo.quiet'")
    shutil.rmtree(shop.zone / "dbo.schema" / "quiet", ignore_errors=True)
    text = shop.file.read_text(encoding="utf-8").replace("dbo/quiet, key: [id]", "dbo/silent, key: [code]")
    shop.file.write_text(text + "  - {source: dbo.more, target: dbo/quiet, key: [id]}\n", encoding="utf-8")
    assert shop.run("check").code == 0
    assert shop.run("tick").code == 0
