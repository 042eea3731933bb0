"""The reset's state machine: every arrow, every crash, every order of two owners and a late delete (I12, D13)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.protocols import resetting as r
from open_mirroring.protocols.resetting import ResetRow, ResetStage, Sight
from tests.explorer.search import Move, Violation, search

FOLDERS = ("dbo.schema/orders",)


def requested(**values: object) -> ResetRow:
    return replace(ResetRow(1, ResetStage.REQUESTED, folders=FOLDERS), **values)  # type: ignore[arg-type]


@dataclass(frozen=True)
class World:
    """Ledger, folder and target of one table, and owners of its reset; small enough to be searched through.

    *folder* and *target* hold the generation that is there, None when nothing is. *late* counts deletes that were sent,
    answered as unknown, and may still happen.
    """

    row: ResetRow
    owners: tuple[r.State, ...]
    generation: int = 1
    folder: int | None = 1
    target: int | None = 1
    late: int = 0
    crashes: int = 1
    begun: int = 0
    open: str = ""
    """The request that is under way; *answered* are those that came to their end."""
    answered: frozenset[str] = frozenset()
    hit: bool = False
    """A late delete removed the new generation's folder."""


def answer(world: World, request: r.Request) -> Iterator[tuple[World, r.Reply]]:
    """Everything that may come of a request."""
    row = world.row
    match request:
        case r.Ask(asked):
            if asked in world.answered:
                yield world, r.Answer.ENDED
                return
            after = world
            if not world.open:
                # Whoever asks for the first time begins a reset; one that is under way is joined.
                after = replace(
                    world,
                    open=asked,
                    row=replace(row, version=row.version + 1, stage=ResetStage.REQUESTED),
                    begun=world.begun + 1,
                )
                if after.begun > 1:
                    raise Violation("G-30", "one approval begins two resets")
            yield after, r.Answer.OPEN
            yield after, r.Unknown()
        case r.Acquire():
            row = replace(row, version=row.version + 1)
            yield replace(world, row=row), row
        case r.DeleteFolders(version):
            if version != row.version:
                yield world, r.Lost()
                return
            yield delete(world), r.Answer.DELETED
            yield world, r.InUse("a file is open")
            if not world.late:
                yield replace(world, late=1), r.Unknown()
        case r.LookForTable(seen):
            if seen.stage is ResetStage.REBUILDING:
                yield world, Sight.THERE if world.target == world.generation else Sight.ABSENT
            elif world.folder is not None:
                yield world, Sight.FOLDER_BACK
            else:
                yield world, Sight.THERE if world.target is not None else Sight.ABSENT
        case r.Advance(version, to, absent):
            if version != row.version:
                yield world, r.Lost()
                return
            after = advanced(world, to, absent)
            yield after, after.row
            yield after, r.Unknown()
        case r.Rebuild():
            if world.hit or row.stage is not ResetStage.REBUILDING:
                yield world, r.Rebuilt("INCARNATION_CHANGED")
            else:
                built = replace(row, version=row.version + 1, rebuilt=True, has_files=True)
                yield replace(world, row=built, folder=world.generation), r.Rebuilt()
                yield world, r.Rebuilt("the source does not answer")


def delete(world: World) -> World:
    new = world.folder == world.generation and world.generation > 1
    return replace(world, folder=None, hit=world.hit or new)


def advanced(world: World, to: ResetStage, absent: bool) -> World:
    row = replace(world.row, version=world.row.version + 1, stage=to, absent=absent)
    if to is ResetStage.REBUILDING:
        if world.target is not None:
            raise Violation("I12", "the new generation begins while the target has the old table")
        if world.generation != 1:
            raise Violation("D13", "one request begins two generations")
        return replace(world, row=row, generation=2)
    if to in (ResetStage.TABLE_BACK, ResetStage.DROPPED):
        # What a late delete took away after the look is the publisher's to find: the marker is gone.
        if to is ResetStage.TABLE_BACK and world.target != 2 and not world.hit:
            raise Violation("F-75", "the table is called back while the target has it not")
        if to is ResetStage.DROPPED and world.target is not None:
            raise Violation("F-71", "the table is called dropped while the target has it")
        answered = world.answered | {world.open} if world.open else world.answered
        return replace(world, row=replace(row, stage=None), open="", answered=answered)
    return replace(world, row=row)


