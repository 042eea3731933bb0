"""The verdict: one for every combination, STOP before HOLD before PASS, no false alarm, no claim too much (I7–I24)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.codes import CODES
from open_mirroring.fabric.target_status import TargetState, TargetStatus
from open_mirroring.landing_zone.layout import file_name
from open_mirroring.landing_zone.listing import FileStage, ListedItem, split_listing
from open_mirroring.landing_zone.schema import TableSchema
from open_mirroring.landing_zone.store import FoundMarker, ObjectInfo
from open_mirroring.ledger.reading import TableState
from open_mirroring.protocols.publishing import Intent, StagedFile, TableRow, Work
from open_mirroring.protocols.verdicts import Backlog, Finding, Verdict, gate
from open_mirroring.reconciliation.verdict_table import Folder, Limits, TableFacts, reconcile

NOW = datetime(2026, 1, 31, tzinfo=UTC)
YOUNG, OLD = NOW - timedelta(days=1), NOW - timedelta(days=8)
F, P, R, NOWHERE = FileStage.FINAL, FileStage.PROCESSED, FileStage.READY_TO_DELETE, None
SEVERITY = {Verdict.PASS: 0, Verdict.HOLD: 1, Verdict.STOP: 2}


@dataclass(frozen=True)
class Record:
    etag: str
    size: int = 100
    rows: int = 10
    digest: str = "0" * 32
    confirmed_at: datetime = YOUNG


def record(number: int, at: datetime = YOUNG, rows: int = 10) -> Record:
    return Record(f"e{number}", rows=rows, digest=f"{number:032x}", confirmed_at=at)


def item(number: int, stage: FileStage, *, etag: str | None = None, size: int = 100) -> ListedItem:
    return ListedItem(file_name(number), stage, size, f"e{number}" if etag is None else etag)


def sealed(first: int, count: int) -> Intent:
    files = tuple(StagedFile(f"s{n}", f"e{n}", "0" * 32) for n in range(count))
    return Intent(first, 5, Work("changes", 9), files)


def facts(confirmed: int = 0, *items: ListedItem, at: datetime = YOUNG, intent: Intent | None = None) -> TableFacts:
    row = TableRow(
        version=9,
        generation=1,
        incarnation="g1",
        established=True,
        confirmed=confirmed,
        published_batch=5,
        intent=intent,
    )
    published = {number: record(number, at) for number in range(1, confirmed + 1)}
    state = TableState("id", "dbo.t", "dbo.schema/t", ("id",), row, TableSchema(()))
    return TableFacts(state, published, Folder(items, FoundMarker("g1", ""), True), NOW)


def but(known: TableFacts, **changed: Any) -> TableFacts:
    """The same facts, with something changed that lies in one of their parts."""

    def within(part: Any, *names: str) -> Any:
        return part._replace(**{name: changed.pop(name) for name in names if name in changed})

    marker = within(known.folder.marker, "incarnation", "etag")
    folder = within(known.folder, "items", "metadata_matches")._replace(marker=marker)
    start = within(known.state.start, "load_state", "load_refused")
    state = within(known.state, "row", "stop_what")._replace(start=start)
    return replace(known, folder=folder, state=state, **changed)


def codes(finding: Finding) -> set[str]:
    also = finding.evidence.get("also", [])
    assert isinstance(also, list)
    return {finding.code, *also} - {"OK"}


# --- the total table ------------------------------------------------------------------------------------------

POSITIONS = {"first": 1, "middle": 2, "last": 3}
HEALTHY = {1: P, 2: P, 3: F}


def expected(place: FileStage | None, row: str, match: bool) -> str:
    """The verdict table of one number among healthy neighbours, three days young."""
    if row == "intent":
        return "OK"  # the publisher knows what it sealed
    if place is NOWHERE:
        return "FILE_MISSING"
    if row == "no row":
        return "LEDGER_BEHIND"
    return "OK" if match else "CONTENT_CHANGED"


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("row", ["no row", "intent", "published"])
@pytest.mark.parametrize("match", [True, False])
@pytest.mark.parametrize("place", [F, P, R, NOWHERE])
def test_every_combination_of_one_number_has_its_verdict(
    place: FileStage | None, row: str, position: str, match: bool
) -> None:
    number = POSITIONS[position]
    if row == "intent":
        known = facts(1, item(1, F), intent=sealed(2, 3))
        number += 1
        items = [item(1, F)]
    else:
        known = facts(3)
        items = [item(n, stage) for n, stage in HEALTHY.items() if n != number]
        if row == "no row":
            known = but(known, published={n: r for n, r in known.published.items() if n != number})
    if place is not NOWHERE:
        items.append(item(number, place, size=100 if match else 99))
    finding = reconcile(but(known, items=tuple(items)))
    assert finding.code == expected(place, row, match)
    assert (finding.verdict is Verdict.PASS) == (finding.code == "OK")
    assert finding == reconcile(but(known, items=tuple(reversed(items)))), "the order of a listing says nothing"


def test_every_combination_of_three_numbers_is_decided_as_the_rules_say() -> None:
    """Exhaustive: each of three published numbers in 7 states, old or young, with and without an open intent."""
    states = [*product((F, P, R), (True, False)), (NOWHERE, True)]
    intents = [None, Intent(4, 5, Work("changes", 9)), sealed(4, 1)]
    for combination in product(states, repeat=3):
        for at, intent, next_seen in product((YOUNG, OLD), intents, (False, True)):
            items = [
                item(n, stage, size=100 if match else 99)
                for n, (stage, match) in enumerate(combination, 1)
                if stage is not NOWHERE
            ]
            if next_seen:
                items.append(item(4, F))
            finding = reconcile(facts(3, *items, at=at, intent=intent))
            places = {n: stage for n, (stage, _) in enumerate(combination, 1)} | ({4: F} if next_seen else {})
            seen = {n for n, stage in places.items() if stage is not NOWHERE}
            moved = {n for n in seen if places[n] is not F}
            want = set()
            if any(stage is not NOWHERE and not match for stage, match in combination):
                want.add("CONTENT_CHANGED")
            if next_seen and (intent is None or intent.manifest is None):
                want.add("LEDGER_BEHIND")
            for n in {1, 2, 3} - seen:
                above, below = any(m > n for m in seen), any(m < n for m in seen)
                if not above or (below and not any(m > n for m in moved)) or at is YOUNG:
                    want.add("FILE_MISSING")
            assert codes(finding) == want, (combination, at, intent, next_seen)
            assert finding.verdict is (Verdict.STOP if want else Verdict.PASS)
            json.dumps(finding.evidence)


def test_every_combination_with_what_the_target_says_has_one_verdict() -> None:
    """Exhaustive: state × counter × place of the middle number; STOP before HOLD before PASS, and never an error."""
    stops = {TargetState.FAILED, TargetState.STOPPED}
    passing = {TargetState.RUNNING, TargetState.NOT_STARTED}
    holds = set(TargetState) - stops - passing
    for state, counted, place in product(TargetState, (None, 0, 10, 20, 30), (F, P, NOWHERE)):
        items = [item(1, P), *([] if place is NOWHERE else [item(2, place)]), item(3, F)]
        status = TargetStatus(state, "said", counted)
        finding = reconcile(but(facts(3, *items), target=status, counted_before=10))
        want = set()
        if place is NOWHERE:
            want.add("FILE_MISSING")
        if state in stops:
            want.add("TARGET_FAILED")
        if counted == 0:
            want.add("TARGET_RESTARTED")
        severity = Verdict.STOP if want else Verdict.HOLD if state in holds else Verdict.PASS
        assert finding.verdict is severity, (state, counted, place)
        assert want <= codes(finding) and (codes(finding) == want or state in holds)
        json.dumps(finding.evidence)


# --- single rules ---------------------------------------------------------------------------------------------


def test_a_table_that_was_never_established_may_have_no_folder() -> None:
    fresh = facts()
    fresh = but(fresh, row=replace(fresh.row, established=False), incarnation=None, metadata_matches=None)
    assert reconcile(fresh).code == "OK"
    assert reconcile(but(fresh, incarnation="g1", metadata_matches=True)).code == "OK", "crash before it was recorded"
    assert reconcile(but(fresh, incarnation="g0")).code == "FOREIGN_WRITER", "another ledger was here first"
    assert reconcile(but(fresh, metadata_matches=False)).code == "METADATA_CHANGED"
    assert reconcile(but(fresh, items=(item(1, F),))).code == "LEDGER_BEHIND"
    assert reconcile(but(fresh, items=(ListedItem("x", FileStage.FOREIGN, 1, "e"),))).code == "FOREIGN_ITEM"


@pytest.mark.parametrize("etag", ["", "e-late"])
def test_another_object_with_our_id_is_another_incarnation(etag: str) -> None:
    """F-72, I12: a creation that arrived late can put our id into somebody else's folder, never the same object."""
    known = facts(1, item(1, F))
    known = but(known, row=replace(known.row, marker_etag="e-first"), etag="e-first")
    assert reconcile(known).code == "OK"
    finding = reconcile(but(known, etag=etag))
    assert (finding.verdict, finding.code) == (Verdict.STOP, "INCARNATION_CHANGED")
    assert finding.evidence["expected_etag"] == "e-first"
    unbound = replace(known.row, established=False, marker_etag="")
    assert reconcile(but(known, row=unbound, etag=etag)).code == "OK", "bound when it is established"


