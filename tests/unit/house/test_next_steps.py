"""Every code is in the one table, each of the table is reported by somebody, and every error names its way out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from open_mirroring import codes
from open_mirroring.codes import CODES, Kind, Lift, Trait

ROOT = Path(__file__).resolve().parents[3]
# Which argument of a call is the code of a dead letter, of a stop, of a problem; any other call hands codes through.
TELLING = {"Refusal": 0, "Damage": 2, "Failure": 1, "PlanStop": 0, "stop_table": 2, "ColumnVerdict": 3} | {
    "TerminalError": 0, "TransientError": 0, "UsageError": 0, "missing": 2, "refusal": 0, "Problem": 0, "Mistake": 1,
}  # fmt: skip
PRODUCT = ("open_mirroring", "spark_jobs", "plugins")
ERRORS = ("TerminalError", "TransientError")
MOST = 121
CODE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")


@cache
def nodes() -> tuple[list[tuple[str, ast.Call]], set[str]]:
    """The calls that tell a code, with their places, and every text of the product that may be a code."""
    story: list[tuple[str, ast.Call]] = []
    texts = set[str]()
    for path in sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")):
        if path == ROOT / "open_mirroring" / "codes.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and name_of(node) in TELLING:
                story.append((f"{path.relative_to(ROOT)}:{node.lineno}", node))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
                texts.add(node.value)
    return story, texts


def calls(*names: str) -> Iterator[tuple[str, ast.Call]]:
    """Calls of these names in the product's sources, with their place."""
    return ((place, call) for place, call in nodes()[0] if name_of(call) in names)


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def test_every_code_that_is_reported_is_in_the_table() -> None:
    found: dict[str, str] = {}
    for place, call in calls(*TELLING):
        at = TELLING[name_of(call)]
        for argument in call.args[at : at + 1]:
            for choice in (argument.body, argument.orelse) if isinstance(argument, ast.IfExp) else (argument,):
                if isinstance(choice, ast.Constant) and CODE.fullmatch(str(choice.value)):
                    found.setdefault(str(choice.value), place)
    assert len(found) > 60
    assert {code: place for code, place in found.items() if code not in CODES} == {}


def test_every_code_of_the_table_is_reported_and_there_are_few() -> None:
    assert CODES.keys() - nodes()[1] == set()
    assert len(CODES) <= MOST, "what has the same cause and the same next step is one code"


def test_every_stop_and_dead_letter_is_reported_as_what_it_is() -> None:
    for names, kind in ((("Refusal", "Damage"), Kind.LETTER), (("PlanStop", "stop_table"), Kind.STOP)):
        story = {
            str(argument.value)
            for _, call in calls(*names)
            for argument in call.args[TELLING[name_of(call)] : TELLING[name_of(call)] + 1]
            if isinstance(argument, ast.Constant)
        }
        assert story - codes.of_kind(kind) == set()


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.name)
def test_a_code_says_what_is_wrong_and_what_to_do(code: codes.Code) -> None:
    assert all(len(sentence.split()) <= 25 for sentence in re.split(r"[.:] ", code.means))
    assert code.means.endswith(".") and len(code.next_step.split()) >= 5
    assert list(code.kinds) == sorted(code.kinds, key=list(Kind).index), "the gravest kind comes first"
    assert bool(code.why_reset) <= (code.lift is Lift.RESET)
    assert "reset" in code.next_step or not code.why_reset


def test_what_the_product_does_by_a_code_fits_how_it_is_reported() -> None:
    stops, letters = codes.of_kind(Kind.STOP), codes.of_kind(Kind.LETTER)
    assert codes.WHY_RESET.keys() | codes.WHY_LOAD.keys() <= stops
    assert codes.having(Trait.HEALED_BY_COPY) | codes.having(Trait.OF_A_FILE) <= letters
    assert codes.having(Trait.ASKS_OPERATOR) <= codes.of_kind(Kind.HOLD)
    assert codes.having(Trait.RESET_HELPS) <= codes.of_kind(Kind.LOSS)
    assert codes.having(Trait.BEFORE_A_LOAD) <= codes.WHY_LOAD.keys()
    assert all(codes.having(trait) for trait in Trait)


def test_every_error_names_its_next_step() -> None:
    silent = [
        place
        for place, call in calls(*ERRORS)
        if not place.startswith("plugins")
        and not any(keyword.arg == "next_step" and not _is_empty(keyword.value) for keyword in call.keywords)
    ]
    assert silent == []


def _is_empty(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value
