"""What `check` says of a Qlik source before anything is read: tables never seen, key changes that nothing tells."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from open_mirroring.config.names import SourceName
from open_mirroring.config.source import MessagesInLines, MessagesInTopics
from spark_jobs.cli.command_line import main
from spark_jobs.sources.qlik.change_table.jdbc import ChangeTables, NamedChangeTable
from spark_jobs.sources.registry import unread_topics
from tests.unit.spark_jobs.sources.qlik.test_qlik_change_files import COLUMNS, dfm, put

HEADERS = ("header__change_seq", "header__change_oper")
MASKED = (*HEADERS, "HEADER__CHANGE_MASK")


def test_a_change_table_that_is_not_there_or_has_no_closed_partition_was_never_seen_t34() -> None:
    named = {f"shop.{name}": NamedChangeTable("shop", f"{name}__ct") for name in ("items", "orders", "carts", "odd")}
    place = ChangeTables("db", named, control=SourceName("shop", "attrep_cdc_partitions"))
    columns = {("shop", "items__ct"): MASKED, ("shop", "orders__ct"): HEADERS, ("shop", "odd__ct"): MASKED}
    listed = [("shop", "items", "p"), ("other", "orders__ct", "p"), ("SHOP", "odd__ct", "p")]
    survey = place.surveyed(columns, place.closed_partitions(listed))
    assert {table: what.split()[0:4] for table, what in survey.unseen.items()} == {
        "shop.orders": ["the", "control", "table", "lists"],
        "shop.carts": ["the", "login", "sees", "no"],
    }
    assert survey.without_mask == ["shop.orders"]
    assert place.surveyed(columns, None).unseen.keys() == {"shop.carts"}


def test_a_table_whose_own_topic_is_not_read_is_never_seen_k15() -> None:
    topics = MessagesInTopics(format="qlik-message", transport="kafka", connection="c", topics=("a", "b"))
    assert unread_topics(topics, {"shop.items": "a", "shop.orders": "c"}).keys() == {"shop.orders"}
    lines = MessagesInLines(format="qlik-message", transport="files", path="source")
    assert unread_topics(lines, {"shop.items": "a"}) == {}, "files hold whatever topics they hold"


def test_check_warns_of_what_was_never_seen_and_of_key_changes_that_nothing_shows_t60(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Warnings stop nothing; what the mirror file promises silences them."""
    source = {"format": "qlik-change-table", "transport": "files", "path": "source"}
    tables = [{"source": f"shop.{name}", "target": f"shop/{name}", "key": ["id"]} for name in ("items", "orders")]
    document = {
        "mirror": "test",
        "source": source,
        "landing_zone": {"store": "local", "path": "zone"},
        "ledger": "sqlite:///ledger.db",
        "change_log": "log",
        "tables": tables,
    }
    put(tmp_path / "source", b"x", dfm(columns=COLUMNS))
    file = tmp_path / "mirrors" / "test.yaml"
    file.parent.mkdir()
    for story, expected in (
        ({}, ["SETUP_INCOMPLETE: tables[0].key", "NOT_SEEN: tables[1].source"]),
        ({"before_images": True}, ["NOT_SEEN: tables[1].source"]),
    ):
        file.write_text(yaml.safe_dump({**document, "source": {**source, **story}}))
        assert main(["check", str(file)]) == 0
        printed = capsys.readouterr().out
        warned = [line for line in printed.splitlines() if line.startswith("warning: ")]
        assert len(warned) == len(expected) and all(w in line for w, line in zip(expected, warned, strict=True)), warned
        assert ("key changes   found by" in printed and "before images" in printed) or not story
    tables[0]["keys_never_change"] = True
    file.write_text(yaml.safe_dump(document))
    assert main(["check", str(file)]) == 0
    assert "SETUP_INCOMPLETE" not in capsys.readouterr().out
