"""Every rule of `docs/rules/` is named by a test, and the tool that says so sees what it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import rules
from tests.rules import naming_tests, read_book, uncovered

BOOK = """\
# A page

Some words.

## A chapter

### C-01° A fact

It is so.

Source: somewhere

### C-10 A rule

We do
this.

Source: somewhere

## Another chapter

### C-12 Another rule

We do that.

Source: somewhere
"""
TESTS = '''
"""Module: C-99 stands here for nothing."""

def helper_c77():
    """C-78"""

def test_in_the_name_c10_g_01_i_12():
    pass

class TestMany:
    """C-20."""

    def test_one_t05(self):
        """K-07 and a range, C-10 to C-12; X-13 and I4; C-123 and I100 are none."""

@pytest.mark.parametrize("x", [pytest.param(1, id="K-08 by its id"), pytest.param("K-09", id="none")], ids=["T-09"])
async def test_by_parameters(x):
    assert x != "C-98"
'''


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "page.md").write_text(BOOK, encoding="utf-8")
    (tmp_path / "README.md").write_text("### C-10 The form of an entry", encoding="utf-8")
    return tmp_path / "page.md"


def test_every_rule_is_named_by_a_test() -> None:
    """What `make rules` says: no rule without a test, and no test that names a rule which the book lacks."""
    book = read_book()
    tests = naming_tests(rules.TESTS, [rule.id for rule in book])
    assert len(book) > 100
    assert uncovered(book, tests) == []
    assert sorted(tests.keys() - {rule.id for rule in book}) == []


def test_nothing_cites_a_rule_that_nobody_can_look_up() -> None:
    """In code, comments, documents and tests: every id stands in the book."""
    cited = rules.citations([rules.ROOT / place for place in rules.CITING])
    known = {rule.id for rule in read_book()}
    assert {rule: where for rule, where in cited.items() if rule not in known} == {}
    assert len(cited) > 150


@pytest.mark.parametrize(
    ("part", "replaced", "words"),
    [
        ("### C-10 A rule", "### C-10: A rule", "no heading"),
        ("### C-10 A rule", "### C-9 A rule", "no heading"),
        ("### C-12 Another rule", "### C-10 Another rule", "twice"),
        ("### C-12 Another rule", "### C-09 Another rule", "behind C-10"),
        ("We do that.\n\n", "", "lacks its text"),
        ("We do\nthis.\n\nSource: somewhere", "We do\nthis.", "lacks its text"),
    ],
)
def test_a_book_that_is_not_in_order_is_refused(page: Path, part: str, replaced: str, words: str) -> None:
    assert part in BOOK
    page.write_text(BOOK.replace(part, replaced), encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        read_book(page.parent)


def test_tests_name_rules_in_names_docstrings_and_ids_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "test_some.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "unit" / "support.py").write_text("def test_no_test_c55(): pass", encoding="utf-8")
    one, many, by_id = (
        f"unit/test_some.py::{name}"
        for name in ("test_in_the_name_c10_g_01_i_12", "TestMany::test_one_t05", "test_by_parameters")
    )
    assert naming_tests(tmp_path, ["C-10", "C-11", "C-12"]) == {
        "C-10": [one, many],
        "G-01": [one],
        "I12": [one],
        "C-11": [many],
        "C-12": [many],
        "C-20": [many],
        "T-05": [many],
        "K-07": [many],
        "X-13": [many],
        "I4": [many],
        "K-08": [by_id],
        "T-09": [by_id],
    }


@pytest.mark.parametrize(
    ("test", "code", "words"),
    [
        ("def test_one_c10_c12(): pass", 0, "3 rules, 1 of them facts; 0 without a test"),
        ("def test_one_c10(): pass", 1, "no test names C-12 Another rule (page.md)"),
        ("def test_one_c10_c12_c13(): pass", 1, "the book lacks C-13"),
    ],
)
def test_the_command_prints_rules_with_their_tests_and_fails_on_a_gap(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], test: str, code: int, words: str
) -> None:
    (page.parent / "test_one.py").write_text(test, encoding="utf-8")
    for name, value in {"BOOK": page.parent, "TESTS": page.parent, "CITING": ()}.items():
        monkeypatch.setattr(rules, name, value)
    assert rules.main() == code
    said = capsys.readouterr()
    assert words in said.out + said.err
    assert "C-10  A rule: 1 test_one.py::test_one_c10" in said.out
    assert "C-01  A fact: a fact" in said.out


def test_the_command_fails_when_code_cites_what_the_book_lacks(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Docstrings, comments and texts alike, whether the rule's letter is known or not."""
    (page.parent / "test_one.py").write_text("def test_one_c10_c12(): pass", encoding="utf-8")
    (page.parent / "code").mkdir()
    (page.parent / "code" / "one.py").write_text('"""As C-10 asks."""\nX = "C-1, C-100"  # X-07\n', encoding="utf-8")
    values = {"BOOK": page.parent, "TESTS": page.parent, "ROOT": page.parent, "CITING": ("code",)}
    for name, value in values.items():
        monkeypatch.setattr(rules, name, value)
    assert rules.main() == 1
    assert capsys.readouterr().err == "the book lacks X-07, which code/one.py:2 names\n"
