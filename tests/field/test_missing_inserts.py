"""G-190: updates of rows that no insert brought leave their table unverified."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.field.made import CES, event, mirror, write_events
from tests.field.trial import Trial

COLUMNS = [("id", "int"), ("price", "decimal(8,2)"), ("name", "nvarchar(20)")]
ONE = {"id": "1", "price": "1.00", "name": "a"}


def orders(folder: Path) -> Trial:
    return mirror(folder, CES, [{"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}])


def notes(trial: Trial) -> list[str]:
    (table,) = json.loads(trial.run("status", "--json").out)["tables"]
    found: list[str] = table["notes"]
    return found


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([(ONE, None), (ONE | {"id": "2"}, ONE | {"id": "2", "price": "9.00"})], id="no insert"),
        pytest.param([(ONE, None), (None, ONE), (ONE, ONE | {"price": "9.00"})], id="behind a delete"),
    ],
)
def test_updates_without_a_row_leave_the_table_unverified(events: list, tmp_path: Path) -> None:
    """G-190."""
    trial = orders(tmp_path / "made")
    write_events(trial, [event(at, "dbo.orders", COLUMNS, ["id"], *images) for at, images in enumerate(events, 1)])
    assert trial.run("tick").code == 0
    assert trial.run("reconcile").code == 0
    (note,) = notes(trial)
    assert (
        "unverified" in note
        and "1 rows were updated that no insert brought" in note
        and "the first is 1.jsonl:" in note
    )
    trial.run("reconcile")
    assert notes(trial) == [note], "what was noted is not noted again"


def test_sound_histories_are_not_noted(tmp_path: Path) -> None:
    """A key that moves, a NULL, a row that comes back, and an event that is sent again."""
    trial, empty = orders(tmp_path / "made"), ONE | {"name": None}
    moved = empty | {"id": "3"}
    images = [(ONE, None), (empty, ONE), (moved, empty), (moved | {"price": "2.00"}, moved), (ONE, None)]
    images += [(None, ONE), (ONE, None), (ONE | {"price": "4.00"}, ONE)]
    events = [event(at, "dbo.orders", COLUMNS, ["id"], *one) for at, one in enumerate(images, 1)]
    write_events(trial, [*events[:4], *events[2:]])
    assert trial.run("tick").code == 0
    assert trial.run("reconcile").code == 0
    assert notes(trial) == []
