"""Every way in which a CES message is unreadable is one dead letter with code, reason, coordinates and raw bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_jobs.sources.contract.decoded import Dispositions, MirroredTable
from tests.ces_messages import COLS, GUID, ROW, avro_event, decode, event, payload


def with_data(operation: str = "INS", **sources: Any) -> bytes:
    data = payload(ROW)
    data["eventsource"] |= sources
    data["eventsource"] = {name: value for name, value in data["eventsource"].items() if value is not ...}
    return event(operation, replaced={"data": json.dumps(data)})


DEEP = b"[" * 100_000 + b"]" * 100_000
WIDE = [("id", "int"), *((f"c{n}", "int") for n in range(1024))]

# The whole message, the code, words of the reason; the table and the key where the message still tells them.
ENVELOPES: list[tuple[str, bytes | None, str, str]] = [
    ("no body", None, "BODY_MISSING", "no body"),
    ("empty", b"", "BODY_MISSING", "empty"),
    ("blank", b" \n", "BODY_MISSING", "empty"),
    ("bad utf-8 in an unread field", event().replace(b"/\"", b"\xff\"", 1), "MESSAGE_INVALID", "0xff"),
    ("cut", event()[:-20], "MESSAGE_INVALID", ""),
    ("two objects", event() + event(), "MESSAGE_INVALID", "trailing"),
    ("text", b"hello", "MESSAGE_INVALID", ""),
    ("array", b"[]", "MESSAGE_INVALID", "array"),
    ("number", b"5", "MESSAGE_INVALID", "int"),
    ("deep", b'{"x":' + DEEP + b"}", "MESSAGE_INVALID", "recursion"),
    ("lone surrogate", event().replace(b'"/"', b'"\\ud800"', 1), "MESSAGE_INVALID", ""),
    ("byte order mark", b"\xef\xbb\xbf" + event(), "MESSAGE_INVALID", "neither JSON nor Avro"),
    ("noise", b"\xde\xad\xbe\xef", "MESSAGE_INVALID", "neither JSON nor Avro"),
    ("avro container", b"Obj\x01" + avro_event(), "MESSAGE_INVALID", "container"),
    ("single object without event", b"\xc3\x01" + b"x" * 20, "MESSAGE_INVALID", "single-object"),
    ("registry frame without event", b"\x00" + b"x" * 20, "MESSAGE_INVALID", "schema registry"),
    ("avro cut", avro_event()[:-1], "MESSAGE_INVALID", "ChangeEvent"),
    ("avro with more", avro_event() + b"\x00", "MESSAGE_INVALID", "left over"),
    ("avro with bad text", avro_event().replace(b"INS", b"\xff\xff\xff", 1), "MESSAGE_INVALID", "utf-8"),
    ("other version of CloudEvents", event(replaced={"specversion": "2.0"}), "MESSAGE_INVALID", "2.0"),
    ("the same in avro", avro_event(replaced={"specversion": "2.0"}), "MESSAGE_INVALID", "2.0"),
    ("no type", event(replaced={"type": ...}), "MESSAGE_INVALID", "`type`"),
    ("no id", event(replaced={"id": ...}), "MESSAGE_INVALID", "`id`"),
    ("no source", event(replaced={"source": ...}), "MESSAGE_INVALID", "`source`"),
    ("no operation", event(replaced={"operation": ...}), "MESSAGE_INVALID", "`operation`"),
    ("no logicalid", event(replaced={"logicalid": ...}), "MESSAGE_INVALID", "`logicalid`"),
    ("operation is a number", event(replaced={"operation": 1}), "MESSAGE_INVALID", "$.operation"),
    ("index is not a number", event(replaced={"segmentindex": "first"}), "MESSAGE_INVALID", "$.segmentindex"),
    ("index is negative", event(replaced={"segmentindex": -1}), "MESSAGE_INVALID", "-1"),
    ("index is huge", event(replaced={"segmentindex": 2**31}), "MESSAGE_INVALID", "2147483648"),
    ("final is a number", event(replaced={"finalsegment": 1}), "MESSAGE_INVALID", "$.finalsegment"),
    ("no final", event(replaced={"finalsegment": ...}), "MESSAGE_INVALID", "finalsegment"),
    ("split beyond total", event(generation="a", replaced={"splitindex": 3, "splittotalcnt": 2}), "MESSAGE_INVALID",
     "3"),
    ("newer type", event(replaced={"type": "com.microsoft.SQL.CES.DML.V2"}), "MESSAGE_INVALID", "V2"),
    ("newer type with other fields", event(replaced={"type": "com.microsoft.SQL.CES.DML.V2", "operation": 5}),
     "MESSAGE_INVALID", "V2"),
    ("other type", avro_event(replaced={"type": "x"}), "MESSAGE_INVALID", "'x'"),
    ("other content", event(replaced={"datacontenttype": "application/xml"}), "MESSAGE_INVALID", "xml"),
    ("avro content in json", event(replaced={"datacontenttype": "application/avro"}), "MESSAGE_INVALID", "avro"),
    ("no data", event(replaced={"data": ...}), "MESSAGE_INVALID", "no data"),
    ("null data", event(replaced={"data": None}), "MESSAGE_INVALID", "no data"),
    ("data is a number", event(replaced={"data": 5}), "MESSAGE_INVALID", "$.data"),
    ("a piece that is an object", event(replaced={"data": payload(ROW), "segmentindex": 2}), "MESSAGE_INVALID",
     "object"),
    ("logicalid without parts", event(replaced={"logicalid": "x"}), "MESSAGE_INVALID", "'x'"),
    ("logicalid with short sequence", event(replaced={"logicalid": f"{GUID}:{'0' * 20}:1"}), "MESSAGE_INVALID", ":1"),
    ("logicalid with foreign digits", event(replaced={"logicalid": f"{GUID}:{'0' * 20}:{'٣' * 20}"}),
     "MESSAGE_INVALID", "guid:lsn:sequence"),
    ("logicalid with more behind", event(replaced={"logicalid": f"{GUID}:{'0' * 20}:{'0' * 20}\n"}),
     "MESSAGE_INVALID", "guid:lsn:sequence"),
    ("operation in small letters", event(replaced={"operation": "ins"}), "MESSAGE_INVALID", "'ins'"),
]  # fmt: skip


TELL_NOTHING = {
    "no body", "empty", "blank", "text", "array", "number", "deep", "noise", "single object without event",
    "registry frame without event", "no data", "null data", "data is a number",
    "two objects", "the same in avro",
}  # fmt: skip


@pytest.mark.parametrize(("name", "body", "code", "words"), ENVELOPES, ids=[case[0] for case in ENVELOPES])
def test_an_unreadable_envelope_is_a_dead_letter(name: str, body: bytes | None, code: str, words: str) -> None:
    """Of its table, where the bytes still tell it (C-95).

    Every attribute that is required, of one type or of few values: C-10 to C-14, C-16 to C-20."""
    decoded = decode(event(commit=1), body, event(commit=3))
    before, rejected, after = decoded.rows
    assert decoded.counts == Dispositions(3, 2, 0, 0, 0, 1)
    assert (rejected.kind, rejected.code, rejected.origin, rejected.place, rejected.raw) == (
        "rejected", code, "in.jsonl", 1, body,
    )  # fmt: skip
    assert words in (rejected.reason or "")
    story = None if name in TELL_NOTHING else "dbo.orders"
    assert (rejected.tbl, rejected.key, rejected.bucket, rejected.pos) == (story, None, -1, None)
    assert [before.op, after.op] == ["I", "I"]


PAYLOADS: list[tuple[str, bytes, str, str, bool]] = [
    ("data is no json", event(replaced={"data": '{"eventsource":'}), "MESSAGE_INVALID", "", False),
    ("data is an array", event(replaced={"data": "[]"}), "MESSAGE_INVALID", "array", False),
    ("avro data is noise", avro_event(replaced={"data": b"\x02\x02\x02"}), "MESSAGE_INVALID", "without:", False),
    ("no eventsource", event(replaced={"data": '{"eventrow":{"old":"{}","current":"{}"}}'}), "MESSAGE_INVALID",
     "eventsource", False),
    ("no table", with_data(tbl=...), "MESSAGE_INVALID", "`tbl`", False),
    ("no pkkey", with_data(pkkey=...), "MESSAGE_INVALID", "`pkkey`", True),
    ("no eventrow", event(replaced={"data": json.dumps({"eventsource": payload(ROW)["eventsource"]})}),
     "MESSAGE_INVALID", "eventrow", True),
    ("sequence is text", with_data(transaction={"commitlsn": "x", "sequencenumber": "1"}), "MESSAGE_INVALID",
     "sequencenumber", True),
    ("other lsn", with_data(transaction={"commitlsn": "0000002C:00000010:0002", "sequencenumber": 1}),
     "MESSAGE_INVALID", "0002", True),
    ("other sequence", with_data(transaction={"commitlsn": "0000002C:00000010:0001", "sequencenumber": 2}),
     "MESSAGE_INVALID", "2", True),
    ("no cols", with_data(cols=[]), "ROW_INVALID", "empty", True),
    ("cols is text", with_data(cols="id"), "ROW_INVALID", "cols", True),
    ("a column twice", event(cols=[*COLS, ("id", "int")]), "ROW_INVALID", "'id'", True),
    ("a column without name", event(cols=[*COLS, ("", "int")]), "ROW_INVALID", "''", True),
    ("a place twice", with_data(cols=[{"name": n, "type": "int", "index": 0} for n in "ab"]), "ROW_INVALID",
     "index 0", True),
    ("too many columns", event(cols=WIDE), "MESSAGE_INVALID", "1025", True),
    ("current is an array", event("INS", "[]"), "ROW_INVALID", "no JSON object", True),
    ("current is no json", event("INS", "{id:7}"), "ROW_INVALID", "JSON", True),
    ("current is null text", event("INS", "null"), "ROW_INVALID", "no JSON object", True),
    ("current is empty", event("INS", "{ }"), "ROW_INVALID", "without a current row", True),
    ("an insert with an old row", event("INS", ROW, ROW), "ROW_INVALID", "old row", True),
    ("a delete with a current row", event("DEL", ROW, ROW), "ROW_INVALID", "current row", True),
    ("old is malformed", event("UPD", ROW, "{"), "ROW_INVALID", "old:", True),
    ("a nested value", event("INS", {**ROW, "name": ["x"]}), "ROW_INVALID", "'name'", True),
    ("a name outside cols", event("INS", {**ROW, "other": "x"}), "ROW_INVALID", "'other'", True),
    ("not a number", event("INS", '{"id":"7","price":NaN}'), "ROW_INVALID", "malformed", True),
    ("half a surrogate pair", event("INS", '{"id":"7","name":"\\ud800"}'), "ROW_INVALID", "", True),
    ("a deep value", event("INS", '{"id":' + DEEP.decode() + "}"), "ROW_INVALID", "", True),
    ("no key value", event("INS", {"name": "x"}), "KEY_INVALID", "'id'", True),
    ("no key column", event("INS", {"name": "x"}, cols=COLS[1:]), "KEY_INVALID", "'id'", True),
    ("no key anywhere", event("DEL", None, {}), "KEY_INVALID", "'id'", True),
    ("null key", event("INS", {**ROW, "id": None}), "KEY_INVALID", "NULL", True),
    ("key is not a number", event("INS", {**ROW, "id": "7.5"}), "KEY_INVALID", "7.5", True),
    ("old key is not a number", event("UPD", ROW, {**ROW, "id": ""}), "KEY_INVALID", "old:", True),
    ("key of unknown type", event(cols=[("id", "geometry"), *COLS[1:]]), "KEY_INVALID", "TYPE_UNSUPPORTED", True),
    ("key that loses digits", event(cols=[("id", "datetime2(7)"), *COLS[1:]]), "KEY_INVALID", "loses", True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "code", "words", "table_known"), [case[1:] for case in PAYLOADS], ids=[case[0] for case in PAYLOADS]
)
def test_an_unreadable_change_is_a_dead_letter_at_its_position(
    body: bytes, code: str, words: str, table_known: bool
) -> None:
    """C-30, C-46: the transaction block says what `logicalid` says; C-43: `cols` has names and places once."""
    decoded = decode(event(commit=1), body, event(tbl="ignored"), event(commit=3))
    before, rejected, after = decoded.rows
    assert decoded.counts == Dispositions(4, 2, 0, 0, 1, 1)
    assert (rejected.kind, rejected.code, rejected.origin, rejected.place, rejected.raw) == (
        "rejected", code, "in.jsonl", 1, body,
    )  # fmt: skip
    assert words in (rejected.reason or "")
    assert rejected.tbl == ("dbo.orders" if table_known else None)
    assert rejected.epoch == GUID
    assert rejected.pos is not None and rejected.pos.startswith("0000002C000000100001:00000000000000000001:")
    assert [before.op, after.op] == ["I", "I"]


@pytest.mark.parametrize(
    "body",
    [
        event("INS", '{"id":[]}', pkkey={"id": "07"}),
        event("INS", ROW, ROW),
        event("UPD", {**ROW, "name": ["x"]}, ROW, pkkey={"id": "7"}),
        event("UPD", ROW, '{"id":"7","name":[]}'),
        event("UPD", {**ROW, "name": ["x"]}, None, pkkey={"id": "7"}),
        event("UPD", {**ROW, "name": ["x"]}, {"name": "y"}, pkkey={"id": "7"}),
    ],
)
def test_a_dead_letter_names_the_key_that_grows_stale(body: bytes) -> None:
    (rejected,) = decode(body).rows
    assert (rejected.kind, rejected.tbl, rejected.key) == ("rejected", "dbo.orders", '["7"]')
    assert rejected.bucket == decode(event()).rows[0].bucket


@pytest.mark.parametrize(
    "body",
    [
        # The old row has another key, or one that nobody can tell.
        event("UPD", {**ROW, "name": ["x"]}, {**ROW, "id": "6"}, pkkey={"id": "7"}),
        event("UPD", {**ROW, "name": ["x"]}, {**ROW, "id": "6"}, pkkey={"id": "6"}),
        event("UPD", ROW, "{", pkkey={"id": "7"}),
        event("UPD", ROW, "[]", pkkey={"id": "7"}),
        event("UPD", ROW, {**ROW, "id": "x"}),
        event("UPD", ROW, '{"id":["7"],"name":"y"}'),
        # The new one cannot be told: `pkkey` may be the old key or the new one.
        event("UPD", "{", ROW, pkkey={"id": "7"}),
        event("UPD", {"name": "y"}, ROW, pkkey={"id": "7"}),
    ],
)
def test_an_unreadable_update_that_may_have_left_another_key_names_none_and_so_stops_its_table(body: bytes) -> None:
    """C-73, G-03: the old key's row would stay at the target for ever, and nothing would look at it again."""
    (rejected,) = decode(body).rows
    assert (rejected.kind, rejected.tbl, rejected.key, rejected.bucket) == ("rejected", "dbo.orders", None, -1)


def test_a_message_beyond_the_limit_is_a_dead_letter() -> None:
    body = event("INS", ROW) + b" " * 16 * 2**20
    (rejected,) = decode(body).rows
    assert (rejected.code, rejected.raw) == ("MESSAGE_INVALID", body)
    assert decode(body[: 16 * 2**20]).counts.changes == 1


def test_a_table_name_with_a_period_is_not_taken_for_another_table_c74() -> None:
    table = MirroredTable("a.b.c", ("id",))
    good, bad = event(schema="a.b", tbl="c"), event(schema="a", tbl="b.c")
    decoded = decode(good, bad, tables=[table])
    assert [row.kind for row in decoded.rows] == ["change", "rejected"]
    assert decoded.rows[1].code == "MESSAGE_INVALID"


def test_a_key_announced_as_a_fraction_is_refused_because_it_may_have_lost_digits_c45() -> None:
    (rejected,) = decode(event("INS", ROW, pkkey={"id": 7.5})).rows
    assert rejected.code == "MESSAGE_INVALID"
    assert decode(event("DEL", None, {}, pkkey={"id": 7})).rows[0].key == '["7"]'
