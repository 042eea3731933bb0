"""Split events are joined when, and only when, all their pieces are there (C-50 to C-56)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import pytest

from spark_jobs.changelog.schema import LogRow, RawMessage
from spark_jobs.sources.ces import avro as ces_avro
from spark_jobs.sources.ces import decoder as ces_decoder
from spark_jobs.sources.ces.changes import Outcome
from spark_jobs.sources.ces.decoder import join
from spark_jobs.sources.ces.format import CesFormat
from spark_jobs.sources.contract.decoded import Decoded, Dispositions, Unjoinable, Waiting
from tests.ces_messages import GUID, ROW, avro, decode, decoder, envelope, event, lsn, only, payload, split
from tests.noted_facts import ignored

IDENTITY = f"{GUID}:0000002C000000100001:{1:020d}"
WHOLE = event("UPD", {**ROW, "id": "8", "name": "Zoë \N{GRINNING FACE}"}, ROW)


def pieces_of(messages: Sequence[bytes], start: int = 0) -> list[LogRow]:
    decoded = decoder().decode([RawMessage("p", start + place, body) for place, body in enumerate(messages)])
    assert decoded.counts.fragments == len(messages), decoded.rows
    return decoded.rows


def values(rows: Sequence[LogRow]) -> list[LogRow]:
    return [row._replace(origin="", place=0) for row in rows]


def test_a_piece_is_a_row_that_keeps_its_message() -> None:
    """C-14, C-18, C-19: the identity that all pieces share, the place among them, and which is the last."""
    first, second = split(WHOLE, [100])
    decoded = decode(first, second)
    assert decoded.counts == Dispositions(2, 0, 2, 0, 0, 0)
    assert decoded.rows[1] == LogRow(
        kind="fragment",
        origin="in.jsonl",
        place=1,
        epoch=GUID,
        pos=f"0000002C000000100001:{1:020d}:1",
        fragment_of=IDENTITY,
        piece=1,
        last_piece=True,
        raw=second,
    )
    split_a = decode(*split(event(generation="a"), [50, 90])).rows
    assert [(row.piece, row.last_piece, row.pieces) for row in split_a] == [(0, None, 3), (1, None, 3), (2, None, 3)]


def test_a_run_from_one_whose_first_piece_is_late_waits_c52() -> None:
    """Pieces 1..n of a split that counts from 0 look complete; their text is no whole object."""
    pieces = pieces_of(split(WHOLE, [10, 200], base=0))
    assert join(pieces[1:], decoder()) == Waiting("piece 0")
    assert isinstance(join(pieces, decoder()), Outcome)


def test_a_last_piece_numbered_one_is_a_complete_event_only_if_it_parses_c52() -> None:
    unsplit = event(replaced={"segmentindex": 1})
    last_of_two = split(event(), [30])[1]
    broken = event(replaced={"segmentindex": 1, "data": '{"eventsource":5}'})
    decoded = decode(unsplit, last_of_two, broken)
    assert [row.kind for row in decoded.rows] == ["change", "fragment", "rejected"]
    assert decoded.rows[2].code == "MESSAGE_INVALID"


def test_one_announced_piece_is_a_complete_event_c53() -> None:
    assert only(decode(event(generation="a", replaced={"splittotalcnt": 1}))).op == "I"


def conflict(messages: Sequence[bytes]) -> LogRow:
    found = join(pieces_of(messages), decoder())
    assert isinstance(found, Unjoinable)
    return found.row


def changed(message: bytes, **fields: object) -> bytes:
    return json.dumps({**json.loads(message), **fields}).encode()


def test_two_contents_of_one_piece_are_refused_with_both_places_c55() -> None:
    first, second = split(WHOLE, [100])
    row = conflict([first, second, changed(second, data="]}")])
    assert (row.kind, row.code, row.fragment_of, row.origin, row.place) == (
        "rejected", "FRAGMENTS_INCOMPLETE", IDENTITY, "p", 0,
    )  # fmt: skip
    assert row.raw == first
    assert (row.epoch, row.pos) == (GUID, f"0000002C000000100001:{1:020d}:1")
    assert "p 1" in (row.reason or "") and "p 2" in (row.reason or "")


def test_pieces_that_were_sent_again_may_say_another_time_c15() -> None:
    first, second = split(WHOLE, [100])
    again = changed(second, id="resent", time="2026-08-08T00:00:00.000Z")
    assert join(pieces_of([first, second, again]), decoder()) == join(pieces_of([first, second]), decoder())


def test_pieces_that_disagree_are_refused() -> None:
    first, second, third = split(WHOLE, [100, 200])
    assert "last" in (conflict([first, changed(second, finalsegment=True), third]).reason or "")
    assert "operation" in (conflict([first, changed(second, operation="DEL"), third]).reason or "")
    one, two = split(event(generation="a"), [100])
    assert "last" in (conflict([one, changed(two, splittotalcnt=3)]).reason or "")
    assert "0 and 2" in (conflict([one, two, changed(two, splitindex=2)]).reason or "")


def test_joined_pieces_that_are_no_event_are_one_dead_letter_c54() -> None:
    pieces = pieces_of(split(event(replaced={"data": '{"eventsource": {"db": 1}}'}), [10]))
    found = join(pieces, decoder())
    assert isinstance(found, Outcome)
    (row,) = found.rows
    assert (row.kind, row.code, row.fragment_of) == ("rejected", "MESSAGE_INVALID", IDENTITY)
    assert row.raw == b'{"eventsource": {"db": 1}}'
    assert (row.origin, row.place) == ("p", 1)


def halved(base: int = 0, generation: str = "c") -> tuple[bytes, list[bytes]]:
    """An event, and it in three pieces, of which two have one half each of its only character beyond 16 bits."""
    whole = event("UPD", {**ROW, "name": "Zoë \N{GRINNING FACE}"}, ROW, generation=generation)
    pieces = [json.loads(piece) for piece in split(whole, [40, 200], base)]
    data = json.loads(whole)["data"].encode("utf-16-le")
    at = data.index("\N{GRINNING FACE}".encode("utf-16-le")) + 2
    for piece, part in zip(pieces, (data[:40], data[40:at], data[at:]), strict=True):
        piece["data"] = part.decode("utf-16-le", "surrogatepass")
    return whole, [json.dumps(piece).encode() for piece in pieces]


@pytest.mark.parametrize(("generation", "base"), [("a", 0), ("b", 1), ("c", 0)])
def test_a_character_that_a_cut_parted_is_complete_again_c54(generation: str, base: int) -> None:
    """Where pieces are cut is documented nowhere: a source that counts in UTF-16 parts what takes two units."""
    whole, pieces = halved(base, generation)
    joined = join(pieces_of(pieces), decoder())
    assert isinstance(joined, Outcome)
    assert values(joined.rows) == values(decode(whole).rows)


def test_half_a_character_without_its_other_half_is_one_dead_letter_c54() -> None:
    _, pieces = halved()
    last = json.loads(pieces[-1])
    pieces[-1] = json.dumps({**last, "data": last["data"][1:]}).encode()
    refused = join(pieces_of(pieces), decoder())
    assert isinstance(refused, Unjoinable)
    assert (refused.row.code, refused.row.fragment_of) == ("MESSAGE_INVALID", IDENTITY)


def test_half_a_character_waits_for_a_first_piece_that_may_be_missing_c52() -> None:
    _, pieces = halved()
    parted = [{**json.loads(piece), "segmentindex": at} for at, piece in enumerate(pieces[1:], 1)]
    parted[0]["data"] = parted[1]["data"]
    assert join(pieces_of([json.dumps(piece).encode() for piece in parted]), decoder()) == Waiting("piece 0")


def test_half_a_character_anywhere_else_is_malformed() -> None:
    """G-06: a whole message, or another field than the payload, has no other half to wait for."""
    whole = json.loads(WHOLE)
    _, pieces = halved()
    for message in ({**whole, "data": "\ud83d"}, {**json.loads(pieces[1]), "id": "\ud83d"}, {**whole, "id": "\ud83d"}):
        assert only(decode(json.dumps(message).encode())).code == "MESSAGE_INVALID"


def test_a_joined_event_of_another_table_leaves_no_row() -> None:
    assert join(pieces_of(split(event(tbl="other"), [10])), decoder()) == Outcome(
        (), "dbo.other", f"{lsn(16).replace(':', '')}:{1:020d}:0"
    )


def test_an_event_beyond_the_limit_is_refused_c56(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ces_decoder, "MAX_EVENT_BYTES", 100)
    found = join(pieces_of(split(WHOLE, [10])), decoder())
    assert isinstance(found, Unjoinable)
    assert found.row.code == "MESSAGE_INVALID"


def test_pieces_given_up_are_one_dead_letter() -> None:
    first, _ = split(WHOLE, [10])
    (row,) = decoder().incomplete(pieces_of([first]), "piece 1 did not come within 24 hours")
    assert (row.kind, row.code, row.reason, row.fragment_of, row.raw, row.tbl) == (
        "rejected", "FRAGMENTS_INCOMPLETE", "piece 1 did not come within 24 hours", IDENTITY, first, None,
    )  # fmt: skip


def test_pieces_given_up_show_their_table_where_the_first_one_does_c95() -> None:
    for tbl, expected in (("orders", "dbo.orders"), ("other", None)):
        pieces = pieces_of(split(event("INS", ROW, tbl=tbl), [120, 200]))
        letters = decoder().incomplete(pieces[:2], "late")
        assert [(row.tbl, row.key) for row in letters] == ([(expected, None)] if expected else [])
        assert [row.tbl for row in decoder().incomplete(pieces[1:], "late")] == [None]


def test_a_joined_event_of_a_table_that_is_not_mirrored_is_counted_with_its_pieces() -> None:
    whole = event("INS", {"id": "7", "name": "x" * 2**18}, cols=[("id", "int"), ("name", "nvarchar(max)")],
                  pkkey={"id": "x"})  # fmt: skip
    pieces = pieces_of(split(whole, [100, 2**17]))
    foreign = CesFormat().decoder({}).join(pieces)
    assert isinstance(foreign, Decoded)
    assert ignored(foreign.facts) == {"dbo.orders": 3}


@pytest.mark.parametrize("generation", ["b", "c"])
@pytest.mark.parametrize("base", [0, 1])
def test_pieces_in_avro_are_joined_as_bytes_c54(generation: str, base: int) -> None:
    schema = {"b": ces_avro.DATA, "c": ces_avro.DATA_WITH_FINALEVENT}[generation]
    data = avro(schema, payload({**ROW, "name": "Zoë"}, generation=generation))
    cuts = [0, 7, data.index("ë".encode()) + 1, len(data)]  # in the middle of a character, too
    messages = [
        avro(
            ces_avro.CHANGE_EVENT,
            envelope("INS", data[start:end], segmentindex=number + base, finalsegment=end == len(data)),
        )
        for number, (start, end) in enumerate(itertools.pairwise(cuts))
    ]
    pieces = pieces_of(messages)
    joined = join(pieces[::-1], decoder())
    assert isinstance(joined, Outcome)
    assert values(joined.rows) == values(decode(event("INS", {**ROW, "name": "Zoë"})).rows)
    assert isinstance(join(pieces[1:], decoder()), Waiting)
    assert isinstance(join(pieces[:-1], decoder()), Waiting)
