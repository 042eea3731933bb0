"""Decisions without a shell: runs of ``<mirror>__decide`` in Airflow's database, and what the ledger has after them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import ParamValidationError

from open_mirroring.errors import TerminalError
from open_mirroring.ledger import tables
from open_mirroring.ledger.requests import ACCEPT_EPOCH, ACCEPT_LETTERS, ACCEPT_SCHEMA, RESUME
from open_mirroring.operate.operations import DECISIONS
from open_mirroring_airflow.operators import DecideOperator
from open_mirroring_airflow.run_params import chosen_decision
from tests.hand_made_mirror import GUID, HandMadeMirror

pytestmark = pytest.mark.airflow

ROOT = Path(__file__).resolve().parents[2]
ORDERS = "dbo.orders"


def _audited(made: HandMadeMirror) -> list[tuple[str, str, str]]:
    return [(event, detail["who"], detail["why"]) for _, event, detail in made.audit() if "why" in detail]


def _run(**conf: Any) -> Any:
    return DagBag(dag_folder=ROOT / "dags").dags["shop__decide"].test(run_conf=conf)


def test_a_run_resumes_a_table_in_the_name_of_who_started_it(made: HandMadeMirror) -> None:
    made.stop(ORDERS, "PARTIAL_ROWS", "as a run left it")
    run = _run(decision=RESUME, table=ORDERS, reason="ticket 4711")
    assert run.state == "success"
    assert made.table(ORDERS).stop_code is None
    assert run.triggering_user_name == "dag_test"
    assert _audited(made) == [("RESUMED", "dag_test", "ticket 4711")]
    with made.ledger.connect() as db:
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
    made: HandMadeMirror, code: str, fields: dict[str, str]
) -> None:
    made.stop(ORDERS, code, "as a run left it")
    assert _run(**fields, reason="ticket 4711").state == "failed"
    assert (made.table(ORDERS).stop_code, _audited(made)) == (code, [])


def _context(task_context: dict[str, Any], who: str | None) -> dict[str, Any]:
    task_context["dag_run"].triggering_user_name = who
    task_context["params"] = {"decision": RESUME, "table": ORDERS, "reason": "ticket 4711"}
    return task_context


def test_a_run_decides_once_and_a_cleared_one_lifts_no_later_stop_g_30(
    made: HandMadeMirror, task_context: dict[str, Any]
) -> None:
    operator = DecideOperator(task_id="decide", mirror_file=str(made.file))
    made.stop(ORDERS, "PARTIAL_ROWS", "as a run left it")
    first = operator.execute(_context(task_context, "ada"))
    assert first[0] == "Cleared: PARTIAL_ROWS: as a run left it" and first[-1].startswith("Now: PASS")
    made.stop(ORDERS, "FOREIGN_ITEM")
    assert operator.execute(_context(task_context, "ada"))[0] == first[0]
    assert made.table(ORDERS).stop_code == "FOREIGN_ITEM"


def test_nobody_decides_without_a_name(made: HandMadeMirror, task_context: dict[str, Any]) -> None:
    made.stop(ORDERS, "PARTIAL_ROWS", "as a run left it")
    with pytest.raises(TerminalError, match="ARGUMENT_INVALID"):
        DecideOperator(task_id="decide", mirror_file=str(made.file)).execute(_context(task_context, None))
    assert made.table(ORDERS).stop_code == "PARTIAL_ROWS"


LOW, HIGH = "0000000A:01:1", "0000000B:01:1"


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
    made: HandMadeMirror, task_context: dict[str, Any], fields: dict[str, str], refused: str
) -> None:
    context = _context(task_context, "ada")
    context["params"] = {"table": None, "subject": None, "renamed_to": None, "reason": "ticket 4711", **fields}
    with pytest.raises(TerminalError, match=refused):
        DecideOperator(task_id="decide", mirror_file=str(made.file)).execute(context)
    assert _audited(made) == []


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


def test_the_form_asks_for_decision_and_reason_and_leaves_the_rest_empty(made: HandMadeMirror) -> None:
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
