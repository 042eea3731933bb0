"""The ten exercises. Each is a list of trials: something goes wrong, work goes on, and the judge looks at the end."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from landing_zone_acceptance.judge import Verdict
from landing_zone_acceptance.source import Change, Row, Source
from landing_zone_acceptance.wire import Act, Call, Strike
from landing_zone_acceptance.world import Lab, Trial, World
from landing_zone_acceptance.writer import Adapter

_DAY = 86_400


def writes_during_the_scan(lab: Lab) -> Iterator[Trial]:
    """The source changes while the first rows are read, and at each call that publishes them."""
    world = lab.new()
    world.source.during_scan = world.work
    calls = world.begin()
    if world.source.during_scan is None:
        yield world.trial("between two rows of the scan")
    for kind in _kinds(calls, lambda call: call.uploads):
        world = lab.new()
        world.begin(Strike(kind, Act.HOLD, meanwhile=partial(_work, world)))
        yield world.trial(f"at '{kind}'")


def key_change(lab: Lab) -> Iterator[Trial]:
    """A row gets another key: a delete of the old one, and a row with the new one."""
    world = lab.begun()
    source = world.source
    first, second, third = source.rows()[:3]
    world.change([source.update(first, id=901)])
    yield world.trial("a key that is new")
    world = _good(lab, world)
    source = world.source
    first, second, third = source.rows()[:3]
    world.change([source.update(first, id=902), source.update(second, id=first["id"])])
    yield world.trial("a key that another row has just left")
    world = _good(lab, world)
    source = world.source
    third = source.rows()[2]
    world.change([source.update(third, id=903), source.update({**third, "id": 903}, id=third["id"], amount=1)])
    yield world.trial("away and back in one run")


def rapid_changes(lab: Lab) -> Iterator[Trial]:
    """One key changes many times, within a run and from run to run."""
    world = lab.begun()
    for change in _life(world.source, 911):
        world.change([change])
    yield world.trial("a life within one run")
    world = _good(lab, world)
    for change in _life(world.source, 912):
        world.change([change])
        world.run()
    yield world.trial("a life over many runs")


def failed_upload(lab: Lab) -> Iterator[Trial]:
    """The storage refuses one kind of call, as long as the run tries it."""
    yield from _at_each_call(lab, [Act.REFUSE], lambda call: call.uploads)


def lost_response(lab: Lab) -> Iterator[Trial]:
    """A call gets no answer: it was carried out, or was not, or is carried out much later."""
    yield from _at_each_call(lab, [Act.LOSE_DONE, Act.LOSE_NOT_DONE, Act.LATE], lambda call: call.uploads)


def crash_after_publication(lab: Lab) -> Iterator[Trial]:
    """The writer is killed just before and just after each call that changes the zone."""
    yield from _at_each_call(lab, [Act.KILL_BEFORE, Act.KILL_AFTER], lambda call: True)


def second_file_fails(lab: Lab) -> Iterator[Trial]:
    """A batch has several files, and the second one cannot be published."""
    world = lab.begun()
    for kind in _kinds(_rehearsed(world), lambda call: call.uploads):
        for act in (Act.REFUSE, Act.KILL_BEFORE, Act.KILL_AFTER):
            world = yield from _trial(lab, world, Strike(kind, act, nth=2))


def lost_state(lab: Lab) -> Iterator[Trial]:
    """All that the writer remembers is gone, and the zone keeps only what the service leaves there."""
    for what, days in (("the zone has its files", 0), ("processed files are purged", 8)):
        world = lab.begun()
        for _ in range(2):
            world.work()
            world.settle()
        world.server.advance_clock(days * _DAY)
        world.server.poll()
        world.server.poll()
        world.work()
        world.start()
        world.work()
        yield world.trial(what)


def schema_and_key_change(lab: Lab) -> Iterator[Trial]:
    """The table gets a column; the table gets another key."""
    world = lab.begun()
    source = world.source
    source.add_column("note")
    world.change([source.insert(note="new"), source.update(source.rows()[1], note="changed")])
    world.work()
    yield world.trial("a column is added")
    world = lab.begun()
    source = world.source
    source.change_key("name")
    taken = source.rows()[0]
    world.change([source.insert(id=taken["id"], name="same id"), source.update(taken, amount=5)])
    yield world.trial("another column is the key")


def two_publishers(lab: Lab) -> Iterator[Trial]:
    """A second publisher has a copy of the state; files appear that the writer has not written."""
    for what in ("at the moment of publication", "before a run"):
        world = lab.begun()
        calls = _rehearsed(world)
        first, *_, last = [call for call in calls if call.uploads and call.what == "data file"]
        world.work()
        if what == "before a run":
            _publish_foreign(world, _following(last.path))
            world.run()
        else:
            world.run(strike=Strike(first.kind, Act.HOLD, meanwhile=partial(_publish_foreign, world)))
        world.work()
        yield world.trial(f"a foreign file {what}")
    world = lab.begun()
    twin = world.clone()
    for writer in (world.writers[0], twin, twin, world.writers[0]):
        world.work()
        world.run(writer)
    yield world.trial("both run in turns")
    for kind in _kinds(_rehearsed(lab.begun()), lambda call: call.uploads):
        world = lab.begun()
        twin = world.clone()
        world.change([world.source.insert()])
        world.run(strike=Strike(kind, Act.HOLD, meanwhile=partial(_work_and_run, world, twin)))
        world.work()
        yield world.trial(f"one waits at '{kind}', the other one runs")


class Exercise(NamedTuple):
    """An exercise and its title in the certificate."""

    title: str
    trials: Callable[[Lab], Iterator[Trial]]


EXERCISES = (
    Exercise("writes during the scan", writes_during_the_scan),
    Exercise("key change", key_change),
    Exercise("rapid changes", rapid_changes),
    Exercise("failed upload", failed_upload),
    Exercise("lost response", lost_response),
    Exercise("crash after publication", crash_after_publication),
    Exercise("second file of a batch fails", second_file_fails),
    Exercise("lost state", lost_state),
    Exercise("schema and key change", schema_and_key_change),
    Exercise("two publishers, foreign files", two_publishers),
)


def _at_each_call(lab: Lab, acts: list[Act], chosen: Callable[[Call], bool]) -> Iterator[Trial]:
    """The acts at each kind of call, first while the first rows are published, then with changes."""
    for kind in _kinds(lab.new().begin(), chosen):
        for act in acts:
            world = lab.new()
            world.begin(Strike(kind, act))
            world.work()
            yield world.trial(f"first rows, '{kind}' {act.value}")
    world = lab.begun()
    for kind in _kinds(_rehearsed(world), chosen):
        for act in acts:
            world = yield from _trial(lab, world, Strike(kind, act))


def _trial(lab: Lab, world: World, strike: Strike) -> Generator[Trial, None, World]:
    """One trial; returns the world of the next one, which is the same one if nothing is wrong with it."""
    for _ in range(2):
        world.work()
    world.run(strike=strike)
    struck = world.wire.struck
    world.work()
    trial = world.trial(f"'{strike.kind}' {strike.act.value}")
    if struck:
        yield trial
    return world if trial.verdict is Verdict.RIGHT else lab.begun()


def _rehearsed(world: World) -> list[Call]:
    """The calls of an undisturbed run."""
    for _ in range(2):
        world.work()
    world.run()
    calls = world.wire.calls
    world.settle()
    return calls


def _life(source: Source, key: int) -> Iterator[Change]:
    yield source.insert(id=key, name="born")
    for amount in range(5):
        yield source.update(source.row(key), amount=amount)
    yield source.delete(source.row(key))
    yield source.insert(id=key, name="born again")
    yield source.update(source.row(key), amount=9)


def _kinds(calls: list[Call], chosen: Callable[[Call], bool]) -> list[str]:
    return list(dict.fromkeys(call.kind for call in calls if chosen(call)))


def _good(lab: Lab, world: World) -> World:
    return world if world.judge.verdict(says_so=False)[0] is Verdict.RIGHT else lab.begun()


def _work(world: World, path: str) -> None:
    world.work()


def _work_and_run(world: World, writer: Adapter, path: str) -> None:
    world.work()
    world.run(writer)


def _following(path: str) -> str:
    known = PurePosixPath(path)
    name = f"{int(known.stem) + 1:020d}" if known.stem.isdigit() else "foreign"
    return str(known.with_name(name + known.suffix))


def _publish_foreign(world: World, place: str) -> None:
    path = world.zone / place
    row: Row = {"id": 999, "name": "foreign", "amount": 0}
    world.judge.foreign.append(row)
    marked = pa.table({"id": [999], "name": ["foreign"], "amount": [0], "__rowMarker__": pa.array([4], pa.int32())})
    unfinished = path.with_name(f"_{path.name}")
    pq.write_table(marked, unfinished)
    unfinished.rename(path)
    world.judge.look()
