"""A second mirror file that names what another one owns is refused by name; the owner runs on, and nothing is lost."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.ces_messages import event
from tests.field.trial import Ended, Trial

MIRROR = """
mirror: shop
source: {format: sqlserver-ces, transport: files, layout: bare, path: events}
landing_zone: {store: local, path: zone, tables: tables}
ledger: sqlite:///ledger.db
change_log: change_log
tables:
  - {source: dbo.orders, target: dbo/orders, key: [id]}
  - {source: dbo.items, target: dbo/items, key: [id]}
"""


class Shop(Trial):
    """A running mirror of two tables, next to which files are put that clash with it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.commit = 16
        (folder / "events").mkdir(parents=True)
        self.file.write_text(MIRROR, encoding="utf-8")

    def change(self, name: str) -> None:
        """One more row of each table: its id is the number of the commit."""
        self.commit += 1
        lines = [
            event(
                "INS", {"id": str(self.commit), "name": name, "price": "1.00"}, tbl=tbl, commit=self.commit, sequence=n
            )
            for n, tbl in enumerate(("orders", "items"), 1)
        ]
        (self.folder / "events" / f"{self.commit}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))

    def second(self, **changed: str) -> Path:
        """A copy of the mirror file with some words changed."""
        text = self.file.read_text(encoding="utf-8")
        for before, after in changed.items():
            text = text.replace(WORDS[before], WORDS[before].replace(*after.split(">")))
        file = self.folder / "second.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    def contents(self) -> dict[str, Any]:
        """Every file of log and zone, and what the ledger says of the mirror `shop`."""
        files = {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for place in ("change_log", "zone")
            for path in sorted((self.folder / place).rglob("*"))
            if path.is_file()
        }
        with sqlite3.connect(self.folder / "ledger.db") as db:
            row = "SELECT committed, open_number, stop_code FROM mirror WHERE name = 'shop'"
            stops = "SELECT source, stop_code, confirmed FROM mirrored_table WHERE mirror = 'shop' ORDER BY source"
            return {"files": files, "mirror": db.execute(row).fetchall(), "tables": db.execute(stops).fetchall()}

    def ids(self, target: str) -> list[int]:
        self.apply()
        return [row["id"] for row in self.rows(target)]


WORDS = {
    "mirror": "mirror: shop",
    "zone": "path: zone",
    "log": "change_log: change_log",
    "ledger": "sqlite:///ledger.db",
}
CLASHES = {
    "other name": {"mirror": "shop>second"},
    "other zone": {"zone": "zone>zone2"},
    "other log": {"log": " change_log> log2"},
    "other zone and log": {"zone": "zone>zone2", "log": " change_log> log2"},
    "other name and zone": {"mirror": "shop>second", "zone": "zone>zone2"},
    "other name and log": {"mirror": "shop>second", "log": " change_log> log2"},
    "other name and ledger": {"mirror": "shop>second", "ledger": "ledger>ledger2"},
    "other name, ledger and zone": {"mirror": "shop>second", "ledger": "ledger>ledger2", "zone": "zone>zone2"},
    "other name, ledger and log": {"mirror": "shop>second", "ledger": "ledger>ledger2", "log": " change_log> log2"},
    "other ledger": {"ledger": "ledger>ledger2"},
    "other ledger and zone": {"ledger": "ledger>ledger2", "zone": "zone>zone2"},
    "other ledger and log": {"ledger": "ledger>ledger2", "log": " change_log> log2"},
}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.change("first")
    assert made.run("tick").code == 0
    return made


def refused(ended: Ended) -> None:
    assert ended.code == 1, ended.text
    assert ("MIRROR_CLASH" in ended.text and "'shop'" in ended.text) or "LEDGER_LOST" in ended.text, ended.text
    assert "Traceback" not in ended.text


@pytest.mark.parametrize("changed", CLASHES.values(), ids=CLASHES)
def test_a_clashing_file_is_refused_before_it_writes(shop: Shop, changed: dict[str, str]) -> None:
    """G-175: by name, through every command; the owner runs on and loses nothing."""
    second = shop.second(**changed)
    shop.change("second")
    before = shop.contents()
    checked = shop.run("check", file=second)
    assert checked.code == 2 and ("MIRROR_CLASH" in checked.out or "LEDGER_LOST" in checked.out), checked.text
    for command in ("tick", "initial-load", "maintain"):
        ended = shop.run(command, file=second)
        if command == "tick" or ended.code != 0:
            refused(ended)
    assert shop.contents() == before
    assert not (shop.folder / "zone2").exists()
    assert shop.run("tick").code == 0
    shop.change("third")
    assert shop.run("tick").code == 0
    assert shop.ids("dbo/orders") == shop.ids("dbo/items") == [17, 18, 19]
    assert shop.run("reconcile").code == 0
    refused(shop.run("tick", file=second))
    assert shop.run("check").code == 0 and shop.run("tick").code == 0


@pytest.mark.parametrize("changed", [CLASHES["other name"], CLASHES["other name and zone"], CLASHES["other zone"]])
def test_of_two_files_of_which_neither_has_run_the_first_to_run_owns(tmp_path: Path, changed: dict[str, str]) -> None:
    shop = Shop(tmp_path)
    shop.change("first")
    second = shop.second(**changed)
    assert shop.run("tick", file=second).code == 0
    ended = shop.run("tick")
    assert ended.code == 1 and "MIRROR_CLASH" in ended.text
    shop.change("second")
    assert shop.run("tick", file=second).code == 0


def test_two_mirrors_share_a_ledger(shop: Shop) -> None:
    second = shop.second(mirror="shop>second", zone="zone>zone2", log=" change_log> log2")
    assert shop.run("check", file=second).code == 0
    for _ in range(2):
        assert shop.run("tick", file=second).code == shop.run("tick").code == 0
        shop.change("more")
    assert shop.run("status", file=second).code == 0
    assert len(list((shop.folder / "zone2").rglob("*.parquet"))) == len(list(shop.zone.rglob("*.parquet"))) == 4


def test_the_owner_moves_its_places(shop: Shop) -> None:
    """Zone and log are moved, not copied: what lies there shows that they are the mirror's own."""
    (shop.folder / "zone").rename(shop.folder / "moved_zone")
    (shop.folder / "change_log").rename(shop.folder / "moved_log")
    text = shop.file.read_text(encoding="utf-8")
    shop.file.write_text(text.replace("path: zone", "path: moved_zone").replace(": change_log", ": moved_log"))
    shop.change("second")
    shop.zone = shop.folder / "moved_zone"
    assert shop.run("check").code == 0
    for _ in range(2):
        assert shop.run("tick").code == 0
        shop.change("third")
    assert shop.run("tick").code == 0
    assert shop.ids("dbo/orders") == shop.ids("dbo/items") == [17, 18, 19, 20]


def test_the_owner_makes_its_ledger_again(shop: Shop) -> None:
    shop.file.write_text(shop.file.read_text(encoding="utf-8").replace("ledger.db", "ledger2.db"))
    refused(shop.run("tick"))
    approved = ("--apply", "--approved-by", "Ada", "--reason", "its disk broke")
    (shop.folder / "ledger2.db").unlink(missing_ok=True)
    assert shop.run("rebuild-ledger", *approved).code == 0
    shop.change("second")
    assert shop.run("tick").code == 0
    assert shop.ids("dbo/orders") == shop.ids("dbo/items") == [17, 18]


def test_a_lost_log_is_still_a_loss_of_the_owner(shop: Shop) -> None:
    shutil.rmtree(shop.folder / "change_log")
    ended = shop.run("tick")
    assert ended.code != 0 and "LOG_DAMAGED" in ended.text and "MIRROR_CLASH" not in ended.text


def test_a_copy_in_another_folder_with_the_same_ledger_is_refused(shop: Shop, tmp_path: Path) -> None:
    """Its relative places are spelled alike, and are others."""
    other = Shop(tmp_path / "other")
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    for one in (shop, other):
        one.file.write_text(MIRROR.replace("sqlite:///ledger.db", ledger), encoding="utf-8")
    before = shop.contents()
    refused(other.run("tick"))
    assert shop.contents() == before and other.run("check").code == 2
    assert shop.run("tick").code == 0
