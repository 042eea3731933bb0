"""Property: where the rows that live in a table begin is what a fold of its changes in their order says."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.changes.log_position import load_epoch, position_order
from spark_jobs.changelog.schema import CHANGE, DELETE, INSERT, KEY_LEFT, REJECTED, UPDATE, LogRow
from spark_jobs.changelog.writing import log_table
from spark_jobs.publish.logged_rows import NOWHERE, LoggedRows

EPOCHS = {"older": 0, "newer": 1, load_epoch(1): -1}

changes = st.lists(
    st.tuples(
        st.sampled_from(sorted(EPOCHS)),
        st.integers(1, 20),
        st.sampled_from([INSERT, UPDATE, DELETE, KEY_LEFT]),
        st.sampled_from(["1", "2", "3"]),
    ),
    max_size=12,
    unique_by=lambda one: (one[0], one[1]),
)


@settings(deadline=None, max_examples=30)  # each opens a database
@given(changes, st.randoms(use_true_random=False), st.integers(0, 3))
def test_the_oldest_living_row_is_that_of_a_fold_g106(
    told: list[tuple[str, int, str, str]], shuffled: Random, doubled: int
) -> None:
    """In any order of arrival, with changes that came twice; loaded rows and dead letters count for nothing."""
    rows = [
        LogRow(CHANGE, "a", place, "dbo.t", 0, epoch, f"{at:08d}:1:1", op, f'["{key}"]', None, True, "{}")
        for place, (epoch, at, op, key) in enumerate(told)
    ]
    arrived = [*rows, *rows[:doubled], LogRow(REJECTED, "a", 99, "dbo.t", 0, "older", "00000000:1:1", INSERT, '["9"]')]
    shuffled.shuffle(arrived)
    arrived.append(LogRow(CHANGE, "a", 100, "dbo.other", 0, "older", "00000000:1:1", INSERT, '["1"]', None, True, "{}"))
    living: dict[str, str] = {}
    placed: list[tuple[str, bool]] = []
    for epoch, at, op, key in sorted(told, key=lambda one: (EPOCHS[one[0]], one[1])):
        if epoch in ("older", "newer"):
            placed.append((position_order(EPOCHS[epoch], f"{at:08d}:1:1"), op in (INSERT, UPDATE)))
            living.pop(key, None)
            if op in (INSERT, UPDATE):
                living[key] = placed[-1][0]
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(log_table(arrived, 1), Path(folder) / "1.parquet")
        rows = LoggedRows(Path(folder), ["1.parquet"], "dbo.t", EPOCHS)
        assert rows.oldest_living() == min(living.values(), default=NOWHERE)
        for place in [one for one, _ in placed[:2]]:
            behind = min((one for one, sets in placed if sets and one > place), default=NOWHERE)
            assert rows.last_before_row_behind(place) == max(one for one, _ in placed if one < behind)
