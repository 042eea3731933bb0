"""The real extract machine under every interleaving, and without each of its rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from open_mirroring.protocols import extracting as x

from . import extract_ablations as without
from .extract_ports import ChangeLog, Ledger, Maintenance
from .extract_state import (
    BINDING,
    COMPLETED_IN_LOG,
    FILES_THERE,
    RANGES_ONCE,
    ROWS_ONCE,
    SEALED_ONLY,
    STOP_CAUSE,
    Bounds,
)
from .extract_world import COMPARED, ExtractWorld
from .machines import ExtractMachine
from .search import Outcome, search

WORLDS = {
    "two writers, late commits, maintenance": Bounds(),
    "late ledger writes": Bounds(writers=3, late_kinds=(x.Acquire, *COMPARED, x.CommitLog), maintenance=0),
    "two maintenance runs": Bounds(late=0, maintenance=2),
    "three writers": Bounds(writers=3),
    "three batches": Bounds(late=0, ranges=3),
}
LONG_WORLDS = {
    "three writers, two late commits": Bounds(writers=3, late=2),
    "two late commits, two maintenance runs": Bounds(late=2, maintenance=2),
}


def explored(bounds: Bounds, **variant: Any) -> Outcome:
    outcome = search(ExtractWorld(bounds, **variant))
    print(f"{outcome.states} states, {outcome.transitions} transitions")
    return outcome


@pytest.mark.parametrize("name", WORLDS)
def test_every_interleaving_keeps_the_invariants_and_can_finish(name: str) -> None:
    """I1, I2, I19, I20, I29: each range in one batch, each batch in the log once, and every state reaches the end."""
    outcome = explored(WORLDS[name])
    assert outcome.finding is None, f"\n{outcome.finding}"
    assert outcome.complete
    assert outcome.states > 1000


@pytest.mark.long
@pytest.mark.parametrize("name", LONG_WORLDS)
def test_larger_worlds_keep_the_invariants_and_can_finish(name: str) -> None:
    """As above, with more writers, more late commits and more maintenance."""
    outcome = explored(LONG_WORLDS[name])
    assert outcome.finding is None, f"\n{outcome.finding}"
    assert outcome.complete


@dataclass(frozen=True)
class Ablation:
    """A rule taken away, the smallest world that shows it, and the invariant that must break first."""

    breaks: str
    bounds: Bounds = field(default=Bounds(ranges=1, late=0, maintenance=0))
    machine: type[ExtractMachine] = ExtractMachine
    log: type[ChangeLog] = ChangeLog
    maintenance: type[Maintenance] = Maintenance
    unconditional: tuple[type, ...] = (x.Acquire,)
    unchecked: frozenset[str] = field(default=frozenset())


MAINTAINED = Bounds(ranges=1, late=0)
ABLATIONS = {
    "no CAS of the binding": Ablation(RANGES_ONCE, unconditional=(x.Acquire, x.Bind)),
    "no CAS of the seal": Ablation(BINDING, unconditional=(x.Acquire, x.Seal)),
    "no CAS of the seal, and then": Ablation(
        SEALED_ONLY, unconditional=(x.Acquire, x.Seal), unchecked=frozenset({BINDING})
    ),
    "no CAS at all": Ablation(RANGES_ONCE, unconditional=(x.Acquire, *COMPARED)),
    "no seal": Ablation(
        STOP_CAUSE, machine=without.CommitsUnsealed, unchecked=frozenset({SEALED_ONLY, COMPLETED_IN_LOG})
    ),
    "commit on any state": Ablation(ROWS_ONCE, log=without.CommitsOnAnyState),
    "commit on any state, late": Ablation(
        ROWS_ONCE, Bounds(writers=1, ranges=1, late=1, maintenance=0), log=without.CommitsOnAnyState
    ),
    "commit without looking": Ablation(
        ROWS_ONCE, machine=without.CommitsWithoutLooking, unchecked=frozenset({COMPLETED_IN_LOG})
    ),
    "first answer believed": Ablation(COMPLETED_IN_LOG, machine=without.BelievesTheFirstAnswer),
    "unknown outcome taken for done": Ablation(COMPLETED_IN_LOG, machine=without.TakesUnknownForDone),
    "maintenance touches the open batch": Ablation(FILES_THERE, MAINTAINED, maintenance=without.TouchesOpenBatch),
    "maintenance compacts the open batch": Ablation(
        STOP_CAUSE, MAINTAINED, maintenance=without.TouchesOpenBatch, unchecked=frozenset({FILES_THERE})
    ),
    "maintenance reads the log before the ledger": Ablation(
        FILES_THERE, MAINTAINED, maintenance=without.ReadsLogBeforeLedger
    ),
    "batch looked for by its files, then compacted": Ablation(ROWS_ONCE, MAINTAINED, log=without.SearchesByFiles),
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_each_rule_taken_away_has_a_counterexample(name: str) -> None:
    """Every protective rule is needed: without it the named invariant breaks."""
    ablation = ABLATIONS[name]
    ledger = Ledger()
    ledger.unconditional = ablation.unconditional
    outcome = explored(
        ablation.bounds,
        machine=ablation.machine(),
        ledger=ledger,
        log=ablation.log(),
        maintenance=ablation.maintenance(),
        unchecked=ablation.unchecked,
    )
    print(outcome.finding)
    assert outcome.finding is not None, "no counterexample: either the rule is not needed, or the world cannot show it"
    assert outcome.finding.invariant == ablation.breaks, f"\n{outcome.finding}"
    whole = explored(ablation.bounds)
    assert whole.finding is None, f"with the rule the same world is safe\n{whole.finding}"
