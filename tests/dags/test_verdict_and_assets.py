"""The run's last task, which gives it its colour, and the events for tables with new files (AF-12, AF-13)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from airflow.providers.openlineage.extractors.base import DefaultExtractor
from airflow.sdk import DAG, BaseOperator
from openlineage.client.event_v2 import Job, Run, RunEvent
from openlineage.client.serde import Serde

from open_mirroring.changes.column_notes import ColumnNote, NoteKind
from open_mirroring.changes.complete_position import Completeness
from open_mirroring.changes.manifest import OpenFragment
from open_mirroring.config import Mirror, load_mirror
from open_mirroring.errors import TerminalError
from open_mirroring.ledger import open_ledger, tables
from open_mirroring.ledger.columns import put_notes
from open_mirroring.ledger.documents import EPOCHS, FRAGMENTS
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.protocols.verdicts import STATUS_REFUSED, Backlog, Finding, Verdict
from open_mirroring.reconciliation.inspection import declare_tables
from open_mirroring_airflow.assets import table_asset
from open_mirroring_airflow.operators import ExtractOperator, PublishingOperator
from open_mirroring_airflow.verdict import ReconcileOperator
from tests.dags.conftest import MIRROR

pytestmark = pytest.mark.airflow


@pytest.fixture
def mirror(write_mirror: Callable[..., Path]) -> Mirror:
    return load_mirror(write_mirror())


def _leaf(mirror: Mirror) -> ReconcileOperator:
    with DAG("run", schedule=None):
        before = [BaseOperator(task_id=name) for name in ("extract", "gate")]
        publish, leaf = (
            BaseOperator(task_id="publish"),
            ReconcileOperator(task_id="reconcile", mirror_file=str(mirror.file)),
        )
        before >> publish >> leaf
    return leaf


def test_a_run_where_all_is_well_ends_green(mirror: Mirror, task_context: dict[str, Any]) -> None:
    task_context["ti"].states = {"extract": "success", "gate": "success", "publish": "skipped"}
    answer = _leaf(mirror).execute(task_context)
    status = answer.pop("status")
    assert answer == {"verdicts": {"dbo.customers": "PASS", "dbo.orders": "PASS"}, "note": ""}
    assert status == json.loads(json.dumps(status)), "plain values, for whoever graphs them"
    assert (status["last_commit"], status["counts"], "tables" in status) == (None, {"PASS": 2}, False)


def test_a_table_on_hold_leaves_the_run_green_with_a_note(
    write_mirror: Callable[..., Path], task_context: dict[str, Any]
) -> None:
    file = write_mirror()
    load = ", initial_load: {format: parquet, path: export, stream_from: beginning}}"
    file.write_text(file.read_text().replace("key: [order_id]}", f"key: [order_id]{load}"))
    answer = _leaf(load_mirror(file)).execute(task_context)
    assert answer["verdicts"] == {"dbo.customers": "PASS", "dbo.orders": "HOLD"}
    assert answer["note"].startswith("HOLD: dbo.orders: LOAD_PENDING")


def test_what_the_command_line_notes_the_run_notes_too_g144(mirror: Mirror, task_context: dict[str, Any]) -> None:
    """G-144: rows that are unverified, and messages that wait for others: the run is green, and says so."""
    engine = open_ledger(mirror.ledger_url())
    table_id = declare_tables(mirror, engine)["dbo.orders"]
    with engine.begin() as db:
        put_notes(db, table_id, [ColumnNote(1, NoteKind.TAKEN, "x", "", 1, datetime.now(UTC))])
        FRAGMENTS.put(db, "shop", {"a": OpenFragment("a", "e", "1", 1, datetime.now(UTC), ())})
    answer = _leaf(mirror).execute(task_context)
    assert answer["note"] == (
        "HOLD: (any table): 1 message waits for other pieces, or for a description of a structure"
    )
    note = task_context["ti"].xcoms["note"]
    assert "Note: dbo.orders: column 'x' unverified since `columns` includes it" in note and "HOLD: (any table)" in note


def _log(mirror: Mirror, source: str, highest: str, completeness: str | None = None) -> None:
    """A batch 1 that holds changes of a table up to a position of the stream ``e``."""
    engine = open_ledger(mirror.ledger_url())
    table_id, now = declare_tables(mirror, engine)[source], datetime.now(UTC)
    batch = {"mirror": mirror.name, "number": 1, "ranges": "{}", "completeness": completeness}
    batch["manifest"] = '{"files": [], "counts": {}}'
    logged = {"mirror": mirror.name, "source": source, "batch": 1, "epoch": "e", "rows": 3, "files": "[]"}
    with engine.begin() as db:
        db.execute(tables.log_batch.insert().values(**batch, bound_at=now, committed_at=now))
        db.execute(tables.batch_table.insert().values(**logged, min_pos=highest, max_pos=highest))
        EPOCHS.put(db, table_id, {"e": 1})
        db.execute(tables.mirror.update().values(committed=1))


def test_changes_that_nothing_published_are_reported_g144(mirror: Mirror, task_context: dict[str, Any]) -> None:
    """G-144: somebody marked the gate or the publishing as a success, so the run did not publish what it read."""
    _log(mirror, "dbo.orders", "2")
    answer = _leaf(mirror).execute(task_context)
    assert answer["note"] == "HOLD: dbo.orders: logged changes are not published yet; the next run does it"
    task_context["params"]["tables"] = ["dbo.customers"]
    assert _leaf(mirror).execute(task_context)["note"] == "", "a run is not to publish what was not chosen for it"
    task_context["params"]["tables"] = ["dbo.orders"]
    assert _leaf(mirror).execute(task_context)["note"]
    with open_ledger(mirror.ledger_url()).begin() as db:
        db.execute(tables.mirrored_table.update().values(published_batch=1))
    assert _leaf(mirror).execute(task_context)["note"] == ""


@pytest.mark.parametrize(("below", "is_told"), [("1", False), ("3", True)])
def test_changes_above_the_complete_position_are_no_work_of_a_run_g144(
    write_mirror: Callable[..., Path], task_context: dict[str, Any], below: str, is_told: bool
) -> None:
    """G-144: where transactions are held back, a run is done when all below the complete position is published."""
    file = write_mirror()
    text = file.read_text().replace("path: capture}", "path: capture, partition_key_scheme: stream-group}")
    file.write_text(text + "consistency: transaction\n")
    mirror = load_mirror(file)
    _log(mirror, "dbo.orders", "2", Completeness(1, {"p": {"e": below}}, {"e": below}).to_json())
    assert bool(_leaf(mirror).execute(task_context)["note"]) is is_told


def test_a_hold_that_nobody_but_an_operator_ends_fails_the_run_and_stops_nothing_r_03(
    mirror: Mirror, task_context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    declare_tables(mirror, open_ledger(mirror.ledger_url()))
    refused = Finding(Verdict.HOLD, STATUS_REFUSED, "ACCESS_DENIED", {}, 0, Backlog())
    monkeypatch.setattr("open_mirroring.reconciliation.inspection.inspect_mirror", lambda *_: {"dbo.orders": refused})
    with pytest.raises(TerminalError, match=r"dbo\.orders: STATUS_REFUSED") as caught:
        _leaf(mirror).execute(task_context)
    assert "Contributor" in caught.value.next_step
    assert LedgerReader(open_ledger(mirror.ledger_url()), mirror.name).tables()["dbo.orders"].stop_code is None


def test_a_stopped_table_fails_the_run_by_name_with_code_and_next_step(
    mirror: Mirror, task_context: dict[str, Any]
) -> None:
    folder = mirror.resolve("zone") / "dbo.schema" / "orders"
    folder.mkdir(parents=True)
    (folder / "stray.txt").write_text("of somebody else")
    with pytest.raises(TerminalError, match=r"TABLES_STOPPED.*dbo\.orders: FOREIGN_ITEM") as caught:
        _leaf(mirror).execute(task_context)
    assert "dbo.customers" not in str(caught.value)
    assert "find out who put the file there" in caught.value.next_step


def test_a_table_that_publishing_stopped_fails_the_run_even_if_it_looks_well_now(
    mirror: Mirror, task_context: dict[str, Any]
) -> None:
    task_context["ti"].xcoms["publish"] = {"job": "publish_changes", "stopped": {"dbo.orders": "PARTIAL_ROWS: x"}}
    with pytest.raises(TerminalError, match=r"TABLES_STOPPED.*dbo\.orders: PARTIAL_ROWS"):
        _leaf(mirror).execute(task_context)


@pytest.mark.parametrize("red", ["extract", "gate", "publish"])
@pytest.mark.parametrize("state", ["failed", "upstream_failed"])
def test_a_red_task_before_it_fails_the_run_by_name(
    mirror: Mirror, task_context: dict[str, Any], red: str, state: str
) -> None:
    task_context["ti"].states = {"extract": "success", "gate": "success", "publish": "success", red: state}
    with pytest.raises(TerminalError, match=f"JOB_FAILED: failed before this: {red} "):
        _leaf(mirror).execute(task_context)


def _confirm(mirror: Mirror, source: str, numbers: range, generation: int = 1) -> None:
    """As if these numbers of a table had been published, 10 rows each."""
    engine = open_ledger(mirror.ledger_url())
    table_id, row = declare_tables(mirror, engine)[source], tables.mirrored_table
    now = {"confirmed": numbers[-1], "generation": generation, "version": row.c.version + 1}
    file = {"table_id": table_id, "generation": generation, "etag": "e", "digest": "d", "rows": 10, "size": 100}
    with engine.begin() as db:
        db.execute(sa.update(row).where(row.c.id == table_id).values(**now))
        for number in numbers:
            place = {"first_position": f"{number}:a", "last_position": f"{number}:z", "kind": "changes"}
            place |= {"batch_from": number - 1, "batch_to": number, "confirmed_at": datetime.now(UTC)}
            db.execute(sa.insert(tables.published_file).values(**file, **place, number=number))


@pytest.fixture
def publish(mirror: Mirror, task_context: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Run the publish task with a job that does what the test sets; the events that the task recorded."""

    def run(job: Callable[[], object]) -> list[Any]:
        monkeypatch.setattr(PublishingOperator, "run_job", lambda *_: job())
        operator = PublishingOperator(
            task_id="publish", mirror="shop", mirror_file=str(mirror.file), job="publish_changes"
        )
        task_context["outlet_events"].clear()
        operator.execute(task_context)
        return task_context["outlet_events"].get("open-mirroring/shop", [])

    return run


