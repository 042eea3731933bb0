"""What jobs say of themselves: sentences in the terms of the field, with the way out of whatever is wrong."""

from __future__ import annotations

import re
from typing import Any

import pytest

from open_mirroring.operate.job_story import SHOWN, counted, story

REPORTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "create": (
        {"workspace": "11111111", "database": "22222222", "state": "Running", "rows": {"dbo.a": 3}},
        [
            "The mirrored database 22222222 in workspace 11111111: Running.",
            "First rows: 3 rows of 1 table.",
            "  dbo.a: 3 rows",
        ],
    ),
    "extract_changes": (
        {"batch": 7, "counts": {"messages": 1200, "changes": 1198, "rejected": 2}, "waiting_files": ["a.jsonl.part"]},
        [
            "Read: batch 7 of the change log, 1,200 messages (1,198 changes, 2 rejected).",
            "1 source file not ready yet, read once complete: a.jsonl.part.",
        ],
    ),
    "publish_changes": (
        {"files": {"dbo.orders": [3, 4], "dbo.notes": [9]}, "rows": {"dbo.orders": 1500, "dbo.notes": 1}},
        [
            "Published: 3 files of 2 tables, 1,501 rows.",
            "  dbo.notes: number 9, 1 row",
            "  dbo.orders: numbers 3 to 4, 1,500 rows",
        ],
    ),
    "replay_dead_letters": (
        {
            "batch": 8,
            "replayed": 2,
            "counts": {"messages": 2, "changes": 2},
            "left": {"MESSAGE_INVALID": 3},
            "no_message": {},
            "healed": ["dbo.orders"],
        },
        [
            "Decoded again: 2 dead letters, in batch 8.",
            "They hold 2 messages (2 changes); the next run publishes what is still the newest.",
            "Still open, for today's decoder and settings do not read them either: 3 MESSAGE_INVALID.",
            "Nothing is missing any more in dbo.orders: lift the stop, `open-mirroring resume`.",
        ],
    ),
    "reconcile_sequence": (
        {
            "verdicts": {"dbo.a": "PASS", "dbo.b": "STOP"},
            "files": {"dbo.a": 4},
            "findings": [["dbo.b", "CONTENT_CHANGED", "number 2 has other rows", {"count": 1}]],
        },
        [
            "Checked: 2 tables, 4 files read: 1 stopped, 1 mirrored.",
            "dbo.b: CONTENT_CHANGED: number 2 has other rows",
        ],
    ),
    "maintain": (
        {
            "horizon": "2026-01-05T09:00:00+00:00",
            "horizon_batch": 7,
            "dropped_batch": 0,
            "vacuumed": 1,
            "swept": 0,
            "forgotten": 3,
            "held_by": ["an open dead letter of batch 8"],
        },
        [
            "The horizon is 2026-01-05 09:00 UTC, after batch 7.",
            "Removed: 1 file of the log, 0 staged objects, 3 entries of the ledger.",
            "The horizon waits: an open dead letter of batch 8.",
        ],
    ),
    "prove": (
        {"tables": {"dbo.a": {"verdict": "EQUAL"}, "dbo.b": {"verdict": "DIFFERENT"}}},
        ["Compared with the source: 2 tables: 1 equal, 1 not equal.", "  dbo.b: not equal"],
    ),
    "repairs": ({"number": 3, "rows": 2, "etag": "x"}, ["Number 3 is published again, 2 rows."]),
    "corrections": ({"keys": 1}, ["Logged again: the rows of 1 key; the next step publishes them."]),
    "reload_table": (
        {"table": "dbo.a", "generation": 2, "stage": "", "waits_for": ""},
        ["dbo.a is built from scratch: its generation is 2."],
    ),
}


@pytest.mark.parametrize("job", REPORTS)
def test_a_job_says_what_it_did(job: str) -> None:
    report, said = REPORTS[job]
    assert story(job, {"job": job, "mirror": "shop", **report}) == said
    assert not re.search(r"[{}\[\]]|None|\b[a-z]+_[a-z]+\b", "\n".join(said)), "no names of the code"


def test_nothing_done_is_said_too() -> None:
    assert story("extract_changes", {"batch": None}) == ["Read: nothing new at the source."]
    assert story("publish_changes", {"files": {}})[0].startswith("Published: nothing")
    assert story("maintain", {"horizon": None})[0] == "There is no horizon yet: nothing may be dropped."


def test_what_is_wrong_stands_last_with_its_next_step() -> None:
    held, stopped = {"dbo.a": "BACKLOG: 3 files wait"}, {"dbo.b": "FILE_MISSING: number 2 is missing"}
    losses = {"dbo.c": "DEAD_LETTERS_OPEN: 2 dead letters"}
    *_, first, second, third = story("publish_changes", {"held": held, "stopped": stopped, "losses": losses})
    assert first == "On hold: dbo.a: BACKLOG: 3 files wait"
    assert second.startswith("STOPPED: dbo.b: FILE_MISSING: number 2 is missing. Next step: ")
    assert third.startswith("LOSSES: dbo.c: DEAD_LETTERS_OPEN: 2 dead letters. Next step: run `open-mirroring")


def test_an_error_that_says_its_next_step_itself_is_given_no_second_one() -> None:
    why = "LEDGER_LOST: it is empty. Next step: restore it"
    assert story("publish_changes", {"stopped": {"dbo.a": why}})[-1] == f"STOPPED: dbo.a: {why}"


def test_many_tables_are_counted_and_foreign_text_is_safe() -> None:
    many = story("publish_changes", {"files": {f"dbo.t{n:03}": [1] for n in range(1000)}})
    assert len(many) == SHOWN + 2 and many[-1] == "  and 980 tables more"
    assert story("extract_changes", {"stopped": {"dbo.\x1b[31m": "X: \n"}})[-1] == "STOPPED: dbo.\\x1b[31m: X: \\n"


def test_one_of_a_kind_is_counted_in_the_singular() -> None:
    counts = {"messages": 3, "changes": 1, "fragments": 1, "rejected": 1}
    assert counted(counts) == "3 messages (1 change, 1 fragment, 1 rejected)"
