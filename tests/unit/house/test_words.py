"""The check of words finds what no text of the product may say, and lets sound texts through."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

CHECK = runpy.run_path(str(Path(__file__).resolve().parents[3] / ".ci" / "words.py"))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("no message tells the old key", "'tells'"),
        ("load the whole table anew", "'anew'"),
        ("3 letters are open", "'letters'"),
        ("somebody has to mend it", "'somebody'"),
        ("the table stops (G-07)", "a rule id, G-07"),
        ("word " * 26, "a sentence of 26 words"),
    ],
)
def test_a_word_an_id_and_a_long_sentence_are_found(text: str, fault: str) -> None:
    assert any(finding.fault.startswith(fault) for finding in CHECK["findings"](text, "x.py:1", message=True))


def test_sound_texts_pass_and_a_document_is_read_without_code() -> None:
    sound = "3 dead letters are open. Use lower-case letters, digits; * stands for any characters"
    assert [*CHECK["findings"](sound, "x.py:1", message=True)] == []
    page = CHECK["document"]("`tell it`\n\n```sh\nsay it\n```\n[link](anew.md) <b>bold</b>\n")
    assert [*CHECK["findings"](page, "x.md:1", message=False)] == []


def test_a_rule_that_takes_its_heading_for_a_subject_is_found() -> None:
    rules = "### C-01 Empty texts\n\nAre kept as they are.\n\n### C-02 NULL\n\nNULL is kept. Is it empty?\n"
    (finding,) = CHECK["headless"](rules, "rules.md")
    assert finding.place == "rules.md:3"
    assert finding.text.startswith("Are kept")


def test_texts_of_code_are_read_and_docstrings_are_not() -> None:
    source = '"""Tells it anew."""\nraise ValueError(f"{name} is not told by it")\nX = "SELECT whole FROM it all"\n'
    assert [*CHECK["messages"](source)] == [(2, "X is not told by it")]
