"""Whatever stops a table or sets a message aside has a way out, and every error that is raised names its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from open_mirroring.changes import dead_letters
from open_mirroring.protocols import table_stops, verdicts

ROOT = Path(__file__).resolve().parents[3]
# Which argument of a call is the code of a dead letter, and of a stop.
DEAD_LETTER = {"Refusal": 0, "Damage": 2, "Failure": 1}
STOP = {"PlanStop": 0, "stop_table": 2}
ERRORS = ("TerminalError", "TransientError")


def calls(*names: str) -> Iterator[tuple[str, ast.Call]]:
    """Calls of these names in the product's sources, with their place."""
    for folder in ("open_mirroring", "spark_jobs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def codes(arguments: dict[str, int]) -> dict[str, str]:
    """The codes that are written in the calls, each with a place; a code handed through is written elsewhere."""
    found: dict[str, str] = {}
    for place, call in calls(*arguments):
        assert isinstance(call.func, ast.Name)
        argument = call.args[arguments[call.func.id]]
        for choice in (argument.body, argument.orelse) if isinstance(argument, ast.IfExp) else (argument,):
            if isinstance(choice, ast.Constant):
                found.setdefault(str(choice.value), place)
    return found


def test_every_dead_letter_has_a_way_out_and_every_way_out_a_dead_letter() -> None:
    written = codes(DEAD_LETTER)
    assert len(written) > 20
    assert {code: place for code, place in written.items() if code not in dead_letters.WAYS_OUT} == {}
    assert dead_letters.WAYS_OUT.keys() - written.keys() == set()


def test_every_stop_of_extraction_and_planning_has_a_way_out() -> None:
    written = codes(STOP)
    assert len(written) > 4
    assert {code: place for code, place in written.items() if code not in table_stops.WAYS_OUT} == {}
    assert table_stops.WAYS_OUT.items() <= verdicts.WAYS_OUT.items(), "a finding tells the same way out as the stop"


@pytest.mark.parametrize("ways_out", [dead_letters.WAYS_OUT, table_stops.WAYS_OUT, verdicts.WAYS_OUT])
def test_a_way_out_says_what_to_do(ways_out: dict[str, str]) -> None:
    assert [code for code, text in ways_out.items() if len(text.split()) < 5] == []


def test_every_error_names_its_way_out() -> None:
    silent = [
        place
        for place, call in calls(*ERRORS)
        if not any(keyword.arg == "way_out" and not _is_empty(keyword.value) for keyword in call.keywords)
    ]
    assert silent == []


def _is_empty(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value
