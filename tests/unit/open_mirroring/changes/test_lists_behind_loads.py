"""Which columns the rows of the newest load and the changes behind it have, where a batch holds older changes, too."""

from __future__ import annotations

import pytest

from open_mirroring.changes.log_position import LOAD_MAJOR
from open_mirroring.changes.places_seen import PlacesSeen
from open_mirroring.changes.source_reloads import NewestLoad

LOAD = NewestLoad("1", {"t/0": 5}, "0050:1~", None)
LOADED, OLDER, OLDEST, NEWER = f"{LOAD_MAJOR}:7:1", "0050:1", "0040:1", "0060:1"


@pytest.mark.parametrize(
    ("seen", "left"),
    [
        ((OLDEST, OLDER, OLDEST, OLDER), None),
        ((LOADED, OLDER, LOADED, OLDER), (LOADED, LOADED, LOADED, LOADED)),
        ((LOADED, OLDER, OLDER, OLDER), (LOADED, LOADED, "", "")),
        ((OLDER, NEWER, OLDER, OLDER), (NEWER, NEWER, "", "")),
        ((OLDEST, NEWER, OLDER, NEWER), (NEWER, NEWER, NEWER, NEWER)),
        ((LOADED, NEWER, LOADED, OLDER), (LOADED, NEWER, LOADED, LOADED)),
        ((NEWER, NEWER, "", ""), (NEWER, NEWER, "", "")),
    ],
)
def test_a_list_of_older_changes_and_of_what_counts_is_kept_for_what_counts_g125(
    seen: tuple[str, ...], left: tuple[str, ...] | None
) -> None:
    found = LOAD.lists_behind({"[]": {"1": PlacesSeen(*seen)}})
    assert found == ({} if left is None else {"[]": {"1": PlacesSeen(*left)}})
