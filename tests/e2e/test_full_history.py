"""Tables that publish every change: file by file and row by row the target gets the history of the source."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from open_mirroring.landing_zone.data_file import Footer, read_footer, rows_digest
from open_mirroring.landing_zone.layout import ROW_MARKER
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.decisions import resume_table
from spark_jobs.publish.repair_number import repair_number
from spark_jobs.reconcile_sequence import reconcile_deep
from spark_jobs.reload_table import reload_table, request_reload
from tests.ces_messages import event
from tests.e2e.test_bad_input import wrapped
from tests.e2e.test_histories import FOLDERS, TABLES, history, slices
from tests.e2e.test_table_shapes import files_of
from tests.e2e.test_transaction_cut import DELIVERY, PARTITIONED, assert_shows_whole_transactions, complete_below
from tests.pipeline import Pipeline
from workload_generator.ces import CesOptions, commit_lsn, render
from workload_generator.history import SHOP_TABLES, Change, TableDef
from workload_generator.sql_values import typed
from workload_generator.transports import json_lines

FULL = [{**table, "history": "full"} for table in TABLES]
SMALL_FILES = {"max_rows_per_file": 7, "compression": "gzip"}
Line = tuple[int, dict[str, Any]]
"""Marker and values, NULLs left out."""


def lines_of(path: Path) -> list[Line]:
    rows = pq.read_table(path).to_pylist()
    return [(row.pop(ROW_MARKER), {n: _plain(v) for n, v in row.items() if v is not None}) for row in rows]


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value


def expected_lines(table: TableDef, changes: list[Change]) -> list[Line]:
    """The source's history as files are to hold it (F-55, F-56, I14), from the plain meaning of its changes."""
    types = {column.name: column.sql_type for change in changes for column in change.table.columns}
    standing: dict[Any, Mapping[str, str | None]] = {}
    lines: list[Line] = []

    def line(marker: int, row: Mapping[str, str | None]) -> None:
        lines.append((marker, {n: typed(types[n], text) for n, text in row.items() if text is not None}))

    for change in changes:
        if change.before is not None:
            key = table.key_of(change.before)
            there = standing.get(key)
            took_away = there is None or all(there.get(n) == v for n, v in change.before.items())
            if took_away:
                standing.pop(key, None)
            if took_away and (change.op == "D" or change.is_key_change):
                line(2, {name: change.before[name] for name in table.key})
        if change.after is not None:
            standing[table.key_of(change.after)] = change.after
            line(4, change.after)
    return lines


def test_the_files_are_the_history_of_the_source(tmp_path: Path, spark) -> None:
    """I4, I14, I16, F-34, C-88, F-30: late partitions, repetitions, pieces, keys that change places, killed once.

    The files of a publication follow each other, each with the positions it holds, and their digests are ordered.
    """
    made = history(seed=94, transactions=70)
    messages = render(made.changes, CesOptions(max_data_bytes=1_700, seed=9), DELIVERY)
    settings: Mapping[str, Any] = {"consistency": "transaction", "publish": SMALL_FILES}
    pipeline = Pipeline(tmp_path, spark, FULL, source={**PARTITIONED, "layout": "wrapped"}, **settings)
    for number, part in enumerate(slices(messages, 3)):
        pipeline.deliver(f"{number}.jsonl", json_lines(part, layout="wrapped"))
        if number == 1:
            pipeline.extract()
            pipeline.killed("publish_changes", "publish.sealed")
        pipeline.tick()
        assert_shows_whole_transactions(pipeline, made)
    below = complete_below(pipeline)
    whole = [change for change in made.changes if commit_lsn(change.txn).replace(":", "") < below]
    for table in SHOP_TABLES:
        files = files_of(pipeline, FOLDERS[table.full_name])
        own = [change for change in whole if change.table.full_name == table.full_name]
        assert [line for file in files for line in lines_of(file)] == expected_lines(table, own), table.full_name
        footers = [read_footer(file) for file in files]
        assert_in_order([footer for footer in footers if footer is not None])
        assert [rows_digest(file) for file in files] == [footer.digest for footer in footers if footer is not None]
        assert {pq.read_metadata(file).row_group(0).column(0).compression for file in files} == {"GZIP"}
    checked = reconcile_deep(pipeline.mirror, pipeline.ledger, spark)
    assert not checked.findings, checked


def assert_in_order(footers: list[Footer]) -> None:
    assert len(footers) > 2 and {footer.kind for footer in footers} == {"history"}
    bounds = [bound for footer in footers for bound in (footer.first_position, footer.last_position)]
    assert bounds == sorted(bounds)


