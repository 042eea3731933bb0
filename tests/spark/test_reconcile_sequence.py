"""The deep check on a real history: nothing is found in a whole one, and each kind of damage under its own code."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.landing_zone.data_file import read_footer, write_data_file
from open_mirroring.landing_zone.layout import READY_TO_DELETE_FOLDER, file_name
from open_mirroring.protocols.verdicts import Verdict
from open_mirroring.reconciliation.deep_check import FileContent
from open_mirroring.reconciliation.inspection import inspect_mirror
from spark_jobs import reconcile_sequence
from spark_jobs.reconcile_sequence import CHANGE_LOG, Reconciled, main, reconcile_deep
from tests.pipeline import Pipeline
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery
from workload_generator.history import SHOP_TABLES, random_history
from workload_generator.transports import json_lines

CUSTOMERS, ORDERS = "dbo.customers", "dbo.orders"
TICKS = 3


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory, spark_on_demand: Any) -> Pipeline:
    """Two tables after three ticks, with split, repeated, late and damaged messages; two files of each moved away."""
    chosen = [table for table in SHOP_TABLES if table.full_name in (CUSTOMERS, ORDERS)]
    tables = [{"source": t.full_name, "target": f"shop/{t.name}", "key": list(t.key)} for t in chosen]
    pipeline = Pipeline(tmp_path_factory.mktemp("deep"), spark_on_demand, tables, dead_letters={"tolerate": TICKS})
    options, delivery = CesOptions(max_data_bytes=900), Delivery(disorder=30, duplicates=0.1, seed=3)
    messages = render(random_history(3, 60).changes, options, delivery)
    for tick in range(TICKS):
        part = messages[len(messages) * tick // TICKS : len(messages) * (tick + 1) // TICKS]
        pipeline.deliver(f"{tick}.jsonl", json_lines(part, layout="wrapped") + b"no message\n")
        pipeline.tick()
    return pipeline


@pytest.fixture
def pipeline(mirrored: Pipeline, tmp_path: Path) -> Iterator[Pipeline]:
    """The same; ledger and change log are put back after the test, the landing zone by the test itself."""
    shutil.copy(mirrored.folder / "ledger.db", tmp_path / "ledger.db")
    shutil.copytree(mirrored.log, tmp_path / "log")
    yield mirrored
    shutil.copy(tmp_path / "ledger.db", mirrored.folder / "ledger.db")
    shutil.rmtree(mirrored.log)
    shutil.copytree(tmp_path / "log", mirrored.log)


IN_BOTH = pytest.mark.parametrize("check", ["spark_on_demand", "spark_workers"], indirect=True)


@pytest.fixture
def check(pipeline: Pipeline, request: pytest.FixtureRequest) -> Any:
    """The deep check, in the tests' own process; those that are marked do it in Spark as well."""
    spark: Any = request.getfixturevalue(getattr(request, "param", "spark_on_demand"))

    def run(**arguments: Any) -> Reconciled:
        return reconcile_deep(pipeline.mirror, pipeline.ledger, spark, **arguments)

    return run


def path_of(pipeline: Pipeline, number: int) -> Path:
    """A file of the orders: the last number stays in the folder, the others were moved (F-35, F-36)."""
    folder = pipeline.zone / "shop.schema" / "orders"
    return (folder if number == TICKS else folder / READY_TO_DELETE_FOLDER) / file_name(number)


@contextmanager
def altered(path: Path, content: bytes) -> Iterator[None]:
    """Other bytes in place; inode and time stay, so that the ETag of the local store tells nothing."""
    original, found = path.read_bytes(), path.stat()
    for step in (content, original):
        path.write_bytes(step)
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
        if step is content:
            try:
                yield
            except BaseException:
                path.write_bytes(original)
                os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
                raise


@contextmanager
def taken_away(path: Path) -> Iterator[None]:
    aside = path.rename(path.with_name("_aside"))
    try:
        yield
    finally:
        aside.rename(path)