def test_only_tables_with_new_files_get_an_event_with_numbers_rows_and_positions(
    mirror: Mirror, publish: Callable[..., list[Any]]
) -> None:
    _confirm(mirror, "dbo.customers", range(1, 3))
    _confirm(mirror, "dbo.orders", range(1, 3))
    [(uri, extra)] = publish(lambda: _confirm(mirror, "dbo.orders", range(3, 6)))
    assert uri == "open-mirroring://shop/dbo/orders"
    assert (extra.pop("source"), extra.pop("target")) == (
        "sqlserver-ces over capture: capture",
        "local: zone: dbo/orders",
    )
    assert extra == {
        "mirror": "shop",
        "table": "dbo.orders",
        "generation": 1,
        "first_number": 3,
        "number": 5,
        "rows": 30,
        "first_position": "3:a",
        "last_position": "5:z",
        "batch": 5,
    }


@pytest.mark.parametrize(
    ("zone", "mirrored"),
    [
        ("{store: local, path: zone}", ("file", "{home}/zone/dbo/orders")),
        (
            "{store: onelake, workspace: Sales, item: shop.MirroredDatabase, connection: lake}",
            ("abfss://Sales@onelake.dfs.fabric.microsoft.com", "shop.MirroredDatabase/Tables/dbo/orders"),
        ),
    ],
)
def test_openlineage_sees_source_and_mirrored_tables_with_their_rows(
    zone: str,
    mirrored: tuple[str, str],
    write_mirror: Callable[..., Path],
    task_context: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the provider's own look for it, in the client's own form."""
    mirror = load_mirror(write_mirror(MIRROR.replace("{store: local, path: zone}", zone)))
    _confirm(mirror, "dbo.customers", range(1, 3))
    monkeypatch.setattr(PublishingOperator, "run_job", lambda *_: _confirm(mirror, "dbo.orders", range(1, 4)))
    operator = PublishingOperator(task_id="publish", mirror="shop", mirror_file=str(mirror.file), job="publish_changes")
    operator.execute(task_context)
    found = DefaultExtractor(operator).extract_on_complete(None)
    assert found is not None
    event = RunEvent(
        eventTime="2026-01-05T10:00:00Z",
        run=Run(str(UUID(int=0))),
        job=Job("a", "b"),
        inputs=found.inputs,
        outputs=found.outputs,
    )
    document = json.loads(Serde.to_json(event))
    assert [(one["namespace"], one["name"]) for one in document["inputs"]] == [
        ("open-mirroring://shop/source", "dbo.orders")
    ]
    [written] = document["outputs"]
    namespace, name = mirrored
    assert (written["namespace"], written["name"]) == (namespace, name.format(home=mirror.home))
    counted = written["outputFacets"]["outputStatistics"]
    assert (counted["rowCount"], counted["fileCount"]) == (30, 3)


def test_what_the_reading_program_published_is_announced_and_reported_and_not_done_again(
    mirror: Mirror, task_context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One program for both; unless a table was on hold then and passes the gate by now, or the task is cleared."""
    published = {"job": "publish_changes", "held": {"dbo.customers": "HOLD: x"}, "stopped": {}, "losses": {}}

    def read(*_: object) -> dict[str, Any]:
        _confirm(mirror, "dbo.orders", range(1, 4))
        return {"job": "extract_changes", "batch": 1, "published": published}

    monkeypatch.setattr(ExtractOperator, "run_job", read)
    given = {"mirror": "shop", "mirror_file": str(mirror.file)}
    extract = ExtractOperator(task_id="extract", job="extract_changes", **given)
    ti, again = task_context["ti"], []
    ti.xcoms |= {"extract": extract.execute(task_context), "gate": {"passing": ["dbo.orders"], "note": ""}}
    task_context["task_state_store"].set("attempts", None)  # each task has a store of its own

    def job(*_: object) -> dict[str, Any]:
        again.append(ti.try_number)
        return published

    monkeypatch.setattr(PublishingOperator, "run_job", job)
    publish = PublishingOperator(
        task_id="publish", job="publish_changes", gate_task_id="gate", extract_task_id="extract", **given
    )
    assert publish.execute(task_context)["job"] == "publish_changes" and not again
    [(_, extra)] = task_context["outlet_events"]["open-mirroring/shop"]
    assert (extra["first_number"], extra["number"], extra["rows"]) == (1, 3, 30)
    assert "Published: 3 files of 1 table, 30 rows." in "\n".join(publish.said)
    ti.try_number = 2
    publish.execute(task_context)
    assert again == [2] and task_context["outlet_events"]["open-mirroring/shop"] == []
    ti.try_number, ti.xcoms["gate"] = 1, {"passing": ["dbo.customers", "dbo.orders"], "note": ""}
    publish.execute(task_context)
    assert again == [2, 1]


def test_a_new_generation_begins_at_its_first_number(mirror: Mirror, publish: Callable[..., list[Any]]) -> None:
    _confirm(mirror, "dbo.orders", range(1, 6))
    [(_, extra)] = publish(lambda: _confirm(mirror, "dbo.orders", range(1, 3), generation=2))
    assert (extra["generation"], extra["first_number"], extra["number"]) == (2, 1, 2)


@pytest.mark.parametrize(
    ("target", "uri"),
    [
        ("dbo/orders", "open-mirroring://shop/dbo/orders"),
        ("orders", "open-mirroring://shop/orders"),
        ("dbo/a b#ü?", "open-mirroring://shop/dbo/a%20b%23%C3%BC%3F"),
    ],
)
def test_every_table_has_an_asset_of_its_own(target: str, uri: str) -> None:
    asset = table_asset("shop", target)
    assert (asset.uri, asset.name) == (uri, uri)
