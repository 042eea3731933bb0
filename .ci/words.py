"""Finds words in what a person reads that this product does not use, long sentences and rule ids in messages.

It also finds rules that cannot be read without their heading.

``python .ci/words.py``, a part of `make lint`. Messages are the texts of the code: errors, output, help, settings. A
document is read without its blocks of code and quoted names.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CODE = ("open_mirroring", "spark_jobs", "plugins", "demo")
TEMPLATES = ("open_mirroring/page/templates",)
DOCUMENTS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs")
RULES = "docs/rules/"
LONGEST = 25

WORDS = {
    r"\b(?:told|untold|tells?)\b": "shows, contains, reports; unknown, not reported; apart: distinguish",
    r"\bsay (?:so|it)\b|\bsay `|\bgives? the word\b": "confirm; set; run",
    r"\bnothing says\b|\bsays nothing\b": "not known, not set",
    r"\banew\b|\bonce more\b": "again; from scratch",
    r"\bno more\b(?! than)": "no longer",
    r"\bbeside\b": "next to; compared with; in addition to",
    r"\bstands?\b(?!(?: for| in for| alone|-in)\b)|\bstood\b|\blies\b|\blay\b": "is, is stored",
    r"\bwhole\b(?! numbers?\b)": "complete, entire",
    r"\bways? out\b": "fix, next step",
    r"(?<!dead[ -])(?<!case )(?<!case of )\bletters?\b(?!, digits)": "dead letter",
    r"\bhomeless\b": "without a table",
    r"\b(?:some|no)body\b|\bwhoever\b": "an operator; no one; the person who",
    r"\bas far as one looks\b|\bby now\b|\bas ever\b": "(leave out)",
    r"\bmay be another\b": "may differ",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bthe way of a change\b": "pipeline",
    r"\bis like this\b": "matches",
    r"\btakes (?:inserts|columns|messages)\b": "reads, accepts, includes",
    r"\b(?:brings|brought)\b": "contains, adds",
    r"\blook(?:s|ed)? after\b": "check",
}
"""What a text does not say, and what it says instead: the table of words of the house."""

HALF_SENTENCES = re.compile(
    r"(?:always|and|are|be|begins?|but|can|comes|contains|drops|gives|goes|ha[ds]|have|holds|inserts|is|makes|may|means|must"
    r"|never|nor|not|of|or|reported|required|rises|says|shows|stays|takes|upserts|was|were|which|whose)\b",
    re.IGNORECASE,
)
"""What the first sentence of a rule does not begin with: its subject would be the heading."""

_WORDS = {re.compile(pattern, re.IGNORECASE): better for pattern, better in WORDS.items()}
_RULE_ID = re.compile(r"\b(?:G-1\d\d|[CFGKORST]-\d\d|I[1-9]\d?)\b")
_PROSE = re.compile(r"[A-Za-z`,)]+ [a-z]+ [a-z]+|^[a-z]+ `|^[a-z]+ [a-z]+: ")
_SQL = re.compile(r"^\W*(?:SELECT|CREATE|UPDATE|DELETE|INSERT)\b|\bSELECT\b.*\bFROM\b")
_QUOTED = re.compile(r"`[^`\n]*`")
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_RULE_BODY = re.compile(r"^### .*\n+(.*)", re.MULTILINE)
_SENTENCE_ENDS = re.compile(r"(?<=[.!?:;])\s|\n\n|\n\||\n- |\|")


class Finding(NamedTuple):
    """One text to write again."""

    place: str
    fault: str
    text: str


def findings(text: str, place: str, *, message: bool) -> Iterator[Finding]:
    """What is wrong with a text; sentences and rule ids only of a message."""
    for pattern, better in _WORDS.items():
        yield from (Finding(place, f"{found[0]!r}: {better}", _around(text, found)) for found in pattern.finditer(text))
    if message:
        yield from (Finding(place, f"a rule id, {found[0]}", _around(text, found)) for found in _RULE_ID.finditer(text))
        for sentence in _SENTENCE_ENDS.split(text):
            if (words := len(sentence.split())) > LONGEST:
                yield Finding(place, f"a sentence of {words} words", " ".join(sentence.split()))


def headless(text: str, place: str) -> Iterator[Finding]:
    """The rules whose first sentence has no subject but the heading above it."""
    for body in _RULE_BODY.finditer(text):
        if HALF_SENTENCES.match(body[1]):
            line = text.count("\n", 0, body.start(1)) + 1
            yield Finding(f"{place}:{line}", "begin with the subject, not with a verb for the heading", body[1])


def messages(source: str) -> Iterator[tuple[int, str]]:
    """The texts of a module that read like sentences, with their lines; a name put into one counts as a word."""
    tree = ast.parse(source)
    left_out: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out.add(node.value)  # a docstring
        elif isinstance(node, ast.JoinedStr):
            left_out.update(part for part in node.values if isinstance(part, ast.Constant))
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in left_out:
            text = node.value
        if _PROSE.search(text) and not _SQL.search(text):
            yield getattr(node, "lineno", 0), text


def document(text: str) -> str:
    """A document or template without code, quoted names and markup; its lines keep their numbers."""
    for pattern in (_FENCED, re.compile(r"<style.*?</style>", re.DOTALL), re.compile(r"\{[{%#].*?[}%#]\}", re.DOTALL)):
        text = pattern.sub(lambda found: "\n" * found[0].count("\n"), text)
    return re.sub(r"\]\([^)]*\)|<[^>\n]*>", " ", _QUOTED.sub("`x`", text))


def all_findings() -> list[Finding]:
    """What is wrong with the messages, templates and documents of the project."""
    found = [
        finding
        for path in _files(CODE, ".py")
        for line, text in messages(path.read_text(encoding="utf-8"))
        for finding in findings(_QUOTED.sub("`x`", text), f"{_shown(path)}:{line}", message=True)
    ]
    for path in (*_files(TEMPLATES, ".html"), *_files(DOCUMENTS, ".md")):
        text = document(path.read_text(encoding="utf-8"))
        if _shown(path).startswith(RULES):
            found += headless(text, _shown(path))
        for paragraph in re.finditer(r"(?:\S.*\n?)+", text):
            line = text.count("\n", 0, paragraph.start()) + 1
            found += findings(" ".join(paragraph[0].split()), f"{_shown(path)}:{line}", message=False)
    return found


def _files(places: Sequence[str], suffix: str) -> Iterator[Path]:
    for place in (ROOT / place for place in places):
        yield from [place] if place.is_file() else sorted(place.rglob(f"*{suffix}"))


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _around(text: str, found: re.Match[str]) -> str:
    return " ".join(text[max(0, found.start() - 60) : found.end() + 60].split())


def main() -> int:
    """Print what is wrong, a line each; 1 when there is anything."""
    found = all_findings()
    for finding in found:
        print(f"{finding.place}: {finding.fault} in: {finding.text}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