class Resetting:
    """The transition system that the search walks through; versions count from the lowest that anybody holds."""

    def __init__(self, *, drops: bool, owners: int = 2, request: str = "") -> None:
        """With a *request*, every owner asks for it: at first, after a crash, and again after the end (G-30)."""
        self._request = request
        row = requested(drops=drops, stage=None if request else ResetStage.REQUESTED)
        self._first = World(row, tuple(r.start(request) for _ in range(owners)))

    def initial(self) -> World:
        return self._first

    def moves(self, state: World) -> Iterator[Move]:
        if state.target != state.folder and not (state.folder is None and state.target is None):
            # The service sees what lies in the zone, whenever it looks (F-71, F-72).
            yield Move(("service",), True, replace(state, target=state.folder))
        if state.late:
            yield Move(("late delete",), False, delete(replace(state, late=0)))
        for number, owner in enumerate(state.owners):
            if isinstance(owner.request, r.Finished):
                if owner.request.waits_for:
                    yield Move(("again", number), True, self._with(state, number, r.start(self._request)))
                elif self._request and state.crashes:
                    # Cleared, and run again after the end.
                    asks = replace(state, crashes=state.crashes - 1)
                    yield Move(("cleared", number), False, self._with(asks, number, r.start(self._request)))
                continue
            try:
                for after, reply in answer(state, owner.request):
                    own = not isinstance(reply, r.Unknown | r.InUse)
                    own &= not (isinstance(reply, r.Rebuilt) and reply.what)
                    yield Move((number, reply), own, self._with(after, number, r.step(owner, reply)))
            except Violation as violation:
                yield Move((number, "violation"), True, violation)
            if state.crashes:
                crashed = replace(state, crashes=state.crashes - 1)
                yield Move(("crash", number), False, self._with(crashed, number, r.start(self._request)))

    def is_goal(self, state: World) -> bool:
        # A folder that a late delete hit is found out by the publisher, and waits for a person's decision.
        return (state.row.stage is None and not self._request) or self._request in state.answered or state.hit

    def tell(self, path: object) -> list[str]:
        return [str(label) for _, label in path]  # type: ignore[attr-defined]

    def _with(self, world: World, number: int, owner: r.State) -> World:
        owners = (*world.owners[:number], owner, *world.owners[number + 1 :])
        return canonical(replace(world, owners=owners))


def canonical(world: World) -> World:
    """The same world with the smallest version numbers: only which of them are equal matters."""
    held = {world.row.version, *(v for owner in world.owners if (v := version_of(owner)) is not None)}
    number = {version: at for at, version in enumerate(sorted(held))}
    owners = tuple(renumbered(owner, number) for owner in world.owners)
    # Two owners are alike: which of them is which does not matter.
    ordered = tuple(sorted(owners, key=repr))
    return replace(world, row=replace(world.row, version=number[world.row.version]), owners=ordered)


def version_of(owner: r.State) -> int | None:
    match owner.request:
        case r.DeleteFolders(version) | r.Advance(version):
            return version
        case r.LookForTable(row) | r.Rebuild(row):
            return row.version
    return None


def renumbered(owner: r.State, number: dict[int, int]) -> r.State:
    request = owner.request
    match request:
        case r.DeleteFolders(version) | r.Advance(version):
            request = replace(request, version=number[version])
        case r.LookForTable(row) | r.Rebuild(row):
            request = replace(request, row=replace(row, version=number[row.version]))
    # The row that a state remembers is what its request was made of; only whether it rebuilt counts further.
    return replace(owner, request=request, row=None)


@pytest.mark.parametrize("drops", [False, True])
def test_whatever_two_owners_do_the_reset_ends_or_stops(drops: bool) -> None:
    """I12, D13, F-71, F-73, F-75: every crash, lost reply, folder in use and late delete, in every order."""
    result = search(Resetting(drops=drops))
    assert result.finding is None, result.finding
    assert result.states > 100


@pytest.mark.parametrize("drops", [False, True])
def test_whoever_asks_by_one_request_and_how_often_there_is_one_reset(drops: bool) -> None:
    """G-30: two drivers with one request, each killed or cleared, before, in between and after TABLE_BACK."""
    result = search(Resetting(drops=drops, request="run 1"))
    assert result.finding is None, result.finding
    assert result.states > 100


