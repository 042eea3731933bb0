"""The acceptance suite of examples/acceptance: it finds the faults of a naive writer, and none of ours."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from landing_zone_acceptance.__main__ import main
from landing_zone_acceptance.adapters.naive import NaiveWriter
from landing_zone_acceptance.adapters.open_mirroring import OpenMirroring
from landing_zone_acceptance.certificate import Result, certificate, examine
from landing_zone_acceptance.exercises import EXERCISES, Exercise
from landing_zone_acceptance.judge import Verdict
from landing_zone_acceptance.world import Lab, Mode, Trial

BY_TITLE = {exercise.title: exercise for exercise in EXERCISES}


@pytest.mark.parametrize(
    ("title", "what", "verdict"),
    [
        ("rapid changes", "a life within one run", Verdict.RIGHT),
        ("schema and key change", "a column is added", Verdict.BLOCKS),
        ("key change", "a key that is new", Verdict.LOSES),
        ("lost state", "the zone has its files", Verdict.DOUBLES),
        ("two publishers, foreign files", "a foreign file at the moment of publication", Verdict.OVERWRITES),
    ],
)
def test_a_naive_writer_reaches_each_verdict(title: str, what: str, verdict: Verdict, tmp_path: Path) -> None:
    with Lab(tmp_path, NaiveWriter, Mode.PERMISSIVE) as lab:
        trial = next(trial for trial in BY_TITLE[title].trials(lab) if trial.what == what)
    assert trial.verdict is verdict, trial
    assert "an empty file under a final name" in lab.breaches, "it creates a file before it has content"


def test_a_certificate_shows_the_worst_trial_and_every_remark() -> None:
    trials = [Trial("a", Verdict.RIGHT, ""), Trial("b", Verdict.LOSES, "1 row"), Trial("c", Verdict.BLOCKS, "why")]
    results = [
        Result("rapid changes", Mode.STRICT, trials, ["number 3 is missing"]),
        Result("lost state", Mode.STRICT, [], []),
    ]
    text = certificate("mine", results)
    assert "| rapid changes | loses (3 trials) |" in text and "| lost state | not possible with this writer |" in text
    assert "b: **loses**. 1 row" in text and "c: **blocks and says so**. why" in text and "number 3 is missing" in text


def test_the_command_line_reports_harm_by_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    harm = Exercise("rapid changes", lambda lab: iter([Trial("a", Verdict.LOSES, "")]))
    monkeypatch.setattr(sys.modules[main.__module__], "EXERCISES", (harm,))
    assert main(["naive", "--mode", "strict", "--exercise", "1"]) == 1
    assert "| rapid changes | loses (1 trials) |" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.title)
def test_open_mirroring_is_right_or_blocks(exercise: Exercise, tmp_path: Path) -> None:
    (result,) = examine(tmp_path, OpenMirroring, [Mode.STRICT], [exercise])
    assert result.trials and result.verdict <= Verdict.BLOCKS and not result.breaches, certificate("ours", [result])
    if exercise.title not in ("lost state", "schema and key change", "two publishers, foreign files"):
        assert result.verdict is Verdict.RIGHT, certificate("ours", [result])
