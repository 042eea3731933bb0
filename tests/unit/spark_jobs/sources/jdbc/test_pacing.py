"""A source is read no faster than it may be (G-08: a load at size beside the work of the database)."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.sources.jdbc.tables import Pace, paced


class Clock:
    """Time that passes by sleeping, and a little by itself."""

    def __init__(self, work: float) -> None:
        self.now, self._work = 100.0, work

    def __call__(self) -> float:
        self.now += self._work
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def batches(sizes: list[int]) -> list[pa.RecordBatch]:
    return [pa.record_batch({"n": pa.array(range(size), pa.int32())}) for size in sizes]


@settings(derandomize=True, deadline=None)
@given(sizes=st.lists(st.integers(0, 50), max_size=8), rate=st.integers(1, 40), work=st.sampled_from([0.0, 0.3, 5.0]))
def test_all_rows_come_and_never_too_fast(sizes: list[int], rate: int, work: float) -> None:
    clock = Clock(work)
    begun, read, asked = clock.now, 0, list[int]()
    for batch in paced(batches(sizes), rate, clock=clock, sleep=clock.sleep):
        # The next batch is asked for when those before it are paid for.
        assert clock.now - begun >= read / rate - 1e-9
        read += batch.num_rows
        asked.append(batch.num_rows)
    assert asked == sizes
    assert clock.now - begun >= sum(sizes) / rate - 1e-9


def test_without_a_limit_nobody_waits() -> None:
    clock = Clock(0.0)
    assert len(list(paced(batches([10, 20]), None, clock=clock, sleep=clock.sleep))) == 2
    assert clock.now == 100.0


def test_readers_share_the_rate() -> None:
    assert (Pace().share(3), Pace(2, 600).share(3)) == (None, 200.0)