def test_foreign_items_stop_and_are_shown_escaped_and_short() -> None:
    """F-31, I23: what has no number of ours is not ours."""
    names = ["a\x1b[31m\r\n", "\u202egnp.exe", "x" * 5000, *(f"n{n}" for n in range(50))]
    foreign = tuple(ListedItem(name, FileStage.FOREIGN, 1, "e") for name in names)
    finding = reconcile(but(facts(1, item(1, F)), items=(item(1, F), *foreign)))
    assert finding.code == "FOREIGN_ITEM"
    assert finding.evidence["foreign_count"] == 53
    text = finding.what + json.dumps(finding.evidence, ensure_ascii=False)
    assert text.isprintable() and len(text) < 2000
    assert "\\x1b[31m\\r\\n" in finding.what


def test_an_intent_explains_the_numbers_that_it_sealed_and_no_higher_one() -> None:
    """F-33, F-39: numbers are given away by the ledger, with what they hold; any other is somebody else's."""
    assert reconcile(facts(1, item(1, F), item(2, F), intent=sealed(2, 1))).code == "OK"
    assert reconcile(facts(1, item(1, F), item(3, F), intent=sealed(2, 1))).code == "LEDGER_BEHIND"


def test_a_number_that_was_moved_and_is_back_stops() -> None:
    """I8, F-37: a processed path is never read again, so whoever put it there expects something that will not be."""
    for moved in (P, R):
        assert reconcile(facts(2, item(1, moved), item(1, F), item(2, F))).code == "FOREIGN_ITEM"
    assert reconcile(facts(2, item(1, P), item(1, R), item(2, F))).code == "OK", "on its way between the two"


