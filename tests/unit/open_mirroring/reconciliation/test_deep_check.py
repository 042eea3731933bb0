"""The deep check of a table's files and publications: a whole table gives nothing, each break its own code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.changes.horizon import BatchContents
from open_mirroring.landing_zone.data_file import Footer
from open_mirroring.landing_zone.schema import TableSchema
from open_mirroring.landing_zone.text_format import TextFormat
from open_mirroring.ledger.load_ledger import LoadPlan
from open_mirroring.ledger.reading import GenerationStart, Publication, PublishedFile, TableState
from open_mirroring.protocols.publishing import TableRow
from open_mirroring.protocols.verdicts import DeepFinding
from open_mirroring.reconciliation.deep_check import FileContent, TableRecord, check_table

T0 = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


def publication(version: int, batch_from: int, batch_to: int, *, kind: str = "changes", **counts: int) -> Publication:
    return Publication(version, kind, batch_from, batch_to, counts, T0 + timedelta(minutes=version))


def published(number: int, of: Publication, rows: int) -> PublishedFile:
    bounds = ("", "") if of.kind == "load" else (f"0:{of.batch_from}:0", f"0:{of.batch_to}:1")
    digest = f"{number:032x}"
    return PublishedFile(
        number, f"e{number}", digest, rows, 100 + number, *bounds, of.kind, of.batch_from, of.batch_to, of.confirmed_at
    )


LOADS = [publication(2, 0, 0, kind="load", loaded=20), publication(4, 0, 0, kind="load", loaded=9)]
CHANGES = [
    publication(6, 3, 4, changes=7, published=5, compacted=1, in_load=1),
    publication(9, 4, 6, changes=4, duplicates=2, superseded=2),
    publication(12, 6, 7, changes=3, published=2, rejected=1),
]
LOAD = LoadPlan("", (), (), hand_over_batch=3)
ROW = TableRow(version=1, generation=2, incarnation="g", established=True, confirmed=6, published_batch=7)
WHOLE = TableRecord(
    "shop",
    TableState("t1", "dbo.orders", "orders", (), ROW, TableSchema(()), GenerationStart("loaded", LOAD)),
    published=[
        published(1, LOADS[0], 10),
        published(2, LOADS[0], 10),
        published(3, LOADS[1], 9),
        published(4, CHANGES[0], 3),
        published(5, CHANGES[0], 2),
        published(6, CHANGES[2], 2),
    ],
    publications=[*LOADS, *CHANGES],
    contents=[
        BatchContents(2, "e", 5, "0", "1", ()),  # before the hand-over, and so in the load
        BatchContents(4, "e", 6, "2", "3", ()),
        BatchContents(4, "f", 1, "2", "3", ()),
        BatchContents(5, "e", 1, "4", "5", ()),
        BatchContents(6, "e", 3, "4", "5", ()),
        BatchContents(7, "e", 3, "6", "7", ()),
        BatchContents(8, "e", 1, "8", "8", ()),  # logged since, not published yet
    ],
)
FIRST_NUMBERS = {1: 1, 2: 1, 3: 3, 4: 4, 5: 4, 6: 6}


def content(number: int) -> FileContent:
    sealed = WHOLE.published[number - 1]
    footer = Footer(
        "shop",
        "t1",
        2,
        FIRST_NUMBERS[number],
        sealed.batch_from,
        sealed.batch_to,
        "load" if sealed.kind == "load" else "changes",
        sealed.first_position,
        sealed.last_position,
        sealed.rows,
        sealed.digest,
    )
    return FileContent(number, f"orders/{number}", sealed.size, sealed.rows, sealed.digest, 3 + number // 4, footer)


FILES = [content(number) for number in FIRST_NUMBERS]


def codes(findings: Sequence[DeepFinding]) -> list[str]:
    return [finding.code for finding in findings]


def test_a_complete_table_gives_nothing() -> None:
    """Also while newer numbers than K lie in the folder, in whatever order the files come, and when some are purged."""
    newer = content(6)._replace(number=7, digest="0" * 32)
    assert check_table(WHOLE, [*reversed(FILES), newer]) == []
    assert check_table(WHOLE, FILES[3:]) == []
    assert check_table(WHOLE, [*FILES, content(6)]) == [], "a file seen in two places is judged twice, not doubled"
    empty = record(confirmed=0, published=[], publications=[], published_batch=0, contents=[], first_batch=0)
    assert check_table(empty, []) == []


def test_what_waits_for_its_transaction_is_accounted_for_twice_i1() -> None:
    """I1, C-88: once as waiting where it arrived, once as released where it is published; neither is a loss."""
    waited = CHANGES[1]._replace(counts={"changes": 4, "duplicates": 1, "superseded": 2, "waiting": 1})
    released = CHANGES[2]._replace(counts={"changes": 3, "released": 1, "published": 2, "rejected": 1, "compacted": 1})
    record_of = replace(WHOLE, publications=[*LOADS, CHANGES[0], waited, released])
    assert check_table(record_of, FILES) == []
    lost = released._replace(counts={**released.counts, "released": 2})
    assert codes(check_table(replace(record_of, publications=[*LOADS, CHANGES[0], waited, lost]), FILES)) == [
        "COUNTS_DIFFER"
    ]


def test_a_table_of_text_has_no_footers() -> None:
    """I9, F-30: its digest is that of its bytes, which is compared all the same."""
    text = record(text=TextFormat("csv", ",", "\n", "", ()))
    bare = [file._replace(footer=None, rows=None, columns=0) for file in FILES]
    assert check_table(text, bare) == []
    assert codes(check_table(text, [bare[0]._replace(digest="f" * 32), *bare[1:]])) == ["CONTENT_CHANGED"]
    assert "CONTENT_CHANGED" in codes(check_table(WHOLE, bare))


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"digest": "f" * 32}, "CONTENT_CHANGED", "published was"),
        ({"size": 1}, "CONTENT_CHANGED", "1 bytes, published were 105"),
        ({"rows": 99}, "CONTENT_CHANGED", "99 rows, published were 2"),
        ({"unreadable": "torn", "digest": None, "rows": None, "footer": None}, "CONTENT_CHANGED", "torn"),
        ({"footer": None}, "CONTENT_CHANGED", "no footer of ours"),
        ({"unfit": "NULL in the key"}, "FILE_UNFIT", "NULL in the key"),
        ({"columns": 3}, "FILE_UNFIT", "3 columns, while number 4 before it has 4"),
        ({"unread": "I/O error"}, "UNREACHABLE", "I/O error"),
        ({"moved": True}, "CHANGED_MEANWHILE", "moved away"),
    ],
)
def test_a_file_that_is_not_the_published_one(change: dict[str, object], code: str, text: str) -> None:
    """I8, I9, I13, I26, F-83: the finding names number, place, what is there and what was published."""
    (finding,) = check_table(WHOLE, [*FILES[:4], FILES[4]._replace(**change), FILES[5]])
    assert (finding.table, finding.code) == ("dbo.orders", code)
    assert finding.what.startswith("number 5 (orders/5): ")
    assert text in finding.what
    assert finding.stops is (code not in ("UNREACHABLE", "CHANGED_MEANWHILE"))


# No ledger keeps how the table stood then: that is what the footer says it for.
@pytest.mark.parametrize("member", sorted(Footer.__dataclass_fields__.keys() - {"standing"}))
def test_every_member_of_the_footer_counts(member: str) -> None:
    """I9, I12: a file of another mirror, table, life, publication, range or content."""
    footer = FILES[4].footer
    assert footer is not None
    other: object = "load" if member == "kind" else "x" if isinstance(getattr(footer, member), str) else 77
    damaged = FILES[4]._replace(footer=replace(footer, **{member: other}))
    (finding,) = check_table(WHOLE, [*FILES[:4], damaged])
    assert finding.code == "CONTENT_CHANGED"
    assert f"its footer says {member} {other!r}" in finding.what


def test_the_more_important_finding_comes_first_and_long_lists_are_cut() -> None:
    bad = [file._replace(digest="f" * 32, footer=None, unfit="unfit") for file in FILES]
    findings = check_table(replace(WHOLE, publications=WHOLE.publications[:-1]), bad)
    assert codes(findings) == ["CONTENT_CHANGED", "FILE_UNFIT", "COUNTS_DIFFER"]
    assert findings[0].what.endswith("; and 9 more")
    assert findings[0].evidence["count"] == 12


def record(base: TableRecord = WHOLE, **changes: Any) -> TableRecord:
    """A record with something changed that lies in one of its parts."""
    row = {name: changes.pop(name) for name in ("confirmed", "published_batch") if name in changes}
    of_state = {name: changes.pop(name) for name in ("text", "waiting_rows") if name in changes}
    start = base.state.start
    if "first_batch" in changes:
        start = start._replace(load_plan=LoadPlan("", (), (), hand_over_batch=changes.pop("first_batch")))
    state = base.state._replace(row=replace(base.state.row, **row), start=start, **of_state)
    return replace(base, state=state, **changes)


def recounted(place: int, **counts: int) -> TableRecord:
    publications = list(WHOLE.publications)
    publications[place] = publications[place]._replace(counts={**publications[place].counts, **counts})
    return record(publications=publications)


def without(place: int) -> TableRecord:
    return record(publications=[*WHOLE.publications[:place], *WHOLE.publications[place + 1 :]])


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (lambda: record(published=WHOLE.published[:3]), "no record of the confirmed numbers 4-6"),
        (lambda: record(confirmed=5), "numbers never confirmed: 6"),
        (lambda: record(confirmed=7), "no record of the confirmed numbers 7"),
        (lambda: record(first_batch=0), "batches 3 to 4 follows one that ended at batch 0"),
        (lambda: record(published_batch=8), "ended at batch 7, the table is at 8"),
        (lambda: without(0), "numbers 1-2 (load, batches 0 to 0) belong to no publication"),
        (lambda: without(3), "batches 6 to 7 follows one that ended at batch 4"),
        (lambda: record(publications=WHOLE.publications[::-1]), "the one before ended at 0"),
        (lambda: recounted(2, compacted=0), "read 7 changes, but the ledger counts 6"),
        (lambda: recounted(3, changes=5, duplicates=3), "read 5 changes, but its batches contain 4"),
        (lambda: recounted(4, published=3, rejected=0), "published 3 rows, but its files contain 2"),
        (lambda: recounted(1, loaded=8), "published 8 rows, but its files contain 9"),
        (lambda: record(contents=WHOLE.contents[:2]), "read 7 changes, but its batches contain 6"),
    ],
)
def test_publications_that_do_not_add_up(broken: Callable[[], TableRecord], text: str) -> None:
    """I1, I7: batches and numbers follow each other without gap, and every logged change has one disposition."""
    findings = check_table(broken(), [])
    assert "COUNTS_DIFFER" in codes(findings)
    assert text in "; ".join(str(finding.evidence["problems"]) for finding in findings)
    assert all(finding.stops for finding in findings)


COUNTED = [(place, name) for place, one in enumerate([*LOADS, *CHANGES]) for name in one.counts]


@given(st.sampled_from(COUNTED), st.integers(-3, 3).filter(bool))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_no_single_count_can_be_edited_unseen(counted: tuple[int, str], by: int) -> None:
    """I1: whatever count moves by whatever amount."""
    place, name = counted
    broken = recounted(place, **{name: WHOLE.publications[place].counts[name] + by})
    assert codes(check_table(broken, FILES)) == ["COUNTS_DIFFER"]


@given(st.sampled_from(range(len(WHOLE.contents))), st.integers(-3, 3).filter(bool))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_only_published_batches_count(place: int, by: int) -> None:
    contents = list(WHOLE.contents)
    contents[place] = contents[place]._replace(rows=contents[place].rows + by)
    published_one = WHOLE.first_batch < contents[place].batch <= WHOLE.state.row.published_batch
    assert codes(check_table(record(contents=contents), FILES)) == (["COUNTS_DIFFER"] if published_one else [])


def test_what_waited_is_released_or_waits_still() -> None:
    """I1, C-88: what publications let in and let out is what the ledger says that waits; rows shown anew are taken."""
    cut = [
        replace_counts(CHANGES[0], waiting=2, published=3),
        replace_counts(CHANGES[1], released=1, renewed=1, superseded=4),
        CHANGES[2],
    ]
    files = [file._replace(rows={4: 2, 5: 1}.get(file.number, file.rows)) for file in WHOLE.published]
    changed = record(publications=[*LOADS, *cut], published=files)
    assert check_table(record(changed, waiting_rows=1), []) == []
    (found,) = check_table(changed, [])
    assert found.code == "COUNTS_DIFFER" and "2 changes were to wait" in found.what


def replace_counts(publication: Publication, **counts: int) -> Publication:
    return publication._replace(counts={**publication.counts, **counts})
