"""G-190: changes that contradict those before them leave their table unverified, and sound histories do not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.field.made import (
    CES,
    CHANGE_FILES,
    MESSAGES,
    event,
    mirror,
    write_changes,
    write_events,
    write_messages,
)
from tests.field.trial import Trial

COLUMNS = [("id", "int"), ("price", "decimal(8,2)"), ("name", "nvarchar(20)")]
ONE = {"id": "1", "price": "1.00", "name": 'a "b" \\ /'}
TWO = {"id": "2", "price": "2.00", "name": None}
Images = Sequence[tuple[Any, Any]]


def orders(folder: Path) -> Trial:
    return mirror(folder, CES, [{"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}])


def events(images: Images, first: int = 1, columns: Sequence[tuple[str, str]] = COLUMNS) -> list[str]:
    return [event(at, "dbo.orders", columns, ["id"], *one) for at, one in enumerate(images, first)]


def checked(trial: Trial) -> list[str]:
    """What is noted of contradictions after a run and a deep check, which both end well."""
    assert trial.run("tick").code == 0
    assert trial.run("reconcile").code == 0
    (table,) = json.loads(trial.run("status", "--json").out)["tables"]
    return [note for note in table["notes"] if "contradict" in note]


CONTRADICTED = {
    "never inserted": ([(ONE, None), (TWO | {"price": "9.00"}, TWO)], "never inserted", '["2"]'),
    "another old value": ([(ONE, None), (ONE, ONE | {"price": "7.00"})], "had other values", '["1"]'),
    "behind a delete": ([(ONE, None), (None, ONE), (ONE, ONE | {"price": "9.00"})], "deleted row", '["1"]'),
    "a delete of another row": ([(ONE, None), (None, ONE | {"price": "7.00"})], "row left that had", '["1"]'),
    "a key change of another row": ([(ONE, None), (TWO, ONE | {"price": "7.00"})], "row left that had", '["1"]'),
}


@pytest.mark.parametrize("name", CONTRADICTED)
def test_a_contradiction_leaves_the_table_unverified(name: str, tmp_path: Path) -> None:
    """G-190."""
    images, what, key = CONTRADICTED[name]
    trial = orders(tmp_path / "made")
    write_events(trial, events(images[:1]))
    assert trial.run("tick").code == 0
    write_events(trial, events(images)[1:], "2.jsonl")
    (note,) = checked(trial)
    assert note.startswith("rows unverified up to batch 2: changes contradict those before them")
    assert what in note and f"key {key}" in note and "2.jsonl:" in note and "1 found" in note
    assert checked(trial) == [note], "it is noted once"
    assert note in trial.run("status").text


MOVED = ONE | {"id": "3"}
SOUND = {
    "updates": [(ONE, None), (ONE | {"price": "2.00"}, ONE), (ONE, ONE | {"price": "2.00"}), (None, ONE)],
    "a key that moves and comes back": [(ONE, None), (MOVED, ONE), (MOVED | {"name": "c"}, MOVED), (ONE, None)],
    "a row that comes back": [
        (ONE, None),
        (None, ONE),
        (ONE | {"price": "3.00"}, None),
        (ONE, ONE | {"price": "3.00"}),
    ],
    "without old values": [(ONE, None), (ONE | {"price": "2.00"}, {}), (ONE, ONE | {"price": "2.00"})],
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_changes_are_not_noted(name: str, tmp_path: Path) -> None:
    """G-190. In one file, and in one for each event, the last of which comes first, and one of which comes twice."""
    sent = events(SOUND[name])
    trial = orders(tmp_path / "made")
    write_events(trial, [*sent, *sent[1:]])
    assert checked(trial) == []
    trial = orders(tmp_path / "late")
    for number, one in enumerate([sent[-1], *sent[:-1], sent[0]]):
        write_events(trial, [one], f"{number}.jsonl")
        assert trial.run("tick").code == 0
    assert checked(trial) == []


def test_a_late_change_ends_the_note(tmp_path: Path) -> None:
    """G-190."""
    sent = events([(ONE, None), (ONE | {"price": "2.00"}, ONE), (ONE | {"price": "3.00"}, ONE | {"price": "2.00"})])
    trial = orders(tmp_path / "made")
    write_events(trial, [sent[0], sent[2]])
    assert len(checked(trial)) == 1
    write_events(trial, [sent[1]], "2.jsonl")
    assert checked(trial) == []


def test_columns_that_come_and_go_are_not_compared(tmp_path: Path) -> None:
    """G-190. A column that is added with a default, which no event tells of."""
    trial = orders(tmp_path / "made")
    wider, had = [*COLUMNS, ("state", "int")], ONE | {"state": "1"}
    sent = [*events([(ONE, None)]), *events([(had | {"price": "5.00"}, had)], 2, wider)]
    write_events(trial, sent)
    assert checked(trial) == []


KEY = {"name": "id", "type": "INT4", "primaryKeyPos": 1}
TABLE = [KEY, {"name": "price", "type": "NUMERIC", "precision": 8, "scale": 2}, {"name": "qty", "type": "INT4"}]
A, B, C = (
    {"id": 1, "price": "1.00", "qty": 3},
    {"id": 1, "price": "2.00", "qty": 3},
    {"id": 1, "price": "2.00", "qty": None},
)
QLIK = {
    "updates": ([("INSERT", A, None), ("UPDATE", B, A), ("UPDATE", C, B), ("UPDATE", A, C), ("DELETE", A, None)], ""),
    "only the key of the old row": ([("INSERT", A, None), ("UPDATE", B, {"id": 1, "price": None, "qty": None})], ""),
    "another old value": ([("INSERT", A, None), ("UPDATE", C, B)], "had other values"),
    "never inserted": ([("UPDATE", B, A)], "never inserted"),
    "behind a delete": ([("INSERT", A, None), ("DELETE", A, None), ("UPDATE", B, A)], "deleted row"),
}


@pytest.mark.parametrize("name", QLIK)
@pytest.mark.parametrize("source", ["messages", "csv", "parquet"])
def test_changes_of_qlik(source: str, name: str, tmp_path: Path) -> None:
    """G-190. The same of messages with `beforeData`, and of change tables with before images."""
    changes, what = QLIK[name]
    story = {**CHANGE_FILES, "before_images": True} if source != "messages" else MESSAGES
    trial = mirror(tmp_path / "made", story, [{"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}])
    if source == "messages":
        write_messages(trial, "dbo.orders", TABLE, changes)
    else:
        rows = [
            [letter, *(None if image[one["name"]] is None else str(image[one["name"]]) for one in TABLE)]
            for operation, after, before in changes
            for letter, image in ([("B", before)] if before else []) + [(operation[0], after)]
        ]
        write_changes(trial, "dbo.orders", TABLE, rows, form=source)
    notes = checked(trial)
    assert [what in note and 'key ["1"]' in note for note in notes] == ([True] if what else [])