def test_etags_count_in_the_folder_sizes_everywhere() -> None:
    """F-37, I8; what a move of the service does to ETags is documented nowhere."""
    assert reconcile(facts(1, item(1, F, etag="other"))).code == "CONTENT_CHANGED"
    assert reconcile(facts(2, item(1, P, etag="other"), item(2, F))).code == "OK"
    assert reconcile(facts(2, item(1, P, size=99), item(2, F))).code == "CONTENT_CHANGED"


def test_purged_files_are_no_alarm_and_young_ones_are() -> None:
    """F-36, I22: seven days after the move they are gone, in order; the last one stays (F-35)."""
    old = facts(5, item(5, F), at=OLD)
    finding = reconcile(old)
    assert (finding.code, finding.notes, finding.applied) == ("OK", ("PURGED: 1-4",), 4)
    mixed = but(old, published={**old.published, 4: record(4, YOUNG)})
    finding = reconcile(mixed)
    assert (finding.code, finding.evidence["missing"]) == ("FILE_MISSING", "4")
    at_the_edge = facts(2, item(2, F), at=NOW - timedelta(days=7))
    assert reconcile(at_the_edge).code == "FILE_MISSING"
    for higher in (P, R):
        assert reconcile(facts(3, item(2, higher), item(3, F), at=OLD)).notes == ("PURGED: 1",)
        taken_away = reconcile(facts(3, item(2, higher), item(3, F), at=YOUNG))
        assert (taken_away.code, taken_away.evidence["missing"]) == ("FILE_MISSING", "1"), "it moved, and not long ago"
    assert reconcile(but(facts(5, item(5, F), at=OLD), published={5: record(5)}, settled=4)).code == "OK"
    assert reconcile(but(facts(5, item(5, F), at=OLD), published={5: record(5)}, settled=3)).code == "FILE_MISSING"


