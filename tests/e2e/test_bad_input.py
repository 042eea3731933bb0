"""Bad input, all of it in one batch with good events: each a dead letter or the stop of its own table, nothing else.

Every case is asserted by code, coordinates, reason and way out. A second table in the same batch ends exactly equal,
numbers go on unbroken, and the counts add up: nothing is lost without a trace (G-06, I1, C-74).
"""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pytest

from open_mirroring.codes import next_step_of
from open_mirroring.ledger.dead_letters import settled_letters
from tests.bad_input import DISPOSITIONS, settled, stopped, stops
from tests.ces_messages import COLS, GUID, avro_event, event, lsn, payload, split
from tests.pipeline import Pipeline, in_order
from workload_generator.transports import EVENT_DATA

TOPIC = "bad'; --/0"


def row(key: int, name: str | None = "Ada", price: str | None = "1.50") -> dict[str, Any]:
    return {"id": str(key), "name": name, "price": price}


def landed(key: int, name: str | None = "Ada", price: str | None = "1.50") -> dict[str, Any]:
    return {"id": key, "name": name, "price": None if price is None else Decimal(price)}


def wrapped(bodies: Sequence[bytes | None], first: int = 0, partition: int = 0) -> bytes:
    """Lines whose coordinates are ``TOPIC`` and the place in *bodies* from *first* on."""
    topic = TOPIC.rsplit("/", 1)[0]
    lines = [
        {
            "topic": topic,
            "partition": partition,
            "offset": first + at,
            "encoding": "base64",
            "value": None if body is None else base64.b64encode(body).decode(),
        }
        for at, body in enumerate(bodies)
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


class Bad(NamedTuple):
    """A message that becomes a dead letter; *table* and *key* where the message still tells them."""

    name: str
    body: bytes | None
    code: str
    words: str
    table: str | None = None
    key: str | None = None


def with_source(**sources: Any) -> bytes:
    data = payload(row(7), commit=90)
    data["eventsource"] |= sources
    return event(commit=90, replaced={"data": json.dumps(data)})


def lost(**parts: Any) -> bytes:
    """A message of a table that is only told by what cannot be read."""
    return event(tbl="lost", **parts)


KEY_9 = {"pkkey": {"id": 9}}
# One for each way through the log: each kind is in the tests of the decoder.
BAD = [
    Bad("no body", None, "BODY_MISSING", "no body"),
    Bad("cut json", lost()[:-20], "MESSAGE_INVALID", "", "dbo.lost"),
    Bad("cut avro", avro_event(tbl="lost")[:-1], "MESSAGE_INVALID", "ChangeEvent", "dbo.lost"),
    Bad("noise", b"\xde\xad\xbe\xef", "MESSAGE_INVALID", "neither JSON nor Avro"),
    Bad("a period in the table's name", event(tbl="../evil"), "MESSAGE_INVALID", "period",
        "dbo.[../evil]"),
    Bad("two positions", with_source(transaction={"commitlsn": lsn(91), "sequencenumber": 1}, **{
        "pkkey": [{"columnname": "id", "value": "9"}]}), "MESSAGE_INVALID", lsn(91), "dbo.orders", '["9"]'),
    # A table without key cannot be stopped for an unknown one: its dead letter is one of many.
    Bad("columns twice", event("INS", row(9), commit=70, tbl="log", cols=[*COLS, ("name", "int")]),
        "ROW_INVALID", "'name'", "dbo.log"),
    Bad("unknown column", event("INS", {**row(9), "x": "1"}, commit=73, **KEY_9), "ROW_INVALID", "'x'",
        "dbo.orders", '["9"]'),
]  # fmt: skip

UNTYPABLE = {
    10: (row(10, price="cheap"), "price", "not a decimal number"),
    11: (row(11, price="1000000.00"), "price", "before the point"),
    12: (row(12, name="x" * 51), "name", "longer than 50"),
    13: (row(13, price=""), "price", "not a decimal number"),
}
"""Rows of dbo.orders whose newest change does not fit, by key; 10 and 11 have an older row that does."""


class Stopped(NamedTuple):
    """A table that has to stop, alone; *events* lie in the batch, *reset* says whether only a reset mends it."""

    table: str
    events: list[bytes]
    code: str
    words: str
    key: tuple[str, ...] = ("id",)


STOPS = [
    Stopped("keyed", [event("INS", {**row(1), "id": "one"}, commit=40, tbl="keyed")], "KEY_UNKNOWN", "'one'"),
    Stopped("conflict", [
        event("INS", row(1), commit=40, tbl="conflict"),
        event("INS", row(1, "Eve"), commit=40, tbl="conflict"),
    ], "IDENTITY_CONFLICT", "differ"),
    Stopped("retyped", [
        event("INS", row(1), commit=40, tbl="retyped"),
        event("INS", row(2), commit=41, tbl="retyped",
              cols=[("id", "int"), ("name", "nvarchar(50)"), ("price", "bit")]),
    ], "SCHEMA_CHANGED", "'price'"),
    Stopped("append", [
        event("INS", row(1), commit=40, tbl="append"),
        event("UPD", row(1, "Eve"), row(1), commit=41, tbl="append"),
    ], "KEYLESS_CHANGE", TOPIC, ()),
    Stopped("marker", [event("INS", {"id": "1", "__ROWMARKER__": "1"}, commit=40, tbl="marker",
                             cols=[("id", "int"), ("__ROWMARKER__", "int")])], "COLUMN_NAME_INVALID", "__ROWMARKER__"),
]  # fmt: skip


class Delivered(NamedTuple):
    """The one batch with everything in it, extracted, published and applied."""

    pipeline: Pipeline
    counts: Mapping[str, int]
    places: dict[str, int]
    messages: int


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[Delivered]:
    tables = [
        {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]},
        {"source": "dbo.clean", "target": "dbo/clean", "key": ["id"]},
        {"source": "dbo.gone", "target": "dbo/gone", "key": ["id"]},
        {"source": "dbo.lost", "target": "dbo/lost", "key": ["id"]},
        {"source": "dbo.log", "target": "dbo/log", "key": []},
        *({"source": f"dbo.{s.table}", "target": f"dbo/{s.table}", "key": list(s.key)} for s in STOPS),
        {"source": "dbo.[../evil]", "target": "hostile/evil", "key": ["id"]},
    ]
    pipeline = Pipeline(tmp_path_factory.mktemp("bad"), spark, tables)
    bodies: list[bytes | None] = [event("INS", row(1), commit=1, tbl="clean"), event("INS", row(1), commit=1)]
    places: dict[str, int] = {}
    for at, bad in enumerate(BAD):
        places[bad.name] = len(bodies)
        bodies.append(bad.body)
        bodies.append(event("UPD", row(1, f"n{at}"), row(1), commit=2 + at, tbl="clean"))
    bodies += [event("INS", row(key, "old"), commit=50) for key in (10, 11)]
    for key, (values, _, _) in UNTYPABLE.items():
        places[f"untypable {key}"] = len(bodies)
        bodies.append(event("INS", values, commit=50 + key))
    bodies += [event("DEL", None, row(3), commit=60, tbl="gone"), event("INS", row(1), commit=61, tbl="log")]
    bodies += [body for stop in STOPS for body in stop.events]
    pieces = split(event("INS", row(8), commit=95, tbl="lost"), [100, 200])
    other = split(event("INS", row(8, "Eve"), commit=95, indent=1, tbl="lost"), [100, 200])
    places["pieces"] = len(bodies)
    bodies += [pieces[0], other[0], *pieces[1:]]
    pipeline.deliver("it's #1 %2e\n.jsonl", wrapped(bodies) + b'{"topic": "t"}\nno json\n')
    extracted, _ = pipeline.tick()
    yield Delivered(pipeline, extracted.counts, places, len(bodies) + 2)


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_an_unreadable_message_is_one_dead_letter(bad: Bad, delivered: Delivered) -> None:
    """G-06: code, coordinates, reason, the bytes as they came, and a way out."""
    found = [
        x for x in delivered.pipeline.letters() if (x["origin"], x["place"]) == (TOPIC, delivered.places[bad.name])
    ]
    assert [(x["code"], x["tbl"], x["key"], x["raw"]) for x in found] == [(bad.code, bad.table, bad.key, bad.body)]
    assert bad.words in found[0]["reason"]
    assert next_step_of(bad.code)


