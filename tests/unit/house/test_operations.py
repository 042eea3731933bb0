"""An operation is declared once, and then it is everywhere: a command, a DAG or a decision in Airflow, on the page."""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

import pytest

from open_mirroring.ledger import requests
from open_mirroring.operate import operations
from open_mirroring.operate.arguments import Argument, argument, command_words, flag, positive
from open_mirroring.operate.operations import DECISIONS, OPERATIONS, Operation
from open_mirroring_airflow import dag_docs
from spark_jobs.cli.command_line import _parser

ROOT = Path(__file__).resolve().parents[3]
NAMES = {one.name: name for name, one in vars(operations).items() if isinstance(one, Operation)}


def each_operation() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)


@each_operation()
def test_every_operation_is_a_command_with_all_its_arguments(operation: Operation) -> None:
    commands = next(one for one in _parser()._actions if isinstance(one, argparse._SubParsersAction))
    command = commands.choices[operation.name]
    known = {name for action in command._actions for name in (action.option_strings or [action.dest])}
    assert {one.name for one in operation.arguments if one.name} <= known
    assert operation.run or operation.job, "else nothing does it"


@each_operation()
def test_every_operation_that_needs_spark_has_a_dag_and_every_other_one_is_a_decision(operation: Operation) -> None:
    in_dags = [one for _, one in dag_docs.DAGS.values()]
    assert (operation in in_dags) is bool(operation.job) or operation is operations.BACKFILL
    if operation in in_dags:
        name = next(name for name, (_, one) in dag_docs.DAGS.items() if one is operation)
        text = dag_docs.text(name, "shop", gate_minutes=1)
        assert all(f"`{one.field}`: {one.says}" in text for one in operation.fields)


def test_every_decision_is_in_the_form_of_airflow_and_on_the_page() -> None:
    told = dag_docs.text("decide", "shop", gate_minutes=1)
    assert [name for name in DECISIONS if f"| `{name}` | " not in told] == []
    tree = ast.parse((ROOT / "open_mirroring" / "page" / "ways_out.py").read_text(encoding="utf-8"))
    offered = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {NAMES[name] for name in DECISIONS} <= offered


def test_the_ledger_knows_each_decision_by_its_name() -> None:
    assert DECISIONS.keys() <= {value for value in vars(requests).values() if isinstance(value, str)}


def test_what_a_form_says_is_what_the_command_line_takes() -> None:
    takes: tuple[Argument, ...] = (
        argument("--table", "x"),
        flag("--again", "x"),
        argument("--number", "x", type=positive),
    )
    words = command_words(takes, {"table": "dbo.a b", "again": True, "number": 3, "other": "no argument of it"})
    assert words == ["--table=dbo.a b", "--again", "--number=3"]
    assert command_words(takes, {"table": " ", "again": False, "number": None}) == []


def test_a_command_to_copy_has_what_is_known_and_names_what_is_not() -> None:
    file = Path("mirrors/my shop.yaml")
    assert operations.RELOAD.command(file, table="dbo.it's") == (
        "open-mirroring reload-table 'mirrors/my shop.yaml' --table 'dbo.it'\"'\"'s' --reason TEXT --approved-by NAME"
    )
    assert operations.TICK.command(file) == "open-mirroring tick 'mirrors/my shop.yaml'"