def test_a_last_file_that_was_moved_is_a_note() -> None:
    finding = reconcile(facts(2, item(1, P), item(2, R)))
    assert (finding.code, finding.applied) == ("OK", 2)
    assert finding.notes[0].startswith("LAST_NOT_KEPT: number 2")


def test_the_last_file_alone_is_no_backlog() -> None:
    """F-35: it stays although it was applied; with another one below it, both wait."""
    limits = Limits(max_files=0, max_bytes=0, max_age=timedelta(0))
    alone = but(facts(3, item(1, P), item(2, P), item(3, F)), limits=limits)
    assert (reconcile(alone).code, reconcile(alone).backlog) == ("OK", Backlog())
    two = but(alone, items=(item(1, P), item(2, F), item(3, F, size=100)))
    assert (reconcile(two).code, reconcile(two).backlog) == ("BACKLOG", Backlog(2, 200, YOUNG))
    below_an_intent = but(facts(3, item(1, P), item(2, P), item(3, F), item(4, F), intent=sealed(4, 1)), limits=limits)
    assert reconcile(below_an_intent).backlog == Backlog(1, 100, YOUNG)


@pytest.mark.parametrize(
    ("limits", "held"),
    [
        (Limits(), False),
        (Limits(max_files=3), False),
        (Limits(max_files=2), True),
        (Limits(max_bytes=300), False),
        (Limits(max_bytes=299), True),
        (Limits(max_age=timedelta(days=1)), False),
        (Limits(max_age=timedelta(hours=23)), True),
    ],
)
def test_a_backlog_over_a_limit_holds(limits: Limits, held: bool) -> None:
    """I18."""
    finding = reconcile(but(facts(3, item(1, F), item(2, F), item(3, F)), limits=limits))
    assert finding.backlog == Backlog(3, 300, YOUNG)
    assert (finding.verdict, finding.code) == ((Verdict.HOLD, "BACKLOG") if held else (Verdict.PASS, "OK"))


