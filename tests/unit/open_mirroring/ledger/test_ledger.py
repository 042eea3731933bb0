"""The ledger's compare-and-set: whoever comes late changes nothing (I19, I20), in every dialect."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from open_mirroring.changes.manifest import SENT_BY, BoundFile, BoundRange, FileVersion, Manifest
from open_mirroring.errors import TerminalError
from open_mirroring.facts.full_loads import FULL_LOADS, LoadPlaces
from open_mirroring.facts.kind import NewFacts
from open_mirroring.facts.read_places import SHOWN
from open_mirroring.facts.unreadable import KEYLESS, WITHOUT_TABLE, KeylessReject
from open_mirroring.landing_zone.schema import LandingColumn, TableSchema
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.decisions import resume_table
from open_mirroring.ledger.declaring import TableDeclaration, declare
from open_mirroring.ledger.extract_ledger import ExtractLedger
from open_mirroring.ledger.load_ledger import LoadPlan
from open_mirroring.ledger.publish_ledger import PublishLedger, StagedDetails
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.protocols.extracting import Batch
from open_mirroring.protocols.extracting import Lost as ExtractLost
from open_mirroring.protocols.extracting import Owned as ExtractOwned
from open_mirroring.protocols.publishing import Intent, Lost, Owned, StagedFile, TableRow, Work
from tests.noted_facts import facts_about

DECLARED = TableDeclaration("dbo.a", "dbo.schema/a", ("id",), False)
OTHER = TableDeclaration("dbo.b", "dbo.schema/b", ("id", "name"), False)
SCHEMA = TableSchema((LandingColumn("id", "int64"), LandingColumn("name", "string")))
REJECT = {
    "epoch": "s",
    "pos": "0003",
    "key": '["7"]',
    "batch": 2,
    "code": "VALUE_INVALID",
    "reason": "not a number",
    "origin": "a.json",
    "place": 17,
}


def staged(number: int) -> StagedFile:
    return StagedFile(f"stage/{number}", f"e{number}", f"{number:032x}", 10, 100, f"p{number}", f"q{number}")


FILES = (staged(1), staged(2))
DETAILS = StagedDetails(SCHEMA, {"changes": 20, "upserts": 20}, [REJECT])
INTENT = Intent(1, 0, Work("changes", 3))


def manifest(**more: Any) -> Manifest:
    """A batch of two files: table a in both, a table that the mirror does not have in the second."""
    files = [
        {"path": "b1/1.parquet", "rows": 2, "bytes": 9, "tables": {"dbo.a": {"s": [2, "0001", "0002"]}}},
        {
            "path": "b1/2.parquet",
            "rows": 2,
            "bytes": 9,
            "tables": {"dbo.a": {"s": [1, "0000", "0000"]}, "dbo.x": {"s": [1, "0009", "0009"]}},
        },
    ]
    return Manifest(files=files, counts={"messages": 4, "changes": 4}, **more)


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Engine]:
    engine = open_ledger(ledger_url)
    yield engine
    engine.dispose()


@pytest.fixture
def extracting(ledger: Engine) -> ExtractLedger:
    return ExtractLedger(ledger, "m")


@pytest.fixture
def publishing(ledger: Engine) -> PublishLedger:
    return PublishLedger(ledger, "m")


@pytest.fixture
def table(ledger: Engine) -> str:
    return declare(ledger, "m", [DECLARED])["dbo.a"]


@pytest.fixture
def reader(ledger: Engine) -> LedgerReader:
    return LedgerReader(ledger, "m")


def row_of(replies: Any) -> TableRow:
    (reply,) = replies.values()
    assert isinstance(reply, Owned), reply
    return reply.row


def acquired(publishing: PublishLedger, table: str) -> int:
    return row_of(publishing.acquire([table])).version


def sealed(publishing: PublishLedger, table: str, intent: Intent = INTENT) -> TableRow:
    """A table whose intent is open and sealed."""
    version = acquired(publishing, table)
    version = row_of(publishing.intend({table: (version, intent)})).version
    return row_of(publishing.seal({table: (version, FILES, DETAILS)}))


def bound(extracting: ExtractLedger, number: int = 1) -> int:
    """The version after binding a batch."""
    reply = extracting.bind(extracting.acquire().row.version, Batch(number, f"r{number}"), [BoundRange("f", 0, 10)])
    assert isinstance(reply, ExtractOwned)
    return reply.row.version


def completed(extracting: ExtractLedger, content: Manifest, number: int = 1) -> None:
    reply = extracting.seal(bound(extracting, number), content.to_json())
    assert isinstance(reply, ExtractOwned)
    assert isinstance(extracting.complete(reply.row.version), ExtractOwned)


# --- extracting -----------------------------------------------------------------------------------------------


def test_an_extractor_that_another_followed_changes_nothing(extracting: ExtractLedger) -> None:
    late = extracting.acquire().row.version
    owner = extracting.acquire().row
    assert owner.version > late
    assert extracting.bind(late, Batch(1, "late"), [BoundRange("f", 0, 99)]) == ExtractLost()
    assert extracting.bound() == {}, "a lost write leaves no part of it"
    version = bound(extracting)
    for write in (
        lambda: extracting.seal(owner.version, manifest().to_json()),
        lambda: extracting.complete(owner.version),
        lambda: extracting.stop(owner.version, "CODE", "what"),
    ):
        assert write() == ExtractLost()
    assert extracting.seal(version, manifest().to_json()) != ExtractLost()


def test_files_are_reported_as_they_were_seen_if_asked_for_or_not_bound_to_their_end(extracting: ExtractLedger) -> None:
    """G-32, S-08: what a run asks for does not grow with the files that were ever read."""
    ends = {"asked": 10, "half": 8, "read": 10, "longer": 100, "partition": 7}
    seen = {name: FileVersion(f"{10 if end < 100 else 1000}:x", name) for name, end in ends.items() if end != 7}
    ranges = [BoundRange(name, 0, end) for name, end in ends.items()]
    extracting.bind(extracting.acquire().row.version, Batch(1, "r1"), ranges, seen)
    story = {name: BoundFile(ends[name], seen[name]) for name in ("asked", "half", "longer")}
    assert extracting.seen_files({"asked", "partition", "unknown"}) == story
    assert extracting.seen_files([f"{at}" for at in range(10_000)] + ["asked"]) == story | {
        "read": BoundFile(10, seen["read"])
    }
    assert extracting.seen_versions((), ends) == {name: seen[name] for name in ("half", "longer")}
    assert extracting.seen_versions((), ends | {"half": 4}).keys() == {"longer"}, "another run has bound more of it"


def test_a_batch_is_bound_sealed_and_completed_once(extracting: ExtractLedger, reader: LedgerReader) -> None:
    """I29: a manifest never replaces another one, and only a sealed batch is completed."""
    version = bound(extracting)
    again = extracting.bind(version, Batch(2, "r2"), [])
    assert again == ExtractLost(), "one batch at a time"
    assert extracting.complete(version) == ExtractLost(), "not sealed yet"
    version = bound_version(extracting.seal(version, manifest().to_json()))
    assert extracting.seal(version, Manifest([], {}).to_json()) == ExtractLost()
    reply = extracting.complete(version)
    assert isinstance(reply, ExtractOwned)
    assert (reply.row.committed, reply.row.batch) == (1, None)
    assert extracting.complete(reply.row.version) == ExtractLost()
    assert extracting.bound() == {"f": 10}
    (contents,) = reader.contents({"dbo.a": 0}, 1)["dbo.a"]
    assert (contents.rows, contents.lowest, contents.highest) == (3, "0000", "0002")
    assert contents.files == ("b1/1.parquet", "b1/2.parquet")


def bound_version(reply: Any) -> int:
    assert isinstance(reply, ExtractOwned), reply
    return reply.row.version


NO_KEY = KeylessReject("KEY_INVALID", "no number", "a.json", 7)


def keyless(reject: KeylessReject) -> NewFacts:
    return facts_about(KEYLESS, {"dbo.a": {"": reject}})


def test_a_stopped_table_fences_its_publisher_and_keeps_its_first_reason(
    extracting: ExtractLedger, publishing: PublishLedger, table: str, reader: LedgerReader
) -> None:
    """A change whose key nobody can read stops its table in the transaction that records the batch."""
    version = acquired(publishing, table)
    hidden = facts_about(KEYLESS, {table: {"": NO_KEY} for table in ("dbo.a", "dbo.x")})
    completed(extracting, manifest(facts={**hidden, **facts_about(WITHOUT_TABLE, {"": {"": 2}})}))
    state = reader.tables()["dbo.a"]
    assert (state.row.stop, state.row.version) == ("KEY_UNKNOWN", version + 1)
    assert "no number at a.json:7" in (state.stop_what or "")
    assert reader.mirror().unnamed_rejects == 2
    assert publishing.intend({table: (version, INTENT)}) == {table: Lost()}
    # A later batch brings a stream that nobody accepted: the first reason stands.
    unknown = [{"path": "b2", "rows": 1, "bytes": 9, "tables": {"dbo.a": {"s2": [1, "0001", "0001"]}}}]
    completed(extracting, Manifest(unknown, {}), number=2)
    assert reader.tables()["dbo.a"].row == state.row


@pytest.mark.parametrize("code", ["METADATA_MISSING", "FILE_DAMAGED"])
def test_what_a_sound_copy_heals_can_be_resumed_but_hides_no_worse(
    code: str, extracting: ExtractLedger, table: str, ledger: Engine, reader: LedgerReader
) -> None:
    """Nothing looks again at a key that nobody could read: lifting an earlier stop must not forget it."""
    healing = keyless(KeylessReject(code, "not read", "a.csv", 7))
    completed(extracting, manifest(facts=healing))
    state = reader.tables()["dbo.a"]
    assert state.stop_code == "CHANGES_MISSING" and f"{code}: not read at a.csv:7" in (state.stop_what or "")
    resume_table(ledger, extracting._mirror, "dbo.a", Reason("me", "delivered again"))
    completed(extracting, Manifest([], {}, healing), number=2)
    completed(extracting, Manifest([], {}, keyless(NO_KEY)), number=3)
    assert reader.tables()["dbo.a"].stop_code == "KEY_UNKNOWN"
    completed(extracting, Manifest([], {}, healing), number=4)
    state = reader.tables()["dbo.a"]
    assert state.stop_code == "KEY_UNKNOWN" and "a.json:7" in (state.stop_what or "")


def test_a_stream_that_begins_again_stops_its_table(
    extracting: ExtractLedger, table: str, ledger: Engine, reader: LedgerReader
) -> None:
    """G-01: the first incarnation is number 0; the order of others is nobody's to guess.

    C-33, C-85: another guid is a stream that was set up anew, and what changed in between was lost. T-31: another load
    of a Qlik task likewise.
    """
    completed(extracting, manifest())
    assert reader.tables()["dbo.a"].row.stop is None
    unknown = [{"path": "b2", "rows": 1, "bytes": 9, "tables": {"dbo.a": {"s2": [1, "0001", "0001"]}}}]
    completed(extracting, Manifest(unknown, {}), number=2)
    assert reader.tables()["dbo.a"].row.stop == "EPOCH_UNKNOWN"
    state = reader.tables()["dbo.a"]
    assert reader.epochs([state.id]) == {state.id: {"s": 0}}


def refreshed(**origins: list[int | None]) -> Manifest:
    return Manifest([], {}, facts_about(FULL_LOADS, {"dbo.a": {o: LoadPlaces(*seen) for o, seen in origins.items()}}))


@pytest.mark.parametrize(
    ("batches", "stopped"),
    [
        # Per partition: last row of a full load, first change.
        ([{"p0": [9, None]}, {"p0": [19, 20]}, {"p0": [None, 30]}], None),
        ([{"p0": [9, 10], "p1": [50, None]}, {"p1": [60, 61]}], None),
        ([{"p0": [25, 20]}], "p0:25"),
        ([{"p0": [9, 10]}, {"p0": [40, None]}], "p0:40"),
        ([{"p0": [None, 30]}, {"p0": [None, 10]}, {"p0": [20, None]}], "p0:20"),
    ],
)
def test_rows_of_a_full_load_behind_changes_stop_their_table_k18_k44(
    extracting: ExtractLedger, table: str, reader: LedgerReader, batches: list[Any], stopped: str | None
) -> None:
    """A truncation or reload at the source shows only so; the load that came before the changes is none."""
    for number, origins in enumerate(batches, 1):
        completed(extracting, refreshed(**origins), number)
    state = reader.tables()["dbo.a"]
    assert state.row.stop == ("RELOAD_SEEN" if stopped else None)
    assert (stopped or "") in (state.stop_what or "")


# --- publishing -----------------------------------------------------------------------------------------------

LATE_WRITES: dict[str, Callable[[PublishLedger, str, int], Any]] = {
    "establish": lambda ledger, table, version: ledger.establish({table: (version, "e")}),
    "intend": lambda ledger, table, version: ledger.intend({table: (version, INTENT)}),
    "seal": lambda ledger, table, version: ledger.seal({table: (version, FILES, DETAILS)}),
    "confirm": lambda ledger, table, version: ledger.confirm({table: version}),
    "stop": lambda ledger, table, version: ledger.stop({table: (version, "CODE", "what")}),
}


@pytest.mark.parametrize("write", LATE_WRITES)
@pytest.mark.parametrize("situation", ["new", "intended", "sealed"])
def test_a_publisher_that_another_followed_changes_nothing(
    publishing: PublishLedger, table: str, reader: LedgerReader, situation: str, write: str
) -> None:
    version = acquired(publishing, table)
    if situation != "new":
        version = row_of(publishing.intend({table: (version, INTENT)})).version
    if situation == "sealed":
        version = row_of(publishing.seal({table: (version, FILES, DETAILS)})).version
    acquired(publishing, table)
    before = reader.tables()
    assert LATE_WRITES[write](publishing, table, version) == {table: Lost()}
    assert reader.tables() == before
    assert reader.published(table, 1) == []


def test_a_table_is_established_with_its_marker(publishing: PublishLedger, table: str, reader: LedgerReader) -> None:
    """I12: the ETag of the marker object comes back with every row."""
    fresh = row_of(publishing.acquire([table]))
    assert (fresh.established, fresh.marker_etag) == (False, "")
    row = row_of(publishing.establish({table: (fresh.version, "e-marker")}))
    assert (row.established, row.marker_etag, row.version) == (True, "e-marker", fresh.version + 1)
    assert row_of(publishing.acquire([table])).marker_etag == "e-marker"
    assert reader.tables()["dbo.a"].row.marker_etag == "e-marker"


def test_one_lost_write_does_not_hinder_the_others(
    ledger: Engine, publishing: PublishLedger, reader: LedgerReader
) -> None:
    ids = declare(ledger, "m", [DECLARED, OTHER])
    versions = {table: reply.row.version for table, reply in publishing.acquire(ids.values()).items()}
    acquired(publishing, ids["dbo.a"])
    replies = publishing.intend({table: (version, INTENT) for table, version in versions.items()})
    assert replies[ids["dbo.a"]] == Lost()
    assert isinstance(replies[ids["dbo.b"]], Owned)
    assert {source: state.row.intent for source, state in reader.tables().items()} == {"dbo.a": None, "dbo.b": INTENT}


def test_one_intent_is_open_at_a_time_and_none_in_a_stopped_table(publishing: PublishLedger, table: str) -> None:
    version = row_of(publishing.intend({table: (acquired(publishing, table), INTENT)})).version
    assert publishing.intend({table: (version, INTENT)}) == {table: Lost()}
    version = row_of(publishing.seal({table: (version, FILES, DETAILS)})).version
    version = row_of(publishing.confirm({table: version})).version
    stopped = row_of(publishing.stop({table: (version, "CONFLICT", "seen")}))
    assert stopped.stop == "CONFLICT"
    assert publishing.intend({table: (stopped.version, INTENT)}) == {table: Lost()}


def test_an_intent_is_sealed_once(publishing: PublishLedger, table: str, reader: LedgerReader) -> None:
    """I9, F-39: neither a late nor a mistaken second seal replaces the first, not even by the row's owner."""
    row = sealed(publishing, table)
    for version in (row.version - 1, row.version):
        assert publishing.seal({table: (version, (staged(7),), DETAILS)}) == {table: Lost()}
    assert reader.tables()["dbo.a"].row == row
    assert row.intent is not None
    assert row.intent.manifest == FILES


