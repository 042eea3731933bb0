"""Hundreds of odd inputs: the mirrored table equals the source's, or the run reports it. Nothing is silent.

Each case is a table in tests/odd_*.py whose generator knows its true rows; the tables of one kind are one mirror, run
by `open-mirroring tick` and applied by the emulator. Told is: a tick ended with another code than 0, and the table has
another verdict than PASS (G-04, G-06, G-13); where no message can tell, a note of the run. tests/odd/known.py lists
strictly what is reported by a note alone, and what is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.odd import ces, change_tables, loads, messages, mirrors
from tests.odd.inputs import Result, Source, run
from tests.odd.known import NOTED, ORDINARY, SILENT

KINDS: dict[str, tuple[ModuleType, dict[str, Any]]] = {
    "events": (ces, {"overdue": True}),
    "messages": (messages, {"overdue": True, **messages.SETTINGS}),
    "change tables": (change_tables, {"overdue": True, **change_tables.SETTINGS}),
    "loads": (loads, {}),
    "mirrors": (mirrors, {}),
}
REASONS = {name: reason for reason, names in SILENT.items() for name in names.split()}
BY_A_NOTE = {name for names in NOTED.values() for name in names.split()}


def cases() -> Iterator[Any]:
    for kind, (module, _) in KINDS.items():
        for name in module.CASES:
            marks = [pytest.mark.xfail(strict=True, reason=REASONS[name])] if name in REASONS else []
            yield pytest.param(kind, name, id=name, marks=marks)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Callable[[str, str], Result]:
    """What became of a case; the mirror that it is part of runs when the first of them is asked for."""
    known: dict[str, Result] = {}

    def of(kind: str, name: str) -> Result:
        if name not in known:
            module, settings = KINDS[kind]
            wanted: Source = module.CASES[name]()
            together = [wanted] if wanted.alone else [s for s in (b() for b in module.CASES.values()) if not s.alone]
            folder = tmp_path_factory.mktemp(kind.replace(" ", "_")) / "mirror"
            known.update(run(folder, spark, together, **{**settings, **(wanted.settings if wanted.alone else {})}))
        return known[name]

    return of


@pytest.mark.parametrize(("kind", "name"), list(cases()))
def test_nothing_differs_in_silence(kind: str, name: str, outcome: Callable[[str, str], Result]) -> None:
    """Equal, or told: by the table's verdict and the run's exit code, or by a note of the run."""
    found = outcome(kind, name)
    if name in BY_A_NOTE:
        assert found.silent, "told by more than a note: it is none of NOTED"
        assert found.notes, f"exits {found.exits}, {found.verdict}: {found.detail}"
        return
    assert not found.silent, f"exits {found.exits}, {found.verdict}, dead letters {found.letters}: {found.detail}"


@pytest.mark.parametrize("name", sorted(ORDINARY.split()))
def test_what_is_sound_is_mirrored_and_stops_nothing(name: str, outcome: Callable[[str, str], Result]) -> None:
    """A stop of everything is no success: odd spellings of sound input come out equal, and nothing is reported."""
    (kind,) = (kind for kind, (module, _) in KINDS.items() if name in module.CASES)
    found = outcome(kind, name)
    assert (found.equal, found.told) == (True, False), f"{found.verdict} {found.letters}: {found.detail}"


def test_the_lists_name_cases_that_are_there() -> None:
    there = {name for module, _ in KINDS.values() for name in module.CASES}
    lists = [*SILENT.values(), *NOTED.values(), ORDINARY]
    named = [name for names in lists for name in names.split()]
    assert set(named) <= there
    assert len(named) == len(set(named)), "each once"
