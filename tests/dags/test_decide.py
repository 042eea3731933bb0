"""Decisions without a shell: runs of ``<mirror>__decide`` in Airflow's database, and what the ledger has after them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import ParamValidationError
from sqlalchemy import Engine

from open_mirroring.config import Mirror, load_mirror
from open_mirroring.errors import TerminalError
from open_mirroring.ledger import open_ledger, tables
from open_mirroring.ledger.requests import (
    ACCEPT_EPOCH,
    ACCEPT_LETTERS,
    ACCEPT_RELOAD,
    ACCEPT_SCHEMA,
    ACCEPT_TABLE,
    RESUME,
    RESUME_EXTRACTION,
)
from open_mirroring.operate.operations import DECISIONS
from open_mirroring.protocols.table_stops import NEW_TABLE, RELOAD_SEEN
from open_mirroring.reconciliation.inspection import declare_tables
from open_mirroring_airflow.operators import DecideOperator
from open_mirroring_airflow.run_params import chosen_decision
from tests.hand_made_mirror import GUID, OTHER_GUID, HandMadeMirror

pytestmark = pytest.mark.airflow

ROOT = Path(__file__).resolve().parents[2]
ORDERS = "dbo.orders"
MIRROR = """
mirror: shop
source: {{format: sqlserver-ces, transport: capture, path: {folder}/capture}}
landing_zone: {{store: local, path: {folder}/zone}}
ledger: sqlite:///{folder}/ledger.db
change_log: {folder}/log
tables: [{{source: dbo.orders, target: dbo/orders, key: [order_id]}}]
"""


@pytest.fixture
def mirror(mirrors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """In the folder that ``dags/`` reads."""
    monkeypatch.setattr("open_mirroring_airflow.dag_factory.RETRIES", 0)
    (tmp_path / "zone").mkdir()
    (mirrors / "shop.yaml").write_text(MIRROR.format(folder=tmp_path))
    return load_mirror(mirrors / "shop.yaml")


@pytest.fixture
def ledger(mirror: Mirror) -> Engine:
    engine = open_ledger(mirror.ledger_url())
    declare_tables(mirror, engine)
    return engine


def _stop(ledger: Engine, code: str) -> None:
    c = tables.mirrored_table.c
    values = {"stop_code": code, "stop_what": "as a run left it", "stopped_at": datetime.now(UTC)}
    with ledger.begin() as db:
        db.execute(tables.mirrored_table.update().where(c.source == ORDERS).values(version=c.version + 1, **values))


def _stop_code(ledger: Engine) -> str | None:
    with ledger.connect() as db:
        return db.scalar(sa.select(tables.mirrored_table.c.stop_code).where(tables.mirrored_table.c.source == ORDERS))


def _audited(ledger: Engine) -> list[tuple[str, str, str]]:
    with ledger.connect() as db:
        rows = db.execute(sa.select(tables.audit.c.event, tables.audit.c.detail)).tuples().all()
    found = [(event, json.loads(detail) if isinstance(detail, str) else detail) for event, detail in rows]
    return [(event, detail["who"], detail["why"]) for event, detail in found if "why" in detail]


def _run(**conf: Any) -> Any:
    return DagBag(dag_folder=ROOT / "dags").dags["shop__decide"].test(run_conf=conf)


def test_a_run_resumes_a_table_in_the_name_of_who_started_it(ledger: Engine) -> None:
    _stop(ledger, "PARTIAL_ROWS")
    run = _run(decision=RESUME, table=ORDERS, reason="ticket 4711")
    assert run.state == "success"
    assert _stop_code(ledger) is None
    assert run.triggering_user_name == "dag_test"
    assert _audited(ledger) == [("RESUMED", "dag_test", "ticket 4711")]
    with ledger.connect() as db:
        asked = db.execute(sa.select(tables.decision_request.c.request, tables.decision_request.c.source)).one()
    assert tuple(asked) == (f"shop__decide/{run.run_id}", ORDERS)


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        ("PARTIAL_ROWS", {"decision": RESUME}),
        ("PARTIAL_ROWS", {"decision": RESUME, "table": ORDERS, "subject": "note"}),
        ("SCHEMA_CHANGED", {"decision": RESUME, "table": ORDERS}),
    ],
    ids=["no table", "a field of another decision", "a stop that needs a reset"],
)
def test_a_decision_that_is_unclear_or_refused_fails_the_run_and_leaves_the_stop(
    ledger: Engine, code: str, fields: dict[str, str]
) -> None:
    _stop(ledger, code)
    assert _run(**fields, reason="ticket 4711").state == "failed"
    assert (_stop_code(ledger), _audited(ledger)) == (code, [])


def _context(task_context: dict[str, Any], who: str | None) -> dict[str, Any]:
    task_context["dag_run"].triggering_user_name = who
    task_context["params"] = {"decision": RESUME, "table": ORDERS, "reason": "ticket 4711"}
    return task_context


def test_a_run_decides_once_and_a_cleared_one_lifts_no_later_stop_g_30(
    mirror: Mirror, ledger: Engine, task_context: dict[str, Any]
) -> None:
    operator = DecideOperator(task_id="decide", mirror_file=str(mirror.file))
    _stop(ledger, "PARTIAL_ROWS")
    first = operator.execute(_context(task_context, "ada"))
    assert first[0] == "Cleared: PARTIAL_ROWS: as a run left it" and first[-1].startswith("Now: PASS")
    _stop(ledger, "FOREIGN_ITEM")
    assert operator.execute(_context(task_context, "ada"))[0] == first[0]
    assert _stop_code(ledger) == "FOREIGN_ITEM"


def test_nobody_decides_without_a_name(mirror: Mirror, ledger: Engine, task_context: dict[str, Any]) -> None:
    _stop(ledger, "PARTIAL_ROWS")
    with pytest.raises(TerminalError, match="ARGUMENT_INVALID"):
        DecideOperator(task_id="decide", mirror_file=str(mirror.file)).execute(_context(task_context, None))
    assert _stop_code(ledger) == "PARTIAL_ROWS"


def test_a_run_accepts_a_new_table_and_another_one_resumes_reading(mirror: Mirror, ledger: Engine) -> None:
    _stop(ledger, NEW_TABLE)
    assert _run(decision=ACCEPT_TABLE, table=ORDERS, reason="ticket 1").state == "success"
    assert _stop_code(ledger) is None
    c = tables.mirror.c
    with ledger.begin() as db:
        db.execute(tables.mirror.update().values(stop_code="LOG_CHANGED", stop_what="x"))
    assert _run(decision=RESUME_EXTRACTION, reason="ticket 2").state == "success"
    with ledger.connect() as db:
        assert db.execute(sa.select(c.name, c.stop_code)).tuples().one() == ("shop", None)
    assert [event for event, _, _ in _audited(ledger)] == ["TABLE_ACCEPTED", "EXTRACTION_RESUMED"]


@pytest.fixture
def made(mirrors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HandMadeMirror:
    """A mirror with a log, in a folder that ``dags/`` reads."""
    monkeypatch.setenv("OPEN_MIRRORING_MIRRORS", str(tmp_path / "mirrors"))
    monkeypatch.setattr("open_mirroring_airflow.dag_factory.RETRIES", 0)
    return HandMadeMirror(tmp_path)


LOW, HIGH = "0000000A:01:1", "0000000B:01:1"


def test_a_run_accepts_a_stream_that_began_anew_g_01(made: HandMadeMirror) -> None:
    made.accept(ORDERS, GUID, 0)
    made.commit(1, {ORDERS: (1, LOW)})
    made.commit(2, {ORDERS: (1, LOW)}, epoch=OTHER_GUID)
    made.stop(ORDERS, "EPOCH_UNKNOWN")
    assert _run(decision=ACCEPT_EPOCH, table=ORDERS, subject=OTHER_GUID, reason="restored").state == "success"
    assert made.table(ORDERS).stop_code is None
    assert made.reader.epochs([made.ids[ORDERS]]) == {made.ids[ORDERS]: {GUID: 0, OTHER_GUID: 1}}
    assert _audited(made.ledger) == [("EPOCH_ACCEPTED", "dag_test", "restored")]


def test_a_run_accepts_a_full_load_that_came_again_g125(made: HandMadeMirror) -> None:
    """It records the decision; a tick finds the load in the log, and builds the table from it."""
    made.commit(1, {ORDERS: (1, LOW)})
    made.stop(ORDERS, RELOAD_SEEN)
    assert _run(decision=ACCEPT_RELOAD, table=ORDERS, reason="the task was reloaded").state == "success"
    state = made.table(ORDERS)
    assert state.stop_code == RELOAD_SEEN and state.start.accepted == ("dag_test", "the task was reloaded")
    assert _audited(made.ledger) == [("RELOAD_ACCEPTED", "dag_test", "the task was reloaded")]


@pytest.mark.parametrize("renamed_to", [None, "remark"])
def test_a_run_says_what_became_of_a_column_g_60(made: HandMadeMirror, renamed_to: str | None) -> None:
    made.accept(ORDERS, GUID, 0)
    for name, position in (("note", LOW), ("remark", HIGH)):
        made.list_columns(ORDERS, [["order_id", "int", 0], [name, "nvarchar(9)", 1]], position)
    made.commit(1, {ORDERS: (2, HIGH)})
    made.stop(ORDERS, "RENAME_POSSIBLE")
    run = _run(decision=ACCEPT_SCHEMA, table=ORDERS, subject="note", renamed_to=renamed_to, reason="ticket 7")
    assert run.state == "success"
    (records,) = made.reader.column_records([made.table(ORDERS)]).values()
    assert [(word.column, word.now) for word in records.decided] == [("note", renamed_to)]
    # With a column of another name the table waits until it is loaded anew.
    assert made.table(ORDERS).stop_code == ("COLUMN_RENAMED" if renamed_to else None)


def test_a_run_accepts_dead_letters_of_a_table_or_those_of_none(made: HandMadeMirror) -> None:
    made.commit(1, {ORDERS: (1, LOW)})
    made.set_mirror(homeless_rejects=1)
    for place, (source, code) in enumerate([(ORDERS, "A"), (ORDERS, "B"), (None, "A"), ("dbo.customers", "A")], 1):
        made.letter(place, source, code=code)

    def places() -> list[int]:
        with made.ledger.connect() as db:
            return list(db.scalars(sa.select(tables.open_letter.c.place).order_by(tables.open_letter.c.place)))

    assert _run(decision=ACCEPT_LETTERS, table=ORDERS, subject="A", reason="seen").state == "success"
    assert places() == [2, 3, 4]
    assert _run(decision=ACCEPT_LETTERS, subject="A", reason="seen").state == "success"
    assert places() == [2, 4]
    assert [event for event, _, _ in _audited(made.ledger)] == ["LETTERS_ACCEPTED"] * 2


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"decision": ACCEPT_EPOCH, "table": ORDERS, "subject": "9e1f"}, "COMMAND_REFUSED.*dbo.orders.*9e1f"),
        ({"decision": ACCEPT_SCHEMA, "table": ORDERS, "subject": "note"}, "ARGUMENT_INVALID.*note"),
        ({"decision": ACCEPT_LETTERS, "subject": "MESSAGE_INVALID"}, "ARGUMENT_INVALID"),
        ({"decision": RESUME, "table": "dbo.nothing"}, "ARGUMENT_INVALID.*dbo.nothing"),
    ],
)
def test_the_fields_of_the_form_reach_the_decision_which_refuses_what_is_not_there(
    mirror: Mirror, ledger: Engine, task_context: dict[str, Any], fields: dict[str, str], refused: str
) -> None:
    context = _context(task_context, "ada")
    context["params"] = {"table": None, "subject": None, "renamed_to": None, "reason": "ticket 4711", **fields}
    with pytest.raises(TerminalError, match=refused):
        DecideOperator(task_id="decide", mirror_file=str(mirror.file)).execute(context)
    assert _audited(ledger) == []


def test_every_decision_says_what_it_lacks_and_refuses_what_it_does_not_take() -> None:
    every = {"table": ORDERS, "subject": "x", "renamed_to": "y"}
    for action, form in DECISIONS.items():
        takes = {name: every[name] for name in (*form.needs, *form.may_have)}
        assert chosen_decision({"decision": action, **takes}) == (action, takes)
        for name in form.needs:
            with pytest.raises(TerminalError, match=f"ARGUMENT_INVALID.*is missing: .*{name}"):
                chosen_decision({"decision": action, **takes, name: None})
        for name in every.keys() - takes.keys():
            with pytest.raises(TerminalError, match=f"ARGUMENT_INVALID.*no place in it: .*{name}"):
                chosen_decision({"decision": action, **takes, name: every[name]})


def test_the_form_asks_for_decision_and_reason_and_leaves_the_rest_empty(mirror: Mirror) -> None:
    params = DagBag(dag_folder=ROOT / "dags").dags["shop__decide"].params
    assert params.get_param("decision").schema["enum"] == list(DECISIONS)
    for name, wrong in (("decision", "drop"), ("decision", None), ("reason", ""), ("reason", None), ("table", "")):
        with pytest.raises(ParamValidationError):
            params.get_param(name).resolve(wrong)
    for optional in ("table", "subject", "renamed_to"):
        param = params.get_param(optional)
        assert param.resolve() is None
        assert "enum" not in param.schema, "a list would show null as one of the values"
    assert params.get_param("table").resolve("dbo.joined_by_a_pattern") == "dbo.joined_by_a_pattern"
