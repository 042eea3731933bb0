"""A run that leaves open dead letters says so, by its report and its exit code, until they are settled (G-20 to G-24).

All through the command line, in process: what a scheduler sees is the exit code, what a person sees is the text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from open_mirroring.ledger import tables as t
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import event
from tests.e2e.test_bad_input import landed, row, wrapped
from tests.pipeline import Pipeline, in_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}
CLEAN = {"source": "dbo.clean", "target": "dbo/clean", "key": ["id"]}
PARTITION = '"bad\'; --/0"'
"""The one of :func:`wrapped`, as it is shown."""
DAMAGED = b'{"topic":"bad\'; --","partition":0,"offset":2,"value":"{\n{"topic":"bad\'; --"\n'
CUT = b'{"specversion": "1.0", "type": "com.micro'
"""What is left of it tells no table."""
BAD_VALUE = event("UPD", row(1, price="cheap"), row(1), commit=20)
UNREADABLE = event("INS", '{"id":"2","name":{}}', commit=21, pkkey={"id": 2})


class Story:
    """What a command printed as JSON, and its exit code."""

    def __init__(self, code: int, out: str) -> None:
        self.code = code
        self.document: dict[str, Any] = json.loads(out) if out.startswith("{") else {}
        self.text = out


class Shop:
    """A mirror driven through the command line."""

    def __init__(self, folder: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str], **settings: Any) -> None:
        tables = settings.pop("tables", [ORDERS, CLEAN])
        self.pipeline = Pipeline(folder, spark, tables, **settings)
        self._capsys, self._offset = capsys, 0

    def deliver(self, *bodies: bytes | None) -> None:
        self.pipeline.deliver(f"{self._offset:06d}.jsonl", wrapped(bodies, self._offset))
        self._offset += len(bodies)

    def run(self, command: str, *arguments: str, json: bool = True) -> Story:
        self._capsys.readouterr()
        code = main([command, str(self.pipeline.file), *arguments, *(["--json"] if json else [])])
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return Story(code, out)

    def tick(self, *bodies: bytes | None) -> Story:
        if bodies:
            self.deliver(*bodies)
        story = self.run("tick")
        self.pipeline.service.poll()
        return story

    def orders(self) -> Sequence[dict[str, Any]]:
        return in_order(self.pipeline.mirrored("dbo", "orders"), ["id"])


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Shop:
    return Shop(tmp_path / "shop", spark, capsys)


GOOD = (event("INS", row(1), commit=10), event("INS", row(1), commit=11, tbl="clean"))


def test_open_dead_letters_are_losses_of_their_table_and_it_goes_on_g_20(shop: Shop) -> None:
    """G-20: one bad value and one unreadable row are two dead letters, wherever they are reported."""
    assert shop.tick(*GOOD).code == Exit.DONE
    story = shop.tick(BAD_VALUE, UNREADABLE, event("INS", row(3), commit=22))
    assert story.code == Exit.DONE_WITH_LOSSES
    assert list(story.document["losses"]) == ["dbo.orders"]
    what = story.document["losses"]["dbo.orders"]
    assert what.startswith("DEAD_LETTERS_OPEN: 2 dead letters are open (1 ROW_INVALID, 1 VALUE_INVALID, the first is")
    assert "2 rows are out of date" in what
    letters = story.document["dead_letters"]
    assert (letters["open"], letters["tables"]["dbo.orders"]["keys"]) == (2, 2)
    assert shop.orders() == [landed(1), landed(3)], "publishing goes on"

    status = shop.run("status")
    assert status.code == Exit.DONE_WITH_LOSSES
    [orders] = [x for x in status.document["tables"] if x["source"] == "dbo.orders"]
    assert (orders["verdict"], orders["code"], orders["dead_letters"]["keys"]) == ("LOSSES", "DEAD_LETTERS_OPEN", 2)
    assert "dead-letters" in orders["next_step"]
    assert status.document["dead_letters"]["open"] == 2
    assert orders["dead_letters"]["by_code"] == {"ROW_INVALID": 1, "VALUE_INVALID": 1}
    listed = shop.run("dead-letters")
    assert (len(listed.document["dead_letters"]), listed.document["open"]["open"]) == (2, 2)
    assert shop.run("reconcile").code == Exit.DONE_WITH_LOSSES

    text = shop.run("tick", json=False)
    assert text.code == Exit.DONE_WITH_LOSSES, "also when there was nothing to do"
    assert "LOSSES: dbo.orders: DEAD_LETTERS_OPEN: 2 dead letters" in text.text
    assert "Nothing to do" not in text.text


def test_without_their_log_no_list_says_that_there_are_none(shop: Shop) -> None:
    """The messages are in the log alone: where it is gone, their list must not be empty and green."""
    shop.tick(*GOOD, UNREADABLE)
    (shop.pipeline.folder / "log").rename(shop.pipeline.folder / "moved")
    listed = shop.run("dead-letters")
    assert (listed.code, listed.text) == (Exit.TERMINAL, "")


def test_a_letter_without_a_table_puts_every_table_at_risk_g_20(shop: Shop) -> None:
    """G-20: the run itself says so; accepting it as lost ends that."""
    story = shop.tick(*GOOD, CUT)
    assert (story.code, list(story.document["losses"])) == (Exit.DONE_WITH_LOSSES, ["(any table)"])
    assert "AT RISK: 1 dead letter is open (1 MESSAGE_INVALID" in story.document["losses"]["(any table)"]
    assert "AT RISK" in shop.run("status", json=False).text
    assert shop.run("tick", "--tables", "dbo.clean").code == Exit.DONE_WITH_LOSSES, "whichever tables are published"
    accepted = shop.run("accept-dead-letters", "--code", "MESSAGE_INVALID", "--why", "a test message", json=False)
    assert accepted.code == Exit.DONE
    assert (shop.tick().code, shop.run("status").code) == (Exit.DONE, Exit.DONE)


def test_offsets_that_no_line_has_are_a_loss_until_they_come_g_113(shop: Shop) -> None:
    """G-113: any table may lack a change; a line with the offset ends it, and so does who accepts that it is lost."""
    shop.tick(*GOOD)
    late, lost = event("INS", row(2), commit=12), event("INS", row(4), commit=14)
    shop.deliver(late)
    (shop.pipeline.source / "000002.jsonl").rename(shop.pipeline.folder / "late.jsonl")
    story = shop.tick(event("INS", row(3), commit=13))
    assert (story.code, list(story.document["losses"])) == (Exit.DONE_WITH_LOSSES, ["(any table)"])
    what = f"1 offset between messages that were read never came: {PARTITION}:2 to 2"
    assert story.document["losses"]["(any table)"].startswith(f"OFFSETS_MISSING: {what}")
    assert f"AT RISK: {what}" in " ".join(shop.run("status", json=False).text.split())
    assert shop.orders() == [landed(1), landed(3)], "publishing goes on"
    (shop.pipeline.folder / "late.jsonl").rename(shop.pipeline.source / "late.jsonl")
    assert (shop.tick().code, shop.orders()) == (Exit.DONE, [landed(1), landed(2), landed(3)])

    shop.deliver(lost)
    (shop.pipeline.source / "000004.jsonl").unlink()
    assert shop.tick(event("INS", row(5), commit=15)).code == Exit.DONE_WITH_LOSSES
    accepting = ("accept-dead-letters", "--code", "OFFSETS_MISSING", "--why", "the disk was full")
    accepted = shop.run(*accepting, json=False)
    assert (accepted.code, accepted.text) == (Exit.DONE, "accepted as lost: 1 offsets; the audit names them\n")
    assert (shop.tick().code, shop.run("status").code) == (Exit.DONE, Exit.DONE)
    assert shop.run(*accepting, json=False).code == Exit.TERMINAL, "nothing is missing any more"


def test_a_damaged_line_that_shows_its_offset_is_not_missing_as_well_g_113(shop: Shop) -> None:
    """G-113: it is one dead letter, and settling it ends the loss; one that tells no offset is both."""
    shop.tick(*GOOD)
    shop.pipeline.deliver("damaged.jsonl", DAMAGED)
    shop._offset = 4
    story = shop.tick(event("INS", row(3), commit=13))
    text = story.document["losses"]["(any table)"]
    assert "2 FORMAT_UNSUPPORTED" in text and f"{PARTITION}:3 to 3" in text, text


def test_offsets_mean_nothing_where_the_mirror_file_says_so_g_113(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-113: of a compacted topic; a table that had no load and whose stream began before is noted all the same."""
    shop = Shop(tmp_path / "shop", spark, capsys, tables=[ORDERS], source={"offset_gaps": "expected"})
    shop._offset = 7
    assert shop.tick(GOOD[0]).code == Exit.DONE
    shop._offset = 20
    story = shop.tick(event("INS", row(3), commit=13))
    assert (story.code, story.document["losses"]) == (Exit.DONE, {})
    status = shop.run("status", json=False)
    assert (
        f"the table has no initial load, and earlier messages were not there to be read: {PARTITION} from 7 on"
        in " ".join(status.text.split())
    )