def test_nothing_is_sealed_or_confirmed_without_an_intent(publishing: PublishLedger, table: str) -> None:
    version = acquired(publishing, table)
    assert publishing.seal({table: (version, FILES, DETAILS)}) == {table: Lost()}
    assert publishing.confirm({table: version}) == {table: Lost()}
    version = row_of(publishing.intend({table: (version, INTENT)})).version
    assert publishing.confirm({table: version}) == {table: Lost()}, "not sealed yet"


def test_confirming_moves_the_numbers_and_records_the_files(
    publishing: PublishLedger, table: str, reader: LedgerReader, ledger: Engine
) -> None:
    """I22: numbers, published batch, columns, counts and rejects move on in one transaction, once."""
    row = sealed(publishing, table)
    done = row_of(publishing.confirm({table: row.version}))
    assert (done.confirmed, done.published_batch, done.intent) == (2, 3, None)
    assert publishing.confirm({table: row.version}) == {table: Lost()}
    assert publishing.confirm({table: done.version}) == {table: Lost()}
    files = reader.published(table, 1)
    assert [(f.number, f.etag, f.digest, f.rows, f.size) for f in files] == [
        (1, "e1", f"{1:032x}", 10, 100),
        (2, "e2", f"{2:032x}", 10, 100),
    ]
    assert [(f.first_position, f.last_position, f.kind, f.batch_from, f.batch_to) for f in files] == [
        ("p1", "q1", "changes", 0, 3),
        ("p2", "q2", "changes", 0, 3),
    ]
    (publication,) = reader.publications({table: 1})[table]
    assert publication.counts == {"changes": 20, "upserts": 20}
    assert reader.tables()["dbo.a"].columns == SCHEMA
    with ledger.connect() as db:
        (reject,) = db.execute(sa.select(t.rejected_change)).all()
    assert (reject.table_id, reject.pos, reject.key, reject.place) == (table, "0003", '["7"]', 17)


