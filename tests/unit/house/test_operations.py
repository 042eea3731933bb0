"""An operation is declared once, and then it is everywhere: a command, a DAG or a decision in Airflow, on the page."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from open_mirroring.operate import operations
from open_mirroring.operate.arguments import argument, command_words, flag
from open_mirroring.operate.operations import DECISIONS, OPERATIONS, Operation
from open_mirroring.page import fixes
from open_mirroring_airflow import dag_docs
from spark_jobs.cli.command_line import _parser


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_an_operation_is_a_command_and_in_airflow_as_it_is_declared(operation: Operation) -> None:
    commands = next(one for one in _parser()._actions if isinstance(one, argparse._SubParsersAction))
    taken = {name for one in commands.choices[operation.name]._actions for name in one.option_strings or [one.dest]}
    assert {one.name for one in operation.arguments if one.name} <= taken
    assert operation.run or operation.job, "else nothing does it"
    if operation.job:
        dag = next(name for name, (_, one) in dag_docs.DAGS.items() if one == operation)
        text = dag_docs.text(dag, "shop", gate_minutes=1)
        assert all(f"`{one.field}`: {one.says}" in text for one in operation.fields)
    assert not operation.label or f"| `{operation.name}` | " in dag_docs.text("decide", "shop", gate_minutes=1)


def test_every_decision_is_on_the_page() -> None:
    offered = Path(fixes.__file__).read_text(encoding="utf-8")
    names = {name for name, one in vars(operations).items() if isinstance(one, Operation) and one.label}
    assert len(names) == len(DECISIONS) and {name for name in names if f"operations.{name}" not in offered} == set()


def test_what_a_form_says_is_what_the_command_line_takes() -> None:
    takes = (argument("--table", "x"), flag("--again", "x"))
    assert command_words(takes, {"table": "dbo.a b", "again": True, "other": "x"}) == ["--table=dbo.a b", "--again"]
    assert command_words(takes, {"table": " ", "again": False}) == []
    assert operations.RELOAD.command(Path("my shop.yaml"), table="dbo.it's") == (
        "open-mirroring reload-table 'my shop.yaml' --table 'dbo.it'\"'\"'s' --reason TEXT --approved-by NAME"
    )
