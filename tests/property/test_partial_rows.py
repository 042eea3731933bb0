"""Updates that carry only what changed: however they are cut, mixed and repeated, the rows are the source's (G-04).

The fold here is the plain meaning of a history: it sets the columns that a change tells, oldest first.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.changes.log_position import LOAD_ORDINAL, LogPosition, load_epoch
from open_mirroring.changes.manifest import LoadChunk
from open_mirroring.changes.row_key import KEY_BUCKETS, encode_key
from open_mirroring.landing_zone.arrow_schema import file_schema
from open_mirroring.landing_zone.layout import ROW_MARKER
from open_mirroring.landing_zone.load_columns import LoadColumn
from open_mirroring.landing_zone.schema import LandingColumn
from spark_jobs.changelog.schema import CHANGE, LogRow
from spark_jobs.changelog.writing import log_table
from spark_jobs.extract.logged_loads import BaseTarget, base_rows
from spark_jobs.extract.read_task import LogTarget
from spark_jobs.plan.plan import plan_table
from spark_jobs.plan.selection import CountingChanges
from spark_jobs.plan.table_plan import Beginning, PlanColumns, PlanStop, TablePlan

TYPES = {"id": "int", "a": "int", "b": "int", "c": "int"}
EPOCH = "e"
ORDINALS = {EPOCH: 0, load_epoch(1): LOAD_ORDINAL, load_epoch(2): LOAD_ORDINAL}


class Change(NamedTuple):
    """A change of one key; an update tells some columns, an insert all, a delete none; a K half has the old row."""

    place: int
    op: str
    key: str
    told: dict[str, str]
    minor: int = 1

    @property
    def position(self) -> LogPosition:
        return LogPosition(0, f"{self.place:020X}", f"{self.minor:020d}", int(self.op != "K"))

    def logged(self) -> LogRow:
        key = encode_key([self.key])
        columns = [name for name in TYPES if name in self.told]
        cols = json.dumps([[name, TYPES[name], list(TYPES).index(name)] for name in columns]) if columns else None
        row = json.dumps({name: self.told[name] for name in columns}) if columns else None
        return LogRow(
            CHANGE, "f", self.place, "t", zlib.crc32(key.encode()) % KEY_BUCKETS, EPOCH, self.position.text, self.op,
            key, cols, self.op == "I", *((None, row) if self.op == "K" else (row, None)),
        )  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> list[Change]:
    """What happened to three rows, in order; nothing is updated that is not there."""
    changes: list[Change] = []
    rows: set[str] = set()
    for place in range(1, draw(st.integers(2, 14))):
        key = draw(st.sampled_from("123"))
        values = {name: str(place * 10 + n) for n, name in enumerate("abc")}
        if key not in rows:
            rows.add(key)
            changes.append(Change(place, "I", key, {"id": key, **values}))
        elif draw(st.integers(0, 4)) == 0:
            rows.discard(key)
            changes.append(Change(place, "D", key, {}))
        else:
            told = draw(st.sets(st.sampled_from("abc"), min_size=1))
            changes.append(Change(place, "U", key, {"id": key, **{name: values[name] for name in sorted(told)}}))
    return changes


def fold(changes: Sequence[Change]) -> dict[str, dict[str, str]]:
    rows: dict[str, dict[str, str]] = {}
    for change in sorted(changes, key=lambda one: one.place):
        if change.op == "D":
            rows.pop(change.key, None)
        else:
            rows[change.key] = {**({} if change.op == "I" else rows[change.key]), **change.told}
    return rows


Event = tuple[Change, ...]
Moment = tuple[int, dict[str, dict[str, str]]]
"""So many events, all of whole transactions, and the rows that they leave."""


@st.composite
def moves(draw: st.DrawFn) -> tuple[list[Event], list[Moment]]:
    """What happened to rows that change their keys, also with each other, telling a part only; and how it stood when.

    Several statements may be one transaction. An old image tells all or nothing but the key.
    """
    events: list[Event] = []
    rows: dict[str, dict[str, str]] = {}
    moments: list[Moment] = []
    place, minor = 1, 0

    def value() -> str:
        return f"{place * 1000 + minor * 10}"

    def moved(left: str, taken: str, row: dict[str, str]) -> None:
        nonlocal minor
        minor += 1
        told = {"id": taken, **{n: f"{value()}{i}" for i, n in enumerate("abc") if draw(st.integers(0, 3)) == 0}}
        before = row if draw(st.booleans()) or len(told) == len(TYPES) else {"id": left}
        rows[taken] = {**row, **told}
        events.append((Change(place, "K", left, before, minor), Change(place, "U", taken, told, minor)))

    for _ in range(draw(st.integers(3, 14))):
        if draw(st.booleans()):
            place, minor = place + 1, 0
            moments.append((len(events), dict(rows)))
        minor += 1
        key, other, third = draw(st.permutations("1234"))[:3]
        kind = draw(st.sampled_from(["set", "set", "move", "move", "swap", "cycle", "delete"]))
        if key not in rows:
            rows[key] = {"id": key, **{name: f"{value()}{i}" for i, name in enumerate("abc")}}
            events.append((Change(place, "I", key, rows[key], minor),))
        elif kind == "delete":
            del rows[key]
            events.append((Change(place, "D", key, {}, minor),))
        elif kind == "move" and other not in rows:
            moved(key, other, rows.pop(key))
        elif kind == "swap" and other in rows:
            one, two = rows.pop(key), rows.pop(other)
            moved(key, other, one)
            moved(other, key, two)
        elif kind == "cycle" and {other, third} <= rows.keys():
            ring = (key, other, third)
            stood = [rows.pop(left) for left in ring]
            for at, left in enumerate(ring):
                moved(left, ring[(at + 1) % 3], stood[at])
        else:
            told = {"id": key, draw(st.sampled_from("abc")): f"{value()}9"}
            rows[key] = {**rows[key], **told}
            events.append((Change(place, "U", key, told, minor),))
    return events, [*moments, (len(events), rows)]


class Target:
    """A target to which plans are applied one after the other."""

    def __init__(
        self,
        batches: Sequence[Sequence[Change]],
        base: Sequence[LogRow] = (),
        base_batch: int = 1,
        *,
        generation: int = 1,
        stream_from: str | None = None,
    ) -> None:
        """The *base* rows of a load are in the log with one of the batches."""
        self._generation, self._stream_from = generation, stream_from
        rows = [[change.logged() for change in batch] for batch in batches]
        if base:
            rows[base_batch - 1] += base
        self._log = [log_table(of_batch, n) for n, of_batch in enumerate(rows, 1)]
        self._batches, self._published = batches, 0
        self.rows: dict[str, dict[str, str]] = {}

    def log_also(self, rows: Sequence[LogRow], batch: int) -> None:
        """Have more rows in one of the batches."""
        self._log[batch - 1] = pa.concat_tables([self._log[batch - 1], log_table(rows, batch)])

    def publish_all(self, first: int = 1) -> None:
        """A run after each of the batches from *first* on."""
        for up_to in range(first, len(self._batches) + 1):
            try:
                self.publish(up_to)
            except PlanStop as stop:
                # A row whose insert is late waits, loudly; the next run tries all of it again.
                assert stop.code == "ROW_INCOMPLETE"
                assert up_to < len(self._batches)

    def publish(self, up_to: int) -> None:
        new, old = pa.concat_tables(self._log[self._published : up_to]), self._log[: self._published]
        history = pa.concat_tables([new.schema.empty_table(), *old])
        before = [change for batch in self._batches[: self._published] for change in batch]
        columns = PlanColumns(tuple(LandingColumn(name, "int32") for name in TYPES), TYPES, completing=True)
        highest = max((change.position for change in before), default=None)
        begins = Beginning(self._generation, self._stream_from)
        plan = TablePlan("t", ("id",), self._published, ORDINALS, columns, highest=highest, begins=begins)
        everything = pa.concat_tables([history, new])

        def of_keys(keys: Sequence[str]) -> pa.Table:
            return history.filter(pc.is_in(history["key"], pa.array(keys)))

        none_older = history.slice(0, 0).filter
        planned = plan_table(plan, new, CountingChanges(plan, of_keys, everything.filter, none_older))
        self._published = up_to
        counts = dict(planned.counts)
        assert counts.pop("changes", 0) == new.num_rows
        assert new.num_rows + counts.pop("renewed", 0) == sum(counts.values()), "every change has one account (I1)"
        for row in planned.rows.to_pylist():
            key = str(row["id"])
            if row.pop(ROW_MARKER) == 2:
                self.rows.pop(key, None)
            else:
                self.rows[key] = {name: str(value) for name, value in row.items() if value is not None}


@settings(derandomize=True, deadline=None, max_examples=200)
@given(data=st.data(), history=histories())
def test_completed_rows_are_those_of_the_source_however_changes_are_delivered(
    data: st.DataObject, history: list[Change]
) -> None:
    """G-04, C-44, C-70, K-23: late and repeated updates complete rows that are published already (G-09)."""
    delivered = data.draw(st.permutations([*history, *history[::3]]))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(delivered)), max_size=4)) | {len(delivered)})
    batches = [delivered[low:high] for low, high in zip([0, *cuts], cuts, strict=False)]
    target = Target(batches)
    target.publish_all()
    assert target.rows == fold(history)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(data=st.data(), story=moves())
def test_rows_that_move_to_another_key_take_along_what_they_were(
    data: st.DataObject, story: tuple[list[Event], list[Moment]]
) -> None:
    """G-03, G-04, G-09: from the changes of the old key, late ones included, and never from the new key's old row."""
    events, moments = story
    delivered = data.draw(st.permutations([*events, *events[::3]]))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(delivered)), max_size=4)) | {len(delivered)})
    batches = [[c for event in delivered[a:b] for c in event] for a, b in zip([0, *cuts], cuts, strict=False)]
    target = Target(batches)
    target.publish_all()
    assert target.rows == moments[-1][1]


