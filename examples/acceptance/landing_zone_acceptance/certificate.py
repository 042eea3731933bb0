"""The certificate: each exercise's verdict as a table in Markdown, and every trial that did not end right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from landing_zone_acceptance.exercises import EXERCISES, Exercise
from landing_zone_acceptance.judge import Verdict, worst
from landing_zone_acceptance.world import Lab, Mode, Trial
from landing_zone_acceptance.writer import Adapter


class Result(NamedTuple):
    """The trials of one exercise in one mode, and the breaches of the zone's rules that were seen."""

    title: str
    mode: Mode
    trials: list[Trial]
    breaches: list[str]

    @property
    def verdict(self) -> Verdict:
        """The worst of its trials."""
        return worst(trial.verdict for trial in self.trials)


def examine(
    folder: Path, adapter: type[Adapter], modes: Sequence[Mode], exercises: Sequence[Exercise] = EXERCISES
) -> Iterator[Result]:
    """Let a writer do exercises; *folder* is empty, and empty again afterwards."""
    for exercise in exercises:
        for mode in modes:
            with Lab(folder, adapter, mode) as lab:
                trials = list(exercise.trials(lab))
            yield Result(exercise.title, mode, trials, list(lab.breaches))


def certificate(writer: str, results: Sequence[Result]) -> str:
    """The certificate of a writer."""
    modes = list(dict.fromkeys(result.mode for result in results))
    lines = [f"# {writer}: acceptance of its landing zone", "", f"| Exercise | {' | '.join(modes)} |"]
    lines.append("|---" * (len(modes) + 1) + "|")
    for title in dict.fromkeys(result.title for result in results):
        cells = [_cell(result) for result in results if result.title == title]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    remarks = [
        f"- {result.title}, {result.mode}: {trial.what}: **{trial.verdict}**. {trial.remark}"
        for result in results
        for trial in result.trials
        if trial.verdict is not Verdict.RIGHT
    ]
    breaches = {f"- {breach}" for result in results for breach in result.breaches}
    for heading, found in (("Trials that did not end right", remarks), ("Breaches of the rules", sorted(breaches))):
        if found:
            lines += ["", f"## {heading}", "", *found]
    return "\n".join(lines) + "\n"


def _cell(result: Result) -> str:
    if not result.trials:
        return "not possible with this writer"
    return f"{result.verdict} ({len(result.trials)} trials)"