def test_tables_are_confirmed_together_each_by_its_own_version_and_kind_i20(
    publishing: PublishLedger, reader: LedgerReader, ledger: Engine
) -> None:
    """One transaction confirms changes of one table and a chunk of another's load; a third one was overtaken."""
    third = TableDeclaration("dbo.c", "dbo.schema/c", ("id",), False)
    ids = declare(ledger, "m", [DECLARED, OTHER._replace(loads=True), third])
    plan = LoadPlan("", (), (0, 1), done=frozenset({0}), hand_over_batch=7)
    with ledger.begin() as db:
        loading = t.mirrored_table.update().where(t.mirrored_table.c.id == ids["dbo.b"])
        db.execute(loading.values(load_plan=plan.to_json(), load_state="loading"))
    load = Intent(1, 0, Work("load", 0, chunk="[1]"))
    rows = {source: sealed(publishing, id_, load if source == "dbo.b" else INTENT) for source, id_ in ids.items()}
    acquired(publishing, ids["dbo.c"])
    replies = publishing.confirm({ids[source]: row.version for source, row in rows.items()})
    assert replies[ids["dbo.c"]] == Lost()
    after = reader.tables()
    assert {s: (a.row.confirmed, a.row.published_batch, a.start.load_state) for s, a in after.items()} == {
        "dbo.a": (2, 3, "none"),
        "dbo.b": (2, 7, "loaded"),
        "dbo.c": (0, 0, "none"),
    }
    assert (after["dbo.a"].start.load_plan, after["dbo.b"].start.load_plan) == (
        None,
        replace(plan, done=frozenset({0, 1})),
    )
    assert after["dbo.c"].row.intent == rows["dbo.c"].intent
    assert {s: len(reader.published(id_, 1)) for s, id_ in ids.items()} == {"dbo.a": 2, "dbo.b": 2, "dbo.c": 0}