def test_a_later_row_of_the_key_heals_both_kinds_g_22(shop: Shop) -> None:
    """G-22: what the target shows is right again, so nothing is stale, and nothing is held back."""
    shop.tick(*GOOD)
    assert shop.tick(BAD_VALUE, UNREADABLE).code == Exit.DONE_WITH_LOSSES
    story = shop.tick(event("UPD", row(1, "new"), row(1), commit=30))
    assert story.code == Exit.DONE_WITH_LOSSES
    assert story.document["dead_letters"]["tables"]["dbo.orders"]["by_code"] == {"ROW_INVALID": 1}
    story = shop.tick(event("DEL", None, row(2), commit=31))
    assert (story.code, story.document["losses"]) == (Exit.DONE, {})
    status = shop.run("status")
    assert (status.code, status.document["settled_letters"]) == (Exit.DONE, {"healed": 2})
    assert shop.run("dead-letters", json=False).text == "no dead letters\n"


def test_an_older_row_and_another_bad_one_heal_nothing_g_22(shop: Shop) -> None:
    """G-22: only what is proved: a row above the letter that could be read itself."""
    shop.tick(*GOOD)
    shop.tick(event("INS", '{"id":"2","name":{}}', commit=40, pkkey={"id": 2}))
    assert shop.tick(event("INS", row(2), commit=39)).code == Exit.DONE_WITH_LOSSES
    story = shop.tick(event("UPD", row(2, price="cheap"), row(2), commit=41))
    assert story.document["dead_letters"]["open"] == 2
    assert shop.tick(event("UPD", row(2, "whole"), row(2), commit=42)).code == Exit.DONE