def test_lines_that_wrap_no_message_are_dead_letters_at_their_byte(delivered: Delivered) -> None:
    found = [line for line in delivered.pipeline.letters() if line["code"] == "FORMAT_UNSUPPORTED"]
    content = (delivered.pipeline.source / "it's #1 %2e\n.jsonl").read_bytes()
    assert [(line["origin"], line["raw"]) for line in found] == [
        ("it's #1 %2e\n.jsonl", b'{"topic": "t"}'),
        ("it's #1 %2e\n.jsonl", b"no json"),
    ]
    assert [content[line["place"] :].splitlines()[0] for line in found] == [line["raw"] for line in found]


def test_pieces_that_contradict_each_other_are_one_dead_letter(delivered: Delivered) -> None:
    (found,) = [line for line in delivered.pipeline.letters() if line["code"] == "FRAGMENTS_INCOMPLETE"]
    assert (found["origin"], found["place"]) == (TOPIC, delivered.places["pieces"])
    assert found["fragment_of"].startswith(GUID)
    assert delivered.pipeline.open_fragments == 0


def test_every_message_has_one_disposition(delivered: Delivered) -> None:
    """I1, and what is not known to belong to a table puts the whole mirror at risk."""
    counts = delivered.counts
    assert counts["messages"] == delivered.messages == sum(counts.get(name, 0) for name in DISPOSITIONS)
    stopped_rejects = sum(stop.code == "KEY_UNKNOWN" for stop in STOPS)
    assert counts["rejected"] == len(BAD) + 2 + stopped_rejects
    homeless = [line for line in delivered.pipeline.letters() if line["tbl"] is None]
    assert delivered.pipeline.reader.mirror().unnamed_rejects == len(homeless) > 3
    assert counts.get("ignored", 0) == 0