def row(key: str, value: str) -> dict[str, str]:
    return {"id": key, "a": value, "b": value, "c": value}


def test_a_row_that_took_a_key_stays_when_the_one_that_stood_there_leaves() -> None:
    """G-03: told by nothing but their keys, 1 goes to 2 and 2 to 3 by one statement; what was 2 is gone later on."""
    there = [Change(1, "I", "1", row("1", "10")), Change(1, "I", "2", row("2", "20"), 2)]
    one_moves = [Change(2, "K", "1", {"id": "1"}), Change(2, "U", "2", {"id": "2"})]
    two_moves = [Change(2, "K", "2", {"id": "2"}, 2), Change(2, "U", "3", {"id": "3"}, 2)]
    target = Target([there, [*one_moves, *two_moves], [Change(3, "D", "3", {})]])
    target.publish(3)
    assert target.rows == {"2": row("2", "10")}


@pytest.mark.parametrize("first", [{"id": "1", "a": "11"}, {"id": "1", "a": "11", "b": "11", "c": "11"}])
def test_a_row_that_was_updated_before_it_moved_takes_the_update_along(first: dict[str, str]) -> None:
    """G-03, G-04: in one transaction, although the old image of the move tells the key alone."""
    moves = [Change(2, "K", "1", {"id": "1"}, 2), Change(2, "U", "2", {"id": "2"}, 2)]
    target = Target([[Change(1, "I", "1", row("1", "10"))], [Change(2, "U", "1", first), *moves]])
    target.publish(2)
    assert target.rows == {"2": row("2", "10") | first | {"id": "2"}}