def test_of_writers_at_the_same_moment_one_wins_each_table_i20(ledger: Engine, publishing: PublishLedger) -> None:
    ids = list(declare(ledger, "m", [DECLARED, OTHER]).values())
    for _ in range(5):
        markers = {table: (reply.row.version, "e") for table, reply in publishing.acquire(ids).items()}
        # Some in one order, some in the other: they wait for each other, and none for ever.
        orders = [markers, dict(reversed(markers.items()))] * 2
        with ThreadPoolExecutor(4) as pool:
            both = list(pool.map(publishing.establish, orders))
        for table in ids:
            assert sorted(type(replies[table]).__name__ for replies in both) == ["Lost", "Lost", "Lost", "Owned"]


def test_an_empty_publication_moves_the_batch_and_no_number(
    publishing: PublishLedger, table: str, reader: LedgerReader
) -> None:
    """G-10: the mark is the ledger's own, whatever rows a batch leaves at the target."""
    version = row_of(publishing.intend({table: (acquired(publishing, table), INTENT)})).version
    version = row_of(publishing.seal({table: (version, (), DETAILS._replace(rejected=()))})).version
    done = row_of(publishing.confirm({table: version}))
    assert (done.confirmed, done.published_batch) == (0, 3)
    assert reader.published(table, 1) == []
    assert len(reader.publications({table: 1})[table]) == 1


