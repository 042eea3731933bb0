"""Odd but possible messages of Qlik tasks, each ending equal, with its table stopped, or told by the run.

Driven by the command line, with the emulator as the target, and compared with the true state.
"""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.decisions import resume_table
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.e2e.test_lost_ledger import forget
from tests.e2e.test_rebuild_ledger import APPLY
from tests.kafka_broker import KafkaBroker
from tests.pipeline import Pipeline, in_order
from tests.qlik_messages import ROW, change, dt, enveloped, md
from workload_generator.delivery import Message
from workload_generator.transports import WINDOW, capture_files

A, B = "A" * 32, "B" * 32
LANDED = {"name": "Ada", "price": Decimal("1.50"), "note": "x"}
TABLES = [{"source": f"dbo.{name}", "target": f"dbo/{name}", "key": ["id"]} for name in ("a", "b")]


class Lines:
    """A mirror of two tables in one topic, whose messages come as wrapped lines."""

    def __init__(self, folder: Path, spark: Any, **settings: Any) -> None:
        source = {"format": "qlik-message", **settings.pop("source", {})}
        self.pipeline = Pipeline(folder, spark, settings.pop("tables", TABLES), source=source, **settings)
        self.topic = "t"
        self._next: dict[tuple[str, int], int] = {}

    def send(self, *messages: bytes | tuple[int, bytes | None] | tuple[int, bytes | None, str]) -> None:
        """Deliver messages in a new file, with partition and key where these matter."""
        lines = []
        for message in messages:
            partition, body, key = (*message, None)[:3] if isinstance(message, tuple) else (0, message, None)
            offset = self._next.get((self.topic, partition), 0)
            self._next[self.topic, partition] = offset + 1
            value = None if body is None else body.decode("latin-1") if body[:1] != b"{" else body.decode()
            line = {"topic": self.topic, "partition": partition, "offset": offset, "value": value, "key": key}
            lines.append(json.dumps(line))
        self.pipeline.deliver(f"{uuid4().hex}.jsonl", ("\n".join(lines) + "\n").encode())

    def tick(self) -> int:
        code = main(["tick", str(self.pipeline.file)])
        self.pipeline.service.poll()
        return code

    def stop(self, table: str) -> tuple[str | None, str | None]:
        state = self.pipeline.reader.tables()[f"dbo.{table}"]
        return state.stop_code, state.stop_what

    def rows(self, table: str) -> list[dict[str, Any]]:
        return in_order(self.pipeline.mirrored("dbo", table), ["id"])

    def codes(self) -> list[tuple[str, str | None]]:
        return [(letter["code"], letter["tbl"]) for letter in self.pipeline.letters()]


def row(key: int, name: str = "Ada") -> dict[str, Any]:
    return {**ROW, "id": key, "name": name}


def landed(*rows: tuple[int, str] | int) -> list[dict[str, Any]]:
    pairs = [(one, "Ada") if isinstance(one, int) else one for one in rows]
    return in_order([{"id": key, **LANDED, "name": name} for key, name in pairs], ["id"])


def of(schema_id: str | None, key: int, name: str = "Ada", operation: str = "INSERT", **parts: Any) -> bytes:
    return dt(operation, row(key, name), schema_id=schema_id, **parts)


def load(schema_id: str, key: int, name: str = "Ada") -> bytes:
    return dt("REFRESH", row(key, name), schema_id=schema_id, changeSequence="", transactionEventCounter=None)


MD_A, MD_B = md(schema_id=A, table="a"), md(schema_id=B, table="b")


