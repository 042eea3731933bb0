"""Whatever a source sends, the log tells exactly the newest load and what lies behind it, or refuses to (G-125)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from open_mirroring.changes.source_reloads import RELOAD_UNCLEAR, ReloadedRows
from open_mirroring.errors import TerminalError
from spark_jobs.changelog.arrow_schema import LOG_SCHEMA
from spark_jobs.changelog.schema import LOAD_MAJOR
from spark_jobs.publish.logged_rows import reloaded_rows

EPOCH = "1"


class Sent(NamedTuple):
    """A message of the source: of which life of the table it tells, where it was sent, and what it is."""

    life: int
    partition: int
    place: int
    key: int
    text: str
    pos: str | None

    def row(self) -> dict[str, Any]:
        loaded = f"{LOAD_MAJOR}:{self.place:020d}:1"
        return {
            "batch": 1, "kind": "change", "tbl": "dbo.a", "bucket": 0, "epoch": EPOCH, "pos": self.pos or loaded,
            "op": "I", "key": str(self.key), "cols": '[["id","int",0],["t","text",1]]', "whole": True,
            "row": json.dumps({"id": str(self.key), "t": self.text}), "origin": f"t/{self.partition}",
            "place": self.place,
        }  # fmt: skip


@st.composite
def scene(draw: st.DrawFn) -> tuple[list[Sent], int]:
    """What a source sends over some lives of a table, and how many of these there are."""
    partitions, lives = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    by_key = draw(st.booleans())
    next_place, sent, at = [0] * partitions, list[Sent](), 0
    keys = set(range(draw(st.integers(1, 8))))

    def send(life: int, key: int, text: str, pos: str | None) -> None:
        partition = key % partitions if by_key else draw(st.integers(0, partitions - 1))
        sent.append(Sent(life, partition, next_place[partition], key, text, pos))
        next_place[partition] += draw(st.integers(1, 2))

    for life in range(lives):
        alters = draw(st.booleans())
        for key in draw(st.permutations(sorted(keys))):
            send(life, key, f"{life}" if alters else "same", None)
        for _ in range(draw(st.integers(0, 6))):
            at += 1
            key = draw(st.integers(0, 9))
            keys.add(key)
            send(life, key, f"c{at}", f"{at:016d}:{0:039d}:1")
        # What nothing tells: rows that are gone before the next load.
        keys -= set(draw(st.lists(st.sampled_from(sorted(keys)), max_size=3))) if len(keys) > 3 else set()
    return sent, lives


def divided(sent: list[Sent]) -> ReloadedRows:
    with TemporaryDirectory() as folder:
        pq.write_table(pa.Table.from_pylist([one.row() for one in sent], LOG_SCHEMA), Path(folder) / "f.parquet")
        return reloaded_rows(Path(folder), ["f.parquet"], "dbo.a", EPOCH, {})


def living(sent: list[Sent], found: ReloadedRows) -> set[Sent]:
    load = found.load
    return {
        one for one in sent
        if (one.pos is None and one.place >= load.begins.get(f"t/{one.partition}", 0))
        or (one.pos is not None and one.pos >= load.stream_from)
    }  # fmt: skip


def rows_of(sent: Iterable[Sent]) -> dict[int, str] | None:
    """The table that these messages make; None where rows of a load contradict each other, which stops it (K-18)."""
    loaded: dict[int, Sent] = {}
    changed: dict[int, Sent] = {}
    for one in sorted(sent, key=lambda one: (one.pos or "", one.place)):
        if one.pos is not None:
            changed[one.key] = one
            continue
        other = loaded.get(one.key, one)
        if (other.partition, other.text) != (one.partition, one.text) and other.partition != one.partition:
            return None
        loaded[one.key] = one
    return {key: one.text for key, one in {**loaded, **changed}.items()}


def story(*lives: tuple[str, str]) -> tuple[list[Sent], int]:
    """Loads of a table in two partitions: a digit is a loaded key, ``c`` a change of a key that is in no load."""
    sent, places, at = list[Sent](), [0, 0], 0
    for life, parts in enumerate(lives):
        for partition, messages in enumerate(parts):
            for one in messages:
                at += one == "c"
                pos = f"{at:016d}:{0:039d}:1" if one == "c" else None
                sent.append(Sent(life, partition, places[partition], 9 if pos else int(one), "same", pos))
                places[partition] += 1
    return sent, len(lives)


@settings(deadline=None, max_examples=50)
@given(scene())
@example(story(("02", "1"), ("02", "1c"), ("", "1")))
@example(story(("02", "1c"), ("20", "1c"), ("0", "1")))
@example(story(("21", "0c"), ("1c", "2c"), ("", "32")))
def test_what_counts_is_the_newest_load_and_all_behind_it_or_it_is_refused_g125(scenes: tuple[list[Sent], int]) -> None:
    sent, lives = scenes
    try:
        found = divided(sent)
    except TerminalError as error:
        assert error.code == RELOAD_UNCLEAR
        return
    made = rows_of(living(sent, found))
    assert made is None or made == rows_of(one for one in sent if one.life == lives - 1)


@pytest.mark.parametrize(
    ("keys", "begin"),
    [
        ([0, 1, 2, 3, 0, 1, 2, 3], 4),
        ([0, 0, 1, 2, 0, 1, 2], 4),
        ([0, 1, 2, 3, 0, 1, 2, 3, 3], None),
        ([0, 1, 2, 3, 0, 1, 1, 2, 3], None),
        ([0, 1, 2, 3, 0, 1, 2, 3, 2, 3], None),
    ],
    ids=["twice", "a row of the first again", "the last row again", "a row within again", "the last two again"],
)
def test_rows_that_are_delivered_again_are_no_newer_load_k40(keys: list[int], begin: int | None) -> None:
    """If they were, the table would be built from these rows alone."""
    sent = [Sent(0, 0, place, key, "same", None) for place, key in enumerate(keys)]
    try:
        found = divided(sent).load.begins
    except TerminalError as error:
        assert (error.code, begin) == (RELOAD_UNCLEAR, None)
    else:
        assert found == {"t/0": begin}


@settings(deadline=None, max_examples=50)
@given(scene())
def test_in_one_partition_the_load_is_found_wherever_changes_came_before_it_g125(story: tuple[list[Sent], int]) -> None:
    sent, lives = story
    one = [message._replace(partition=0, place=at) for at, message in enumerate(sent)]
    before_last = [message for message in one if message.life < lives - 1 and message.pos is not None]
    first_of_last = next(message.place for message in one if message.life == lives - 1)
    if not before_last or before_last[-1].place != first_of_last - 1 or one[first_of_last].pos is not None:
        return
    older = {(message.key, message.text) for message in one[:first_of_last] if message.pos is None}
    if all((m.key, m.text) in older for m in one[first_of_last:] if m.pos is None):
        return  # nothing in it is new: it may be messages that were delivered once more
    assert rows_of(living(one, divided(one))) == rows_of(message for message in one if message.life == lives - 1)