@pytest.mark.parametrize(
    ("state", "verdict", "code"),
    [
        (TargetState.RUNNING, Verdict.PASS, "OK"),
        (TargetState.PAUSED, Verdict.HOLD, "PAUSED"),
        (TargetState.THROTTLED, Verdict.HOLD, "TARGET_BUSY"),
        (TargetState.NOT_STARTED, Verdict.PASS, "OK"),
        (TargetState.NOT_READY, Verdict.HOLD, "TARGET_BUSY"),
        (TargetState.UNKNOWN, Verdict.HOLD, "STATUS_UNKNOWN"),
        (TargetState.REFUSED, Verdict.HOLD, "STATUS_REFUSED"),
        (TargetState.FAILED, Verdict.STOP, "TARGET_FAILED"),
        (TargetState.STOPPED, Verdict.STOP, "TARGET_FAILED"),
    ],
)
def test_the_targets_health_counts(state: TargetState, verdict: Verdict, code: str) -> None:
    """I24, R-02."""
    finding = reconcile(but(facts(1, item(1, F)), target=TargetStatus(state, "because\n")))
    assert (finding.verdict, finding.code) == (verdict, code)
    assert code == "OK" or "'because\\n'" in finding.what
    story = finding.evidence["target"]
    assert isinstance(story, dict)
    assert (story["state"], story["said"]) == (state.value, "'because\\n'"), "which evidence was used is recorded"


@pytest.mark.parametrize(("before", "now", "stops"), [(0, 0, False), (9, 9, False), (9, None, False), (9, 8, True)])
def test_a_target_that_counts_fewer_rows_than_before_lost_some_f_76(before: int, now: int | None, stops: bool) -> None:
    """F-76: no listing shows it; the counter only ever grows over a table's life."""
    status = TargetStatus(TargetState.RUNNING, counted_rows=now)
    finding = reconcile(but(facts(1, item(1, F)), target=status, counted_before=before))
    assert (finding.verdict, finding.code) == ((Verdict.STOP, "TARGET_RESTARTED") if stops else (Verdict.PASS, "OK"))


def test_the_ledgers_own_stop_comes_first_and_everything_else_is_named() -> None:
    worst = facts(
        3, item(1, F, etag="x"), item(3, P), item(3, F), item(9, F), ListedItem("junk", FileStage.FOREIGN, 1, "e")
    )
    worst = but(
        worst,
        row=replace(worst.row, stop="CONFLICT"),
        stop_what="number 3 is visible with other content",
        incarnation=None,
        metadata_matches=None,
        load_state="pending",
        target=TargetStatus(TargetState.FAILED),
    )
    finding = reconcile(worst)
    assert (finding.verdict, finding.code, finding.what) == (Verdict.STOP, "CONFLICT", worst.state.stop_what)
    assert finding.evidence["also"] == [
        "INCARNATION_CHANGED",
        "METADATA_CHANGED",
        "FOREIGN_ITEM",
        "LEDGER_BEHIND",
        "CONTENT_CHANGED",
        "FILE_MISSING",
        "TARGET_FAILED",
        "LOAD_PENDING",
    ]


def test_a_pending_load_holds_after_everything_else() -> None:
    pending = but(facts(3, item(1, F), item(2, F), item(3, F)), load_state="pending")
    assert (reconcile(pending).verdict, reconcile(pending).code) == (Verdict.HOLD, "LOAD_PENDING")
    finding = reconcile(but(pending, limits=Limits(max_files=0), target=TargetStatus(TargetState.PAUSED)))
    assert (finding.code, finding.evidence["also"]) == ("PAUSED", ["BACKLOG", "LOAD_PENDING"])
    assert (
        "STREAM_FROM_INVALID: read later"
        in reconcile(but(pending, load_refused="STREAM_FROM_INVALID: read later")).what
    )


def test_a_load_ahead_of_its_stream_holds_g84() -> None:
    ahead = but(facts(3, item(1, F), item(2, F), item(3, F)), load_ahead="the stream has only reached 0A")
    found = reconcile(ahead)
    assert (found.verdict, found.code, found.what) == (Verdict.HOLD, "LOAD_AHEAD", "the stream has only reached 0A")
    assert reconcile(but(ahead, load_state="pending")).code == "LOAD_PENDING"