def test_a_row_of_another_table_is_never_made_a_row_of_the_one_announced_k15_k60(tmp_path: Path, spark: Any) -> None:
    """It was: whatever stood in the topic by then decided, so order and cuts of batches did."""
    lines = Lines(tmp_path, spark)
    lines.send(MD_A, of(A, 1), of(None, 2), (0, of(None, 3, number=3), "dbo+b"))
    assert lines.tick() == Exit.ON_HOLD, "a row waits for its structure"
    assert lines.rows("a") == landed(1)
    lines.send(MD_B)
    lines.tick()
    assert lines.rows("b") == landed(3), "its key tells whose it is, and that is kept while it waits"
    lines.pipeline.make_overdue()
    lines.send(of(A, 4, number=9))
    lines.tick()
    assert lines.codes() == [("TABLE_UNNAMED", None)] and lines.rows("a") == landed(1, 4)
    assert main(["check", str(lines.pipeline.file)]) == Exit.DONE

    text = lines.pipeline.file.read_text().replace("  target: dbo/b\n", "  target: dbo/b\n  topic: t\n")
    lines.pipeline.file.write_text(text)
    assert main(["replay-dead-letters", str(lines.pipeline.file)]) == Exit.DONE
    lines.tick()
    assert lines.rows("b") == landed(2, 3), "whoever promises the topic says whose it is"


def test_an_id_that_a_topic_used_for_one_table_and_announces_for_another_stops_both_k85(
    tmp_path: Path, spark: Any
) -> None:
    """A message ahead of its metadata became a row of the table that another topic had announced under its id.

    Nothing told it of one that was read a second time, because its structure stood in another task of its batch; and
    a stop was lost, also that for another task (K-71), where the mirror file quotes the name of its table.
    """
    names = ("dbo.a", "dbo.b", "[dbo].[c]", "dbo.d", "dbo.e", "[dbo].[f]")
    tables = [{"source": name, "target": f"dbo/{name.strip('[]')[-1]}", "key": ["id"]} for name in names]
    lines = Lines(tmp_path, spark, tables=tables)
    lines.send(MD_A, md(schema_id=B, table="d"), md(schema_id="C", table="a"), md(schema_id="E", table="e"))
    lines.topic = "f"
    lines.send(*(of("E", key, number=key) for key in range(1, 7)))
    lines.topic = "c"
    lines.send(of(A, 3), md(schema_id=A, table="c"), of(A, 4, number=2))
    lines.topic = "d"
    lines.send(of(B, 5))
    assert lines.tick() == Exit.DONE
    assert (lines.rows("c"), lines.rows("d")) == (landed(3, 4), landed(5)), "what comes in the same run counts at once"
    lines.topic = "b"
    lines.send(of("C", 1))
    lines.topic = "d"
    lines.send(md(schema_id=B, table="d"), md(schema_id=B, table="d", version=2), of(B, 6, number=2))
    assert lines.tick() == Exit.DONE and lines.stop("d")[0] is None
    forget(lines.pipeline)
    assert main(["rebuild-ledger", str(lines.pipeline.file), *APPLY]) == Exit.DONE
    lines.topic = "b"
    lines.send(md(schema_id="C", table="b"), of("C", 2, number=2))
    lines.topic = "f"
    lines.send(md(schema_id="E", table="f"))
    lines.topic = "c"
    named = {"schema": "dbo", "table": "c", "tableVersion": 2, "timestamp": "", "server": "QLIKSRV", "task": "task2"}
    lines.send(md(schema_id="G", table="c", lineage=named))
    assert lines.tick() == Exit.TABLES_STOPPED
    stops = {source: state.stop_code for source, state in lines.pipeline.reader.tables().items()}
    shared = "SCHEMA_SHARED"
    assert stops == dict(zip(names, (shared, shared, "SENDER_OTHER", None, shared, shared), strict=True))
    assert "topic 'b'" in (lines.stop("a")[1] or "")
    ask = ["reload-table", str(lines.pipeline.file), "--table", "dbo.a", "--reason", "r", "--approved-by", "Ada"]
    assert main(ask) == Exit.TERMINAL, "the log has the row as one of `a`"


