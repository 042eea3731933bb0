"""What tasks of Qlik's send, held back until its transactions are whole: as messages, and in closed partitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.reconcile_sequence import reconcile_deep
from spark_jobs.sources.qlik.positions import qlik_position
from tests.e2e.test_bad_input import wrapped
from tests.e2e.test_histories import TABLES, assert_mirrored, history, slices
from tests.e2e.test_transaction_cut import assert_shows, complete_below, set_consistency
from tests.pipeline import Pipeline
from tests.postgres import PostgresServer
from tests.qlik_change_tables_sql import postgresql_statements
from tests.qlik_messages import ROW, dt, md
from workload_generator.delivery import Delivery
from workload_generator.history import SHOP_TABLES, Change, History, random_history
from workload_generator.qlik_change_tables import ChangeTableOptions, stored_changes
from workload_generator.qlik_change_tables import change_sequence as stored_sequence
from workload_generator.qlik_messages import QlikMessageOptions, change_sequence, render
from workload_generator.transports import capture_files, json_lines

SequenceOf = Callable[[Change], str]
WHOLE: Mapping[str, Any] = {"consistency": "transaction", "publish": {"max_rows_per_file": 7}}


def whole_changes(pipeline: Pipeline, made: History, sequence: SequenceOf) -> list[Change]:
    """The changes below the complete position."""
    below = complete_below(pipeline)
    places = ((change, qlik_position(sequence(change), 0, change.seq)) for change in made.changes)
    return [change for change, place in places if place < below]


def assert_shows_whole_transactions(pipeline: Pipeline, made: History, sequence: SequenceOf = change_sequence) -> int:
    return assert_shows(pipeline, made, whole_changes(pipeline, made, sequence))


def assert_is_sound(pipeline: Pipeline, spark: Any) -> None:
    assert not reconcile_deep(pipeline.mirror, pipeline.ledger, spark).findings
    assert {state.stop_code for state in pipeline.reader.tables().values()} == {None}


@pytest.mark.parametrize(("encoding", "transport", "partitions"), [("json", "files", 1), ("avro", "capture", 3)])
def test_messages_show_the_source_at_a_commit(
    encoding: Any, transport: str, partitions: int, tmp_path: Path, spark: Any
) -> None:
    """K-80, K-26, K-40, C-88, I4: ticks fall anywhere, transactions are broken off and sent again, a run is killed."""
    made = history(seed=95 + partitions, transactions=70)
    options = QlikMessageOptions(encoding=encoding, table_names=encoding == "json", replays=0.2, seed=5)
    messages = render(made, options, Delivery(partitions=partitions, scheme="key", duplicates=0.05, seed=5))
    layout = "wrapped" if transport == "files" else None
    source = {"format": "qlik-message", "transport": transport, "layout": layout, "partition_count": partitions}
    pipeline = Pipeline(tmp_path, spark, TABLES, source=source, **WHOLE)
    if transport == "files":
        deliveries = [
            [(f"{number}.jsonl", json_lines(part, layout="wrapped"))] for number, part in enumerate(slices(messages, 4))
        ]
    else:
        files = list(capture_files(messages))
        deliveries = [files[len(files) * n // 4 : len(files) * (n + 1) // 4] for n in range(4)]
    seen = []
    for number, delivery in enumerate(deliveries):
        for name, content in delivery:
            pipeline.deliver(name, content)
        if number == 2 and transport == "files":
            pipeline.extract()
            pipeline.killed("publish_changes", "publish.intended")
        pipeline.tick()
        seen.append(assert_shows_whole_transactions(pipeline, made))
    assert seen == sorted(seen) and 0 < seen[-1] < len(made.changes)
    set_consistency(pipeline, "key")
    pipeline.publish()
    pipeline.service.poll()
    assert_mirrored(pipeline, made)


def test_messages_show_the_rows_of_the_full_load_first(tmp_path: Path, spark: Any) -> None:
    """K-80, K-18: the rows of the load need no commit behind them; a run is killed once its files are sealed."""
    made = random_history(97, 50, rows=6)
    messages = render(made, QlikMessageOptions(table_names=True, replays=0.2), Delivery(partitions=1))
    pipeline = Pipeline(tmp_path, spark, TABLES, source={"format": "qlik-message", "layout": "wrapped"}, **WHOLE)
    for number, part in enumerate(slices(messages, 4)):
        pipeline.deliver(f"{number}.jsonl", json_lines(part, layout="wrapped"))
        if number == 2:
            pipeline.extract()
            pipeline.killed("publish_changes", "publish.sealed")
        pipeline.tick()
        assert_shows_whole_transactions(pipeline, made)
    assert 0 < len(whole_changes(pipeline, made, change_sequence)) < len(made.changes)
    assert_is_sound(pipeline, spark)


def test_a_full_load_that_comes_in_parts_is_not_late(tmp_path: Path, spark: Any) -> None:
    """K-80, K-18: another table's changes move the complete position on while one still loads."""
    tables = [{"source": f"dbo.{name}", "target": f"dbo/{name}", "key": ["id"]} for name in ("orders", "other")]
    source = {"format": "qlik-message", "layout": "wrapped", "partition_count": 2}
    pipeline = Pipeline(tmp_path, spark, tables, source=source, consistency="transaction")

    def changed(number: int) -> bytes:
        return dt("INSERT", {**ROW, "id": number}, number=number, transactionEventCounter=1, schema_id="2")

    def loaded(number: int) -> bytes:
        return dt("REFRESH", {**ROW, "id": number})

    announced = [md(), md(schema_id="2", table="other")]
    pipeline.deliver("0.jsonl", wrapped([*announced, loaded(1), changed(1)]) + wrapped([changed(2)], 0, 1))
    pipeline.tick()
    assert [row["id"] for row in pipeline.mirrored("dbo", "orders")] == [1]
    pipeline.deliver("1.jsonl", wrapped([changed(3)], 4) + wrapped([loaded(2), changed(4)], 1, 1))
    _, published = pipeline.tick()
    assert dict(published.stopped) == {}
    assert sorted(row["id"] for row in pipeline.mirrored("dbo", "orders")) == [1, 2]
    assert sorted(row["id"] for row in pipeline.mirrored("dbo", "other")) == [1, 2]


