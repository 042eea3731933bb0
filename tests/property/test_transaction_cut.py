"""Where transactions are held back: the target is the fold of a set that ends at a complete position, whole by whole.

Two things are shown: that the plan makes the target the fold of *batches up to b and positions up to w*, for any cut
into batches and any sequence of (b, w) of which neither falls; and that the complete position is one below which
everything has arrived (C-34, C-88, I4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.changes.complete_position import Completeness, advance
from open_mirroring.changes.horizon import TableHorizon
from open_mirroring.changes.log_position import LogPosition, position_order
from open_mirroring.facts.read_places import SHOWN
from open_mirroring.landing_zone.layout import ROW_MARKER
from open_mirroring.landing_zone.schema import LandingColumn
from spark_jobs.changelog.schema import LogRow
from spark_jobs.changelog.writing import log_table
from spark_jobs.extract.read_task import RowSummary
from spark_jobs.plan.plan import plan_table
from spark_jobs.plan.selection import CountingChanges
from spark_jobs.plan.table_plan import Cut, Identity, PlanColumns, PlannedRows, PlanStop, TablePlan
from spark_jobs.sources.qlik.message.format import QlikMessageFormat
from spark_jobs.sources.qlik.positions import qlik_position
from tests.property.change_stories import TABLE, Change, Place, Story, fold, stories
from tests.property.test_plan_rule import ORDINALS, read_together

EXPLORING = settings(derandomize=True, deadline=None, max_examples=150)
DISPOSITIONS = ("published", "compacted", "duplicates", "superseded", "in_load", "rejected", "waiting")
EVERYTHING = (99, 0)
"""Above every transaction."""


Below = tuple[int, ...]
"""The place of a transaction, or of its first change where transactions of one ``major`` are told apart (K-80)."""


def order(below: Below) -> str:
    epoch, transaction, *minor = below
    return position_order(epoch, ":".join([f"{transaction:020X}", *(f"{one:020d}" for one in minor)]))


class CutTarget:
    """A table published set by set; a set is (batches up to, transactions below, None for all)."""

    def __init__(self, story: Story, keys: tuple[str, ...] = ("id",)) -> None:
        self._keys = keys
        self.arrived = [[change for message in batch for change in message] for batch in story.batches]
        self._log = [
            log_table([change.logged(place) for place, change in enumerate(changes)], number)
            for number, changes in enumerate(self.arrived, 1)
        ]
        self._batch, self._position = 0, ""
        self._waiting = 0
        self.horizon: TableHorizon | None = None
        self.rows: dict[str, str] = {}
        self._rejected: set[Identity] = set()

    def held(self, up_to: int, below: Below | None) -> list[Change]:
        logged = [change for batch in self.arrived[:up_to] for change in batch]
        return [change for change in logged if below is None or change.place < below]

    def publish(self, up_to: int, below: Below | None) -> PlannedRows:
        """Plan with no more of the log than the ledger's bounds ask for, and apply it."""
        end = None if below is None else order(below)
        opened = [
            number
            for number, changes in enumerate(self.arrived[:up_to], 1)
            if number > self._batch and any(below is None or change.place < below for change in changes)
        ]
        cut = Cut(self._position, end, tuple(opened))
        log = pa.concat_tables([self._log[0].slice(0, 0), *self._log[:up_to]])
        released = log.filter(pc.less_equal(log["batch"], self._batch))
        if end is not None and end <= self._position:
            released = released.slice(0, 0)
        new = pa.concat_tables([released, *(self._log[number - 1] for number in opened)])
        new = new.filter(cut.rows(self._batch))
        history = pa.concat_tables([new.slice(0, 0), *self._log[: self._batch]])

        def read(keys: Sequence[str]) -> pa.Table:
            # Without a key a change is known by its place in the order.
            wanted = keys if self._keys else [key.partition(":")[2] for key in keys]
            column = history["key" if self._keys else "pos"]
            return read_together(history.filter(pc.is_in(column, pa.array(wanted, pa.string()))))

        arrived = new.filter(pc.greater(new["batch"], self._batch))

        def read_any(condition: pc.Expression) -> pa.Table:
            return read_together(pa.concat_tables([history, arrived]).filter(condition))

        def read_older(condition: pc.Expression) -> pa.Table:
            return read_together(history.slice(0, 0))  # every file of the log is in the history already

        plan = self._plan(cut)
        planned = plan_table(plan, read_together(new), CountingChanges(plan, read, read_any, read_older))
        complete_batches_wait = sum(
            len(changes) for number, changes in enumerate(self.arrived[:up_to], 1) if number > self._batch
        ) - sum(len(self.arrived[number - 1]) for number in opened)
        self._account(planned, complete_batches_wait)
        self._batch, self._position = up_to, end if end is not None else order(EVERYTHING)
        for reject in planned.rejected:
            identity = (reject["epoch"], reject["pos"], reject["key"])
            assert identity not in self._rejected, "a dead letter is recorded once"
            self._rejected.add(identity)
        for row in planned.rows.to_pylist():
            if row[ROW_MARKER] == 2:
                self.rows.pop(str(row["id"]), None)
            else:
                self.rows[str(row["id"])] = str(row["v"])
        return planned

    def _account(self, planned: PlannedRows, passed_over: int) -> None:
        counts = Counter(planned.counts)
        assert counts["changes"] + counts["released"] == sum(counts[name] for name in DISPOSITIONS), counts
        assert counts["published"] == planned.rows.num_rows
        self._waiting += counts["waiting"] + passed_over - counts["released"]

    def assert_waiting(self, up_to: int, below: Below | None) -> None:
        logged = sum(map(len, self.arrived[:up_to]))
        assert self._waiting == logged - len(self.held(up_to, below)), "what is logged and not in the set"

    def _plan(self, cut: Cut) -> TablePlan:
        newest = max((change.place for change in self.held(self._batch, None)), default=None)
        columns = (LandingColumn("id", "int32"), LandingColumn("v", "int32"))
        return TablePlan(
            TABLE, self._keys, self._batch, ORDINALS, PlanColumns(columns, {"id": "int", "v": "int"}),
            highest=None if newest is None else position(newest), rejected=frozenset(self._rejected), cut=cut,
            horizon=self.horizon,
        )  # fmt: skip