def test_a_structure_given_by_hand_reads_what_nothing_announced_k61(tmp_path: Path, spark: Any) -> None:
    lines = Lines(tmp_path, spark)
    named = {"schema": "dbo", "table": "a"}
    lines.send(of(A, 1, **named), of(B, 2))
    lines.tick()
    lines.pipeline.make_overdue()
    lines.send(MD_B)
    assert lines.tick() == Exit.TABLES_STOPPED
    assert lines.codes() == [("METADATA_MISSING", "dbo.a")] and lines.rows("b") == landed(2)
    columns = {"id": "INT4", "name": "WSTRING(100)", "price": "NUMERIC(8,2)", "note": "NCLOB"}
    given = json.dumps([{"table": "dbo.a", "key": ["id"], "columns": columns}])
    lines.pipeline.file.write_text(f"{lines.pipeline.file.read_text()}\nstructures: {given}\n")
    assert main(["replay-dead-letters", str(lines.pipeline.file)]) == Exit.DONE
    resume_table(lines.pipeline.ledger, "test", "dbo.a", Reason("ann", "given by hand"))
    lines.send(of(A, 3, number=3, **named))
    assert lines.tick() == Exit.DONE
    assert lines.rows("a") == landed(1, 3)


def test_rows_of_a_load_that_differ_in_two_partitions_stop_the_table_k18(tmp_path: Path, spark: Any) -> None:
    """The one with the higher offset won, which says nothing: in one batch, and in two."""
    lines = Lines(tmp_path, spark)
    lines.send(MD_A, MD_B, (0, load(A, 1, "old")), (1, load(A, 1, "new")), (0, load(B, 1)), (0, load(B, 2, "old")))
    assert lines.tick() == Exit.TABLES_STOPPED
    assert lines.stop("a")[0] == "IDENTITY_CONFLICT" and "t/1:0" in (lines.stop("a")[1] or "")
    assert lines.rows("b") == landed(1, (2, "old"))
    lines.send(*[(2, load(B, 10 + n)) for n in range(8)], (2, load(B, 1)))
    assert lines.tick() == Exit.TABLES_STOPPED and lines.stop("b")[0] is None, "the same row is no contradiction"
    lines.send((2, load(B, 2, "new")))
    lines.tick()
    assert lines.stop("b")[0] == "IDENTITY_CONFLICT"


def test_a_reload_in_another_partition_than_the_changes_is_noticed_k18_k67(tmp_path: Path, spark: Any) -> None:
    lines = Lines(tmp_path, spark)
    lines.send(MD_A, MD_B, (1, load(A, 1)), (2, load(A, 2)), (2, of(A, 2, "new", "UPDATE", number=5, changeMask="02")))
    lines.send((1, load(B, 1)), (2, of(B, 2, number=6)))
    assert lines.tick() == Exit.DONE
    lines.send((1, load(A, 1, "loaded again")), (1, load(B, 3)))
    assert lines.tick() == Exit.TABLES_STOPPED
    assert lines.stop("a")[0] == "RELOAD_SEEN"
    assert lines.stop("b")[0] is None and lines.rows("b") == landed(1, 2, 3), "a load still read from a slow partition"