def test_the_search_finds_a_ledger_that_forgets_a_finished_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test above would say nothing: this is what dropped a table twice (G-30)."""
    real = answer

    def forgetful(world: World, request: r.Request) -> Iterator[tuple[World, r.Reply]]:
        yield from real(replace(world, answered=frozenset()) if isinstance(request, r.Ask) else world, request)

    monkeypatch.setattr("tests.unit.open_mirroring.protocols.test_resetting.answer", forgetful)
    finding = search(Resetting(drops=False, request="run 1")).finding
    assert finding is not None and finding.invariant == "G-30"


@pytest.mark.parametrize(("broken", "invariant"), [("gone without a look", "I12"), ("back without a look", "F-75")])
def test_the_search_finds_a_machine_that_does_not_look(
    broken: str, invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the test above would say nothing."""
    real = r.step

    def step(state: r.State, reply: r.Reply) -> r.State:
        after = real(state, reply)
        if isinstance(after.request, r.LookForTable):
            row = after.request.row
            if broken.startswith("gone") and row.stage is ResetStage.FOLDER_DELETED:
                return replace(after, request=r.Advance(row.version, ResetStage.TABLE_GONE))
            if broken.startswith("back") and row.stage is ResetStage.REBUILDING:
                return replace(after, request=r.Advance(row.version, ResetStage.TABLE_BACK))
        return after

    monkeypatch.setattr(r, "step", step)
    finding = search(Resetting(drops=False)).finding
    assert finding is not None and finding.invariant == invariant


def run(row: ResetRow, *replies: r.Reply) -> r.Request:
    state = r.step(r.start(), row)
    for reply in replies:
        state = r.step(state, reply)
    return state.request


def test_one_look_is_no_proof_and_two_at_once_are_one() -> None:
    """F-75: absent twice, with a moment between; who knows for certain needs no second look."""
    row = requested(stage=ResetStage.FOLDER_DELETED)
    assert run(row, Sight.ABSENT) == r.Advance(1, ResetStage.FOLDER_DELETED, absent=True)
    once = replace(row, version=2, absent=True)
    waiting = run(row, Sight.ABSENT, once)
    assert isinstance(waiting, r.Finished) and "second look" in waiting.waits_for
    assert run(once, Sight.ABSENT) == r.Advance(2, ResetStage.TABLE_GONE)
    assert run(once, Sight.THERE) == r.Advance(2, ResetStage.FOLDER_DELETED)
    unseen = run(row, Sight.UNSEEN)
    assert isinstance(unseen, r.Finished) and "an operator to confirm" in unseen.waits_for
    assert run(row, Sight.FOLDER_BACK) == r.Advance(1, ResetStage.REQUESTED)


def test_a_folder_in_use_is_waited_for() -> None:
    """F-73."""
    assert run(requested(), r.InUse("a file is open")) == r.Finished("a file is open")


def test_a_table_without_any_file_is_not_waited_for() -> None:
    """F-70, F-92: nothing tells the target of it, once a run has looked for its rows."""
    row = requested(stage=ResetStage.REBUILDING, rebuilt=True)
    assert run(row) == r.Rebuild(row)
    assert run(row, r.Rebuilt(), row) == r.Advance(1, ResetStage.TABLE_BACK)
    assert run(row, r.Rebuilt("its load"), row) == r.Finished("its load")
    assert run(replace(row, has_files=True)) == r.LookForTable(replace(row, has_files=True))


def test_a_rebuilding_that_waits_is_not_tried_again_without_end() -> None:
    row = requested(stage=ResetStage.REBUILDING)
    assert run(row) == r.Rebuild(row)
    assert run(row, r.Rebuilt("the source"), row) == r.Finished("the source")


@given(st.data())
@settings(derandomize=True, deadline=None, max_examples=60)
def test_from_any_record_an_undisturbed_owner_comes_to_the_end(data: st.DataObject) -> None:
    """D13: whichever record a run finds, it goes on from there, and never backwards while nobody interferes."""
    stage = data.draw(
        st.sampled_from([ResetStage.REQUESTED, ResetStage.FOLDER_DELETED, ResetStage.TABLE_GONE, ResetStage.REBUILDING])
    )
    drops = data.draw(st.booleans()) and stage is not ResetStage.REBUILDING
    begun = stage is ResetStage.REBUILDING
    world = World(
        requested(stage=stage, drops=drops),
        (r.start(),),
        generation=2 if begun else 1,
        folder=1 if stage is ResetStage.REQUESTED else None,
        target=1 if stage in (ResetStage.REQUESTED, ResetStage.FOLDER_DELETED) else None,
    )
    stages = [stage]
    for _ in range(40):
        owner = world.owners[0]
        if isinstance(owner.request, r.Finished):
            if not owner.request.waits_for:
                break
            world = replace(world, target=world.folder, owners=(r.start(),))
            continue
        after, reply = next(answer(world, owner.request))
        world = replace(after, owners=(r.step(owner, reply),))
        if world.row.stage is not None:
            stages.append(world.row.stage)
    assert world.row.stage is None
    order = [ResetStage.REQUESTED, ResetStage.FOLDER_DELETED, ResetStage.TABLE_GONE, ResetStage.REBUILDING]
    assert stages == sorted(stages, key=order.index)
    assert world.target == (None if drops else 2)