def position(place: Place) -> LogPosition:
    return LogPosition(place[0], f"{place[1]:020X}", f"{place[2]:020d}", place[3])


@EXPLORING
@given(story=stories(bad=True), data=st.data())
def test_the_target_is_the_fold_of_batches_up_to_b_and_positions_up_to_w(story: Story, data: st.DataObject) -> None:
    """C-88, K-80, I1, I3, I4, I17, G-09: any delivery, any cut, any (b, w) that do not fall; at last everything."""
    places = {change.place for batch in story.batches for message in batch for change in message}
    cuts: list[Below] = sorted({place[:parts] for place in places for parts in (2, 3)})
    ends = sorted(data.draw(st.lists(st.sampled_from([*cuts, EVERYTHING]), min_size=1, max_size=6)))
    batches = sorted(data.draw(st.lists(st.integers(0, len(story.batches)), min_size=len(ends), max_size=len(ends))))
    target = CutTarget(story)
    for up_to, below in [*zip(batches, ends, strict=True), (len(story.batches), None)]:
        target.publish(up_to, below)
        assert target.rows == fold(target.held(up_to, below))
        target.assert_waiting(up_to, below)
    assert target.rows == fold(target.held(len(story.batches), None))


@EXPLORING
@given(story=stories(keyless=True), data=st.data())
def test_a_table_without_key_gets_each_insert_once(story: Story, data: st.DataObject) -> None:
    """I16, F-12, C-88: wherever batches and positions are cut."""
    places = sorted({change.place[:3] for batch in story.batches for message in batch for change in message})
    ends = sorted(data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=4)))
    batches = sorted(data.draw(st.lists(st.integers(0, len(story.batches)), min_size=len(ends), max_size=len(ends))))
    target = CutTarget(story, keys=())
    published: Counter[tuple[str, str]] = Counter()
    for up_to, below in [*zip(batches, ends, strict=True), (len(story.batches), None)]:
        rows = target.publish(up_to, below).rows.to_pylist()
        assert {row[ROW_MARKER] for row in rows} <= {0}
        published.update((str(row["id"]), str(row["v"])) for row in rows)
        inserts = (dict(change.after or ()) for change in {*target.held(up_to, below)})
        assert published == Counter((row["id"], row["v"]) for row in inserts)


