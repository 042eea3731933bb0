"""Every rule of `docs/rules/` is named by a test, and the tool that says so sees what it should."""

from __future__ import annotations

from pathlib import Path

from tests import rules
from tests.rules import naming_tests, read_book, uncovered

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
