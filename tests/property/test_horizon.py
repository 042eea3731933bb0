"""Moving the horizon: whatever the history, nothing that is still to be decided comes to lie below it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.changes.horizon import (
    BatchContents,
    LoggedBatch,
    LoggedTable,
    MirrorHorizon,
    MovedHorizon,
    TableHorizon,
    advance,
)
from open_mirroring.changes.log_position import LOAD_ORDINAL, LogPosition, load_epoch, position_order, transaction_at
from open_mirroring.changes.logged_change import Logged
from open_mirroring.changes.plan_rule import plan_key

START = datetime(2026, 1, 1, tzinfo=UTC)
BLOCK = 3
EPOCHS = {"first": 0, "second": 1}

# A batch: for each change its stream, transaction, place in it and key.
CHANGE = st.tuples(st.sampled_from(sorted(EPOCHS)), st.integers(0, 9), st.integers(0, 1), st.sampled_from("ab"))
BATCHES = st.lists(st.lists(CHANGE, max_size=4), min_size=1, max_size=10)


def position(epoch: str, major: int, minor: int) -> LogPosition:
    return LogPosition(EPOCHS[epoch], f"{major:04d}", f"{minor}", 1)


def contents(batches: Sequence[Sequence[tuple[str, int, int, str]]]) -> list[BatchContents]:
    found = []
    for number, changes in enumerate(batches, 1):
        for epoch in EPOCHS:
            texts = sorted(position(*change[:3]).text for change in changes if change[0] == epoch)
            if texts:
                found.append(BatchContents(number, epoch, len(texts), texts[0], texts[-1], ()))
    return found


def moved(
    table: LoggedTable, batches: int, *, old: int, held: int | None = None, known: MirrorHorizon | None = None
) -> MovedHorizon:
    """The horizon when the first *old* batches are old enough."""
    times = [LoggedBatch(n, START + timedelta(days=n), START + timedelta(days=n)) for n in range(1, batches + 1)]
    before = START + timedelta(days=old, hours=1)
    return advance(times, {"t": table}, known, before=before, held_from=held, batches_per_block=BLOCK)


def logged(batch: int, at: LogPosition) -> Logged:
    """The change at a position says the same whenever it arrives; halves of key changes remove a row, or another."""
    operation = "IDKK"[(int(at.major) + 2 * int(at.minor)) % 4]
    row = {"v": at.major}
    return Logged(batch, at, operation, row if operation == "I" else None, row if at.epoch else {"v": "0"})


def transaction(epoch: str, text: str) -> TableHorizon:
    return TableHorizon(EPOCHS[epoch], text.partition(":")[0])


@settings(derandomize=True, deadline=None, max_examples=150)
@given(BATCHES, st.data())
def test_nothing_undecided_is_ever_below_the_horizon(batches: list, data: st.DataObject) -> None:
    """G-05, G-06, I15: neither a change that is not published, nor one of a batch above, nor what waits at a place.

    Where transactions are held back, changes of published batches above the cut are not published either (C-88).
    """
    published = data.draw(st.integers(0, len(batches)))
    old = data.draw(st.integers(0, len(batches)))
    held = data.draw(st.one_of(st.none(), st.integers(1, len(batches))))
    places = data.draw(st.lists(CHANGE, max_size=2))
    waiting = [(epoch, position(epoch, major, 0).text) for epoch, major, _, _ in places]
    parts = contents(batches)
    cut = data.draw(st.one_of(st.none(), st.tuples(st.sampled_from(sorted(EPOCHS)), st.integers(0, 10))))
    below = None if cut is None else position_order(EPOCHS[cut[0]], f"{cut[1]:04d}")
    table = LoggedTable(published, EPOCHS, parts, waiting, published_position=below)
    found = moved(table, len(batches), old=old, held=held)
    if found.mirror is None:
        assert found.tables == {}
        return
    assert found.mirror.batch <= old and (held is None or found.mirror.batch < held)
    horizon = found.tables.get("t")
    for part in parts:
        if part.batch > min(published, found.mirror.batch):
            assert horizon is None or transaction(part.epoch, part.lowest) > horizon
        if part.batch <= found.mirror.dropped:
            assert horizon is not None and transaction(part.epoch, part.highest) <= horizon
            assert part.batch <= published
            assert below is None or position_order(EPOCHS[part.epoch], part.highest) < below
    assert horizon is None or below is None or horizon < transaction_at(below)
    assert all(horizon is None or transaction(*place) > horizon for place in waiting)
    assert (found.mirror.dropped + 1) % BLOCK == 0 or found.mirror.dropped == 0


@settings(derandomize=True, deadline=None, max_examples=150)
@given(BATCHES, BATCHES, st.data())
def test_plans_are_the_same_with_the_dropped_blocks_and_without(
    batches: list, later: list, data: st.DataObject
) -> None:
    """G-05, I17: of every change above the horizon; one below it is what stops the table."""
    published = data.draw(st.integers(0, len(batches)))
    found = moved(LoggedTable(published, EPOCHS, contents(batches)), len(batches), old=len(batches))
    horizon = found.tables.get("t")
    dropped = 0 if found.mirror is None else found.mirror.dropped
    everything = [
        (key, logged(number, position(epoch, major, minor)))
        for number, changes in enumerate([*batches, *later], 1)
        for epoch, major, minor, key in changes
        if number <= len(batches) or horizon is None or (EPOCHS[epoch], f"{major:04d}") > horizon
    ]
    for key in "ab":
        whole = [change for at, change in everything if at == key]
        rest = [change for change in whole if change.batch > dropped]
        # Only keys of which something new arrived are ever planned.
        if any(change.batch > published for change in whole):
            one, other = plan_key(whole, published), plan_key(rest, published)
            assert (one.publish, one.conflict) == (other.publish, other.conflict)


def test_the_horizon_never_moves_back_and_a_table_that_completes_rows_keeps_everything() -> None:
    """G-04."""
    its = contents([[("first", 1, 0, "a")], [("first", 2, 0, "a")], [("first", 3, 0, "a")]])
    table = LoggedTable(3, EPOCHS, its, completes_rows=True)
    found = moved(table, 3, old=3)
    assert (found.mirror, found.tables) == (
        MirrorHorizon(3, START + timedelta(days=3), 0),
        {"t": TableHorizon(0, "0003")},
    )
    known = MirrorHorizon(3, START + timedelta(days=3), 2)
    assert moved(LoggedTable(3, EPOCHS, its, horizon=TableHorizon(0, "0003")), 3, old=1, known=known) == (known, {})


def test_changes_that_wait_for_the_end_of_their_transactions_hold_it() -> None:
    """C-88, G-05: their batch is published, they are not; nor is the rest of the transaction at the cut."""
    its = contents([[("first", 1, 0, "a")], [("first", 2, 0, "a")], [("first", 3, 0, "a")]])
    table = LoggedTable(3, EPOCHS, its, published_position=position_order(0, "0002"))
    found = moved(table, 3, old=3)
    assert (found.mirror, found.tables) == (
        MirrorHorizon(3, START + timedelta(days=3), 0),
        {"t": TableHorizon(0, "0001")},
    )


def test_a_table_in_a_reset_keeps_everything() -> None:
    """D13, I12: what it was asked to be rebuilt from stays until it is."""
    its = contents([[("first", 1, 0, "a")], [("first", 2, 0, "a")], [("first", 3, 0, "a")]])
    assert moved(LoggedTable(3, EPOCHS, its), 3, old=3).mirror == MirrorHorizon(3, START + timedelta(days=3), 2)
    in_reset = moved(LoggedTable(3, EPOCHS, its, in_reset=True), 3, old=3)
    assert in_reset.mirror == MirrorHorizon(3, START + timedelta(days=3), 0)


def test_rows_of_a_load_that_wait_in_the_log_hold_the_horizon_and_published_ones_are_below_every_stream() -> None:
    """G-08: nothing of a table is decided before the rows that all of its changes stand upon."""
    first = contents([[("first", 1, 0, "a")]])
    epochs = {**EPOCHS, load_epoch(2): LOAD_ORDINAL}
    base = BatchContents(2, load_epoch(2), 5, "-:0:1", "-:0:1", ())
    assert moved(LoggedTable(1, epochs, [*first, base]), 2, old=2).tables == {}
    assert moved(LoggedTable(2, epochs, [base]), 2, old=2).tables == {"t": TableHorizon(LOAD_ORDINAL, "-")}
    assert moved(LoggedTable(2, epochs, [*first, base]), 2, old=2).tables == {"t": TableHorizon(0, "0001")}


def test_streams_nobody_accepted_and_intervals_that_reach_back_hold_it() -> None:
    """G-01, T-18: what the next interval of a change table brings again must not count as late."""
    two = contents([[("first", 1, 0, "a")], [("second", 2, 0, "a")], [("first", 3, 0, "b")]])
    assert moved(LoggedTable(3, {"first": 0}, two), 3, old=3).tables == {}
    in_order = contents([[("first", 1, 0, "a")], [("first", 2, 0, "a")], [("first", 3, 0, "b")]])
    again = LoggedTable(3, EPOCHS, in_order, reread_from=(0, "0002"))
    assert moved(again, 3, old=3).tables == {"t": TableHorizon(0, "0001")}