def base_of(rows: Mapping[str, Mapping[str, str]], generation: int = 1) -> list[LogRow]:
    """Rows of a load as the log has them."""
    columns = tuple(LoadColumn(name, "int32") for name in TYPES)
    schema = file_schema([LandingColumn(name, "int32") for name in TYPES], ["id"], marker=False)
    typed = pa.Table.from_pylist([{name: int(row[name]) for name in TYPES} for row in rows.values()], schema)
    log = LogTarget(Path("log"), 1, "attempt", 0)
    origin = LoadChunk("t", generation, 0).name
    return list(base_rows(typed, BaseTarget("t", generation, ("id",), columns, schema, origin, log)))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(data=st.data(), history=histories())
def test_rows_of_a_load_complete_what_comes_after_it(data: st.DataObject, history: list[Change]) -> None:
    """G-04, G-08: the stream begins before the load, which shows the source at any later time.

    Only the load contains what happened before the stream; both contain what happened since, and the stream decides.
    """
    begins = data.draw(st.integers(0, len(history)))
    snapshot = fold(history[: data.draw(st.integers(begins, len(history)))])
    stream = history[begins:]
    delivered = data.draw(st.permutations([*stream, *stream[::3]]))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(delivered)), max_size=4)) | {len(delivered)})
    batches = [delivered[low:high] for low, high in zip([0, *cuts], cuts, strict=False)]
    loaded_with = data.draw(st.integers(1, len(batches)))
    target = Target(batches, base_of(snapshot), loaded_with)
    target.publish_all(loaded_with)
    assert target.rows == fold(history)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(data=st.data(), story=moves())
