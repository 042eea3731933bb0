"""The documentation keeps its promises: every code has its place, and every command that it names can be called."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from open_mirroring.codes import CODES, WHY_RESET, Kind, of_kind
from open_mirroring.ledger.decisions import EPOCH_UNKNOWN
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import INTERRUPTED, _parser

ROOT = Path(__file__).resolve().parents[3]
README, RUNBOOK = ROOT / "README.md", ROOT / "docs" / "runbook.md"
DOCUMENTS = (README, *sorted((ROOT / "docs").rglob("*.md")))
PARTS = ("Symptom", "Cause", "Fix")
CODE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*\b")


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def sections() -> dict[str, str]:
    """The runbook's third-level sections by each code in their headings."""
    parts = re.split(r"^#{2,3} ", text(RUNBOOK), flags=re.MULTILINE)[1:]
    found: dict[str, str] = {}
    for part in parts:
        heading, _, body = part.partition("\n")
        found |= {code: body for code in CODE.findall(heading)}
    return found


def test_every_code_has_its_section_with_a_next_step() -> None:
    found = sections()
    assert CODES.keys() - found.keys() == set()
    assert [code for code in CODES if not all(f"**{part}.**" in found[code] for part in PARTS)] == []


def test_the_runbook_names_no_code_that_is_none() -> None:
    headings = re.findall(r"^### ([A-Z][A-Z_]+)$", text(RUNBOOK), re.MULTILINE)
    assert set(headings) == CODES.keys() and len(headings) == len(set(headings))
    rows = {
        code for row in re.findall(r"^\| ([A-Z][A-Z_, ]+) \|", text(RUNBOOK), re.MULTILINE) for code in row.split(", ")
    }
    assert rows - CODES.keys() == set()


def test_the_runbook_says_which_stops_resume_refuses() -> None:
    refused = {
        code
        for code, section in sections().items()
        if "Only a reset of the table ends it." in " ".join(section.split())
    }
    assert WHY_RESET.keys() <= refused and not refused & of_kind(Kind.HOLD)
    assert EPOCH_UNKNOWN not in WHY_RESET, "it has a decision of its own"
    assert [code for code in WHY_RESET if "reset" not in sections()[code]] == []


def subcommands() -> dict[str, argparse.ArgumentParser]:
    action = next(a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(action.choices)


def named_commands(document: str) -> Iterator[str]:
    """Whatever follows the program's name on one line, in prose as in examples; ``--help`` is no command."""
    yield from re.findall(r"(?<![\w-])open-mirroring +([a-z][a-z-]*)", document)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_in_the_documents_exists(path: Path) -> None:
    assert set(named_commands(text(path))) - subcommands().keys() == set()


def test_every_command_in_a_next_step_exists_and_every_command_is_documented() -> None:
    named = {command for code in CODES.values() for command in named_commands(code.next_step)}
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


def test_the_page_of_operation_and_the_help_show_every_exit_code() -> None:
    assert all(f"  {int(code)}  " in _parser().format_help() for code in Exit)
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
