"""Versions of a row (G-195): the same however its changes are cut into batches, without overlaps or holes."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.logged_change import Logged, newest_effective
from open_mirroring.changes.versions import Version, plan_versions

Ends = dict[LogPosition, LogPosition | None]


def change(batch: int, at: int, operation: str) -> Logged:
    position = LogPosition(0, f"{at // 3:04d}", f"{at:04d}", int(operation in "IU"))
    row = {"id": "1", "v": str(at)}
    return Logged(batch, position, operation, row if operation in "IU" else None, None)


@dataclass
class Target:
    """What the target has: the end of each version by its beginning."""

    ends: Ends = field(default_factory=dict)

    def apply(self, publish: list[Version]) -> None:
        for one in publish:
            self.ends[one.began.position] = None if one.ended is None else one.ended.position


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 11), st.sampled_from("IUDK")), max_size=14))
def test_any_delivery_ends_in_the_same_versions_g195(story: list[tuple[int, int, str]]) -> None:
    """G-195, G-05, I1: late and repeated changes; the current version is the row of the current table."""
    of_place = {at: operation for _, at, operation in story}
    logged = [change(batch, at, of_place[at]) for batch, at, _ in story]
    target = Target()
    for batch in range(1, 5):
        known = [one for one in logged if one.batch <= batch]
        planned = plan_versions(known, batch - 1)
        assert planned.conflict is None
        new = sum(one.batch == batch for one in known)
        assert new + planned.renewed == len(planned.publish) + planned.duplicates + planned.compacted
        target.apply([*planned.publish])
    once = Target()
    once.apply([*plan_versions(logged, 0).publish])
    assert target.ends == once.ends
    places = sorted({one.position: one for one in logged}.values(), key=lambda one: one.position)
    assert target.ends.keys() == {one.position for one in places if one.after is not None}
    beginnings = sorted(target.ends)
    for began, later in pairwise(beginnings):
        end = target.ends[began]
        assert end is not None and began < end <= later, "no version overlaps the next one"
    state = newest_effective(places[::-1])
    is_there = state is not None and state.after is not None
    current = [began for began, end in target.ends.items() if end is None]
    assert current == ([state.position] if state is not None and is_there else [])
