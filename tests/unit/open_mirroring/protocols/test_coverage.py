"""Which part of a table a routine proof compares, and what the parts add up to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from open_mirroring.protocols.coverage import Coverage, Rotation, Verified

BEGUN = datetime(2026, 1, 1, 4, tzinfo=UTC)
DAY = timedelta(days=1)


@given(
    days=st.integers(2, 9),
    hours=st.sampled_from([6, 12, 24]),
    ranges=st.integers(1, 40),
    failing=st.sets(st.integers(0, 200), max_size=8),
    growth=st.integers(0, 30),
)
def test_every_row_comes_up_in_time_even_where_a_table_grows_and_runs_fail(
    days: int, hours: int, ranges: int, failing: set[int], growth: int
) -> None:
    """A value is never compared later than cover_in_days after the last time, but for runs that failed meanwhile."""
    period = timedelta(hours=hours)
    rotation = Rotation(days * DAY, days * 24 // hours)
    high, now = 1_000, BEGUN
    borders = [high * at // ranges for at in range(1, ranges)]
    coverage = Coverage.new(now, "id", [str(one) for one in borders])
    compared = dict.fromkeys(range(0, 2_000, 7), now)
    for run in range(days * 24 // hours * 4):
        if run not in failing:
            if coverage.is_round_over:
                new = [high * at // ranges for at in range(1, ranges)]
                coverage, borders = coverage.cut(now, borders, [str(one) for one in new], new), new
            due = coverage.due(rotation, now)
            for value in compared:
                if sum(value >= border for border in borders) in due:
                    compared[value] = now
            coverage = coverage.after(now, dict.fromkeys(due, 10), run, None)
        now += period
        missed = sum(run - rotation.runs < one <= run for one in failing)
        assert now - min(compared.values()) <= rotation.cover + period * (missed + 1)
        assert min(compared.values()) >= coverage.oldest, "no value counts as compared later than it was"


def test_each_range_is_compared_once_in_a_cycle() -> None:
    """Seven daily runs for 12 ranges: two in each of six runs, and the seventh may fail."""
    coverage, rotation = Coverage.new(BEGUN, "id", [str(at) for at in range(1, 12)]), Rotation(7 * DAY, 7)
    for day in range(21):
        due = coverage.due(rotation, BEGUN + day * DAY)
        assert sorted(due) == [day % 6 * 2, day % 6 * 2 + 1]
        coverage = coverage.after(BEGUN + day * DAY, dict.fromkeys(due, 1), 1, None)
    # After a pause all that is late comes up at once.
    assert len(coverage.due(rotation, BEGUN + 40 * DAY)) == 12


def test_a_range_of_other_borders_is_as_old_as_its_oldest_part() -> None:
    """So that no row counts as compared that was not."""
    days = [BEGUN + at * DAY for at in range(3)]
    known = Coverage(BEGUN, BEGUN, "id", ("10", "20"), (days[0], days[1], None), (10, 10, 0))
    cut = known.cut(days[2], [10, 20], ("5", "10", "15", "40"), [5, 10, 15, 40])
    assert cut.proved == (days[0], days[0], days[1], None, None)
    assert known.cut(days[2], [10, 20], ("12", "20"), [12, 20]).proved == (days[0], days[1], None)


def test_the_verified_share_counts_rows_within_the_days() -> None:
    """What was compared longer ago does not count; what was never compared counts by the rows of the target."""
    coverage = Coverage(BEGUN, BEGUN, "id", ("10", "20"), (BEGUN, BEGUN + 6 * DAY, None), (30, 30, 0), table_rows=120)
    of = Verified.of(coverage, BEGUN + 7 * DAY, 7, 10)
    assert of is not None and (of.share, of.is_late, of.oldest) == (0.5, False, BEGUN)
    of = Verified.of(coverage, BEGUN + 11 * DAY, 7, 10)
    assert of is not None and (of.share, of.is_late) == (0.25, True)
    assert Verified.of(coverage, BEGUN, None, None) is None and Verified.of(None, BEGUN, 7, 10) is None