def test_what_comes_behind_its_successors_stops_its_table_and_the_newest_rows_take_it(tmp_path: Path, spark) -> None:
    """I17, G-05: `partition_count` was too small; told that the newest rows are enough, the table goes on exactly."""
    tables = [{"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], "history": "full"}]
    source = {"layout": "wrapped", "partition_key_scheme": "table", "partition_count": 1}
    pipeline = Pipeline(tmp_path, spark, tables, source=source, consistency="transaction")

    def says(commit: int, identifier: str, name: str) -> bytes:
        return event("INS", {"id": identifier, "name": name, "price": "1.00"}, commit=commit)

    pipeline.deliver("0.jsonl", wrapped([says(10, "1", "a"), says(14, "1", "b"), says(20, "2", "c")]))
    pipeline.tick()
    pipeline.deliver("1.jsonl", wrapped([says(10, "1", "a"), says(12, "1", "late"), says(22, "3", "d")]))
    _, published = pipeline.tick()
    assert "CHANGE_LATE" in str(dict(published.stopped)["dbo.orders"])
    assert [(row["id"], row["name"]) for row in pipeline.mirrored("dbo", "orders")] == [(1, "b")]
    document = yaml.safe_load(pipeline.file.read_text(encoding="utf-8"))
    del document["tables"][0]["history"]
    pipeline.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    resume_table(pipeline.ledger, "test", "dbo.orders", Reason("Ada", "the newest rows are enough"))
    _, published = pipeline.tick()
    assert dict(published.stopped) == {}
    rows = sorted((row["id"], row["name"]) for row in pipeline.mirrored("dbo", "orders"))
    assert rows == [(1, "b"), (2, "c")]


def test_a_reset_publishes_the_history_anew(tmp_path: Path, spark) -> None:
    """I12, I14, C-88: a new generation has nothing yet, so nothing is late for it, and nothing waits twice."""
    tables = [{"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], "history": "full"}]
    source = {"layout": "wrapped", "partition_key_scheme": "table", "partition_count": 1}
    zone = {"store": "local", "path": "zone", "tables": "tables"}
    pipeline = Pipeline(tmp_path, spark, tables, source=source, consistency="transaction", landing_zone=zone)
    events = [
        event("INS", {"id": "1", "name": str(commit), "price": "1.00"}, commit=commit) for commit in (10, 11, 12, 13)
    ]
    pipeline.deliver("0.jsonl", wrapped(events))
    pipeline.tick()
    before = [lines_of(file) for file in files_of(pipeline, "dbo.schema/orders")]
    assert [line["name"] for file in before for _, line in file] == ["10", "11", "12"]
    request_reload(pipeline.mirror, pipeline.ledger, "dbo.orders", Reason("Ada", "to see it again"))
    for _ in range(4):
        reload_table(pipeline.mirror, pipeline.ledger, lambda: spark, "dbo.orders", wait=timedelta(0))
        pipeline.service.poll()
    state = pipeline.reader.tables()["dbo.orders"]
    assert (state.row.generation, state.stop_code, state.reset, state.waiting_rows) == (2, None, None, 1)
    assert [lines_of(file) for file in files_of(pipeline, "dbo.schema/orders")] == before


def test_a_lost_number_of_a_history_is_made_again_in_its_order(tmp_path: Path, spark) -> None:
    """F-40, I9, I14: planned again as it was, each file with the positions of its own rows."""
    tables = [{"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], "history": "full"}]
    source = {"layout": "wrapped", "partition_key_scheme": "table", "partition_count": 1}
    publish = {"max_rows_per_file": 2}
    pipeline = Pipeline(tmp_path, spark, tables, source=source, consistency="transaction", publish=publish)
    for first in (10, 15):
        commits = range(first, first + 5)
        events = [event("INS", {"id": "1", "name": str(at), "price": "1.00"}, commit=at) for at in commits]
        pipeline.deliver(f"{first}.jsonl", wrapped(events, first))
        pipeline.extract()
        pipeline.publish()
    before = [lines_of(file) for file in files_of(pipeline, "dbo.schema/orders")]
    assert [line["name"] for file in before for _, line in file] == [str(at) for at in range(10, 19)]
    (pipeline.zone / "dbo.schema" / "orders" / "00000000000000000004.parquet").unlink()
    pipeline.service.poll()
    why = Reason("Ada", "ticket 4711")
    assert repair_number(pipeline.mirror, pipeline.ledger, "dbo.orders", 4, why, not_applied="looked").number == 4
    assert [lines_of(file) for file in files_of(pipeline, "dbo.schema/orders")] == before
    assert reconcile_deep(pipeline.mirror, pipeline.ledger, spark).findings == []


@pytest.mark.parametrize("added", [{}, {"complete_rows": True}])
def test_a_mirror_without_a_complete_position_cannot_have_it(tmp_path: Path, added: dict[str, Any]) -> None:
    """I4: refused with the setting that would help."""
    settings = {"consistency": "transaction"} if added else {}
    pipeline = Pipeline(tmp_path, None, [{**FULL[0], **added}], source=PARTITIONED, **settings)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="COMBINATION_INVALID") as refused:
        _ = pipeline.mirror
    assert "history" in str(refused.value) and ("consistency" in str(refused.value) or added)


def test_rows_that_are_equal_but_for_their_keys_swap_them_and_stay(tmp_path: Path, spark) -> None:
    """G-03, I14: what stood at a key before tells two rows from one that moved there and back, in a later tick too."""
    table = {"source": "dbo.links", "target": "links", "key": ["a", "b"], "history": "full"}
    source = {"partition_key_scheme": "stream-group"}
    pipeline = Pipeline(tmp_path, spark, [table], source=source, consistency="transaction")
    one, two = {"a": "1", "b": "1"}, {"a": "1", "b": "2"}

    def says(operation: str, current: Mapping[str, str], old: Any, commit: int, sequence: int = 1) -> bytes:
        columns = [("a", "int"), ("b", "int")]
        return event(operation, current, old, commit=commit, sequence=sequence, tbl="links", cols=columns)

    first = [says("INS", one, None, 10), says("INS", two, None, 11)]
    for at in range(3):
        swap = [says("UPD", two, one, 20 + 9 * at), says("UPD", one, two, 20 + 9 * at, 2)] if at else []
        later = says("INS", {"a": "9", "b": str(at)}, None, 25 + 9 * at)  # so that the transaction is known to be whole
        pipeline.deliver(f"{at}.jsonl", wrapped([*(swap or first), later], first=at * 3))
        pipeline.tick()
    rows = {(row["a"], row["b"]) for row in pipeline.mirrored("dbo", "links")}
    assert rows == {(1, 1), (1, 2), (9, 0), (9, 1)}
