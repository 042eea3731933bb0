"""The real publish machine under every interleaving, and without each of its rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from open_mirroring.protocols import publishing as p

from . import publish_ablations as without
from .machines import PublishMachine
from .publish_ports import Ledger, Store
from .publish_rules import (
    BINDING,
    EXACT_CONTENT,
    NO_GAP,
    OLD_INCARNATION,
    SEALED_ONLY,
    STOP_CAUSE,
    WRITE_ONCE,
)
from .publish_state import Bounds
from .publish_world import COMPARED, PublishWorld
from .search import DEAD_END, Outcome, search

FRESH = Bounds(established=False, late_kinds=(p.Rename, p.CreateMetadata), cuts=((2, 2), (1, 1)))
WORLDS = {
    "two writers, late renames": Bounds(),
    "a table that is new": FRESH,
    "late ledger writes": Bounds(late_kinds=(p.Rename, p.Acquire, *COMPARED), cuts=((2, 2), (1, 1))),
    "both processed folders": Bounds(late=0, two_processed_folders=True),
    "cuts of different length, and an empty batch": Bounds(late=0, cuts=((2, 1), (0,), (1, 2))),
    "duplicated uploads": Bounds(late=0, duplicated_uploads=1),
    "staged objects deleted": Bounds(late=0, deleted_objects=1),
    "folder recreated by somebody": Bounds(foreign_folders=1, cuts=((2, 2), (1, 1))),
    "approved reset": Bounds(late=0, resets=1, cuts=((2, 2), (1, 1))),
    "foreign file": Bounds(late=0, foreign_files=1),
    "last file not kept": Bounds(late=0, keeps_last=False),
}
MARKER_WORLD = Bounds(established=False, foreign_folders=1, late_kinds=(p.CreateMarker, p.Rename), cuts=((1,), (1,)))
"""A writer that is no owner any more gives a folder that somebody else made our marker."""
LONG_WORLDS = {
    "three writers": Bounds(writers=3, cuts=((2, 2), (1, 1))),
    "two late renames": Bounds(late=2),
    "late rename, duplicated upload": Bounds(duplicated_uploads=1),
    "late rename, object deleted": Bounds(deleted_objects=1),
    "late rename, foreign file": Bounds(foreign_files=1),
    "late rename, reset of a new table": Bounds(resets=1, established=False),
    "upload, deletion, foreign folder": Bounds(
        late=0, duplicated_uploads=1, deleted_objects=1, foreign_folders=1, cuts=((2, 2), (1, 1))
    ),
    "three files, last not kept": Bounds(keeps_last=False, two_processed_folders=True, cuts=((3, 3), (1, 1))),
}


def explored(bounds: Bounds, **variant: Any) -> Outcome:
    outcome = search(PublishWorld(bounds, **variant))
    print(f"{outcome.states} states, {outcome.transitions} transitions")
    return outcome


@pytest.mark.parametrize("name", WORLDS)
def test_every_interleaving_keeps_the_invariants_and_can_finish(name: str) -> None:
    """I2, I7 to I12, I19, I20, I22: nothing breaks, and every state reaches the end or a stop with a cause.

    F-31 to F-33, F-37, F-39: numbers without a hole, each created once, with the content that was sealed for it.
    """
    outcome = explored(WORLDS[name])
    assert outcome.finding is None, f"\n{outcome.finding}"
    assert outcome.complete
    assert outcome.states > 1000


@pytest.mark.long
@pytest.mark.parametrize("name", LONG_WORLDS)
def test_larger_worlds_keep_the_invariants_and_can_finish(name: str) -> None:
    """As above, with more writers and combined disturbances."""
    outcome = explored(LONG_WORLDS[name])
    assert outcome.finding is None, f"\n{outcome.finding}"
    assert outcome.complete


@dataclass(frozen=True)
class Ablation:
    """A rule taken away, the smallest world that shows it, and the invariant that must break first."""

    breaks: str
    bounds: Bounds
    machine: type[PublishMachine] | PublishMachine = PublishMachine
    store: type[Store] = Store
    unconditional: tuple[type, ...] = (p.Acquire,)
    unchecked: frozenset[str] = field(default=frozenset())


SMALL = Bounds(late=0, cuts=((2, 2),))
ONE_CUT = Bounds(late=0, cuts=((2,), (1,)))
SOURCE, FINAL, PROCESSED, READY = p.FilePlace
UNSEALED = frozenset({SEALED_ONLY, BINDING, STOP_CAUSE})
ABLATIONS = {
    "no seal": Ablation(WRITE_ONCE, ONE_CUT, without.SealsNothing, unchecked=UNSEALED),
    "no CAS of the seal": Ablation(BINDING, SMALL, unconditional=(p.Acquire, p.Seal)),
    "no CAS of the seal, and then": Ablation(
        SEALED_ONLY, SMALL, unconditional=(p.Acquire, p.Seal), unchecked=frozenset({BINDING})
    ),
    "no CAS at all": Ablation(BINDING, SMALL, unconditional=(p.Acquire, *COMPARED)),
    "no source ETag, duplicated upload": Ablation(
        WRITE_ONCE, Bounds(duplicated_uploads=1, cuts=((2,),)), store=without.IgnoresSourceEtag
    ),
    "no source ETag, duplicated upload, folder recreated": Ablation(
        OLD_INCARNATION, Bounds(duplicated_uploads=1, foreign_folders=1, cuts=((1,),)), store=without.IgnoresSourceEtag
    ),
    "staging outside the folder": Ablation(
        OLD_INCARNATION, Bounds(foreign_folders=1, cuts=((1,),)), store=without.StagesOutside
    ),
    "marker not read": Ablation(OLD_INCARNATION, Bounds(foreign_folders=1, cuts=((1,),)), without.SkipsMarker),
    "no marker ETag, marker created late": Ablation(OLD_INCARNATION, MARKER_WORLD, without.IgnoresMarkerEtag),
    "marker read before staging only": Ablation(
        OLD_INCARNATION, Bounds(foreign_folders=1, cuts=((1,),)), without.ReadsMarkerBeforeStagingOnly
    ),
    "marker written in place": Ablation(
        STOP_CAUSE, Bounds(late=0, established=False, cuts=((1,),)), store=without.CreatesMarkerInPlace
    ),
    "numbers in another order": Ablation(NO_GAP, SMALL, without.RenamesBackwards),
    "unknown outcome taken for done": Ablation(NO_GAP, SMALL, without.TakesUnknownForDone),
    "no If-None-Match, foreign file": Ablation(
        WRITE_ONCE, Bounds(late=0, foreign_files=1, cuts=((1,),)), store=without.OverwritesTarget
    ),
    "digest not compared, foreign file": Ablation(
        EXACT_CONTENT, Bounds(late=0, foreign_files=1, cuts=((2,),)), without.IgnoresDigest
    ),
    "higher numbers not read": Ablation(STOP_CAUSE, ONE_CUT, without.IgnoresHigherNumbers),
    "source never read": Ablation(DEAD_END, Bounds(late=0, deleted_objects=1, cuts=((1,),)), without.NeverReadsSource),
    "source read last": Ablation(STOP_CAUSE, ONE_CUT, without.ProbesInOrder((FINAL, PROCESSED, READY, SOURCE))),
    "processed read before final, last not kept": Ablation(
        STOP_CAUSE,
        Bounds(late=0, cuts=((1,),), keeps_last=False),
        without.ProbesInOrder((SOURCE, PROCESSED, READY, FINAL)),
    ),
    "re-seal at once": Ablation(WRITE_ONCE, ONE_CUT, without.ReSealsAtOnce),
    "re-seal on absence": Ablation(WRITE_ONCE, ONE_CUT, without.ReSealsOnAbsence),
    "re-seal, source not read": Ablation(WRITE_ONCE, ONE_CUT, without.ReSealsBlindly),
    "re-seal, source read last": Ablation(
        WRITE_ONCE, ONE_CUT, without.ProbesInOrder((FINAL, PROCESSED, READY, SOURCE), without.ReSealsOnAbsence())
    ),
    "re-seal with another cut": Ablation(
        BINDING, Bounds(late=0, deleted_objects=1, cuts=((2, 2),)), without.ReSealsOnAbsence
    ),
    "link and unlink as a rename": Ablation(WRITE_ONCE, ONE_CUT, store=without.LinksThenUnlinks),
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_each_rule_taken_away_has_a_counterexample(name: str) -> None:
    """Every protective rule is needed: without it the named invariant breaks."""
    ablation = ABLATIONS[name]
    ledger = Ledger()
    ledger.unconditional = ablation.unconditional
    machine = ablation.machine if isinstance(ablation.machine, PublishMachine) else ablation.machine()
    outcome = explored(
        ablation.bounds, machine=machine, store=ablation.store(), ledger=ledger, unchecked=ablation.unchecked
    )
    print(outcome.finding)
    assert outcome.finding is not None, "no counterexample: either the rule is not needed, or the world cannot show it"
    assert outcome.finding.invariant == ablation.breaks, f"\n{outcome.finding}"
    whole = explored(ablation.bounds)
    assert whole.finding is None, f"with the rule the same world is safe\n{whole.finding}"


def test_a_late_marker_creation_does_not_adopt_a_foreign_folder() -> None:
    """I12: whoever creates the marker late, no file of ours enters a folder that somebody else made."""
    outcome = explored(MARKER_WORLD)
    assert outcome.finding is None, f"\n{outcome.finding}"
    assert outcome.complete
    assert outcome.states > 1000