def test_every_code_has_a_next_step() -> None:
    assert reconcile(facts()).next_step == ""
    for code in CODES:
        assert reconcile(but(facts(), row=replace(facts().row, stop=code))).next_step == CODES[code].next_step
    assert reconcile(but(facts(), row=replace(facts().row, stop="SCHEMA_CHANGED"))).next_step


# --- properties -----------------------------------------------------------------------------------------------


@st.composite
def any_facts(draw: st.DrawFn) -> TableFacts:
    """Any facts at all, most of them impossible ones."""
    confirmed = draw(st.integers(0, 5))
    numbers = st.integers(1, 7)
    counts = st.none() | st.integers(0, 60)
    items = draw(st.lists(st.builds(item, numbers, st.sampled_from([F, P, R])), max_size=8, unique=True))
    intent = draw(st.none() | st.just(Intent(confirmed + 1, 5, Work("changes", 9))) | st.just(sealed(confirmed + 1, 1)))
    known = facts(confirmed, *items, at=draw(st.sampled_from([YOUNG, OLD])), intent=intent)
    return but(
        known,
        published={n: r for n, r in known.published.items() if n not in draw(st.sets(numbers, max_size=1))},
        row=replace(known.row, established=draw(st.booleans())),
        incarnation=draw(st.sampled_from(["g1", "g1", None, "g0"])),
        etag=draw(st.sampled_from(["", "", "e-late"])),
        metadata_matches=draw(st.sampled_from([True, True, None, False])),
        settled=draw(st.integers(0, 3)),
        load_state=draw(st.sampled_from(["none", "pending"])),
        target=draw(st.none() | st.builds(TargetStatus, st.sampled_from(TargetState), st.just(""), counts)),
        counted_before=draw(st.sampled_from([0, 0, 30])),
        limits=Limits(draw(st.none() | st.integers(0, 2))),
    )


@settings(derandomize=True, deadline=None, max_examples=200)
@given(any_facts())
def test_more_trouble_never_makes_a_verdict_milder(known: TableFacts) -> None:
    """Whatever else is found wrong, a STOP stays a STOP, until the ledger changes."""
    before = reconcile(known)
    assert before == reconcile(known)
    json.dumps(before.evidence)
    for worse in (
        but(known, items=(*known.folder.items, ListedItem("junk", FileStage.FOREIGN, 1, "e"))),
        but(known, items=(*known.folder.items, item(9, F))),
        but(known, items=(*known.folder.items, item(9, P))),
        but(known, incarnation="g0"),
        but(known, etag="e-late"),
        but(known, metadata_matches=False),
        but(known, row=replace(known.row, stop="CONFLICT")),
        but(known, load_state="pending"),
        but(known, limits=Limits(0, 0, timedelta(0))),
        but(known, target=(known.target or TargetStatus(TargetState.RUNNING))._replace(state=TargetState.FAILED)),
        but(known, counted_before=10**9),
    ):
        assert SEVERITY[reconcile(worse).verdict] >= SEVERITY[before.verdict]


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.lists(st.sampled_from(["publish", "apply", "move", "hours", "days"]), max_size=60), st.data())
def test_an_honest_service_raises_no_alarm_and_no_claim_is_too_bold(moves: list[str], data: st.DataObject) -> None:
    """A service that keeps its rules never stops a table, and what counts as applied was applied."""
    now, confirmed, applied, kept_from = NOW, 0, 0, 1
    published: dict[int, Record] = {}
    moved_at: dict[int, datetime] = {}
    for move in moves:
        if move == "publish":
            confirmed += 1
            published[confirmed] = record(confirmed, now)
        elif move == "apply":
            applied = min(applied + 1, confirmed)
        elif move == "move" and kept_from <= applied and kept_from < confirmed:
            moved_at[kept_from] = now
            kept_from += 1
        else:
            now += timedelta(hours=5) if move == "hours" else timedelta(days=3)
        processed = [n for n, at in moved_at.items() if now - at <= timedelta(days=7)]
        items = [item(n, data.draw(st.sampled_from([P, R]))) for n in processed]
        items += [item(n, F) for n in range(kept_from, confirmed + 1)]
        known = but(facts(confirmed, *items), published=published, now=now)
        finding = reconcile(known)
        assert finding.verdict is Verdict.PASS, finding
        assert finding.applied <= applied
        if confirmed - applied > 1:  # one alone may be the last that was kept (F-35)
            assert finding.backlog.files >= confirmed - applied