def test_a_second_table_in_the_same_batch_is_exactly_equal(delivered: Delivered) -> None:
    assert delivered.pipeline.mirrored("dbo", "clean") == [landed(1, f"n{len(BAD) - 1}")]
    assert delivered.pipeline.numbers("dbo.schema/clean") == [1]


@pytest.mark.parametrize("key", UNTYPABLE)
def test_a_value_that_does_not_fit_is_a_dead_letter_of_its_change_and_its_key_stays_as_it_was(
    key: int, delivered: Delivered
) -> None:
    """G-06, never a NULL: the ledger holds code, reason and coordinates; the key shows its last typable row."""
    reader = delivered.pipeline.reader
    state = reader.tables()["dbo.orders"]
    assert state.stop_code is None
    (found,) = [r for r in reader.rejected([state.id])[state.id] if r["key"] == f'["{key}"]']
    _, column, words = UNTYPABLE[key]
    assert (found["code"], found["origin"], found["place"], found["batch"]) == (
        "VALUE_INVALID", TOPIC, delivered.places[f"untypable {key}"], 1,
    )  # fmt: skip
    assert f"column '{column}'" in found["reason"] and words in found["reason"]
    mirrored = {line["id"]: line for line in delivered.pipeline.mirrored("dbo", "orders")}
    assert mirrored.get(key) == (landed(key, "old") if key in (10, 11) else None)


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.table)
def test_what_must_stop_a_table_stops_it_alone_and_says_the_next_step(stop: Stopped, delivered: Delivered) -> None:
    stopped(delivered.pipeline, f"dbo.{stop.table}", stop.code, stop.words)
    before = [1] if stop.code == "SCHEMA_CHANGED" else []  # what stands before the change (G-61)
    assert delivered.pipeline.numbers(f"dbo.schema/{stop.table}") == before


