"""The book of rules, `docs/rules/`, beside the tests that name each rule: ``python -m tests.rules``, or `make rules`.

A test names a rule by its id, in its own name or that of its class (``..._c55``, ``..._c41_g_01_...``), in the
docstring of either, or in an ``id`` of its parameters. A docstring may name a range: *C-51 to C-55*. A module's
docstring counts for nothing: it would name rules that none of its tests proves. Tests are read, never imported.

Code, documents and comments cite ids as well, and none that the book does not have: nobody could look it up.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "docs" / "rules"
TESTS = ROOT / "tests"
EXAMPLES = TESTS / "unit" / "house" / "test_rules.py"
"""Names ids that are of no rule."""
CITING = (
    *("README.md", "CHANGELOG.md", "docs", "mirrors", "dags", "plugins", "open_mirroring", "spark_jobs"),
    *("testing", "benchmarks", "demo", "tests"),
)

Function = ast.FunctionDef | ast.AsyncFunctionDef

_ID = r"G-1[0-9]{2}|[A-Z]-[0-9]{2}|I[1-9][0-9]?"
_HEADING = re.compile(rf"### ({_ID})(°?) (\S.*)")
_ID_IN_NAME = re.compile(r"(?<![a-z0-9])(?:([a-hj-z])_?((?<=g)1[0-9]{2}|[0-9]{2})|i_?([1-9][0-9]?))(?![a-z0-9])")
_ID_IN_TEXT = re.compile(rf"\b({_ID})\b(?: to ({_ID})\b)?")
_SOURCE = "Source: "
_NAMES_SHOWN = 3


class Rule(NamedTuple):
    """An entry of the book; a *fact* needs no test, for no behaviour of the product follows from it."""

    id: str
    title: str
    is_fact: bool
    where: str


def read_book(folder: Path | None = None) -> list[Rule]:
    """All rules in the order of the book.

    Raises:
        ValueError: a heading that is no rule, a rule that stands there twice or out of order, or one without a text
            or without its source.
    """
    rules: dict[str, Rule] = {}
    for page in sorted((folder or BOOK).glob("[!A-Z]*.md")):  # README.md is no page of it
        _, *entries = re.split(r"^(?=### )", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        previous = ""
        for entry in entries:
            heading, *lines = entry.splitlines()
            # A chapter's heading ends the entry before it.
            chapter = next((at for at, line in enumerate(lines) if line.startswith("## ")), len(lines))
            text = [line for line in lines[:chapter] if line]
            match = _HEADING.fullmatch(heading)
            if match is None:
                raise ValueError(f"{page.name}: {heading!r} is no heading of a rule: '### C-22 What it is about'")
            rule = Rule(match[1], match[3], bool(match[2]), page.name)
            if rule.id in rules or (previous and _place(rule.id) < _place(previous)):
                raise ValueError(f"{page.name}: {rule.id} stands there twice, or behind {previous}")
            if len(text) < 2 or not any(line.startswith(_SOURCE) for line in text[1:]):
                raise ValueError(f"{page.name}: {rule.id} lacks its text or the line '{_SOURCE}…' behind it")
            rules[rule.id] = rule
            previous = rule.id
    return list(rules.values())


def naming_tests(folder: Path, known: Sequence[str]) -> dict[str, list[str]]:
    """The tests that name each rule, as ``file::test``; ids that the book does not have are among the keys."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("test_*.py")):
        for name, texts in _tests(ast.parse(path.read_text(encoding="utf-8"))):
            for rule in sorted(_named(name, texts, known)):
                found[rule].append(f"{path.relative_to(folder).as_posix()}::{name}")
    return dict(found)


def uncovered(rules: Sequence[Rule], tests: Mapping[str, Sequence[str]]) -> list[Rule]:
    """The rules that are no facts and that no test names."""
    return [rule for rule in rules if not rule.is_fact and not tests.get(rule.id)]


def citations(places: Sequence[Path]) -> dict[str, str]:
    """Every id that files cite, those in folders too, and where it stands first: ``file:line`` below the project."""
    found: dict[str, str] = {}
    for path in sorted(file for place in places for file in ([place] if place.is_file() else place.rglob("*"))):
        if path.suffix not in (".py", ".md", ".yaml", ".json") or path == EXAMPLES:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for rule in re.findall(rf"\b(?:{_ID})\b", line):
                found.setdefault(rule, f"{path.relative_to(ROOT).as_posix()}:{number}")
    return found


def _place(rule: str) -> tuple[str, int]:
    """By which ids are in order: I2 before I10."""
    return rule[0], int(rule[1:].removeprefix("-"))


def _tests(module: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Each test's name, with its class, and the texts in which it may name rules."""
    for node in module.body:
        if isinstance(node, Function):
            if node.name.startswith("test"):
                yield node.name, _texts(node)
        elif isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, Function) and member.name.startswith("test"):
                    yield f"{node.name}::{member.name}", [ast.get_docstring(node) or "", *_texts(member)]


def _texts(function: Function) -> list[str]:
    parameter_ids = [
        text.value
        for decorator in function.decorator_list
        for node in ast.walk(decorator)
        if isinstance(node, ast.keyword) and node.arg in ("id", "ids")
        for text in ast.walk(node.value)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
    ]
    return [ast.get_docstring(function) or "", *parameter_ids]


def _named(name: str, texts: Sequence[str], known: Sequence[str]) -> set[str]:
    found = {
        f"{letter.upper()}-{number}" if letter else f"I{promise}"
        for letter, number, promise in _ID_IN_NAME.findall(name)
    }
    for text in texts:
        for first, last in _ID_IN_TEXT.findall(text):
            between = (rule for rule in known if last and _place(first) <= _place(rule) <= _place(last))
            found |= {first, last or first, *between}
    return found


def main() -> int:
    """Print each rule with its tests; 1 when a rule has none, or when anything cites one that the book lacks."""
    rules = read_book()
    tests = naming_tests(TESTS, [rule.id for rule in rules])
    for rule in rules:
        names = tests.get(rule.id, [])
        more = f", and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        said = "a fact" if rule.is_fact and not names else f"{len(names)} " + ", ".join(names[:_NAMES_SHOWN]) + more
        print(f"{rule.id}  {rule.title}: {said}")
    missing = uncovered(rules, tests)
    cited = citations([ROOT / place for place in CITING]) | {rule: names[0] for rule, names in tests.items()}
    unknown = sorted(cited.keys() - {rule.id for rule in rules})
    print(f"{len(rules)} rules, {sum(rule.is_fact for rule in rules)} of them facts; {len(missing)} without a test")
    for rule in missing:
        print(f"no test names {rule.id} {rule.title} ({rule.where})", file=sys.stderr)
    for rule_id in unknown:
        print(f"the book lacks {rule_id}, which {cited[rule_id]} names", file=sys.stderr)
    return 1 if missing or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