def test_both_halves_of_a_key_change_are_published_together() -> None:
    """I14, F-55, F-56: whatever else the transaction wrote; swapped keys leave both rows (G-03)."""

    def moved(minor: int, one: str, other: str, value: str) -> tuple[Change, Change]:
        left = Change((0, 6, minor, 0), "K", one, None, (("id", one), ("v", value)))
        return left, Change((0, 6, minor, 1), "U", other, (("id", other), ("v", value)))

    first = [(Change((0, 5, n, 1), "I", str(n), (("id", str(n)), ("v", str(10 * n)))),) for n in (1, 2, 3)]
    second = [moved(1, "3", "4", "30"), moved(2, "1", "2", "10"), moved(3, "2", "1", "20")]
    target = CutTarget(Story([first, second], [1, 2], {}))
    target.publish(1, (0, 6))
    rows = [(row["id"], row["v"], row[ROW_MARKER]) for row in target.publish(2, EVERYTHING).rows.to_pylist()]
    assert sorted(rows) == [(1, 20, 4), (2, 10, 4), (3, None, 2), (4, 30, 4)]
    assert target.rows == {"1": "20", "2": "10", "4": "30"}


@EXPLORING
@given(data=st.data())
def test_below_the_complete_position_everything_has_arrived(data: st.DataObject) -> None:
    """C-34: partitions rise, ranges are cut anywhere, messages repeated, pieces missing for a while."""
    partitions = data.draw(st.integers(1, 3))
    steps = data.draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, partitions - 1)), min_size=1, max_size=30))
    sent: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
    commit = 1
    for number, (more, partition) in enumerate(steps):
        commit += more
        sent[partition].append((commit, number))
    read = [0] * partitions
    known: Completeness | None = None
    arrived: set[int] = set()
    split = data.draw(st.sets(st.sampled_from(range(len(steps))), max_size=3))
    missing: dict[int, int] = {}
    below_before = ""
    for _ in range(data.draw(st.integers(1, 6))):
        told: dict[str, dict[str, str]] = {}
        for partition, messages in enumerate(sent):
            start, end = read[partition], data.draw(st.integers(read[partition], len(messages)))
            repeated = max(0, start - data.draw(st.integers(0, 2)))
            for at, number in messages[repeated:end]:
                shown = told.setdefault(f"t/{partition}", {})
                shown["e"] = max(shown.get("e", ""), f"{at:08X}")
                if number in split and number not in arrived:
                    split.discard(number)
                    missing[number] = at  # its other piece comes with a later batch
                else:
                    arrived.add(number)
                    missing.pop(number, None)
            read[partition] = end
        known = advance(known, told, partitions, [("e", f"{at:08X}") for at in missing.values()])
        assert Completeness.from_json(known.to_json()) == known
        below = known.below.get("e", "")
        assert below >= below_before, "it never falls"
        below_before = below
        whole = {number for messages in sent for at, number in messages if f"{at:08X}" < below}
        assert whole <= arrived


@EXPLORING
@given(data=st.data())
def test_below_the_beginning_of_a_counted_transaction_everything_is_complete(data: st.DataObject) -> None:
    """K-80, K-26, K-40: times tell nothing, transactions are sent again, tables are left out, ranges are cut anywhere.

    A task sends its transactions one after the other, each change to any partition. Only changes of mirrored tables are
    seen. What lies below the complete position is whole transactions, and all of them.
    """
    partitions = data.draw(st.integers(1, 3))
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=12))
    sent: list[list[tuple[int, int, int, int, bool]]] = [[] for _ in range(partitions)]
    time = 1
    for transaction, size in enumerate(sizes):
        changes = []
        for counter in range(1, size + 1):
            # Even the changes of one transaction may have different times; they never fall.
            time += data.draw(st.integers(0, 1))
            partition = data.draw(st.integers(0, partitions - 1))
            changes.append((partition, (time, transaction, counter, size, data.draw(st.booleans()))))
        broken = data.draw(st.integers(0, size))
        for partition, change in changes[:broken] + changes:
            sent[partition].append(change)
    format, read = QlikMessageFormat(partitions=partitions), [0] * partitions
    known: Completeness | None = None
    arrived: set[tuple[int, int]] = set()
    for _ in range(data.draw(st.integers(1, 5))):
        notes = RowSummary({}, format)
        for partition, messages in enumerate(sent):
            start, read[partition] = read[partition], data.draw(st.integers(read[partition], len(messages)))
            for place, (at, transaction, counter, _, is_mirrored) in enumerate(messages[start : read[partition]]):
                arrived.add((transaction, counter))
                position = qlik_position(f"{at:016d}{transaction:019d}", 1, counter)
                row = LogRow("change", f"t/{partition}", place, "dbo.a", epoch="1", pos=position)
                notes.take([row] if is_mirrored else [])
        known = advance(known, SHOWN.of_mirror(notes.facts), partitions, [])
        below = known.below.get("1", "")
        every = {change for messages in sent for change in messages}
        shown = {(t, c) for at, t, c, _, _ in every if qlik_position(f"{at:016d}{t:019d}", 0, c) < below}
        assert shown <= arrived
        assert shown >= {(t, c) for _, t, _, size, _ in every for c in range(1, size + 1) if (t, 1) in shown}
        assert {t for t, c in shown} <= {t for t, c in shown if c == 1}, "whole or not at all"


