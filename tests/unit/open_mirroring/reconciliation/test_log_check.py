"""The deep check of the change log: a whole log gives nothing, each break its own code, at its own table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.changes.horizon import BatchContents
from open_mirroring.changes.manifest import Manifest
from open_mirroring.protocols.verdicts import DeepFinding
from open_mirroring.reconciliation.log_check import LogCount, LogFile, LogRecord, LogState, PieceCount, check_log

ORDERS, CUSTOMERS, QUIET = "dbo.orders", "dbo.customers", "dbo.quiet"


def file(path: str, rows: int, tables: Mapping[str, Mapping[str, Sequence[Any]]]) -> dict[str, Any]:
    return {"path": f"batch_block=0/{path}", "rows": rows, "size": 10 * rows, "tables": tables}


MANIFESTS = {
    1: Manifest(
        # 5 + 2 changes, 5 fragments, 1 dead letter in two files
        files=[
            file("000000000001-a-0", 6, {ORDERS: {"e": [3, "1", "5"]}, CUSTOMERS: {"e": [2, "1", "2"]}}),
            file("000000000001-a-1", 7, {ORDERS: {"e": [1, "0", "3"], "f": [1, "7", "7"]}}),
        ],
        counts={"messages": 14, "changes": 7, "fragments": 5, "metadata": 0, "ignored": 1, "rejected": 1},
    ),
    2: Manifest(files=[], counts={"messages": 3, "ignored": 3}),
    3: Manifest(
        # one change is a joined event, one dead letter an expired piece: neither is a message of this batch
        files=[file("000000000003-b-0", 5, {CUSTOMERS: {"e": [3, "8", "9"]}})],
        counts={"messages": 3, "changes": 2, "fragments": 1, "expired": 1, "joined": 2, "repeated": 1},
    ),
}
CONTENTS = {
    ORDERS: [BatchContents(1, "e", 4, "0", "5", ()), BatchContents(1, "f", 1, "7", "7", ())],
    CUSTOMERS: [BatchContents(1, "e", 2, "1", "2", ()), BatchContents(3, "e", 3, "8", "9", ())],
    QUIET: [],
}
WAITING = {"x": 1, "z": 3}
RECORD = LogRecord(committed=3, newest=4, manifests=MANIFESTS, contents=CONTENTS, waiting=WAITING)
COUNTS = [
    LogCount(1, "change", ORDERS, "e", 4, "0", "5"),
    LogCount(1, "change", ORDERS, "f", 1, "7", "7"),
    LogCount(1, "change", CUSTOMERS, "e", 2, "1", "2"),
    LogCount(1, "fragment", None, "e", 5, "3", "3"),
    LogCount(1, "rejected", None, None, 1, None, None),
    LogCount(3, "change", CUSTOMERS, "e", 3, "8", "9"),
    LogCount(3, "rejected", ORDERS, "e", 1, "4", "4"),
    LogCount(3, "fragment", None, "e", 1, "3", "3"),
    # sealed and committed to the log, not completed in the ledger yet
    LogCount(4, "change", ORDERS, "e", 1, "9", "9"),
]
FILES = {
    **{one["path"]: LogFile(one["rows"], one["size"]) for manifest in MANIFESTS.values() for one in manifest.files},
    "batch_block=0/000000000004-c-0": LogFile(1, 10),
}
PIECES = [
    PieceCount("x", 1, 1),
    PieceCount("x", 4, 5),  # not committed yet
    PieceCount("z", 1, 1),  # joined before this event was sent again, in part
    PieceCount("z", 3, 1),
]
LOG = LogState(COUNTS, PIECES, FILES)


def found(findings: Sequence[DeepFinding]) -> list[tuple[str | None, str]]:
    return [(finding.table, finding.code) for finding in findings]


def test_a_complete_log_gives_nothing() -> None:
    """Also with a batch under way, a batch without rows, and an epoch of its own."""
    assert check_log(RECORD, LOG) == []
    assert check_log(LogRecord(0, 0, {}, {ORDERS: []}, {}), LogState()) == []


def test_what_was_logged_of_a_table_that_was_dropped_since_is_no_finding() -> None:
    """F-71: the log keeps it, as it was sealed; rows that nobody sealed are found all the same."""
    kept = replace(RECORD, contents={source: parts for source, parts in CONTENTS.items() if source != CUSTOMERS})
    assert check_log(kept, LOG) == []
    assert found(check_log(kept, recounted(2, rows=4))) == [(None, "LOG_DAMAGED")]


def log(**changes: Any) -> LogState:
    return replace(LOG, **changes)


def recounted(place: int, **changes: Any) -> LogState:
    counts = list(COUNTS)
    counts[place] = counts[place]._replace(**changes)
    return log(counts=counts)


def without(*places: int) -> LogState:
    return log(counts=[count for place, count in enumerate(COUNTS) if place not in places])


def with_counts(batch: int, **counts: int) -> LogRecord:
    manifest = replace(MANIFESTS[batch], counts={**MANIFESTS[batch].counts, **counts})
    return replace(RECORD, manifests={**MANIFESTS, batch: manifest})


def with_contents(source: str, contents: list[BatchContents]) -> LogRecord:
    return replace(RECORD, contents={**CONTENTS, source: contents})


@pytest.mark.parametrize(
    ("state", "expected", "text"),
    [
        (without(0, 1), [(ORDERS, "LOG_DAMAGED")], "the ledger recorded 5 changes, the change log has none"),
        (without(1), [(ORDERS, "LOG_DAMAGED")], "1 changes from 7 to 7 recorded, no changes in the log"),
        (recounted(2, rows=4), [(CUSTOMERS, "LOG_DAMAGED")], "2 changes from 1 to 2 recorded, 4 changes"),
        (recounted(2, highest="3"), [(CUSTOMERS, "LOG_DAMAGED")], "2 changes from 1 to 3 in the log"),
        (
            recounted(2, table=QUIET),
            [(CUSTOMERS, "LOG_DAMAGED"), (QUIET, "LOG_DAMAGED")],
            "no changes recorded, 2 changes",
        ),
        (
            recounted(2, table="dbo.other"),
            [(CUSTOMERS, "LOG_DAMAGED"), (None, "LOG_DAMAGED")],
            "2 changes of 'dbo.other', which is not mirrored",
        ),
        (recounted(5, batch=2), [(CUSTOMERS, "LOG_DAMAGED")], "batch 2: no changes recorded, 3 changes"),
        (without(3), [(None, "LOG_DAMAGED")], "0 fragments and 1 dead letters in the log, sealed were 5 frag"),
        (recounted(6, rows=3), [(None, "LOG_DAMAGED")], "batch 3: 1 fragments and 3 dead letters"),
        (without(5, 6, 7), [(CUSTOMERS, "LOG_DAMAGED"), (None, "LOG_DAMAGED")], "the change log contains nothing"),
        (recounted(8, batch=5), [(None, "LEDGER_BEHIND")], "batches [5], the ledger ends at 4"),
        (log(unreadable="torn"), [(None, "LOG_DAMAGED")], "torn"),
    ],
)
def test_a_log_that_is_not_what_was_committed(
    state: LogState, expected: list[tuple[str | None, str]], text: str
) -> None:
    """I29: each committed batch exactly once, table by table; what belongs to no table concerns the log."""
    findings = check_log(RECORD, state)
    assert found(findings) == expected
    assert text in "; ".join(finding.what for finding in findings)
    assert all(finding.stops is (finding.table is not None) for finding in findings)


@pytest.mark.parametrize(
    ("record", "expected", "text"),
    [
        (with_counts(1, messages=15), [(None, "COUNTS_DIFFER")], "15 messages were read, the ledger counts 14"),
        (with_counts(2, metadata=1), [(None, "COUNTS_DIFFER")], "3 messages were read, the ledger counts 4"),
        (with_counts(3, messages=5, rejected=2), [(None, "COUNTS_DIFFER")], "fewer dead letters were written"),
        (
            with_counts(1, fragments=4, ignored=2),
            [(None, "COUNTS_DIFFER"), (None, "LOG_DAMAGED")],
            "sealed were 4 fragments and 2 dead letters",
        ),
        (
            with_contents(CUSTOMERS, CONTENTS[CUSTOMERS][:1]),
            [(CUSTOMERS, "COUNTS_DIFFER"), (CUSTOMERS, "LOG_DAMAGED")],
            "batch 3: no changes recorded, 3 changes from 8 to 9 in its sealed files",
        ),
        (
            with_contents(QUIET, [BatchContents(2, "e", 1, "1", "1", ())]),
            [(QUIET, "COUNTS_DIFFER"), (QUIET, "LOG_DAMAGED")],
            "batch 2: 1 changes from 1 to 1 recorded, no changes in its sealed files",
        ),
        (with_counts(3, joined=1), [(None, "COUNTS_DIFFER")], "6 pieces of split messages were logged, 3 were joined"),
        (with_counts(3, joined=4), [(None, "COUNTS_DIFFER")], "6 pieces of split messages were logged, 6 were joined"),
        (replace(RECORD, waiting={"x": 1}), [(None, "COUNTS_DIFFER")], "4 were joined or ended otherwise, 1 wait"),
        (
            replace(RECORD, manifests={1: MANIFESTS[1], 3: MANIFESTS[3]}),
            [(None, "LOG_DAMAGED")],
            "no record of the committed batches [2]",
        ),
        (
            replace(RECORD, manifests={1: MANIFESTS[1], 2: MANIFESTS[2]}),
            [(None, c) for c in ("COUNTS_DIFFER", "LOG_DAMAGED", "LEDGER_BEHIND")],
            "the change log contains batch 3, of which the ledger has no record",
        ),
    ],
)
def test_a_ledger_that_contradicts_itself_or_the_log(
    record: LogRecord, expected: list[tuple[str | None, str]], text: str
) -> None:
    """I1: messages add up, and what was recorded of a batch is what its sealed files hold."""
    findings = check_log(record, LOG)
    assert found(findings) == expected
    assert text in "; ".join(str(finding.evidence["problems"]) for finding in findings)


@pytest.mark.parametrize(
    ("files", "text"),
    [
        (lambda f: f.pop("batch_block=0/000000000003-b-0"), "000000000003-b-0 was committed and is no longer part"),
        (lambda f: f.update({"batch_block=0/000000000003-z-0": LogFile(1, 1)}), "3-z-0 is part of the change log"),
        (lambda f: f.update({"batch_block=0/part-0.parquet": LogFile(1, 1)}), "part-0.parquet is part of the"),
        (lambda f: f.update({"batch_block=0/000000000001-a-0": LogFile(6, 1)}), "6 rows and 1 bytes, sealed were 6"),
    ],
)
def test_files_that_were_never_sealed_or_are_gone(files: Callable[[dict[str, LogFile]], Any], text: str) -> None:
    """Publishing reads sealed files by name: a rewritten log is reported although its rows may be the same."""
    changed = dict(FILES)
    files(changed)
    (finding,) = check_log(RECORD, log(files=changed))
    assert (finding.table, finding.code, finding.stops) == (None, "LOG_DAMAGED", False)
    assert text in finding.what


@given(st.integers(0, 7), st.integers(-2, 3).filter(bool))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_no_row_of_a_committed_batch_is_lost_or_doubled_unseen(place: int, by: int) -> None:
    """I29: whichever count moves, some finding says so, and never at a table that it does not concern."""
    rows = COUNTS[place].rows + by
    state = recounted(place, rows=rows) if rows > 0 else without(place)
    findings = check_log(RECORD, state)
    concerned = COUNTS[place].table if COUNTS[place].kind == "change" else None
    assert {finding.table for finding in findings} == {concerned}
