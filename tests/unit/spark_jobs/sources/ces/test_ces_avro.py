"""CES in Avro: framing, both inner records, and the misreading that does not fail by itself (C-60 to C-63)."""

from __future__ import annotations

import io
import json

import fastavro
import pytest

from spark_jobs.sources.ces import avro as ces_avro
from spark_jobs.sources.contract.decoded import Dispositions, Refusal
from tests.ces_messages import ROW, avro, avro_event, decode, envelope, event, only, payload


def test_a_change_event_begins_as_the_framing_rule_says_c63() -> None:
    assert avro_event().startswith(bytes.fromhex("06312E30"))


def test_a_record_read_in_the_wrong_generation_does_not_fail_by_itself_c62() -> None:
    datum = avro(ces_avro.DATA_WITH_FINALEVENT, payload(ROW, generation="c"))
    stream = io.BytesIO(datum)
    misread = fastavro.schemaless_reader(stream, ces_avro.DATA, None)
    assert misread["eventsource"]["transaction"]["committime"] == ""
    assert misread["eventrow"] == {"old": "2026-08-07T16:30:10.123Z", "current": "{}"}
    assert stream.tell() < len(datum)
    assert ces_avro.read_data(datum)["eventrow"]["current"] == json.dumps(ROW)


@pytest.mark.parametrize("generation", ["b", "c"])
def test_each_generation_is_found_by_reading_every_byte_c62(generation: str) -> None:
    """C-61: the inner record comes back whole, and no byte of it is left over."""
    schema = {"b": ces_avro.DATA, "c": ces_avro.DATA_WITH_FINALEVENT}[generation]
    datum = avro(schema, payload(ROW, generation=generation))
    assert ces_avro.read_data(datum)["eventsource"] == payload(ROW, generation=generation)["eventsource"]
    for damaged in (datum + b"\x00", datum[:-1], b"", b"\xff" * 40):
        with pytest.raises(Refusal) as caught:
            ces_avro.read_data(damaged)
        assert caught.value.code == "MESSAGE_INVALID"
        assert "with finalevent" in caught.value.reason and "without" in caught.value.reason


@pytest.mark.parametrize("field", ["commitlsn", "committime"])
def test_a_record_with_a_malformed_number_or_time_is_no_reading_c62(field: str) -> None:
    data = payload(ROW)
    data["eventsource"]["transaction"][field] = "x"
    with pytest.raises(Refusal, match="MESSAGE_INVALID"):
        ces_avro.read_data(avro(ces_avro.DATA_WITH_FINALEVENT, data))


@pytest.mark.parametrize("frame", [b"", b"\xc3\x01" + b"f" * 8, b"\x00\x00\x00\x00\x07"])
def test_known_frames_are_taken_off_c63(frame: bytes) -> None:
    row = only(decode(frame + avro_event()))
    assert row == only(decode(avro_event()))


@pytest.mark.parametrize("content", ["application/avro", "application/avro-binary", "application/json", ""])
@pytest.mark.parametrize("inner", ["avro", "json"])
def test_the_payload_of_an_avro_message_proves_what_it_is_c20(content: str, inner: str) -> None:
    data = avro(ces_avro.DATA, payload(ROW, generation="b")) if inner == "avro" else json.dumps(payload(ROW)).encode()
    body = avro(ces_avro.CHANGE_EVENT, envelope("INS", data, datacontenttype=content))
    decoded = decode(body)
    if not content:
        assert only(decoded).code == "MESSAGE_INVALID"
    else:
        assert only(decoded).row == only(decode(event())).row


def test_every_damage_by_one_byte_is_noticed_or_changes_values_only() -> None:
    """A damaged message is a dead letter or a piece, or differs in what no reader can check; it never stops others."""
    body = avro_event()
    damaged = [body[:at] + bytes([body[at] ^ 0x80]) + body[at + 1 :] for at in range(0, len(body), 3)]
    decoded = decode(*damaged, event())
    counts = decoded.counts
    assert counts.messages == len(damaged) + 1 == sum(counts[1:])
    assert counts.rejected > 0.9 * len(damaged)
    assert decoded.rows[-1].op == "I"


def test_truncated_messages_are_dead_letters_at_every_length() -> None:
    """C-60: the outer record takes every byte."""
    body = avro_event()
    decoded = decode(*(body[:length] for length in range(len(body))))
    assert decoded.counts == Dispositions(len(body), 0, 0, 0, 0, len(body))
    assert all(row.raw == body[: row.place] for row in decoded.rows)