# --- listing and gate -----------------------------------------------------------------------------------------


def test_a_listing_is_split_by_where_files_are_on_their_way() -> None:
    """F-05, F-36: both places of the processed folders; other tables and other underscore names left out."""
    n = file_name
    paths = {
        f"dbo.schema/t/{n(4)}": (n(4), F),
        f"dbo.schema/t/_ProcessedFiles/{n(3)}": (n(3), P),
        f"dbo.schema/t/_FilesReadyToDelete/{n(2)}": (n(2), R),
        f"_ProcessedFiles/dbo.schema/t/{n(1)}": (n(1), P),
        f"_FilesReadyToDelete/dbo.schema/t/deeper/{n(7)}": (n(7), R),
        "dbo.schema/t/_stage-3/5.abc": ("5.abc", FileStage.STAGING),
        "dbo.schema/t/notes.txt": ("notes.txt", FileStage.FOREIGN),
        f"dbo.schema/t/{n(1)[:-8]}.csv": (f"{n(1)[:-8]}.csv", FileStage.FOREIGN),
        f"dbo.schema/t/{'0' * 20}.parquet": (f"{'0' * 20}.parquet", FileStage.FOREIGN),
        f"dbo.schema/t/sub/{n(9)}": (f"sub/{n(9)}", FileStage.FOREIGN),
        "dbo.schema/t/_stage-2/5.abc": None,
        "dbo.schema/t/_metadata.json": None,
        "dbo.schema/t/_incarnation.json": None,
        "dbo.schema/t/_FilesReadyToDelete/_FilesReadyToDeleteInfo.json": None,
        "dbo.schema/t/_ProcessedFiles/something.else": None,
        f"dbo.schema/t2/{n(1)}": None,
        f"dbo.schema/{n(1)}": None,
        f"_ProcessedFiles/dbo.schema/t2/{n(1)}": None,
    }
    items = split_listing("dbo.schema/t", (ObjectInfo(path, 7, f"e {path}") for path in paths), generation=3)
    found = {found.etag.removeprefix("e "): (found.name, found.stage) for found in items}
    assert found == {path: want for path, want in paths.items() if want}
    assert {found.number for found in items} == {4, 3, 2, 1, 7, None}


def test_only_a_look_that_saw_nothing_staged_says_that_nothing_is_left_over() -> None:
    """A publication sweeps the folders of all other tables."""
    staged = ListedItem("1.abc", FileStage.STAGING, 1, "e")
    assert not reconcile(facts(1, item(1, F))).left_over
    assert reconcile(facts(1, item(1, F), staged)).left_over
    resetting = replace(facts(1).row, resetting=True)
    assert reconcile(but(facts(1, item(1, F)), row=resetting)).left_over, "nobody looked"


def test_the_gate_sorts_tables_and_none_holds_another() -> None:
    stopped = reconcile(but(facts(1, item(1, F)), incarnation=None))
    held = reconcile(but(facts(1, item(1, F)), load_state="pending"))
    passing = reconcile(facts(1, item(1, F)))
    result = gate({"d": passing, "c": stopped, "b": held, "a": passing})
    assert result.passing == ("a", "d")
    assert result.held == {"b": "LOAD_PENDING: the initial load is not complete"}
    assert list(result.stopped) == ["c"] and result.stopped["c"].startswith("INCARNATION_CHANGED: ")
    assert gate({}) == ((), {}, {})
