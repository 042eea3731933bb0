"""A dead letter is of the table that its bytes still tell, and none at all where that is not mirrored (C-95)."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import fastavro
import pytest

from spark_jobs.changelog.schema import REJECTED
from spark_jobs.sources.ces import avro as ces_avro
from spark_jobs.sources.ces.unreadable import NamedTable, table_named_in
from spark_jobs.sources.contract.decoded import Damage, Dispositions
from tests.ces_messages import GUID, ORDERS, ROW, avro, avro_event, decode, decoder, envelope, event, payload
from tests.noted_facts import ignored


def unreadable(**where: str) -> list[tuple[str, bytes]]:
    """Messages of one table of which none can be read."""
    whole = event(**where)
    data = json.dumps(payload(ROW, **where))
    no_key = payload(ROW, **where)
    del no_key["eventsource"]["pkkey"]
    prose = {"eventSource": no_key["eventsource"], "eventRow": no_key["eventrow"]}
    return [
        ("cut behind the table", whole[: whole.index(b"cols")]),
        ("cut in the row", whole[:-20]),
        ("cut, indented", event(indent=1, **where)[:-20]),
        ("cut, data is an object", json.dumps(envelope("INS", json.loads(data))).encode()[:-20]),
        ("bad utf-8", whole.replace(b"Ada", b"\xff\xfe\xfd")),
        ("a newer type", event(replaced={"type": "com.microsoft.SQL.CES.DML.V2"}, **where)),
        ("no envelope", data.encode()),
        ("no pkkey", event(replaced={"data": json.dumps(no_key)}, **where)),
        ("no pkkey, in the case of the prose", event(replaced={"data": json.dumps(prose)}, **where)),
        ("cut data", event(replaced={"data": data[:-20]}, **where)),
        ("doubled quotes", whole.replace(b'"INS"', b'""INS""')),
        ("avro", avro_event(replaced={"type": "x"}, **where)),
        ("cut avro", avro_event(**where)[:-3]),
        ("cut avro in a frame", b"\x00\x00\x00\x00\x01" + avro_event(**where)[:-3]),
        ("avro behind something", b"\xef\xbb\xbf" + avro_event(**where)),
        ("json in avro, cut", avro(ces_avro.CHANGE_EVENT, envelope("INS", data.encode()))[:-20]),
    ]  # fmt: skip


CASES = [name for name, _ in unreadable()]


@pytest.mark.parametrize("name", CASES)
def test_the_table_of_an_unreadable_message_stops_and_no_other_one_counts_as_lost(name: str) -> None:
    """C-95: of a mirrored table it is the dead letter; of any other one, or of another database, no risk."""
    mine, foreign = dict(unreadable())[name], dict(unreadable(tbl="items"))[name]
    elsewhere = dict(unreadable(db="other"))[name]
    decoded = decode(mine, foreign, elsewhere, database="shop")
    (letter,) = decoded.rows
    assert (letter.kind, letter.tbl, letter.key, letter.place) == (REJECTED, "dbo.orders", None, 0)
    assert letter.raw == mine
    assert decoded.counts == Dispositions(3, 0, 0, 0, 2, 1)
    assert ignored(decoded.facts) == {"dbo.items": 1, "other.dbo.orders": 1}
    case = decode(dict(unreadable(tbl="Orders"))[name]).rows
    assert [(row.kind, row.tbl) for row in case] == [(REJECTED, "dbo.orders")], "in another case it may be the same"


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        b"{}",
        b"[]",
        b"\x00" * 40,
        b"\x06" * 40,
        event()[:200],
        # Two events in one: of which one the rest was, nobody can tell.
        event() + event(tbl="items"),
        event(tbl="items") + event(tbl="other")[:300],
        avro_event() + avro_event(tbl="items"),
        # Values that look like names, without the name itself.
        event("INS", {**ROW, "name": '"eventsource":{"schema":"dbo","tbl":"items"}'})[-200:],
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else "body",
)
def test_what_shows_no_table_for_certain_is_of_none(body: bytes | None) -> None:
    assert table_named_in(body) is None
    assert [(row.kind, row.tbl) for row in decode(body).rows] == [(REJECTED, None)]


@pytest.mark.parametrize("cut", range(0, 700, 7))
@pytest.mark.parametrize("make", [event, avro_event])
def test_a_message_that_was_cut_anywhere_shows_its_table_or_none(cut: int, make: Any) -> None:
    body = make(tbl='or"d\\ers', schema="größe")
    assert table_named_in(body[:cut]) in (None, NamedTable("shop", "größe", 'or"d\\ers'))


def test_a_database_in_another_case_may_be_the_one_that_is_read_g13() -> None:
    """C-12: else all of its events would be ignored without a word."""
    decoded = decode(event(db="SHOP"), event(db="SHOP", tbl="items"), event(db="SHOP")[:-9], database="shop")
    assert [(row.code, row.tbl, row.key) for row in decoded.rows] == [
        ("TABLE_NAME_DIFFERS", "dbo.orders", None), ("MESSAGE_INVALID", "dbo.orders", None),
    ]  # fmt: skip
    assert ignored(decoded.facts) == {"SHOP.dbo.items": 1}


def test_hostile_names_are_read_as_they_are() -> None:
    for name in ('a"b', "a\\b", "a\nb", "größe", "[x]", "😀"):
        assert table_named_in(event(tbl=name, replaced={"type": "x"})) == NamedTable("shop", "dbo", name)


def test_a_line_without_its_wrapper_shows_its_table() -> None:
    """A block of damaged bytes may hold any number of messages, and tells none."""
    whole = json.dumps({"topic": "t", "value": base64.b64encode(event(tbl="items")).decode()}).encode()
    text = json.dumps({"topic": "t", "value": event().decode()}).encode()
    raws = [whole[:-100], text[:-100], text[:60]]
    found = decoder().decode([Damage("a", at, "FORMAT_UNSUPPORTED", "cut", raw) for at, raw in enumerate(raws)])
    assert [(row.place, row.tbl) for row in found.rows] == [(1, "dbo.orders"), (2, None)]
    assert (found.counts, ignored(found.facts)) == (Dispositions(3, 0, 0, 0, 1, 2), {"dbo.items": 1})
    (row,) = decoder().decode([Damage("a", 0, "FILE_DAMAGED", "cut", text[:-100])]).rows
    assert row.tbl is None


def container(schema: Any, *records: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, schema, records)
    return stream.getvalue()


def other_types(schema: Any, **types: Any) -> Any:
    """The outer record as another writer may declare it: its fields in another order, some of other types."""
    fields = [{"name": one["name"], "type": types.get(one["name"], one["type"])} for one in schema["fields"]]
    return {"type": "record", "name": "Other", "namespace": "com.other", "fields": fields[::-1]}


INNER = payload(ROW, pkkey={"id": "7"})
BYTES_KEY = {"type": "record", "name": "Data", "fields": [
    {"name": "eventsource", "type": {"type": "record", "name": "S", "fields": [
        *({"name": name, "type": "string"} for name in ("db", "schema", "tbl")),
        {"name": "cols", "type": {"type": "array", "items": {"type": "record", "name": "C", "fields": [
            *({"name": name, "type": "string"} for name in ("name", "type")), {"name": "index", "type": "int"}]}}},
        {"name": "pkkey", "type": {"type": "array", "items": {"type": "record", "name": "K", "fields": [
            {"name": "columnname", "type": "string"}, {"name": "value", "type": "bytes"}]}}}]}},
    {"name": "eventrow", "type": {"type": "map", "values": "string"}}]}  # fmt: skip
LENIENT = {
    "data_base64": [
        json.dumps(envelope("INS", ..., data_base64=base64.b64encode(json.dumps(INNER).encode()).decode())).encode(),
        json.dumps(envelope("INS", None, data_base64=base64.b64encode(
            avro(ces_avro.DATA_WITH_FINALEVENT, INNER)).decode())).encode(),
    ],
    "prose_names": [
        event(replaced={"data": json.dumps({"eventSource": INNER["eventsource"], "eventRow": INNER["eventrow"]})}),
        event(replaced={"data": json.dumps({"EventSource": INNER["eventsource"], "eventData": INNER["eventrow"]})}),
    ],
    "avro_containers": [
        container(ces_avro.CHANGE_EVENT, envelope("INS", avro(ces_avro.DATA_WITH_FINALEVENT, INNER))),
        container(ces_avro.CHANGE_EVENT, envelope("INS", container(ces_avro.DATA_WITH_FINALEVENT, INNER))),
        container(ces_avro.CHANGE_EVENT, envelope("INS", json.dumps(INNER).encode())),
        container(
            other_types(
                ces_avro.CHANGE_EVENT,
                id={"type": "string", "logicalType": "uuid"},
                operation={"type": "enum", "name": "Operation", "symbols": ["UPD", "INS"]},
                segmentindex="long",
                data=["null", ces_avro.DATA_WITH_FINALEVENT],
            ),
            {**envelope("INS", INNER), "id": GUID},
        ),
    ],
}  # fmt: skip


@pytest.mark.parametrize("form", LENIENT)
def test_what_is_read_leniently_is_the_same_change_c97(form: str) -> None:
    """C-63: a container that holds one record is that record."""
    (plain,) = decode(event(pkkey={"id": "7"})).rows
    for body in LENIENT[form]:
        assert decode(body).rows == [plain]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (json.dumps(envelope("INS", "{}", data_base64="e30=")).encode(), "MESSAGE_INVALID"),
        (json.dumps(envelope("INS", ..., data_base64="e3?")).encode(), "MESSAGE_INVALID"),
        (event().replace(b'\\"pkkey\\": []', b'\\"pkkey\\": [{\\"columnname\\":\\"id\\",\\"value\\":\\"6\\"},'
                         b'{\\"columnname\\":\\"id\\",\\"value\\":\\"7\\"}]'), "MESSAGE_INVALID"),
        (event(schema=""), "MESSAGE_INVALID"),
        (event(db=""), "MESSAGE_INVALID"),
        (container(ces_avro.CHANGE_EVENT), "MESSAGE_INVALID"),
        (container(ces_avro.CHANGE_EVENT, *[envelope("INS", b"{}")] * 2), "MESSAGE_INVALID"),
        (container("string", "x"), "MESSAGE_INVALID"),
        (container(ces_avro.DATA_WITH_FINALEVENT, INNER), "MESSAGE_INVALID"),
        (container(ces_avro.CHANGE_EVENT, envelope("DEL", container(BYTES_KEY, {
            "eventsource": {**INNER["eventsource"], "pkkey": [{"columnname": "id", "value": b"\x00\x10\x83"}]},
            "eventrow": {"old": "{}", "current": "{}"}}))), "MESSAGE_INVALID"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else "body",
)  # fmt: skip
def test_what_says_two_things_is_a_dead_letter_c98(body: bytes, code: str) -> None:
    """A payload in two spellings, a key in bytes: which one counts, nobody says."""
    assert [(row.kind, row.code, row.key) for row in decode(body, tables=[ORDERS]).rows] == [(REJECTED, code, None)]


def test_images_under_two_names_are_a_dead_letter_c98() -> None:
    body = event(replaced={"data": json.dumps({**INNER, "eventdata": INNER["eventrow"]})})
    assert [(row.kind, row.code) for row in decode(body, tables=[ORDERS]).rows] == [(REJECTED, "MESSAGE_INVALID")]


BINARY_COLS = [("id", "binary(2)"), ("name", "varbinary(max)"), ("price", "image")]


def test_binary_values_in_base64_are_logged_in_hexadecimal_c84() -> None:
    """Keys, images and `pkkey` alike."""
    parts = {"cols": BINARY_COLS, "pkkey": {"id": "q80="}}
    rows = [{"id": "q80=", "name": "3q2+7w==", "price": None}, {"id": "q80=", "name": "", "price": "AA=="}]
    inserted, updated, bad = decode(
        event("INS", rows[0], **parts),
        event("UPD", rows[1], "{}", **parts),
        event("UPD", {**rows[0], "name": "0xA"}, rows[0], **parts),
        binary="base64",
    ).rows
    assert (inserted.key, inserted.row) == ('["ABCD"]', '{"id":"0xABCD","name":"0xDEADBEEF","price":null}')
    assert (updated.key, updated.row) == ('["ABCD"]', '{"id":"0xABCD","name":"0x","price":"0x00"}')
    assert (bad.code, bad.key) == ("ROW_INVALID", '["ABCD"]')