def edit(pipeline: Pipeline, statement: str, *values: Any) -> None:
    with sqlite3.connect(pipeline.folder / "ledger.db") as db:
        assert db.execute(statement, values).rowcount == 1
    db.close()


def ask(pipeline: Pipeline, query: str) -> list[Any]:
    with sqlite3.connect(pipeline.folder / "ledger.db") as db:
        rows = db.execute(query).fetchall()
    db.close()
    return rows


def codes(result: Reconciled, table: str | None) -> list[str]:
    return [finding.code for finding in result.findings if finding.table == table]


def only_orders_stopped(pipeline: Pipeline, result: Reconciled, code: str) -> None:
    """Orders are stopped in result and ledger, the gate keeps them, and the other table is as good as before."""
    assert result.verdicts == {CUSTOMERS: "PASS", ORDERS: "STOP"}
    assert result.stopped[ORDERS].startswith(f"{code}: ")
    assert result.stopped.keys() - {CHANGE_LOG} == {ORDERS}
    assert codes(result, CUSTOMERS) == []
    tables = pipeline.reader.tables()
    assert (tables[ORDERS].stop_code, tables[CUSTOMERS].stop_code) == (code, None)
    findings = inspect_mirror(pipeline.mirror, pipeline.ledger)
    assert (findings[ORDERS].verdict, findings[CUSTOMERS].verdict) == (Verdict.STOP, Verdict.PASS)
    entries = ask(pipeline, "SELECT source, detail FROM audit WHERE event = 'DEEP_CHECK'")
    assert code in [json.loads(detail)["code"] for source, detail in entries if source == ORDERS]