# --- declaring ------------------------------------------------------------------------------------------------


def test_declaring_again_keeps_every_table(ledger: Engine, reader: LedgerReader) -> None:
    ids = declare(ledger, "m", [DECLARED])
    row = reader.tables()["dbo.a"].row
    assert declare(ledger, "m", [DECLARED, OTHER])["dbo.a"] == ids["dbo.a"]
    assert reader.tables()["dbo.a"].row == row
    assert reader.tables()["dbo.b"].keys == ("id", "name")
    assert reader.tables()["dbo.b"].row.incarnation != row.incarnation


def test_a_source_that_is_read_elsewhere_leaves_tables_with_rows_unverified_g142(
    ledger: Engine, extracting: ExtractLedger, table: str, reader: LedgerReader
) -> None:
    """G-142: not one that is read in more places."""

    def story(**reads: list[str]) -> list[tuple[str, str]]:
        declare(ledger, "m", [DECLARED, OTHER], reads)
        tables = reader.tables()
        noted = reader.unverified_columns(tables.values())
        return [(source, one.column) for source in tables for one in noted.get(tables[source].id, ())]

    here: dict[str, list[str]] = {"transport": ["kafka"], "connection": ["hub"], "topics": ["a"]}
    assert story(**here) == []
    completed(extracting, manifest())
    assert story(**{**here, "topics": ["a", "b"]}) == [], "more is read, and nothing is left"
    assert story(**{**here, "topics": ["b"]}) == [("dbo.a", "`source` no longer names topics 'a'")]
    moved = {"transport": ["files"], "path": ["x"]}
    assert len(story(**moved)) == 2 == len(story(**moved))
    declare(ledger, "m", [DECLARED, OTHER])
    assert len(story(**moved)) == 2, "who says nothing of the source changes nothing"