def test_only_those_tables_are_stopped(delivered: Delivered) -> None:
    assert stops(delivered.pipeline) == {f"dbo.{stop.table}" for stop in STOPS} | {"dbo.lost", "dbo.[../evil]"}


def test_a_table_of_which_messages_cannot_be_read_is_stopped_until_they_are(delivered: Delivered) -> None:
    """C-95: their bytes still tell the table, and a sound copy, or a replay by a newer decoder, heals it."""
    state = delivered.pipeline.reader.tables()["dbo.lost"]
    assert state.stop_code == "CHANGES_MISSING" and "MESSAGE_INVALID" in (state.stop_what or "")


def test_deletes_of_a_table_that_never_had_a_row_stop_nothing(delivered: Delivered) -> None:
    """G-05: a delete may come before its insert, across ticks; nothing has to be removed, and it is accounted for."""
    state = delivered.pipeline.reader.tables()["dbo.gone"]
    assert (state.stop_code, state.row.published_batch, state.row.confirmed) == (None, 1, 0)


def test_after_the_bad_batch_everything_goes_on(delivered: Delivered) -> None:
    """Numbers unbroken, a later good row heals its key, late rows stay late, accounts add up (I1, I7, G-05, G-09)."""
    pipeline = delivered.pipeline
    bodies = [
        event("UPD", row(1, "last"), row(1), commit=200, tbl="clean"),
        event("INS", row(3), commit=59, tbl="gone"),
        event("INS", row(4), commit=62, tbl="gone"),
        event("INS", row(10, "healed"), commit=201),
        event("INS", row(11, "between"), commit=52),
        event("INS", UNTYPABLE[13][0], commit=63),
    ]
    pipeline.deliver("next.jsonl", wrapped(bodies, 1000))
    extracted, _ = pipeline.tick()
    settled(pipeline, extracted.counts, len(bodies))
    assert pipeline.mirrored("dbo", "clean") == [landed(1, "last")]
    assert pipeline.mirrored("dbo", "gone") == [landed(4)]
    orders = in_order(pipeline.mirrored("dbo", "orders"), ["id"])
    assert orders == in_order([landed(1), landed(10, "healed"), landed(11, "between")], ["id"])
    reader = pipeline.reader
    rejected = reader.rejected([reader.tables()["dbo.orders"].id]).popitem()[1]
    assert sorted(r["key"] for r in rejected) == [f'["{key}"]' for key in sorted(UNTYPABLE)], "recorded once"
    assert not any(path.is_dir() for path in pipeline.zone.rglob("_stage-*") if any(path.iterdir()))


CLEAN = [{"source": "dbo.clean", "target": "dbo/clean", "key": ["id"]},
         {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}]  # fmt: skip