def test_a_reload_in_another_partition_of_a_broker_is_noticed_by_its_end_k18_k67(
    tmp_path: Path, spark: Any, kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"reload-{uuid4().hex[:8]}"
    kafka.create_topic(topic, 2)
    monkeypatch.setenv("AIRFLOW_CONN_BROKER", kafka.connection())
    source = {"format": "qlik-message", "transport": "kafka", "connection": "broker", "topics": [topic], "path": "",
              "layout": None, "max_messages_per_run": 4}  # fmt: skip
    pipeline = Pipeline(tmp_path, spark, TABLES, source=source)
    kafka.publish(topic, [(0, None, body) for body in (MD_A, of(A, 2, number=5), of(A, 3, number=6))])
    kafka.publish(topic, [(1, None, load(A, key)) for key in range(10, 19)])
    for _ in range(4):
        assert main(["tick", str(pipeline.file)]) == Exit.DONE, "the load is still being read"
    pipeline.service.poll()
    assert len(pipeline.mirrored("dbo", "a")) == 11
    kafka.publish(topic, [(1, None, load(A, 20))])
    assert main(["tick", str(pipeline.file)]) == Exit.TABLES_STOPPED
    assert pipeline.reader.tables()["dbo.a"].stop_code == "RELOAD_SEEN"


class Windows(Lines):
    """The same in files of an Event Hubs Capture: each delivery is a window, and a partition is numbered on in it."""

    def __init__(self, folder: Path, spark: Any, **settings: Any) -> None:
        super().__init__(folder, spark, source={"transport": "capture", "layout": None}, **settings)
        self._windows = itertools.count()

    def send(self, *messages: bytes | tuple[int, bytes | None] | tuple[int, bytes | None, str]) -> None:
        at = datetime(2026, 11, 24, tzinfo=UTC) + 2 * WINDOW * next(self._windows)
        sent = []
        for message in messages:
            partition, body = message[:2] if isinstance(message, tuple) else (0, message)
            offset = self._next.get((self.topic, partition), 0)
            self._next[self.topic, partition] = offset + 1
            sent.append(Message(partition, offset, body or b"", None, at.isoformat()))
        for name, content in capture_files(sent, hub="t"):
            self.pipeline.deliver(name, content)


def test_a_reload_in_a_later_file_of_a_capture_is_noticed_k18_k67_c93(tmp_path: Path, spark: Any) -> None:
    """A partition is many files: a row of a load behind a change, in a file of its own, came after the change."""
    windows = Windows(tmp_path, spark)
    windows.send(MD_A, MD_B, load(A, 1), load(A, 2), load(A, 4), load(B, 1))
    windows.send(
        of(A, 2, "new", "UPDATE", number=5, changeMask="02"), of(B, 1, "new", "UPDATE", number=6, changeMask="02")
    )
    windows.send(load(A, 2))
    assert windows.tick() == Exit.DONE, "the very row once more is a repetition"
    assert (windows.rows("a"), windows.rows("b")) == (landed(1, (2, "new"), 4), landed((1, "new")))
    windows.send(load(A, 3))
    assert windows.tick() == Exit.TABLES_STOPPED
    assert windows.stop("a")[0] == "RELOAD_SEEN" and windows.stop("b")[0] is None
    windows.send(load(B, 1, "other"))
    assert windows.tick() == Exit.TABLES_STOPPED
    assert windows.stop("b")[0] == "RELOAD_SEEN"


def test_the_event_hub_of_a_capture_names_the_table_of_its_messages_k15_k60(tmp_path: Path, spark: Any) -> None:
    tables = [{**TABLES[0], "topic": "t"}]
    windows = Windows(tmp_path, spark, tables=tables)
    windows.send(md(schema_id=A, table="a"), dt("INSERT", row(1), schema_id=None))
    windows.send(md(schema_id=B, table="b"))
    assert windows.tick() == Exit.DONE_WITH_LOSSES
    assert windows.codes() == [("TABLE_NAME_DIFFERS", None)] and windows.rows("a") == landed(1)


def test_tombstones_foreign_tables_and_other_formats_do_no_harm_unseen_k63_k64_k65(tmp_path: Path, spark: Any) -> None:
    lines = Lines(tmp_path, spark)
    foreign = md(schema_id="C" * 32, table="c")
    custom = enveloped("DT", {"row": row(1), "beforeData": None, "headers": change()["headers"]}, B)
    lines.send(MD_A, MD_B, foreign, of(A, 1), (0, None, "7"), of("C" * 32, 1), of("C" * 32, 2)[:-9], of(B, 1), custom)
    assert lines.tick() == Exit.TABLES_STOPPED
    assert lines.codes() == [("MESSAGE_INVALID", "dbo.b")]
    assert (lines.stop("b")[0], lines.stop("a")[0]) == ("CHANGES_MISSING", None)
    assert lines.rows("a") == landed(1)