def test_partitions_of_a_former_place_hold_back_no_transaction_g142(
    extracting: ExtractLedger, reader: LedgerReader
) -> None:
    """G-142, C-34: nor those that a batch shows which was read there and completed later, nor in a ledger made again.

    What is whole stays so. Each batch says where it was read, so it does not matter who completes it, or when.
    """
    former, now = {"topics": ["a"]}, {"topics": ["b"]}
    shown = {"a/0": {"s": "05"}, "a/1": {"s": "06"}}
    for number in (1, 2):
        completed(extracting, manifest(partitions=2, facts=facts_about(SHOWN, {"": shown}), reads=former), number)
    assert extracting.shown_partitions(former) == extracting.shown_partitions({"topics": ["b", "a"]}) == {"a/0", "a/1"}
    assert extracting.shown_partitions(now) == set()
    completed(extracting, manifest(partitions=2, facts=facts_about(SHOWN, {"": {"b/0": {"s": "09"}}}), reads=now), 3)
    assert extracting.shown_partitions(now) == {"b/0"}
    known = reader.completeness(3)
    assert known is not None and known.below == {"s": "05"}


@pytest.mark.parametrize(
    "changed", [DECLARED._replace(keys=("id", "name")), DECLARED._replace(folder="a"), DECLARED._replace(keys=("ID",))]
)
def test_another_key_or_folder_of_a_mirrored_table_is_refused(
    ledger: Engine, publishing: PublishLedger, table: str, reader: LedgerReader, changed: TableDeclaration
) -> None:
    """F-13, F-74: keys never change, folders neither; nothing of the declaration is kept, new tables included."""
    publishing.establish({table: (acquired(publishing, table), "etag")})
    with pytest.raises(TerminalError) as refused:
        declare(ledger, "m", [OTHER, changed])
    assert refused.value.code == "TABLE_REDECLARED"
    assert reader.tables().keys() == {"dbo.a"}


@pytest.mark.parametrize("changed", [DECLARED._replace(keys=("id", "name")), DECLARED._replace(folder="a")])
def test_a_table_that_left_no_trace_is_what_the_mirror_file_says(
    publishing: PublishLedger, table: str, reader: LedgerReader, changed: TableDeclaration, ledger: Engine
) -> None:
    """G-69: the same table, told in the audit; whoever is at work on it loses it."""
    version = acquired(publishing, table)
    assert declare(ledger, "m", [changed]) == {"dbo.a": table}
    state = reader.tables()["dbo.a"]
    assert (state.keys, state.folder, state.stop_code) == (changed.keys, changed.folder, None)
    assert isinstance(publishing.establish({table: (version, "etag")})[table], Lost)
    with ledger.connect() as db:
        ((event, detail),) = db.execute(sa.select(t.audit.c.event, t.audit.c.detail)).tuples()
    assert event == "TABLE_DECLARED_AGAIN" and json.loads(detail)["before"]["keys"] == '["id"]'