@pytest.mark.parametrize(
    ("bodies", "code"),
    [
        ([md(), dt(number=1, transactionEventCounter=...)], "TRANSACTION_UNBOUNDED"),
        ([md(), md(schema_id="2", table="other", lineage={"server": "S", "task": "T", "schema": "dbo",
          "table": "other", "tableVersion": 1})], "TRANSACTION_UNBOUNDED"),
    ],
)  # fmt: skip
def test_messages_that_do_not_show_what_is_complete_stop_reading(
    bodies: list[bytes], code: str, tmp_path: Path, spark: Any
) -> None:
    """K-80: nothing is lost, and without holding transactions back it is read as ever."""
    tables = [{"source": f"dbo.{name}", "target": name, "key": ["id"]} for name in ("orders", "other")]
    source = {"format": "qlik-message", "layout": "wrapped"}
    pipeline = Pipeline(tmp_path, spark, tables, source=source, consistency="transaction")
    pipeline.deliver("0.jsonl", wrapped(bodies))
    with pytest.raises(Exception, match=code):
        pipeline.extract()
    set_consistency(pipeline, "key")
    pipeline.tick()
    assert {state.stop_code for state in pipeline.reader.tables().values()} == {None}


def sequence_of(change: Change) -> str:
    return stored_sequence(change.txn, change.seq)


def stored(server: PostgresServer, made: History, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Fill the change tables of a history, and yield the statements that close each of their partitions, in order."""
    server.execute(*(f"DROP SCHEMA IF EXISTS {name} CASCADE" for name in ("dbo", "control")))
    options = ChangeTableOptions(partition_minutes=1)
    closing: dict[str, list[str]] = {}
    statements = []
    for one in postgresql_statements(SHOP_TABLES, stored_changes(made.changes, options), options):
        if one.startswith('INSERT INTO "control"'):
            closing.setdefault(one.split("'")[5], []).append(one)
        else:
            statements.append(one)
    server.execute(*statements)
    content = {"conn_type": "postgres", "host": "127.0.0.1", "port": server.port, "login": server.user,
               "password": server.password, "schema": server.database}  # fmt: skip
    monkeypatch.setenv("AIRFLOW_CONN_QLIK_TARGET", json.dumps(content))
    yield from (closing[name] for name in sorted(closing))


OVER_JDBC = {"format": "qlik-change-table", "transport": "jdbc", "connection": "qlik_target", "path": "",
             "layout": None, "partitions": "control.attrep_cdc_partitions"}  # fmt: skip


def test_closed_partitions_show_the_source_at_a_commit(
    tmp_path: Path, spark: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-80, T-34, C-88, I4: closed partitions are read in any number at once.

    A table whose partition is closed later than those of the others is not late; a run is killed once its files are
    sealed.
    """
    made = history(seed=98, transactions=40)
    partitions = list(stored(postgres, made, monkeypatch))
    pipeline = Pipeline(tmp_path, spark, TABLES, source=OVER_JDBC, **WHOLE)
    for tick in range(4):
        now = partitions[len(partitions) * tick // 4 : len(partitions) * (tick + 1) // 4]
        closed = [one for part in now for one in part]
        held_up = [one for one in closed if "'orders__ct'" in one] if tick == 2 else []
        postgres.execute(*(one for one in closed if one not in held_up))
        if tick == 1:
            pipeline.extract()
            pipeline.killed("publish_changes", "publish.sealed")
        pipeline.tick()
        if held_up:
            postgres.execute(*held_up)
            pipeline.tick()
        assert_shows_whole_transactions(pipeline, made, sequence_of)
    assert 0 < len(whole_changes(pipeline, made, sequence_of)) < len(made.changes)
    assert_is_sound(pipeline, spark)