@IN_BOTH
def test_a_complete_history_is_found_complete(
    pipeline: Pipeline, check: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """I1, I7, I8, I29; and the check is repeatable: it leaves no trace where it finds nothing."""
    kinds = {
        file.kind for table in pipeline.reader.tables().values() for file in pipeline.reader.published(table.id, 1)
    }
    assert kinds == {"changes"}
    assert pipeline.reader.manifests()[1].counts["fragments"] > 0, "the history has split messages"
    before = ask(pipeline, "SELECT * FROM mirrored_table")
    for _ in range(2):
        result = check()
        assert result == Reconciled({CUSTOMERS: "PASS", ORDERS: "PASS"}, {CUSTOMERS: 3, ORDERS: 3}, [], {}, {})
    assert main([str(pipeline.file)]) == 0
    assert json.loads(capsys.readouterr().out)["verdicts"] == {CUSTOMERS: "PASS", ORDERS: "PASS"}
    assert ask(pipeline, "SELECT * FROM mirrored_table") == before
    assert ask(pipeline, "SELECT * FROM audit") == []


def test_only_the_chosen_tables_are_read(pipeline: Pipeline, check: Any) -> None:
    with altered(path_of(pipeline, 1), b"PAR1"):
        assert check(only=[CUSTOMERS]) == Reconciled({CUSTOMERS: "PASS"}, {CUSTOMERS: 3}, [], {}, {})
    with pytest.raises(TerminalError, match=r"ARGUMENT_INVALID: .*nothing"):
        check(only=["dbo.nothing"])


@pytest.mark.parametrize("number", [1, TICKS])
@IN_BOTH
def test_a_flipped_byte_is_found(number: int, pipeline: Pipeline, check: Any) -> None:
    """I8: length, name, time and footer are as before; only reading every row tells."""
    path = path_of(pipeline, number)
    content = bytearray(path.read_bytes())
    page = content.index(b"\x28\xb5\x2f\xfd")  # the first zstd frame
    content[page + 12] ^= 1
    with altered(path, bytes(content)):
        assert inspect_mirror(pipeline.mirror, pipeline.ledger)[ORDERS].verdict is Verdict.PASS
        result = check()
        only_orders_stopped(pipeline, result, "CONTENT_CHANGED")
        assert main([str(pipeline.file)]) == 3
    assert f"number {number} " in result.stopped[ORDERS]


def test_another_valid_file_under_the_name_is_found(pipeline: Pipeline, check: Any) -> None:
    """I9: number 1's own content under the name of number 2."""
    with altered(path_of(pipeline, 2), path_of(pipeline, 1).read_bytes()):
        result = check()
        only_orders_stopped(pipeline, result, "CONTENT_CHANGED")
    assert codes(result, ORDERS) == ["CONTENT_CHANGED"]
    (found,) = result.findings
    assert "first_number 1, the ledger 2" in str(found.evidence["problems"])


def test_the_same_rows_of_somebody_else_are_found(pipeline: Pipeline, check: Any, tmp_path: Path) -> None:
    """I9, I12: equal rows, equal digest, but the footer names another life of the table."""
    path, other = path_of(pipeline, 1), tmp_path / "other.parquet"
    rows, footer = pq.read_table(path), read_footer(path)
    assert footer is not None
    write_data_file(other, rows, rows.schema.remove_metadata(), replace(footer, generation=7))
    with altered(path, other.read_bytes()):
        result = check()
    assert "CONTENT_CHANGED" in codes(result, ORDERS)
    assert codes(result, CUSTOMERS) == []


def test_a_removed_file_stops_by_the_verdict(pipeline: Pipeline, check: Any) -> None:
    """I22, F-36: absence is judged by the listing; the deep check adds nothing and the stop passes with its cause."""
    with taken_away(path_of(pipeline, 2)):
        result = check()
        assert result.verdicts == {CUSTOMERS: "PASS", ORDERS: "STOP"}
        assert result.stopped[ORDERS].startswith("FILE_MISSING: ")
        assert result.files == {CUSTOMERS: 3, ORDERS: 2}
        assert result.findings == []
    assert check().verdicts == {CUSTOMERS: "PASS", ORDERS: "PASS"}


def test_purged_files_are_not_missing(pipeline: Pipeline, check: Any) -> None:
    """F-36: after seven days processed files may be gone."""
    edited = "UPDATE {} SET confirmed_at = '2020-01-01 00:00:00.000000' WHERE batch_to = 1 AND table_id = ?"
    table_id = pipeline.reader.tables()[ORDERS].id
    edit(pipeline, edited.format("published_file"), table_id)
    edit(pipeline, edited.format("publication"), table_id)
    with taken_away(path_of(pipeline, 1)):
        result = check()
    assert (result.verdicts, result.findings) == ({CUSTOMERS: "PASS", ORDERS: "PASS"}, [])


@pytest.mark.parametrize("predicate", ["true", "place % 2 = 0"])
def test_rows_deleted_from_the_log_are_found(predicate: str, pipeline: Pipeline, check: Any) -> None:
    """I29, I1: somebody's DELETE on the log, of one table's rows of one batch."""
    DeltaTable(str(pipeline.log)).delete(f"tbl = '{ORDERS}' AND batch = 2 AND {predicate}")
    result = check()
    only_orders_stopped(pipeline, result, "LOG_DAMAGED")
    assert codes(result, None) == ["LOG_DAMAGED"]
    assert "batch 2: " in result.stopped[ORDERS]


@IN_BOTH
def test_a_log_file_that_is_gone_or_damaged_is_found(pipeline: Pipeline, check: Any) -> None:
    """A file in the log's commits but not on disk fails nobody's count but its own batch's."""
    victim = pipeline.log / pipeline.reader.manifests()[2].files[0]["path"]
    with taken_away(victim):
        gone = check()
    damaged = bytearray(victim.read_bytes())
    damaged[8 : len(damaged) // 2] = bytes(len(damaged) // 2 - 8)
    victim.write_bytes(damaged)
    for result in (gone, check()):
        found = {finding.code for finding in result.findings}
        assert found & {"LOG_DAMAGED"}
        assert {text.split(":")[0] for finding in result.findings for text in finding.evidence["problems"]} == {
            "batch 2"
        }


def test_an_edited_ledger_is_found(pipeline: Pipeline, check: Any) -> None:
    """I1, I7, I9: the ledger against files, log and itself; each account by its own code."""
    table_id = pipeline.reader.tables()[ORDERS].id
    for statement in (
        "UPDATE publication SET counts = json_set(counts, '$.compacted', 999) WHERE table_id = ? AND batch_to = 2",
        "UPDATE publication SET batch_from = 0 WHERE table_id = ? AND batch_to = 3",
        "UPDATE published_file SET last_position = 'x' WHERE table_id = ? AND number = 1",
        "UPDATE published_file SET rows = rows + 1 WHERE table_id = ? AND number = 2",
    ):
        edit(pipeline, statement, table_id)
    edit(pipeline, "UPDATE batch_table SET rows = rows + 1 WHERE source = ? AND batch = 2", ORDERS)
    result = check()
    only_orders_stopped(pipeline, result, "CONTENT_CHANGED")
    expected = {"CONTENT_CHANGED", "COUNTS_DIFFER", "LOG_DAMAGED"}
    assert set(codes(result, ORDERS)) == expected


def test_messages_without_a_disposition_concern_the_log(pipeline: Pipeline, check: Any) -> None:
    """I1: which table they belong to is not known, so none is stopped, but the run is not green."""
    edit(pipeline, "UPDATE log_batch SET manifest = json_set(manifest, '$.counts.messages', 0) WHERE number = 1")
    result = check()
    assert codes(result, None) == ["COUNTS_DIFFER"]
    assert result.stopped.keys() == {CHANGE_LOG}
    assert result.verdicts == {CUSTOMERS: "PASS", ORDERS: "PASS"}
    assert main([str(pipeline.file)]) == 3


def test_a_log_that_cannot_be_opened_does_not_hinder_the_files(pipeline: Pipeline, check: Any) -> None:
    for commit in (pipeline.log / "_delta_log").glob("*.json"):
        commit.write_text("{", encoding="utf-8")
    with altered(path_of(pipeline, 1), b"PAR1"):
        result = check()
    assert codes(result, None) == ["LOG_DAMAGED"]
    assert codes(result, ORDERS) == ["CONTENT_CHANGED"]


def test_a_link_in_a_files_place_hinders_nobody(pipeline: Pipeline, check: Any) -> None:
    """A store refuses to follow it: that is a finding on its table, not the end of the check."""
    path = path_of(pipeline, 1)
    with taken_away(path):
        path.symlink_to(path)
        try:
            result = check()
        finally:
            path.unlink()
    assert codes(result, ORDERS) == ["CONTENT_CHANGED"]
    assert result.verdicts == {CUSTOMERS: "PASS", ORDERS: "STOP"}


def test_a_failing_store_proves_nothing(pipeline: Pipeline, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found in other files is recorded, and the scheduler tries again."""
    ids = {source: table.id for source, table in pipeline.reader.tables().items()}
    contents = [
        (ids[CUSTOMERS], FileContent(1, "customers/1", unread="UNREACHABLE: Input/output error")),
        (ids[ORDERS], FileContent(1, "orders/1", unreadable="torn")),
    ]
    monkeypatch.setattr(reconcile_sequence, "run_job", lambda *_: [contents])
    with pytest.raises(TransientError, match=r"UNREACHABLE: .*customers"):
        check()
    tables = pipeline.reader.tables()
    assert (tables[CUSTOMERS].stop_code, tables[ORDERS].stop_code) == (None, "CONTENT_CHANGED")


def test_a_table_that_began_again_meanwhile_is_left_alone(
    pipeline: Pipeline, check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I12: what was found belongs to the life before."""

    def resetting(*_: Any) -> list[Any]:
        edit(pipeline, "UPDATE mirrored_table SET generation = 2 WHERE source = ?", ORDERS)
        return [[(table_id, FileContent(1, "orders/1", unreadable="torn"))]]

    table_id = pipeline.reader.tables()[ORDERS].id
    monkeypatch.setattr(reconcile_sequence, "run_job", resetting)
    assert codes(check(), ORDERS) == ["CONTENT_CHANGED"]
    assert pipeline.reader.tables()[ORDERS].stop_code is None
