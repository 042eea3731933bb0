"""What is decided of a lost ledger: whatever the publications were, and wherever the last one was cut off (G-80)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from open_mirroring.landing_zone.data_file import Footer
from open_mirroring.landing_zone.schema import LandingColumn
from open_mirroring.landing_zone.standing import Standing
from open_mirroring.reconciliation.rebuilding import (
    FoundFile,
    FoundLog,
    FoundTable,
    KnownTable,
    NewTable,
    UnknownTable,
    decide,
    judge_last,
)

COLUMNS = (LandingColumn("id", "int64"),)
STANDINGS = st.builds(
    Standing,
    published_position=st.none() | st.text("0123456789:", max_size=9),
    position_to=st.none() | st.text("0123456789:", max_size=9),
    waiting_rows=st.integers(0, 9),
    stream_from=st.none() | st.text("0123456789", max_size=9),
    loaded_columns=st.none() | st.integers(1, 9),
    epochs=st.dictionaries(st.text(max_size=5), st.integers(0, 5), max_size=3),
    decided=st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3), st.none() | st.text(max_size=3))).map(tuple),
    unverified=st.tuples(st.tuples(*[st.text(max_size=3)] * 3)),
)


class Story(NamedTuple):
    """A table's publications, each with its batches and the rows of its files, and what of them is still there."""

    publications: list[tuple[int, int, list[int]]]
    purged: int
    seen: int

    def files(self, standing: Standing, generation: int = 1) -> list[FoundFile]:
        found, number = [], 0
        for batch_from, batch_to, sizes in self.publications:
            first = number + 1
            for rows in sizes:
                number += 1
                span = ("m", "t", generation, first, batch_from, batch_to, "changes")
                footer = Footer(*span, rows=rows, digest=f"{number}", standing=standing.to_json())
                found.append(FoundFile(number, 10, f"e{number}", footer, COLUMNS))
        return found[self.purged : self.seen]


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Publications of one or more files; the last one is cut off anywhere, old files are purged."""
    sizes = draw(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=5))
    publications, batch = [], 0
    for one in sizes:
        to = batch + draw(st.integers(1, 3))
        publications.append((batch, to, one))
        batch = to
    before = sum(len(one) for one in sizes[:-1])
    seen = draw(st.integers(before + 1, before + len(sizes[-1])))
    return Story(publications, draw(st.integers(0, seen - 1)), seen)


def log_of(story: Story) -> FoundLog:
    newest = story.publications[-1][1]
    return FoundLog(newest, {"s": frozenset(range(1, newest + 1))})


def table_of(story: Story, standing: Standing, generation: int = 1) -> FoundTable:
    return FoundTable("s", "incarnation", "etag", tuple(story.files(standing, generation)))


@given(stories(), STANDINGS)
def test_what_was_published_is_known_and_what_was_not_follows_it_g_80(story: Story, standing: Standing) -> None:
    """Numbers go on behind the last one that is there; nothing that is there is planned to be published again."""
    log, (batch_from, batch_to, sizes) = log_of(story), story.publications[-1]
    known = decide("m", table_of(story, standing), log)
    assert isinstance(known, KnownTable)
    assert known.standing == standing, "what a footer says comes back as it was said"
    assert (known.footer.batch_from, known.work.batch_to) == (batch_from, batch_to)
    assert [one.number for one in (*known.before, *known.last)] == list(range(story.purged + 1, story.seen + 1))
    first = sum(len(one) for _, _, one in story.publications[:-1]) + 1
    planned = [(f"{first + at}", rows) for at, rows in enumerate(sizes)]
    judged = judge_last(known, planned, log)
    assert isinstance(judged, int)
    assert first + judged - 1 == story.seen, "the rest begins behind the newest number"


@given(stories(), st.data())
def test_a_log_that_gives_other_rows_is_never_taken_for_the_files_g_80(story: Story, data: st.DataObject) -> None:
    """One other digest, one row more, or a file less: the table stops."""
    log, sizes = log_of(story), story.publications[-1][2]
    known = decide("m", table_of(story, Standing()), log)
    assert isinstance(known, KnownTable)
    first = known.footer.first_number
    planned = [(f"{first + at}", rows) for at, rows in enumerate(sizes)]
    at = data.draw(st.sampled_from([one.number for one in known.last])) - first
    other = data.draw(st.sampled_from(["digest", "rows", "fewer"]))
    if other == "fewer":
        planned = planned[:at]
    else:
        planned[at] = ("other", sizes[at]) if other == "digest" else (planned[at][0], sizes[at] + 1)
    assert isinstance(judge_last(known, planned, log), UnknownTable)


@given(stories(), st.integers(1, 3), STANDINGS)
def test_what_cannot_be_known_stops_and_only_a_load_shows_it_where_the_log_may_lack_rows_g_80(
    story: Story, generation: int, standing: Standing
) -> None:
    """A log that ends too early, was dropped, or lacks the table's past."""
    log, found = log_of(story), table_of(story, standing, generation)
    dubious = table_of(story, structs.replace(standing, former=1), generation)
    assert isinstance(decide("m", dubious, log), UnknownTable), "how earlier rows are read is in no file"
    doubts = [
        FoundLog(story.publications[-1][1] - 1, log.holding),
        FoundLog(log.newest, log.holding, dropped=1),
    ]
    for doubted in doubts:
        unknown = decide("m", found, doubted)
        assert isinstance(unknown, UnknownTable) and unknown.confirmed == story.seen
        whole = generation == 1 and standing.loaded_columns is None
        assert unknown.log_from == (0 if whole else doubted.newest)
    assert isinstance(decide("another", found, log), UnknownTable), "another mirror's files"


def test_a_hole_in_the_last_publication_stops_its_table_g_80() -> None:
    """Sealed without its place, what is behind the hole would be known under the number before its own."""
    story = Story([(0, 1, [1]), (1, 2, [2, 2, 2])], purged=0, seen=4)
    whole = table_of(story, Standing())
    holed = replace(whole, files=tuple(one for one in whole.files if one.number != 3))
    unknown = decide("m", holed, log_of(story))
    assert isinstance(unknown, UnknownTable) and "number 3" in unknown.why, unknown
    assert unknown.confirmed == story.seen, "numbers go on behind the newest one"


def test_nothing_there_is_a_new_table_only_if_nothing_is_logged_g_80() -> None:
    """A table in a reset has no folder, and one that is new has none: only the log tells them apart."""
    absent = FoundTable("s", None, "")
    assert decide("m", absent, FoundLog(3, {})) == NewTable(None, "")
    assert isinstance(decide("m", absent, FoundLog(3, {"s": frozenset({2})})), UnknownTable)
    text = FoundTable("s", "i", "e", (FoundFile(1, 9, "e", None),), is_text=True)
    assert isinstance(decide("m", text, FoundLog(3, {"s": frozenset({2})})), UnknownTable)