@pytest.mark.parametrize("sealed_only", [True, False])
def test_a_key_by_which_changes_are_logged_stays(
    ledger: Engine, extracting: ExtractLedger, table: str, reader: LedgerReader, sealed_only: bool
) -> None:
    """G-69, I13: also by a batch that is sealed, and not in the log yet. The folder may change."""
    version = bound(extracting)
    reply = extracting.seal(version, manifest().to_json())
    assert isinstance(reply, ExtractOwned)
    if not sealed_only:
        assert isinstance(extracting.complete(reply.row.version), ExtractOwned)
    with pytest.raises(TerminalError, match="TABLE_REDECLARED"):
        declare(ledger, "m", [DECLARED._replace(keys=("name",))])
    declare(ledger, "m", [DECLARED._replace(folder="a")])
    assert (reader.tables()["dbo.a"].keys, reader.tables()["dbo.a"].folder) == (("id",), "a")


@pytest.mark.parametrize("is_logged", [False, True])
def test_a_load_that_is_named_later_is_made_while_there_is_nothing_of_the_table_g130(
    ledger: Engine,
    publishing: PublishLedger,
    extracting: ExtractLedger,
    table: str,
    reader: LedgerReader,
    is_logged: bool,
) -> None:
    """G-130: whoever is at work on it loses it; a table that has begun keeps what it began with, which is a loss."""
    version = acquired(publishing, table)
    assert isinstance(publishing.establish({table: (version, "etag")})[table], Owned)
    if is_logged:
        completed(extracting, manifest())
    declare(ledger, "m", [DECLARED._replace(loads=True)])
    assert reader.tables()["dbo.a"].start.load_state == ("none" if is_logged else "pending")


@pytest.mark.parametrize("changed", [DECLARED._replace(keys=("name",)), DECLARED._replace(folder="a")])
def test_a_table_of_which_a_rebuilt_ledger_does_not_know_what_was_published_stays(
    ledger: Engine, extracting: ExtractLedger, table: str, changed: TableDeclaration
) -> None:
    """G-69: what the ledger does not know is not nothing."""
    extracting.stop_table("dbo.a", "LEDGER_UNKNOWN", "its newest file is gone")
    with pytest.raises(TerminalError, match="TABLE_REDECLARED"):
        declare(ledger, "m", [changed])


def test_a_key_of_changes_from_two_senders_stays(ledger: Engine, extracting: ExtractLedger, table: str) -> None:
    """C-12, G-69: the stop for the key stands before the one for the senders, and would take it away with itself."""
    senders = [(SENT_BY, name, "dbo.a", 0, "") for name in ("one", "other")]
    completed(extracting, Manifest(files=[], counts={}, schemas=senders))
    with pytest.raises(TerminalError, match="TABLE_REDECLARED"):
        declare(ledger, "m", [DECLARED._replace(keys=("name",))])


@pytest.mark.parametrize("healed", [True, False])
def test_a_fixed_key_lifts_its_stop_once_nothing_is_hidden(
    ledger: Engine, extracting: ExtractLedger, table: str, reader: LedgerReader, healed: bool
) -> None:
    """G-69, G-01: and what the batch itself stops the table for is not lifted with it."""
    extracting.stop_table("dbo.a", "KEY_UNKNOWN", "no id")
    declare(ledger, "m", [DECLARED._replace(keys=("name",))])
    assert extracting.corrected_tables() == ["dbo.a"]
    files = [{"path": "b1/1.parquet", "rows": 2, "bytes": 9, "tables": {
        "dbo.a": {"s": [1, "0001", "0001"], "r": [1, "0001", "0001"]}}}]  # fmt: skip
    story = Manifest(files=files if healed else [], counts={}, healed=["dbo.a"] if healed else [])
    completed(extracting, story)
    if healed:
        assert reader.tables()["dbo.a"].stop_code == "EPOCH_UNKNOWN", "two streams, of which nobody knows the order"
    extracting.refuse_corrected("dbo.a", "KEY_INVALID: no name")
    found = reader.tables()["dbo.a"]
    assert (found.stop_code, found.row.stop) == (("EPOCH_UNKNOWN",) * 2 if healed else ("KEY_UNKNOWN",) * 2)
