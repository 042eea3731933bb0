"""The documentation keeps its promises: every code has its place, and every command that it names can be called."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from open_mirroring.changes import dead_letters
from open_mirroring.ledger.decisions import EPOCH_UNKNOWN
from open_mirroring.operate.exit_codes import Exit
from open_mirroring.protocols import table_stops, verdicts
from open_mirroring.protocols.table_stops import NEEDS_RESET
from spark_jobs.cli.command_line import INTERRUPTED, _parser

ROOT = Path(__file__).resolve().parents[3]
README, RUNBOOK = ROOT / "README.md", ROOT / "docs" / "runbook.md"
DOCUMENTS = (README, *sorted((ROOT / "docs").rglob("*.md")))
CODE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*\b")
# What raises, refuses or reports a code to an operator: its name, and the place of the code among the arguments.
RAISING = {"TerminalError": 0, "TransientError": 0, "UsageError": 0, "missing": 2, "stop_table": 2, "PlanStop": 0} | {
    "Refusal": 0, "Damage": 2, "Failure": 1, "refusal": 0, "Problem": 0, "Mistake": 1,
}  # fmt: skip
LOG_AS_A_WHOLE = {"LOG_UNREADABLE", "LOG_UNKNOWN_BATCH", "LOG_FILES_DIFFER"}
PASSING = {"FILE_UNREAD", "FILE_MOVED"}
LOAD_STOPS = {"KEY_DUPLICATE", "KEY_NULL", "KEY_AMBIGUOUS", "VALUE_AMBIGUOUS", "VALUE_INVALID", "LOAD_CHANGED"}


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def raised_codes() -> dict[str, str]:
    """Codes written in the product's calls, each with a place."""
    found: dict[str, str] = {}
    for room in ("open_mirroring", "spark_jobs", "plugins"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(text(path))):
                if not isinstance(node, ast.Call):
                    continue
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                at = RAISING.get(name, -1)
                if 0 <= at < len(node.args) and isinstance(node.args[at], ast.Constant):
                    code = str(node.args[at].value)  # type: ignore[attr-defined]
                    if CODE.fullmatch(code):
                        found.setdefault(code, f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def sections() -> dict[str, str]:
    """The runbook's third-level sections by each code in their headings."""
    parts = re.split(r"^#{2,3} ", text(RUNBOOK), flags=re.MULTILINE)[1:]
    found: dict[str, str] = {}
    for part in parts:
        heading, _, body = part.partition("\n")
        found |= {code: body for code in CODE.findall(heading)}
    return found


@pytest.mark.parametrize("module", [verdicts, table_stops, dead_letters])
def test_every_code_with_a_way_out_is_in_the_runbook(module: object) -> None:
    ways_out: dict[str, str] = module.WAYS_OUT  # type: ignore[attr-defined]
    assert ways_out.keys() - set(CODE.findall(text(RUNBOOK))) == set()


def test_every_code_that_is_raised_is_in_the_runbook() -> None:
    raised, named = raised_codes(), set(CODE.findall(text(RUNBOOK)))
    assert len(raised) > 100
    assert {code: place for code, place in raised.items() if code not in named} == {}


def test_every_code_that_stops_or_holds_a_table_has_a_section_with_a_way_out() -> None:
    codes = (verdicts.WAYS_OUT.keys() - LOG_AS_A_WHOLE - PASSING) | LOAD_STOPS | {"LOG_CONFLICT"}
    found = sections()
    assert codes - found.keys() == set()
    assert [code for code in sorted(codes) if "**Way out.**" not in found[code]] == []
    short = {code for code in codes if len(found[code]) < 180}
    assert short == set(), "a section says what happened, why the table does not go on, and what to do"


def test_the_runbook_says_which_stops_resume_refuses() -> None:
    paragraph = re.search(r"^`resume` refuses with `RESET_NEEDED`.*?: (.*?)\.\n", text(RUNBOOK), re.M | re.S)
    assert paragraph is not None
    assert set(CODE.findall(paragraph.group(1))) == NEEDS_RESET.keys()
    assert EPOCH_UNKNOWN not in NEEDS_RESET, "it has a sentence and a command of its own"
    assert [code for code in NEEDS_RESET if "reset" not in sections()[code]] == []


def subcommands() -> dict[str, argparse.ArgumentParser]:
    action = next(a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(action.choices)


def named_commands(document: str) -> Iterator[str]:
    """Whatever follows the program's name on one line, in prose as in examples; ``--help`` is no command."""
    yield from re.findall(r"(?<![\w-])open-mirroring +([a-z][a-z-]*)", document)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_in_the_documents_exists(path: Path) -> None:
    assert set(named_commands(text(path))) - subcommands().keys() == set()


def test_every_command_in_a_way_out_exists_and_every_command_is_documented() -> None:
    ways_out = {**verdicts.WAYS_OUT, **dead_letters.WAYS_OUT}
    named = {command for way_out in ways_out.values() for command in named_commands(way_out)}
    assert named - subcommands().keys() == set()
    documented = " ".join(map(text, DOCUMENTS))
    assert [command for command in subcommands() if not re.search(rf"[` ]{command}[` ]", documented)] == []


def test_every_example_can_be_called_as_it_stands() -> None:
    lines = [
        line
        for path in DOCUMENTS
        for block in re.findall(r"```sh\n(.*?)```", text(path), re.DOTALL)
        for line in block.splitlines()
    ]
    lines += [call for path in DOCUMENTS for call in re.findall(r"`(open-mirroring [^`]*--[^`]*)`", text(path))]
    calls = [
        shlex.split(line, comments=True) for line in lines if line.removeprefix(".venv/bin/")[:15] == "open-mirroring "
    ]
    calls = [call for call in calls if call[1:] != ["--help"]]
    assert len(calls) > 8
    for call in calls:
        _parser().parse_args(call[1:])


def test_the_page_of_operation_tells_every_exit_code() -> None:
    rows = re.findall(r"^\| (\d+) \| ", text(ROOT / "docs" / "operate.md"), re.MULTILINE)
    assert sorted(map(int, rows)) == sorted([*map(int, Exit), INTERRUPTED])


def test_links_between_the_documents_lead_somewhere() -> None:
    broken = []
    pages = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / ".github").glob("*.md")}
    assert pages > set(DOCUMENTS)
    for path in sorted(pages):
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text(path)):
            file = (path.parent / target).resolve() if target else path
            headings = re.findall(r"^#+ (.*)$", text(file), re.MULTILINE) if anchor else []
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            if not file.exists() or (anchor and anchor not in anchors):
                broken.append(f"{path.name}: {target}#{anchor}")
    assert broken == []
