"""The plan rule: however a history is cut, repeated, delayed and mixed, the target is the fold of what has arrived.

Three readings are held equal: the product's plan over log rows, its one-key definition, and a plain fold that goes
through the changes once in their order (G-02, G-03, G-05, G-09; I1, I3, I16, I17).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.logged_change import Logged, RowColumns
from open_mirroring.changes.plan_rule import plan_key
from open_mirroring.landing_zone.layout import ROW_MARKER
from open_mirroring.landing_zone.schema import LandingColumn
from spark_jobs.changelog.writing import log_table
from spark_jobs.plan.plan import plan_table
from spark_jobs.plan.selection import CountingChanges
from spark_jobs.plan.table_plan import Identity, PlanColumns, PlannedRows, PlanStop, TablePlan
from tests.property.change_stories import EPOCHS, TABLE, Change, Story, contradictory, fold, stories

ORDINALS = {epoch: ordinal for ordinal, epoch in enumerate(EPOCHS)}
COLUMNS = (LandingColumn("id", "int32"), LandingColumn("v", "int32"))
ACCOUNTS = ("published", "compacted", "duplicates", "superseded", "in_load", "rejected")
EXPLORING = settings(derandomize=True, deadline=None, max_examples=100)


class Target:
    """A table whose plans are applied one after the other, with the log they are made from."""

    def __init__(self, story: Story, keys: tuple[str, ...] = ("id",)) -> None:
        self._keys = keys
        self.columns = PlanColumns(COLUMNS, {"id": "int", "v": "int"})
        self.arrived = [[change for message in batch for change in message] for batch in story.batches]
        self._log = [
            log_table([change.logged(place) for place, change in enumerate(changes)], number)
            for number, changes in enumerate(self.arrived, 1)
        ]
        self.batch = 0
        self.rows: dict[str, str] = {}
        self.inserted: Counter[tuple[str, str]] = Counter()
        self.rejected: dict[Identity, int] = {}

    def changes(self, after: int, up_to: int) -> list[Change]:
        return [change for batch in self.arrived[after:up_to] for change in batch]

    def publish(self, up_to: int) -> PlannedRows:
        """Plan the batches up to *up_to* with no more of the log than the rule says is needed, and apply it."""
        new = pa.concat_tables(self._log[self.batch : up_to])
        old = self.changes(0, self.batch)
        # Of earlier batches the changes from the oldest new transaction on are enough.
        lowest = min((change.transaction for change in self.changes(self.batch, up_to)), default=(99, 0))
        needed = [change.transaction >= lowest or self.columns.keeping for change in old]
        history = pa.concat_tables([new.schema.empty_table(), *self._log[: self.batch]])
        # The rows of a log table are sorted by table and bucket: the same order for the choice.
        reaching = {(EPOCHS[c.place[0]], c.logged(0).pos) for c, need in zip(old, needed, strict=True) if need}
        mask = [(line["epoch"], line["pos"]) in reaching for line in history.select(["epoch", "pos"]).to_pylist()]
        older = history.filter(pa.array([not is_needed for is_needed in mask], pa.bool_()))
        history = history.filter(pa.array(mask, pa.bool_()))

        def read(keys: Sequence[str]) -> pa.Table:
            if self._keys:
                return read_together(history.filter(pc.is_in(history["key"], pa.array(keys, pa.string()))))
            wanted = pa.array([key.partition(":")[2] for key in keys], pa.string())
            return read_together(history.filter(pc.is_in(history["pos"], wanted)))

        def read_any(condition: pc.Expression) -> pa.Table:
            return read_together(pa.concat_tables([history, new]).filter(condition))

        def read_older(condition: pc.Expression) -> pa.Table:
            return read_together(older.filter(condition))

        plan = self._plan(old)
        planned = plan_table(plan, read_together(new), CountingChanges(plan, read, read_any, read_older))
        self.batch = up_to
        for reject in planned.rejected:
            identity = (reject["epoch"], reject["pos"], reject["key"])
            assert identity not in self.rejected, "a dead letter is recorded once"
            self.rejected[identity] = reject["batch"]
        self._apply(planned.rows)
        return planned

    def _plan(self, old: Sequence[Change]) -> TablePlan:
        newest = max((change.place for change in old), default=None)
        highest = (
            None if newest is None else LogPosition(newest[0], f"{newest[1]:020X}", f"{newest[2]:020d}", newest[3])
        )
        rejected = frozenset(self.rejected)
        return TablePlan(TABLE, self._keys, self.batch, ORDINALS, self.columns, highest=highest, rejected=rejected)

    def _apply(self, rows: pa.Table) -> None:
        ids = rows["id"].to_pylist()
        assert not self._keys or len(set(ids)) == len(ids), "one row per key, so that files may be applied side by side"
        for row in rows.to_pylist():
            marker, key, value = row[ROW_MARKER], str(row["id"]), str(row["v"])
            assert marker in ((2, 4) if self._keys else (0,))
            if marker == 0:
                self.inserted[key, value] += 1
            elif marker == 4:
                self.rows[key] = value
            else:
                assert row["v"] is None, "a delete names its key and nothing else (F-55)"
                self.rows.pop(key, None)


def assert_accounted(planned: PlannedRows, new: Sequence[Change]) -> None:
    counts = planned.counts
    assert counts.get("changes", 0) == len(new)
    assert sum(counts.get(name, 0) for name in ACCOUNTS) == len(new) + counts.get("renewed", 0), counts
    assert counts.get("published", 0) == planned.rows.num_rows
    assert counts.get("rejected", 0) == len(planned.rejected)


@EXPLORING
@given(story=stories())
def test_any_delivery_ends_in_the_fold_of_what_has_arrived_and_at_last_in_the_source(story: Story) -> None:
    """Applying files 1..K is the fold of all batches up to the published one, for every cut (G-09, I3, I17).

    Messages come at least once (C-85) and spread over partitions, in any order (C-87), transactions cut anywhere: what
    is logged is published, and what comes late repairs it (C-88, G-05). A file has one row for each key, an upsert or
    a delete, so neither its order (F-34, F-59) nor applying it twice (F-51, F-53, F-54) makes a difference.
    """
    target = Target(story)
    for up_to in story.published_after:
        new, published = target.changes(target.batch, up_to), target.batch
        decisions = decided(target, up_to)
        planned = target.publish(up_to)
        assert_accounted(planned, new)
        assert target.rows == fold(target.changes(0, up_to))
        # The definition, given the whole log of every key, says the same change by change.
        assert {str(key) for key in planned.rows["id"].to_pylist()} == {
            key for key, plan in decisions.items() if plan.publish
        }
        for name in ("duplicates", "superseded", "compacted"):
            assert planned.counts.get(name, 0) == sum(getattr(plan, name) for plan in decisions.values()), (
                name,
                published,
            )
        assert planned.rejected == []
    assert target.rows == story.state


@EXPLORING
@given(story=stories(bad=True))
def test_an_untypable_row_leaves_its_key_as_it_was_wherever_batches_are_cut(story: Story) -> None:
    """A dead letter is no change, whether an older or newer row of its key comes before or after it (G-06, G-09)."""
    target = Target(story)
    for up_to in story.published_after:
        new = target.changes(target.batch, up_to)
        assert_accounted(target.publish(up_to), new)
        assert target.rows == fold(target.changes(0, up_to))
    bad = {(EPOCHS[c.place[0]], c.logged(0).pos) for c in target.changes(0, target.batch) if not c.typable}
    assert {(epoch, pos) for epoch, pos, _ in target.rejected} <= bad


@EXPLORING
@given(story=stories(bad=True, conflicts=True), keyed=st.booleans())
def test_two_contents_at_one_place_stop_the_table_as_soon_as_both_have_arrived(story: Story, keyed: bool) -> None:
    """Equal identity with other content is an error, never a choice: in one batch or in two (G-02, I16)."""
    target = Target(story)
    for up_to in story.published_after:
        if contradictory(target.changes(0, up_to)):
            with pytest.raises(PlanStop) as stop:
                target.publish(up_to)
            assert stop.value.code == "IDENTITY_CONFLICT"
            return
        target.publish(up_to)
        assert target.rows == fold(target.changes(0, up_to))


@EXPLORING
@given(story=stories(bad=True, keyless=True))
def test_a_table_without_key_gets_every_insert_once(story: Story) -> None:
    """Marker 0 for each position once, however often and late it is delivered (F-12, F-51, I16)."""
    target = Target(story, keys=())
    for up_to in story.published_after:
        new = target.changes(target.batch, up_to)
        assert_accounted(target.publish(up_to), new)
        typable = {c for c in target.changes(0, up_to) if c.typable}
        assert target.inserted == Counter((c.key, dict(c.after or ())["v"]) for c in typable)


@pytest.mark.parametrize("op", ["U", "D"])
def test_a_table_without_key_stops_at_anything_but_an_insert_f12(op: str) -> None:
    """No row could be found by it, so it is neither published nor passed over."""
    after = None if op == "D" else (("id", "1"), ("v", "10"))
    target = Target(Story([[(Change((0, 1, 1, 1), op, "1", after),)]], [1], {}), keys=())
    with pytest.raises(PlanStop, match="KEYLESS_CHANGE"):
        target.publish(1)


def read_together(changes: pa.Table) -> pa.Table:
    """As they come out of a file of many tables: the codes of the streams name one that only another table has."""
    epochs = changes["epoch"].combine_chunks().dictionary_encode()
    names = pa.concat_arrays([pa.array(["another table's"]), epochs.dictionary])
    shared = pa.DictionaryArray.from_arrays(pc.add(epochs.indices, pa.scalar(1, pa.int32())), names)
    return changes.set_column(changes.schema.get_field_index("epoch"), "epoch", shared)


def scene(*batches: Sequence[Change]) -> Target:
    """Batches of single changes, each to be published by itself."""
    story = Story([[(change,) for change in batch] for batch in batches], list(range(1, len(batches) + 1)), {})
    return Target(story)


def wrote(minor: int, value: str, transaction: int = 1) -> Change:
    return Change((0, transaction, minor, 1), "U", "1", (("id", "1"), ("v", value)))


def left(minor: int, value: str) -> Change:
    return Change((0, 1, minor, 0), "K", "1", None, (("id", "1"), ("v", value)))


def test_a_key_change_is_a_delete_and_an_upsert_of_a_complete_row() -> None:
    """F-53 to F-56, G-03: the old key with NULLs beside it, the new one with everything."""
    taken = Change((0, 1, 3, 1), "U", "2", (("id", "2"), ("v", "30")))
    target = scene([wrote(1, "10")], [left(3, "10"), taken])
    target.publish(1)
    rows = sorted(target.publish(2).rows.to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": 1, "v": None, ROW_MARKER: 2}, {"id": 2, "v": 30, ROW_MARKER: 4}]
    assert target.rows == {"2": "30"}


def test_a_late_row_shows_what_a_key_change_of_its_transaction_removed() -> None:
    """G-03, G-05: the key change arrived before the row it took away, so it has to be published again."""
    target = scene([wrote(1, "10"), left(3, "20")], [wrote(2, "20")])
    target.publish(1)
    assert target.rows == {"1": "10"}, "another row took the key, as far as is known"
    planned = target.publish(2)
    assert target.rows == {}
    assert planned.counts == {"changes": 1, "published": 1}


def test_a_late_row_of_its_transaction_stands_in_the_way_of_a_key_change() -> None:
    """G-03, G-05: rows that swapped their keys; the row that took the key arrives after the one that left it."""
    target = scene([wrote(1, "10", 0)], [left(3, "10")], [wrote(2, "20")])
    for batch in (1, 2, 3):
        target.publish(batch)
    assert target.rows == {"1": "20"}


@pytest.mark.parametrize("cut", [1, 2])
def test_a_change_that_comes_again_in_another_spelling_is_a_duplicate(cut: int) -> None:
    """G-02: content is values, not bytes; in one batch or in two."""
    changes = [wrote(1, "10"), wrote(1, "+10")]
    target = scene(changes[:cut], changes[cut:])
    counts = Counter(target.publish(1).counts) + Counter(target.publish(2).counts)
    assert counts == {"changes": 2, "published": 1, "duplicates": 1}
    assert target.rows == {"1": "10"}


def test_a_key_change_takes_its_row_along_however_that_is_spelled() -> None:
    """G-02, G-03: the row was written in the same transaction, and its old image says the same in other letters."""
    target = scene([wrote(2, "20"), left(3, "+20")])
    target.publish(1)
    assert target.rows == {}


@pytest.mark.parametrize("cut", [1, 2])
def test_an_untypable_row_that_a_key_change_took_away_is_gone_all_the_same(cut: int) -> None:
    """G-09: the dead letter is no row of the target, but it is the row that left."""
    changes = [wrote(1, "10"), wrote(2, "bad"), left(3, "bad")]
    target = scene(changes[:cut], changes[cut:])
    target.publish(1)
    target.publish(2)
    assert target.rows == {}


def test_a_dead_letter_that_comes_again_with_another_content_is_a_conflict() -> None:
    """G-02: also when the first of the two could not be typed and is recorded since an earlier batch."""
    target = scene([wrote(1, "bad")], [wrote(1, "10")])
    target.publish(1)
    with pytest.raises(PlanStop, match="IDENTITY_CONFLICT"):
        target.publish(2)


@pytest.mark.parametrize("cut", [0, 1, 2])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("also", [None, 1, 3])
def test_a_row_that_is_set_and_removed_at_one_place_is_a_conflict(cut: int, first: int, also: int | None) -> None:
    """G-02: two operations under one position; in one batch or in two, in any order, other changes beside them."""
    both = [wrote(2, "20"), Change((0, 1, 2, 0), "D", "1", None, (("id", "1"), ("v", "20")))]
    changes = [both[first], both[1 - first]]
    others = [] if also is None else [wrote(also, "10")]
    target = scene([*others, *changes[:cut]], changes[cut:])
    with pytest.raises(PlanStop, match="IDENTITY_CONFLICT"):
        target.publish(1)
        target.publish(2)


def test_a_row_that_is_set_and_removed_at_two_places_is_no_conflict() -> None:
    """G-02: nor are two keys at one place, one of which is removed."""
    gone = Change((0, 1, 1, 0), "D", "1", None, (("id", "1"), ("v", "1")))
    other = Change((0, 1, 1, 1), "U", "2", (("id", "2"), ("v", "20")))
    target = scene([gone, other, wrote(2, "20"), Change((0, 1, 3, 0), "D", "1", None, (("id", "1"), ("v", "20")))])
    target.publish(1)
    assert target.rows == {"2": "20"}


def test_a_dead_letter_that_comes_again_is_a_duplicate() -> None:
    """I1: one dead letter, however often it is delivered in one batch and in later ones."""
    target = scene([wrote(1, "bad"), wrote(1, "bad")], [wrote(1, "bad")])
    assert target.publish(1).counts == {"changes": 2, "rejected": 1, "duplicates": 1}
    assert target.publish(2).counts == {"changes": 1, "duplicates": 1}


def test_the_newest_row_bad_an_older_good_one_before_or_with_it_and_a_later_one_heals() -> None:
    """G-06, G-09: the key keeps its last typable state wherever the batches were cut."""
    old, bad, late, new = wrote(1, "10"), wrote(3, "bad"), wrote(2, "20"), wrote(4, "40")
    for batches in ([[old, bad], [late], [new]], [[old], [bad, late], [new]], [[bad], [late, old], [new]]):
        target = scene(*batches)
        target.publish(1)
        target.publish(2)
        assert target.rows == {"1": "20"}
        target.publish(3)
        assert target.rows == {"1": "40"}


def decided(target: Target, up_to: int) -> dict[str, object]:
    """What the one-key definition says, given everything that has arrived."""
    by_key: dict[str, list[Logged]] = {}
    for number, batch in enumerate(target.arrived[:up_to], 1):
        for c in batch:
            position = LogPosition(c.place[0], f"{c.place[1]:020X}", f"{c.place[2]:020d}", c.place[3])
            after, before = (None if image is None else dict(image) for image in (c.after, c.before))
            by_key.setdefault(c.key, []).append(Logged(number, position, c.op, after, before))
    return {key: plan_key(changes, target.batch) for key, changes in by_key.items()}


def test_a_row_read_again_with_a_null_more_is_the_same_row_t33() -> None:
    """T-18, T-33, G-02: after a column was added, rows that are read again have it, empty."""
    place = LogPosition(0, "1", "1", 1)
    first = Logged(1, place, "I", {"id": "1", "v": "7"}, None)
    again = Logged(2, place, "I", {"id": "1", "v": "7", "added": None}, None)
    assert plan_key([first, again], 1) == plan_key([first], 1)._replace(duplicates=1)
    assert plan_key([first, again._replace(after={"id": "1", "v": "7", "added": "x"})], 1).conflict is not None


@pytest.mark.parametrize("taken", [False, True])
def test_a_row_read_again_by_another_choice_of_columns_is_the_same_row_g02_g12(taken: bool) -> None:
    place = LogPosition(0, "1", "1", 1)
    more = Logged(
        1 + taken,
        place,
        "I",
        {"id": "1", "v": "7", "left out": "x"},
        None,
        columns=RowColumns(dropped=frozenset({"left out"})),
    )
    less = more._replace(batch=2 - taken, after={"id": "1", "v": "7"})
    assert plan_key([more, less], 1) == plan_key([less if taken else more], 1)._replace(duplicates=1)
    assert plan_key([more, less._replace(after={"id": "1", "v": "8"})], 1).conflict is not None


def test_a_row_read_again_under_a_new_name_of_a_column_is_the_same_row_t33() -> None:
    """T-33, G-02: where rows have the columns of their reading; a value that both have must be one, NULL too."""
    place = LogPosition(0, "1", "1", 1)
    first = Logged(1, place, "I", {"id": "1", "old": "7"}, None)
    again = Logged(2, place, "I", {"id": "1", "new": "7"}, None)
    assert plan_key([first, again], 1).conflict is not None, "of other sources the row itself has its columns"
    by_reading = RowColumns(of_reading=True)
    first, again = first._replace(columns=by_reading), again._replace(columns=by_reading)
    assert plan_key([first, again], 1) == plan_key([first], 1)._replace(duplicates=1)
    for other in ({"id": "1", "old": None, "new": "7"}, {"id": "2", "new": "7"}):
        assert plan_key([first, again._replace(after=other)], 1).conflict is not None