def test_an_archive_that_is_cut_is_read_again_when_complete(tmp_path: Path, spark: Any) -> None:
    pipeline = Pipeline(tmp_path, spark, CLEAN)
    bodies = [event("INS", row(key, "x" * key), commit=key) for key in range(1, 40)]
    packed = gzip.compress(wrapped(bodies), mtime=0)
    pipeline.deliver("packed.jsonl.gz", packed[: len(packed) * 2 // 3])
    pipeline.deliver("nothing.jsonl.gz", gzip.compress(b""))
    extracted, _ = pipeline.tick()
    assert [(x["origin"], x["code"]) for x in pipeline.letters()] == [("packed.jsonl.gz", "FILE_DAMAGED")]
    some = len(pipeline.mirrored("dbo", "orders"))
    assert 0 < some < 39, "the lines before the damage are good"
    assert extracted.counts["messages"] == some + 1

    pipeline.deliver("packed.jsonl.gz", packed)
    extracted, _ = pipeline.tick()
    assert (extracted.waiting_files, extracted.counts["rejected"]) == ([], 0)
    found = {line["id"]: line for line in pipeline.mirrored("dbo", "orders")}
    assert found == {key: landed(key, "x" * key) for key in range(1, 40)}
    assert pipeline.numbers("dbo.schema/orders") == [1, 2]
    assert pipeline.reader.mirror().unnamed_rejects == 0, "the damage seen before was read again, whole"
    settled = settled_letters(pipeline.ledger, pipeline.name)
    assert [(at.origin, outcome) for at, outcome in settled.items()] == [("packed.jsonl.gz", "reread")]


def test_capture_files_that_are_cut_empty_or_filled_later(tmp_path: Path, spark: Any) -> None:
    """C-93: a longer file is read anew as a whole; what it holds twice is dropped, what was damaged is not lost."""
    pipeline = Pipeline(tmp_path, spark, CLEAN, source={"transport": "capture", "layout": None})
    whole = capture([event("INS", row(key, "x" * key), commit=key) for key in range(1, 40)])
    header_only = capture([])
    filled = capture([event("INS", row(2), commit=2, tbl="clean")])
    pipeline.deliver("0/good.avro", capture([event("INS", row(1), commit=1, tbl="clean")]))
    pipeline.deliver("0/cut.avro", whole[: len(whole) // 2])
    pipeline.deliver("0/noise.avro", b"Obj\x01 but nothing else")
    pipeline.deliver("0/later.avro", b"")
    pipeline.deliver("1/header.avro", header_only)
    extracted, _ = pipeline.tick()
    assert extracted.waiting_files == ["0/later.avro"]
    assert pipeline.mirrored("dbo", "clean") == [landed(1)]
    found = {line["origin"]: line for line in pipeline.letters()}
    assert {name: line["code"] for name, line in found.items()} == dict.fromkeys(
        ["0/cut.avro", "0/noise.avro"], "FILE_DAMAGED"
    )
    cut = found["0/cut.avro"]
    assert whole[: len(whole) // 2][cut["place"] :] == cut["raw"], "the place is the byte where the damage begins"

    pipeline.deliver("0/cut.avro", whole)
    pipeline.deliver("0/later.avro", filled)
    extracted, _ = pipeline.tick()
    assert (extracted.waiting_files, extracted.counts["rejected"]) == ([], 0)
    assert in_order(pipeline.mirrored("dbo", "clean"), ["id"]) == [landed(1), landed(2)]
    assert {line["id"]: line for line in pipeline.mirrored("dbo", "orders")} == {
        key: landed(key, "x" * key) for key in range(1, 40)
    }
    assert (len(pipeline.letters()), pipeline.reader.mirror().unnamed_rejects) == (2, 1), "noise stays a dead letter"
    settled = settled_letters(pipeline.ledger, pipeline.name)
    assert [(at.origin, outcome) for at, outcome in settled.items()] == [("0/cut.avro", "reread")]
    assert pipeline.extract().batch is None, "a file that did not grow is not read again"


def capture(bodies: Sequence[bytes]) -> bytes:
    """One Capture container, in several blocks where there are several messages."""
    records = [
        {"SequenceNumber": at, "Offset": str(at), "EnqueuedTimeUtc": "", "SystemProperties": {}, "Properties": {},
         "Body": body}
        for at, body in enumerate(bodies)
    ]  # fmt: skip
    stream = io.BytesIO()
    fastavro.writer(stream, EVENT_DATA, records, codec="deflate", sync_interval=2_000, sync_marker=b"0123456789abcdef")
    return stream.getvalue()