def test_a_later_row_that_came_before_the_letter_heals_it_at_once_g_22(shop: Shop) -> None:
    """G-22: order of arrival decides nothing."""
    shop.tick(*GOOD, event("INS", row(2, "newest"), commit=50))
    assert shop.tick(event("INS", '{"id":"2","name":{}}', commit=45, pkkey={"id": 2})).code == Exit.DONE


def test_letters_up_to_a_number_are_tolerated_and_still_reported_g_21(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-21: of each table, and of those without one; a table's own number goes before the mirror's."""
    tables = [{**ORDERS, "dead_letters": {"tolerate": 2}}, CLEAN]
    shop = Shop(tmp_path / "shop", spark, capsys, tables=tables, dead_letters={"tolerate": 1})
    shop.tick(*GOOD)
    assert shop.tick(BAD_VALUE, UNREADABLE, CUT).code == Exit.DONE
    text = shop.run("tick", json=False).text
    assert "Tolerated: dbo.orders: 2 dead letters are open" in text
    assert shop.run("status").document["dead_letters"]["open"] == 3
    story = shop.tick(CUT)
    assert (story.code, list(story.document["losses"])) == (Exit.DONE_WITH_LOSSES, ["(any table)"])


def test_a_ledger_of_an_earlier_version_counts_the_letters_of_its_log_g_23(shop: Shop) -> None:
    """G-23: it must not begin with none; a look is enough to count them."""
    shop.tick(*GOOD, UNREADABLE, CUT)
    with shop.pipeline.ledger.begin() as db:
        db.execute(t.open_letter.delete())
        db.execute(t.mirror.update().values(letters_counted=None))
    status = shop.run("status")
    assert (status.code, status.document["dead_letters"]["known"]) == (Exit.DONE_WITH_LOSSES, True)
    assert (status.document["dead_letters"]["open"], status.document["dead_letters"]["homeless"]["open"]) == (2, 1)
    assert shop.tick().code == Exit.DONE_WITH_LOSSES


def test_a_table_that_is_built_again_from_the_log_lacks_what_its_letters_hide_g_23(shop: Shop) -> None:
    """G-23: unreadable messages are missing in every generation; what could not be typed is tried again."""
    shop.tick(*GOOD, BAD_VALUE, UNREADABLE)
    reset = ["--table", "dbo.orders", "--reason", "a test", "--approved-by", "Ada", "--wait", "0"]
    for word in ("gone", "back"):
        shop.run("reload-table", *reset, json=False)
        shop.pipeline.service.poll()
        story = shop.run(f"target-says-{word}", "--table", "dbo.orders", "--why", "looked", json=False)
        assert story.code == Exit.DONE, story.text
    assert shop.tick().document["dead_letters"]["tables"]["dbo.orders"]["by_code"] == {
        "ROW_INVALID": 1,
        "VALUE_INVALID": 1,
    }


def test_what_is_held_back_heals_when_it_is_published_g_22(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-22: a row that waits for the end of its transaction is not at the target yet."""
    source = {"partition_key_scheme": "stream-group", "partition_count": 1}
    shop = Shop(tmp_path / "shop", spark, capsys, consistency="transaction", source=source)
    shop.tick(*GOOD, UNREADABLE, event("INS", row(7), commit=22))
    story = shop.tick(event("INS", row(2), commit=30))
    assert story.code == Exit.DONE_WITH_LOSSES, "the row is in the log, and in no file"
    assert shop.tick(event("INS", row(9), commit=40)).code == Exit.DONE
    assert landed(2) in shop.orders()


def test_an_update_that_shows_only_what_changed_heals_nothing_g_22(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-22, G-04: what the letter said of the other columns is still missing; a row that tells all of them heals."""
    shop = Shop(tmp_path / "shop", spark, capsys, tables=[{**ORDERS, "complete_rows": True}, CLEAN])
    half = [("id", "int"), ("price", "decimal(8,2)")]
    shop.tick(*GOOD, event("UPD", '{"id":"1","name":{}}', row(1), commit=20, pkkey={"id": 1}))
    partial = event("UPD", {"id": "1", "price": "9.00"}, {"id": "1", "price": "1.50"}, commit=30, cols=half)
    assert shop.tick(partial).code == Exit.DONE_WITH_LOSSES
    assert shop.tick(event("UPD", row(1, "all"), row(1), commit=40)).code == Exit.DONE


def test_a_table_without_key_keeps_its_letters_open_g_22(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(tmp_path / "shop", spark, capsys, tables=[{**ORDERS, "key": []}, CLEAN])
    assert shop.tick(*GOOD, event("INS", row(2, price="cheap"), commit=12)).code == Exit.DONE_WITH_LOSSES
    assert shop.tick(event("INS", row(2), commit=13)).code == Exit.DONE_WITH_LOSSES


def test_every_job_shows_the_letters_that_are_left_g_20(shop: Shop) -> None:
    """G-20: replaying, reading again, loading, publishing alone; several mirrors each their own."""
    from spark_jobs.extract_changes import main as extract
    from spark_jobs.publish_changes import main as publish

    shop.tick(*GOOD, UNREADABLE, CUT)
    assert shop.run("replay-dead-letters").code == Exit.DONE_WITH_LOSSES
    assert shop.run("initial-load").code == Exit.DONE_WITH_LOSSES
    reread = ["--from", "2000-01-01T00:00Z", "--to", "2100-01-01T00:00Z", "--reread"]
    story = shop.run("backfill", *reread)
    assert (story.code, story.document["dead_letters"]["open"]) == (Exit.DONE_WITH_LOSSES, 2), (
        "each once, in its newest"
    )
    file = str(shop.pipeline.file)
    assert publish([file, "--tables", "dbo.clean"]) == extract([file]) == Exit.DONE_WITH_LOSSES


def test_a_table_that_goes_quiet_while_its_successor_streams_g_24(shop: Shop) -> None:
    """G-24: the run says so until the other one is listed under `ignore`; ignored tables are named either way."""
    from tests.noted_facts import record_foreign

    shop.tick(*GOOD)
    with shop.pipeline.ledger.begin() as db:
        record_foreign(db, "test", 2, datetime.now(UTC), {"dbo.orders_v2": 4, "dbo.other": 1})
    story = shop.tick()
    assert (story.code, list(story.document["losses"])) == (Exit.DONE_WITH_LOSSES, ["dbo.orders"])
    assert "no change of the table came since batch 1, but 4 messages of 'dbo.orders_v2'" in str(story.document)
    text = shop.run("tick", json=False).text
    assert "Ignored: dbo.orders_v2 4 messages (since" in text
    assert "Note: dbo.clean: NOT_SEEN" in text
    shop.pipeline.file.write_text(shop.pipeline.file.read_text() + "ignore: [dbo.orders_v2]\n")
    story = shop.tick()
    assert (story.code, story.document["ignored"]["dbo.orders_v2"]["acknowledged"]) == (Exit.DONE, True)
    assert shop.tick(event("INS", row(5), commit=50)).code == Exit.DONE


def test_healed_letters_and_those_of_other_tables_hold_nothing_back_g_22(shop: Shop) -> None:
    """G-22: maintenance moves the horizon past them."""
    from spark_jobs.maintain import maintain

    shop.tick(*GOOD, UNREADABLE)
    later = datetime.now(UTC) + timedelta(days=100)
    assert maintain(shop.pipeline.mirror, shop.pipeline.ledger, now=later).held_by
    shop.tick(event("INS", row(2), commit=30))
    maintained = maintain(shop.pipeline.mirror, shop.pipeline.ledger, now=later)
    assert (maintained.held_by, maintained.horizon_batch) == ([], 2)