def test_rows_that_moved_while_they_were_loaded_are_exact_or_stop_loudly(
    data: st.DataObject, story: tuple[list[Event], list[Moment]]
) -> None:
    """G-03, G-04, G-08: the load shows a row under its old key or its new one, or another row there."""
    events, moments = story
    begins = data.draw(st.sampled_from([at for at, _ in moments]))
    snapshot = data.draw(st.sampled_from([rows for at, rows in moments if at >= begins]))
    stream = events[begins:]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=4)) | {len(stream)})
    batches = [[c for event in stream[a:b] for c in event] for a, b in zip([0, *cuts], cuts, strict=False)]
    target = Target(batches, base_of(snapshot), data.draw(st.integers(1, len(batches))))
    try:
        target.publish(len(batches))
    except PlanStop as stop:
        assert stop.code == "ROW_INCOMPLETE"
        return
    assert target.rows == moments[-1][1]


@settings(derandomize=True, deadline=None, max_examples=200)
@given(data=st.data(), history=histories())
def test_rows_of_an_earlier_generations_load_never_come_back(data: st.DataObject, history: list[Change]) -> None:
    """G-02, G-04, G-08, I13: neither rows that are gone, nor as a conflict, nor to complete what the new load tells.

    The old load may come into the log before the new one, with it, or after; changes below the hand-over likewise.
    """
    begins = data.draw(st.integers(0, len(history)))
    old = base_of(fold(history[: data.draw(st.integers(0, begins))]), 1)
    snapshot = fold(history[: data.draw(st.integers(begins, len(history)))])
    delivered = data.draw(st.permutations([*history, *history[::3]]))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(delivered)), max_size=4)) | {len(delivered)})
    batches = [delivered[low:high] for low, high in zip([0, *cuts], cuts, strict=False)]
    loaded_with = data.draw(st.integers(1, len(batches)))
    since = f"{begins + 1:020X}"
    target = Target(batches, base_of(snapshot, 2), loaded_with, generation=2, stream_from=since)
    target.log_also(old, data.draw(st.integers(1, len(batches))))
    target.publish_all(loaded_with)
    assert target.rows == fold(history)


def test_a_row_that_nothing_completes_stops_its_table() -> None:
    """G-04: never a NULL for a value that was not told."""
    with pytest.raises(PlanStop) as stopped:
        Target([[Change(1, "U", "1", {"id": "1", "a": "5"})]]).publish(1)
    assert stopped.value.code == "ROW_INCOMPLETE"


def test_a_delete_ends_what_completes_a_row() -> None:
    """G-05: values from before a delete are gone."""
    first, gone = Change(1, "I", "1", {"id": "1", "a": "1", "b": "1", "c": "1"}), Change(2, "D", "1", {})
    with pytest.raises(PlanStop):
        Target([[first, gone, Change(3, "U", "1", {"id": "1", "a": "5"})]]).publish(1)


def test_a_row_that_moves_often_is_reported_in_a_moment_g03_g04() -> None:
    """A search that follows every way through the moves before each move would never come to an end."""
    events: list[Change] = [Change(1, "I", "1", {"id": "1", "a": "1", "b": "1", "c": "1"})]
    for place in range(2, 400):
        left, taken = ("1", "2") if place % 2 == 0 else ("2", "1")
        events.append(Change(place, "K", left, {"id": left}))
        events.append(Change(place, "U", taken, {"id": taken, "a": str(place)}))
    target = Target([events[:301], events[301:]])
    target.publish_all()
    assert target.rows == {"2" if events[-1].key == "2" else "1": {**events[-1].told, "b": "1", "c": "1"}}
