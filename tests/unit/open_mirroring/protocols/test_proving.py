"""What a proof and a correction decide: pure functions over plain values (G-40 to G-45)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from open_mirroring.changes.log_position import LogPosition, position_text
from open_mirroring.changes.manifest import CorrectionRange, LoadChunk, is_of_source
from open_mirroring.errors import TerminalError
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger.declaring import TableDeclaration, declare
from open_mirroring.ledger.horizon import forget
from open_mirroring.ledger.proofs import ProofLedger, RecordedProof
from open_mirroring.protocols.proving import (
    CellSum,
    DifferingKey,
    Kind,
    Position,
    Proof,
    ProofVerdict,
    add_sums,
    common_type,
    differing_cells,
    keys_to_correct,
    position_above,
    why_behind,
)

BOUND = {"a.jsonl": 100}


@pytest.mark.parametrize(
    ("ends", "open_batch", "fragments", "words"),
    [
        ({}, None, 0, ""),
        ({"a.jsonl": 100}, None, 0, ""),
        ({"a.jsonl": 101}, None, 0, "a.jsonl"),
        ({"b.jsonl": 1}, None, 0, "b.jsonl"),
        ({}, 7, 0, "batch 7"),
        ({}, None, 2, "2 messages wait"),
    ],
)
def test_nothing_is_certain_while_a_change_may_be_on_its_way(
    ends: dict[str, int], open_batch: int | None, fragments: int, words: str
) -> None:
    """G-42: unread ranges, an open batch and open pieces may each hold a change of any key."""
    why = why_behind(ends, BOUND, open_batch, fragments)
    assert words in why and bool(why) is bool(words)


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("int16", "int64", "int64"),
        ("float32", "float64", "float64"),
        ("decimal(10,2)", "decimal(8,4)", "decimal(12,4)"),
        ("decimal(38,0)", "decimal(38,10)", None),
        ("int32", "decimal(10,0)", None),
        ("string", "binary", None),
        ("date", "timestamp", None),
        ("bool", "int16", None),
        ("timestamp", "timestamp", "timestamp"),
    ],
)
def test_only_types_of_one_kind_are_compared(one: str, other: str, common: str | None) -> None:
    """G-41: in a type that holds all values of both; values of two kinds are no difference, but not comparable."""
    assert common_type(one, other) == common_type(other, one) == common


def test_cells_add_up_however_a_side_was_cut() -> None:
    """G-40: modulo 2⁶⁴, and a cell that one side lacks differs."""
    top = 2**64 - 1
    whole = add_sums([{1: CellSum(2, top, 5)}, {1: CellSum(1, 2, 0), 3: CellSum(1, 0, 0)}])
    assert whole == {1: CellSum(3, 1, 5), 3: CellSum(1, 0, 0)}
    assert differing_cells(whole, {1: CellSum(3, 1, 5)}) == [3]
    assert differing_cells(whole, {**whole, 4: CellSum(1, 0, 0)}) == [4]
    assert differing_cells(whole, {**whole, 1: CellSum(2, 1, 5)}) == [1]


def test_undecided_is_never_equal() -> None:
    """G-40, G-42: a difference for certain first, then what is not decided; equal only without either."""
    equal = proof()
    assert replace(equal, counts={Kind.EXTRA: 1}, unproven=5, code="X").verdict is ProofVerdict.DIFFERENT
    assert {replace(equal, unproven=1).verdict, replace(equal, code="X").verdict} == {ProofVerdict.UNPROVEN}
    assert equal.verdict is ProofVerdict.EQUAL


def proof(*keys: DifferingKey, more: int = 0) -> Proof:
    counts: dict[Kind, int] = {}
    for key in keys:
        counts[key.kind] = counts.get(key.kind, 0) + 1
    counts[Kind.MISSING] = counts.get(Kind.MISSING, 0) + more
    return Proof(Position(3, "0:a:b:1"), "shop.t1", 4, 10, 9, counts=counts, keys=keys)


LOST, TWICE = DifferingKey('["1"]', Kind.MISSING), DifferingKey('["2"]', Kind.DOUBLED)


def test_a_proof_reads_back_as_it_was() -> None:
    """G-45: what the ledger keeps is the proof."""
    kept = proof(LOST, DifferingKey('["3"]', Kind.DIFFERENT, ("name",)))
    read = msgspec.json.decode(msgspec.json.encode(kept), type=Proof)
    assert read.document() == kept.document() and [*read.keys] == [*kept.keys]
    assert "keys" not in kept.document() and kept.document()["all_named"]


@pytest.mark.parametrize(
    ("found", "keyed"), [(proof(), True), (proof(LOST), False), (proof(LOST, more=1), True), (proof(LOST, TWICE), True)]
)
def test_what_no_correction_makes_equal_is_refused(found: Proof, keyed: bool) -> None:
    """G-45: nothing proved to differ, a table without key, keys that are not all named, a key that is there twice."""
    with pytest.raises(TerminalError, match="REPAIR_REFUSED"):
        keys_to_correct(found, keyed)
    assert keys_to_correct(proof(LOST), True) == ('["1"]',)


def test_a_correction_stands_above_all_that_was_logged_and_below_all_that_comes() -> None:
    """G-45: above every change of the newest transaction, even one that is not read yet; below the next transaction."""
    first, second = "0000002C000007300011", "0000002C000007300012"
    newest = position_text(first, f"{5:020d}", 1)
    for removes in (True, False):
        text = position_above(newest, None, removes=removes)
        place = LogPosition.parse(0, text)
        late = LogPosition.parse(0, position_text(first, f"{9:020d}", 1))
        later = LogPosition.parse(0, position_text(second, f"{0:020d}", 0))
        assert late < place < later and late.text < text < later.text and late.order < place.order < later.order
        assert place.sub == (0 if removes else 1)
        again = LogPosition.parse(0, position_above(text, None, removes=removes))
        assert place < again < later and place.text < again.text < later.text
        assert position_above(newest, second, removes=removes) > later.text, "the stream begins above it"
    with pytest.raises(TerminalError, match="REPAIR_REFUSED"):
        position_above(None, None, removes=False)


def test_a_correction_is_a_range_of_its_own_kind() -> None:
    """G-45: told from a chunk of a load and from what the source has; any name of a table survives."""
    wanted = CorrectionRange("shop.a/b (1)", 2, "id-7")
    assert CorrectionRange.of(wanted.name) == wanted and not is_of_source(wanted.name)
    assert CorrectionRange.of("a.jsonl") is None and is_of_source("a.jsonl")
    chunk = LoadChunk("shop.t1", 1, 0).name
    assert CorrectionRange.of(chunk) is None and not is_of_source(chunk) and LoadChunk.of(wanted.name) is None


def test_the_ledger_keeps_the_newest_proof_of_each_table(tmp_path: Path) -> None:
    """G-45: maintenance forgets old proofs, never the last word on a table."""
    ledger = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    ids = declare(ledger, "shop", [TableDeclaration("shop.t1", "shop.schema/t1", ("id",), False, None)])
    proofs, long_ago = ProofLedger(ledger), datetime(2020, 1, 1, tzinfo=UTC)
    for day in range(3):
        at = long_ago + timedelta(days=day)
        one = replace(proof(LOST), proved_at=at)
        proofs.record(RecordedProof(f"p{day}", ids["shop.t1"], 1, one))
    assert proofs.newest(ids.values())[ids["shop.t1"]].id == "p2"
    assert forget(ledger, "shop", dropped=0, audit_before=datetime.now(UTC)) == 2
    assert [proofs.find(f"p{day}") is None for day in range(3)] == [True, True, False]