def test_messages_whose_place_is_unknown_hold_the_position_k_80() -> None:
    """K-05, K-80: messages that wait for their structure may lie anywhere above what was complete before them."""
    known = advance(None, {"t/0": {"e": "05"}}, 1, [])
    held = advance(known, {"t/0": {"e": "09"}}, 1, [("", "")])
    assert held.position({"e": 0}) == "000000:05" and held.highest == {"t/0": {"e": "09"}}
    assert advance(held, {}, 1, []).position({"e": 0}) == "000000:09"


def test_a_partition_that_shows_nothing_holds_the_position_back() -> None:
    """C-34, C-88: a quiet partition and a late one look alike; a heartbeat on it moves the position on."""
    known = advance(None, {"t/0": {"e": "05"}}, 2, [])
    assert known.position({"e": 0}) is None
    known = advance(known, {"t/0": {"e": "09"}}, 2, [])
    assert known.position({"e": 0}) is None
    known = advance(known, {"t/1": {"e": "07"}}, 2, [])
    assert known.position({"e": 0}) == "000000:07", "below it, the commit itself excluded"
    assert LogPosition(0, "07", "1", 0).order > "000000:07" > LogPosition(0, "06", "9", 1).order


def test_a_later_stream_makes_the_earlier_one_complete_g_01() -> None:
    """G-01: positions of two incarnations are ordered by their ordinals; one that is not accepted has no place."""
    known = advance(None, {"t/0": {"old": "09", "new": "01"}}, 1, [])
    assert known.position({"old": 0}) == "000000:09"
    assert known.position({"old": 0, "new": 1}) == "000001:01"


@pytest.mark.parametrize("later", [True, False])
def test_a_change_that_waits_is_reported_from_one_that_is_late(later: bool) -> None:
    """I17: a change below the last cut that arrives after it is published as it is without a cut; one above waits."""
    first = Change((0, 5, 1, 1), "I", "1", (("id", "1"), ("v", "10")))
    second = Change((0, 6 if later else 4, 1, 1), "I", "2", (("id", "2"), ("v", "20")))
    target = CutTarget(Story([[(first,)], [(second,)]], [1, 2], {}))
    target.publish(1, (0, 6))
    counts = target.publish(2, (0, 6)).counts
    assert target.rows == ({"1": "10"} if later else {"1": "10", "2": "20"})
    assert counts.get("published", 0) == (0 if later else 1)
    target.publish(2, (0, 7))
    assert target.rows == {"1": "10", "2": "20"}


def test_what_waited_beside_changes_below_the_horizon_is_not_late() -> None:
    """G-05, C-88: the file of a batch holds both; only a change that arrives now can be late."""
    early = Change((0, 3, 1, 1), "I", "1", (("id", "1"), ("v", "10")))
    waits = Change((0, 7, 1, 1), "I", "2", (("id", "2"), ("v", "20")))
    late = Change((0, 2, 1, 1), "I", "3", (("id", "3"), ("v", "30")))
    target = CutTarget(Story([[(early,), (waits,)], [(late,)]], [1, 2], {}))
    target.publish(1, (0, 5))
    target.horizon = TableHorizon(0, f"{3:020X}")
    target.publish(1, (0, 8))
    assert target.rows == {"1": "10", "2": "20"}
    with pytest.raises(PlanStop, match="LATE_BELOW_HORIZON"):
        target.publish(2, (0, 8))
