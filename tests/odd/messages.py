"""Odd messages of a Qlik task: each function is a table, its name the table's, what it says the story."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from tests.odd.inputs import LEFT_OUT, Source, V, datum, json_text, lines, replaced, wire

CASES: dict[str, Callable[[], Messages]] = {}
SETTINGS = {"source": {"format": "qlik-message"}}
COLUMNS = {"id": "INT4", "name": "WSTRING(50)", "price": "NUMERIC(8,2)"}


@dataclass
class Message:
    """A message of a task, any part of which may be altered before it is written."""

    topic: str
    members: dict[str, Any]
    kind: str = "DT"
    schema_id: str | None = None
    env: dict[str, Any] = field(default_factory=dict)
    head: dict[str, Any] = field(default_factory=dict)
    enveloped: bool = True
    partition: int = 0
    offset: int | None = None
    line: dict[str, Any] = field(default_factory=dict)
    encoding: str = "base64"
    rewrite: Callable[[bytes], bytes | None] | None = None
    raw: bytes | None = None

    def body(self) -> bytes | None:
        if self.raw is not None:
            return self.raw
        members = dict(self.members)
        if members.get("headers") is not None:
            members["headers"] = replaced(members["headers"], self.head)
        members = {n: v for n, v in members.items() if v is not LEFT_OUT}
        whole: dict[str, Any] = members
        if self.enveloped:
            whole = replaced(
                {"magic": "atMSG", "type": self.kind, "headers": None, "messageSchemaId": self.schema_id,
                 "messageSchema": None, "message": members}, self.env)  # fmt: skip
        body = json_text(whole)
        return self.rewrite(body) if self.rewrite else body


class Messages(Source):
    """A table whose changes are sent as messages, to a topic of its own."""

    def __init__(self, name: str, columns: Mapping[str, str] = COLUMNS, key: Sequence[str] = ("id",)) -> None:
        super().__init__(name, columns, key)
        self.id = f"{abs(self.base):032X}"[-32:]
        self.version = 1
        self.before = True
        self.masks = True
        self.enveloped = True
        self.topic = name

    def describe(self) -> Message:
        """The metadata message of the columns as they are now."""
        columns = {}
        for at, (name, kind) in enumerate(self.columns.items(), 1):
            base, _, rest = kind.rstrip(")").partition("(")
            numbers = [int(n) for n in rest.split(",")] if rest else []
            numeric = base == "NUMERIC"
            columns[name] = {
                "ordinal": at,
                "type": base,
                "length": numbers[0] if numbers and not numeric else 0,
                "precision": numbers[0] if numbers and numeric else 0,
                "scale": numbers[1] if len(numbers) > 1 and numeric else 0,
                "primaryKeyPosition": self.key.index(name) + 1 if name in self.key else 0,
            }
        members = {
            "schemaId": self.id,
            "lineage": {"server": "QLIKSRV", "task": "task1", "schema": "dbo", "table": self.name,
                        "tableVersion": self.version, "timestamp": "2026-08-07T16:30:10.123"},
            "tableStructure": {"tableColumns": columns},
            "dataSchema": None,
        }  # fmt: skip
        sent = Message(self.topic, members, "MD")
        self.steps[-1].append(sent)
        return sent

    def mask(self, names: Sequence[str]) -> str | None:
        if not self.masks:
            return None
        order = list(self.columns)
        bits = sum(1 << order.index(name) for name in names)
        return f"{bits:0{2 * (len(order) // 8 + 1)}X}"

    def message(self, operation: str, data: Any, before: Any, changed: Sequence[str], *, same: bool = False) -> Message:
        commit, sequence = self.next(same=same)
        refresh = operation == "REFRESH"
        headers = {
            "operation": operation,
            "changeSequence": "" if refresh else f"2026080716301050{commit * 1000 + sequence:019d}",
            "timestamp": "" if refresh else "2026-08-07T16:30:10.123",
            "streamPosition": "" if refresh else f"0000002c:{commit:08x}:0001",
            "transactionId": "" if refresh else f"{commit:032X}",
            "changeMask": None if refresh else self.mask(changed),
            "columnMask": None if refresh else self.mask(list(self.columns)),
            "transactionEventCounter": None if refresh else sequence,
            "transactionLastEvent": None if refresh else False,
        }

        def plain(row: Any) -> Any:
            return None if row is None else {name: wire(v) for name, v in row.items()}

        members = {"data": plain(data), "beforeData": plain(before), "headers": headers}
        sent = Message(self.topic, members, schema_id=self.id, enveloped=self.enveloped)
        self.steps[-1].append(sent)
        return sent

    def refresh(self, **row: Any) -> Message:
        whole = {name: None for name in self.columns} | row
        self.put(whole)
        return self.message("REFRESH", whole, None, [])

    def ins(self, *, same: bool = False, **row: Any) -> Message:
        whole = {name: None for name in self.columns} | row
        self.put(whole)
        return self.message("INSERT", whole, None, list(self.columns), same=same)

    def upd(self, key: Any, *, same: bool = False, **changes: Any) -> Message:
        old = self.drop(key)
        self.put(old | changes)
        return self.message("UPDATE", old | changes, old if self.before else None, list(changes), same=same)

    def delete(self, key: Any, *, same: bool = False) -> Message:
        return self.message("DELETE", self.drop(key), None, self.key, same=same)

    def send(self, *messages: Message) -> None:
        self.steps[-1].extend(messages)

    def pull(self, sent: Message) -> Message:
        for step in self.steps:
            step[:] = [m for m in step if m is not sent]
        return sent


def case(
    columns: Mapping[str, str] = COLUMNS,
    key: Sequence[str] = ("id",),
    *,
    tell: bool = False,
    alone: bool = False,
    described: bool = True,
    **table: Any,
) -> Callable[[Callable[[Messages], None]], Callable[[Messages], None]]:
    def take(story: Callable[[Messages], None]) -> Callable[[Messages], None]:
        name = f"q_{story.__name__}"

        def build() -> Messages:
            t = Messages(name, columns, key)
            t.table |= table
            t.must_tell, t.alone = tell, alone
            if described:
                t.describe()
            story(t)
            return t

        CASES[name] = build
        return story

    return take


def value(name: str, kind: str, *values: Any, tell: bool = False) -> None:
    for at, one in enumerate(values if tell else [None]):
        label = f"q_v_{name}_{at}" if tell else f"q_v_{name}"

        def build(label: str = label, one: Any = one) -> Messages:
            t = Messages(label, {"id": "INT4", "v": kind})
            t.must_tell = tell
            t.describe()
            for number, v in enumerate([one] if tell else values):
                t.ins(id=number, v=V(wire(v), "?") if tell else v)
            return t

        CASES[label] = build


value("int8", "INT8", V(9007199254740993, 9007199254740993), V("9223372036854775807", 2**63 - 1), V(5.0, 5))
value("int_bad", "INT4", 2147483648, 5.5, True, "", "1_000", [1], tell=True)
value("numeric", "NUMERIC(20,4)", V("1e0", Decimal(1)), V(12345678901234.5678, Decimal("12345678901234.5678")),
      V("1", Decimal(1)), V("01.5000", Decimal("1.5")))  # fmt: skip
value("numeric_number_15_digits", "NUMERIC(28,10)", V(123456789012345678.25, Decimal("123456789012345678.25")))
value("numeric_bad", "NUMERIC(8,2)", "1.005", "1,50", "NaN", "", tell=True)
value("numeric_0_0", "NUMERIC(0,0)", V("12.5", Decimal("12.5")), V("3", Decimal(3)))
value("real8", "REAL8", V(0.1, 0.1), V("1E+2", 100.0), V(1, 1.0))
value("real8_bad", "REAL8", "NaN", "Infinity", tell=True)
value("boolean", "BOOLEAN", V(True, True), V("1", True), V(0, False), V("true", True))
value("boolean_bad", "BOOLEAN", "T", 2, "", tell=True)
value("bytes", "BYTES(8)", V("00FF", b"\x00\xff"), V("0x00ff", b"\x00\xff"), V("", b""))
value("bytes_base64", "BYTES(8)", V("AP8=", b"\x00\xff"))
value("bytes_odd", "BYTES(8)", "0FF", "000102030405060708", tell=True)
value("datetime", "DATETIME", V("2023-03-21 14:34:21.000000", datetime(2023, 3, 21, 14, 34, 21)),
      V("2023-03-21T14:34:21.1234567", datetime(2023, 3, 21, 14, 34, 21, 123456)))  # fmt: skip
value("datetime_millis_number", "DATETIME", V(1679409261000, datetime(2023, 3, 21, 14, 34, 21)))
value("datetime_bad", "DATETIME", "0000-00-00 00:00:00", "2023-02-30 00:00:00", "21-MAR-23", tell=True)
value("date_with_time", "DATE", V("2023-03-21 00:00:00", datetime(2023, 3, 21).date()))
value("text", "WSTRING(20)", V("", ""), V("NULL", "NULL"), V(" ", " "), V("a ", "a "), V("\0", "\0"), V(None, None))
value("text_number", "WSTRING(20)", V(5, "5"))
value("text_true", "WSTRING(20)", True, {"a": 1}, [1], tell=True)
value("text_longer_than_said", "STRING(4)", V("äöüß", "äöüß"), tell=False)
value("uint8", "UINT8", V("18446744073709551615", Decimal("18446744073709551615")))
value("uint8_as_float", "UINT8", V(2.0**53, Decimal(2**53 + 1)))
value("uint_negative", "UINT4", -1, tell=True)
value("unknown_type", "GEOGRAPHY", V("x", "x"))


# -- rows -----------------------------------------------------------------------------------------------------------
@case()
def update_lacks_column(t: Messages) -> None:
    """columnMask is whole, data holds fewer."""
    t.ins(id=1, name="Ada", price="1.00")
    del t.upd(1, price="2.00").members["data"]["name"]


@case()
def update_lacks_column_masks_null(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.masks = False
    del t.upd(1, price="2.00").members["data"]["name"]


@case()
def update_column_not_in_mask(t: Messages) -> None:
    """columnMask leaves a column out whose data is null: unknown, not NULL."""
    t.ins(id=1, name="Ada", price="1.00")
    sent = t.upd(1, price="2.00")
    sent.members["data"]["name"] = None
    sent.head = {"columnMask": "05"}


@case()
def update_mask_left_out(t: Messages) -> None:
    """Neither mask is there, and a column is null: NULL or unknown?"""
    t.ins(id=1, name="Ada", price="1.00")
    sent = t.upd(1, price="2.00")
    sent.members["data"]["name"] = None
    sent.head = {"columnMask": LEFT_OUT, "changeMask": LEFT_OUT}


@case()
def update_mask_null_column_null(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    sent = t.upd(1, price="2.00")
    sent.members["data"]["name"] = None
    sent.head = {"columnMask": None, "changeMask": None}


@case()
def update_change_mask_denies_null(t: Messages) -> None:
    """changeMask says only price changed; the row before holds a name, the row after a null."""
    t.ins(id=1, name="Ada", price="1.00")
    sent = t.upd(1, price="2.00")
    sent.members["data"]["name"] = None


@case(tell=True)
def mask_too_long(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00").head = {"columnMask": "FFFF"}


@case()
def mask_padded(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00").head = {"columnMask": "0000000007", "changeMask": "7"}


@case(tell=True)
def mask_no_hex(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00").head = {"columnMask": "xyz"}


@case(tell=True)
def mask_lacks_key(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00").head = {"columnMask": "06"}


@case(tell=True)
def insert_mask_empty(t: Messages) -> None:
    """columnMask 00 on an insert: no column is present, but the data holds all."""
    t.ins(id=1, name="Ada", price="1.00").head = {"columnMask": "00"}


@case()
def insert_lacks_column(t: Messages) -> None:
    del t.ins(id=1, name=None, price="1.00").members["data"]["name"]


@case()
def insert_lacks_column_in_both(t: Messages) -> None:
    """An insert that leaves a column out, in data and columnMask: its value is unknown."""
    sent = t.ins(id=1, name="Ada", price="1.00")
    del sent.members["data"]["name"]
    sent.head = {"columnMask": "05", "changeMask": "05"}


def _insert_lacks_column(t: Messages) -> None:
    sent = t.ins(id=1, name="Ada", price="1.00")
    del sent.members["data"]["name"]
    sent.head = {"columnMask": "05", "changeMask": "05"}


@case(complete_rows=True)
def insert_lacks_column_completed(t: Messages) -> None:
    """Nothing before it can complete an insert."""
    _insert_lacks_column(t)


@case(full_rows=True)
def insert_lacks_column_full_rows(t: Messages) -> None:
    """`full_rows: true` is said of updates; the mask of this insert denies it."""
    _insert_lacks_column(t)


@case(complete_rows=True)
def refresh_lacks_column_completed(t: Messages) -> None:
    t.refresh(id=1, name="Ada", price="1.00")
    sent = t.refresh(id=2, name="Bob", price="1.00")
    del sent.members["data"]["name"]


@case()
def delete_in_before(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    sent = t.delete(1)
    sent.members["beforeData"], sent.members["data"] = sent.members["data"], None


@case()
def delete_only_key(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.delete(1).members["data"] = {"id": 1}


@case()
def delete_key_nowhere(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.delete(1).members["data"] = {"name": "Ada"}


@case(tell=True)
def delete_contradicts(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.ins(id=2, name="Ada", price="1.00")
    t.delete(1).members["beforeData"] = {"id": 2, "name": "Ada", "price": "1.00"}


@case()
def data_null(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve").members["data"] = None


@case()
def data_left_out(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00").members["data"] = LEFT_OUT


@case()
def before_left_out(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00").members["beforeData"] = LEFT_OUT


@case()
def column_unknown(t: Messages) -> None:
    """A column that the metadata does not tell."""
    t.ins(id=1, name="Ada", price="1.00").members["data"]["extra"] = "x"


@case()
def column_other_case(t: Messages) -> None:
    sent = t.ins(id=1, name="Ada", price="1.00")
    sent.members["data"]["NAME"] = sent.members["data"].pop("name")


@case()
def doubled_and_replayed(t: Messages) -> None:
    """A transaction sent again from its first message."""
    a, b = t.ins(id=1, name="Ada", price="1.00"), t.upd(1, same=True, name="Eve")
    t.step()
    t.send(a, b)
    t.delete(1, same=True)
    t.ins(id=2, name="x", price="1.00")


@case()
def late(t: Messages) -> None:
    a = t.pull(t.ins(id=1, name="Ada", price="1.00"))
    t.delete(1)
    t.step()
    t.send(a)


@case(tell=True)
def same_place_other_values(t: Messages) -> None:
    sent = t.ins(id=1, name="Ada", price="1.00")
    other = t.upd(1, name="Eve")
    other.head = dict(sent.members["headers"])


@case()
def update_of_missing(t: Messages) -> None:
    t.pull(t.ins(id=1, name="Ada", price="1.00"))
    t.upd(1, name="Eve")


@case()
def delete_and_insert_in_transaction(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.delete(1)
    t.ins(id=1, name="new", price="3.00", same=True)


# -- keys -----------------------------------------------------------------------------------------------------------
@case()
def key_change(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, id=2)


@case()
def key_change_with_unreadable_image(t: Messages) -> None:
    """A row is changed and moves in one transaction; the image before the move has a value that is none of its type."""
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve")
    t.upd(1, id=2, same=True).members["beforeData"]["price"] = "1,00"


@case()
def key_change_behind_insert_old_key_alone(t: Messages) -> None:
    """A source logs the keys of old rows alone: all else is null in beforeData, and the mask names what is not now."""
    t.ins(id=1, name="Ada", price="1.00")
    sent = t.upd(1, same=True, id=2)
    sent.members["beforeData"] = {"id": 1, "name": None, "price": None}
    sent.head = {"changeMask": t.mask(list(t.columns))}


@case()
def key_swap_without_values(t: Messages) -> None:
    """Old rows have the key alone, and there are no masks; one row moves on in the same transaction."""
    for key, name in ((1, "Ada"), (2, "Bob")):
        t.ins(id=key, name=name, price="1.00")
    for at, (old, new) in enumerate(t.swap_and_move_on()):
        before = {"id": old["id"], "name": None, "price": None}
        sent = t.message("UPDATE", new, before, ["id"], same=at > 0)
        sent.head = {"changeMask": None, "columnMask": None}


@case()
def key_swap_alike(t: Messages) -> None:
    """Rows that are equal but for their keys, in one statement."""
    t.ins(id=1, name="Ada", price="1.00")
    t.ins(id=2, name="Ada", price="1.00")
    moved = t.upd(1, id=2)
    t.upd(2, id=1, same=True)
    t.put(moved.members["data"])


@case()
def key_change_before_null(t: Messages) -> None:
    """changeMask tells that the key changed; the old one stands nowhere."""
    t.ins(id=1, name="Ada", price="1.00")
    t.before = False
    t.upd(1, id=2)


@case()
def key_change_untold(t: Messages) -> None:
    """Neither mask nor before image."""
    t.ins(id=1, name="Ada", price="1.00")
    t.before = t.masks = False
    t.upd(1, id=2)


@case()
def key_change_masks_left_out(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.before = False
    t.upd(1, id=2).head = {"changeMask": LEFT_OUT, "columnMask": LEFT_OUT}


@case()
def key_change_only_column_mask(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.before = False
    t.upd(1, id=2).head = {"changeMask": None}


@case()
def key_change_before_lacks_key(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    del t.upd(1, id=2).members["beforeData"]["id"]


@case()
def key_change_before_empty(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, id=2).members["beforeData"] = {}


@case()
def key_change_before_empty_no_masks(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.masks = False
    t.upd(1, id=2).members["beforeData"] = {}


@case()
def key_change_mask_denies(t: Messages) -> None:
    """changeMask does not name the key, beforeData shows another one."""
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, id=2).head = {"changeMask": "02"}


@case()
def key_change_mask_says_all(t: Messages) -> None:
    """Every bit is set though the key stayed; no before image."""
    t.ins(id=1, name="Ada", price="1.00")
    t.before = False
    t.upd(1, name="Eve").head = {"changeMask": "07"}


SIXTEEN = {"id": "INT4", **{f"c{at}": "INT4" for at in range(1, 16)}}


def little_endian(t: Messages, *, before: bool) -> None:
    """Masks as the documentation has them, byte 0 first: `0100` names the first of 16 columns."""
    t.mask = lambda names: sum(1 << list(t.columns).index(n) for n in names).to_bytes(2, "little").hex()
    t.ins(**dict.fromkeys(t.columns, 1))
    t.before = before
    t.upd(1, id=2)


@case(SIXTEEN)
def key_change_mask_of_two_orders(t: Messages) -> None:
    little_endian(t, before=False)


@case(SIXTEEN)
def key_change_mask_of_two_orders_before(t: Messages) -> None:
    little_endian(t, before=True)


@case(SIXTEEN)
def mask_of_one_order(t: Messages) -> None:
    """As tasks write it: one number, a byte longer than 16 columns need."""
    t.ins(**dict.fromkeys(t.columns, 1))
    t.before = False
    t.upd(1, c8=2)


@case({"id": "WSTRING(10)", "v": "INT4"})
def key_text_case(t: Messages) -> None:
    t.ins(id="abc", v=1)
    t.upd("abc", id="ABC")


@case({"id": "WSTRING(10)", "v": "INT4"})
def key_text_blank(t: Messages) -> None:
    t.ins(id="abc", v=1)
    t.upd("abc", id="abc ")


@case({"id": "NUMERIC(10,2)", "v": "INT4"})
def key_decimal(t: Messages) -> None:
    t.ins(id="1", v=1)
    sent = t.upd(Decimal(1), v=2)
    sent.members["data"]["id"], sent.members["beforeData"]["id"] = "1.00", "1e0"


@case({"id": "DATETIME", "v": "INT4"})
def key_datetime(t: Messages) -> None:
    t.ins(id="2023-03-21 14:34:21.000000", v=1)
    t.delete(datetime(2023, 3, 21, 14, 34, 21)).members["data"]["id"] = "2023-03-21 14:34:21"


@case({"id": "DATETIME", "v": "INT4"})
def key_datetime_seven(t: Messages) -> None:
    t.ins(id=V("2023-03-21 14:34:21.0000001", 1), v=1)
    t.ins(id=V("2023-03-21 14:34:21.0000002", 2), v=1)


@case()
def key_null(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.ins(id=2, name="Ada", price="1.00").members["data"]["id"] = None


# -- headers --------------------------------------------------------------------------------------------------------
def header(name: str, tell: bool = False, **head: Any) -> None:
    def build() -> Messages:
        t = Messages(f"q_h_{name}")
        t.must_tell = tell
        t.describe()
        t.ins(id=1, name="Ada", price="1.00")
        t.upd(1, name="Eve").head = head
        return t

    CASES[f"q_h_{name}"] = build


header("sequence_left_out", changeSequence=LEFT_OUT)
header("sequence_null", changeSequence=None)
header("sequence_empty", changeSequence="")
header("sequence_short", changeSequence="2026080716301050123")
header("sequence_number", changeSequence=20260807163010500000000000000009999)
header("sequence_letters", changeSequence="2026-08-07T16:30:10.5000000000000001")
header("counter_null", transactionEventCounter=None)
header("counter_left_out", transactionEventCounter=LEFT_OUT)
header("counter_text", transactionEventCounter="1")
header("counter_negative", transactionEventCounter=-1)
header("operation_lower", operation="update")
header("operation_unknown", operation="UPSERT")
header("operation_truncate", operation="TRUNCATE")
header("operation_left_out", operation=LEFT_OUT)
header("operation_letter", operation="U")
header("operation_null", operation=None)
header("transaction_null", transactionId=None)
header("timestamp_empty", timestamp="")
header("extra", externalSchemaId="17")


@case()
def headers_null(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve").members["headers"] = None
    t.steps[-1][-1].head = {}


@case()
def counters_null_in_one_transaction(t: Messages) -> None:
    """Counters are null and the sequence of two changes of a row is the same: which is the newer one?"""
    t.ins(id=1, name="Ada", price="1.00")
    one, two = t.upd(1, name="first"), t.upd(1, same=True, name="second")
    sequence = one.members["headers"]["changeSequence"]
    for sent in (one, two):
        sent.head = {"transactionEventCounter": None, "changeSequence": sequence}


@case()
def headers_renamed(t: Messages) -> None:
    """Message Format with a section renamed."""
    t.ins(id=1, name="Ada", price="1.00")
    sent = t.upd(1, name="Eve")
    sent.rewrite = lambda body: body.replace(b'"headers": {', b'"meta": {')


@case()
def data_renamed(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve").rewrite = lambda body: body.replace(b'"data":', b'"after":').replace(
        b'"beforeData":', b'"before":'
    )


@case()
def data_flattened(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    sent = t.upd(1, name="Eve")
    sent.members = {**sent.members["data"], "headers": sent.members["headers"]}


# -- names and structure --------------------------------------------------------------------------------------------
@case(described=False)
def metadata_missing(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")


@case(described=False)
def metadata_late(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.step()
    t.describe()


@case()
def metadata_other_id(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.ins(id=2, name="Bob", price="1.00").schema_id = "F" * 32


@case()
def metadata_id_null(t: Messages) -> None:
    """messageSchemaId null, one table in the topic."""
    t.ins(id=1, name="Ada", price="1.00")
    t.ins(id=2, name="Bob", price="1.00").schema_id = None


@case()
def metadata_without_type(t: Messages) -> None:
    t.steps[-1][-1].members["tableStructure"]["tableColumns"]["price"].pop("type")
    t.ins(id=1, name="Ada", price="1.00")


@case()
def metadata_ordinals_doubled(t: Messages) -> None:
    t.steps[-1][-1].members["tableStructure"]["tableColumns"]["price"]["ordinal"] = 2
    t.ins(id=1, name="Ada", price="1.00")
    sent = t.upd(1, price="2.00")
    sent.members["data"]["name"] = None


@case()
def metadata_lacks_column(t: Messages) -> None:
    t.steps[-1][-1].members["tableStructure"]["tableColumns"].pop("price")
    t.ins(id=1, name="Ada", price="1.00")


@case()
def metadata_no_key(t: Messages) -> None:
    t.steps[-1][-1].members["tableStructure"]["tableColumns"]["id"]["primaryKeyPosition"] = 0
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, id=2)


@case()
def metadata_table_other_case(t: Messages) -> None:
    t.steps[-1][-1].members["lineage"]["table"] = t.name.upper()
    t.ins(id=1, name="Ada", price="1.00")


@case()
def metadata_schema_other_case(t: Messages) -> None:
    t.steps[-1][-1].members["lineage"]["schema"] = "DBO"
    t.ins(id=1, name="Ada", price="1.00")


@case()
def metadata_lineage_null(t: Messages) -> None:
    t.steps[-1][-1].members["lineage"] = None
    t.ins(id=1, name="Ada", price="1.00")


@case(tell=True)
def metadata_twice_same_id_other_columns(t: Messages) -> None:
    """One id, two structures: which one a row has cannot be told."""
    t.ins(id=1, name="Ada", price="1.00")
    t.columns = {"id": "INT4", "price": "NUMERIC(8,2)", "name": "WSTRING(50)"}
    t.describe()
    sent = t.upd(1, price="2.00")
    sent.members["data"]["name"] = None
    sent.head = {"columnMask": "03", "changeMask": "02"}


@case()
def column_added_with_default(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.add_column("city", "WSTRING(20)", "Rome")
    t.id, t.version = "A" + t.id[1:], 2
    t.describe()
    t.ins(id=2, name="Bob", price="1.00", city="Oslo")


@case()
def column_added_without_metadata(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.add_column("city", "WSTRING(20)")
    t.ins(id=2, name="Bob", price="1.00", city="Oslo")


@case()
def column_dropped(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.drop_column("price")
    t.id, t.version = "A" + t.id[1:], 2
    t.describe()
    t.ins(id=2, name="Bob")


@case()
def column_renamed(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    for rows in (t.rows, t.raw):
        for row in rows.values():
            row["full_name"] = row.pop("name")
    t.columns = {"id": "INT4", "full_name": "WSTRING(50)", "price": "NUMERIC(8,2)"}
    t.id, t.version = "A" + t.id[1:], 2
    t.describe()
    t.ins(id=2, full_name="Bob", price="1.00")


@case()
def column_retyped(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.columns["price"] = "WSTRING(20)"
    for row in t.rows.values():
        row["price"] = str(row["price"])
    t.id, t.version = "A" + t.id[1:], 2
    t.describe()
    t.ins(id=2, name="Bob", price="x")


@case()
def column_reordered(t: Messages) -> None:
    """The same columns at other ordinals, announced; masks follow."""
    t.ins(id=1, name="Ada", price="1.00")
    t.columns = {"price": "NUMERIC(8,2)", "id": "INT4", "name": "WSTRING(50)"}
    t.id, t.version = "A" + t.id[1:], 2
    t.describe()
    sent = t.upd(1, price="2.00")
    sent.members["data"]["name"] = None
    sent.head = {"columnMask": "03", "changeMask": "01"}


@case()
def old_message_after_new_metadata(t: Messages) -> None:
    """A message of the former structure comes behind the new metadata, with its own id."""
    late = t.pull(t.ins(id=1, name="Ada", price="1.00"))
    t.drop_column("price")
    t.rows[1,]["price"] = Decimal("1.00")
    t.columns["price"] = "NUMERIC(8,2)"
    t.columns = {"id": "INT4", "price": "NUMERIC(8,2)", "name": "WSTRING(50)"}
    t.id, t.version = "A" + t.id[1:], 2
    t.describe()
    t.send(late)
    t.ins(id=2, name="Bob", price="3.00")


def wider_key(t: Messages) -> None:
    """The source's key has a column more than the mirror file's: rows of two keys become one."""
    t.table["key"] = ["id"]
    t.describe()
    t.ins(id=1, part=1, name="Ada")
    t.ins(id=1, part=2, name="Bob")


case({"id": "INT4", "part": "INT4", "name": "WSTRING(50)"}, ("id", "part"), described=False)(wider_key)


@case({"id": "INT4", "part": "INT4", "name": "WSTRING(50)"}, ("id", "part"), described=False, key_is_unique=True)
def wider_key_promised(t: Messages) -> None:
    """The mirror file says that its key tells rows apart all the same."""
    t.table["key"] = ["id"]
    t.describe()
    t.ins(id=1, part=1, name="Ada")
    t.ins(id=2, part=1, name="Bob")
    t.upd((2, 1), name="Eve")


# -- reloads --------------------------------------------------------------------------------------------------------
@case()
def refresh_then_changes(t: Messages) -> None:
    t.refresh(id=1, name="Ada", price="1.00")
    t.refresh(id=2, name="Bob", price="1.00")
    t.step()
    t.upd(1, name="Eve")


@case()
def refresh_twice_other_values(t: Messages) -> None:
    t.refresh(id=1, name="old", price="1.00")
    t.refresh(id=1, name="new", price="1.00")


@case()
def refresh_twice_in_two_partitions(t: Messages) -> None:
    """One key in two partitions, the older row in the one that sorts last."""
    t.refresh(id=1, name="old", price="1.00").partition = 1
    t.refresh(id=1, name="new", price="1.00").partition = 0


@case()
def refresh_twice_in_two_partitions_the_other_way(t: Messages) -> None:
    t.refresh(id=1, name="old", price="1.00").partition = 0
    t.refresh(id=1, name="new", price="1.00").partition = 1


@case()
def reload_in_the_same_partition(t: Messages) -> None:
    """After changes the task loads again; what was deleted meanwhile is missing in it."""
    t.refresh(id=1, name="Ada", price="1.00")
    t.refresh(id=2, name="Bob", price="1.00")
    t.upd(1, name="Eve")
    t.step()
    t.drop(2)
    t.refresh(id=1, name="Eve", price="1.00")


@case()
def reload_in_another_partition(t: Messages) -> None:
    t.refresh(id=1, name="Ada", price="1.00")
    t.refresh(id=2, name="Bob", price="1.00")
    t.upd(1, name="Eve")
    t.step()
    t.drop(2)
    t.refresh(id=1, name="Eve", price="5.00").partition = 2


@case()
def reload_all_in_other_partitions(t: Messages) -> None:
    t.refresh(id=1, name="Ada", price="1.00").partition = 1
    t.refresh(id=2, name="Bob", price="1.00").partition = 1
    t.step()
    t.upd(1, name="Eve").partition = 0
    t.step()
    t.drop(2)
    t.refresh(id=1, name="Eve", price="5.00").partition = 1


@case()
def refresh_repeated_behind_change(t: Messages) -> None:
    """The very bytes of a REFRESH once more behind the first change: a repetition."""
    sent = t.refresh(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve")
    t.step()
    t.send(sent)


@case()
def reload_before_changes_lacks_row(t: Messages) -> None:
    """The task loads again before anything changed; a row is gone from the source, the others are as they were."""
    t.refresh(id=1, name="Ada", price="1.00")
    t.refresh(id=2, name="Bob", price="1.00")
    t.step()
    t.drop(2)
    t.refresh(id=1, name="Ada", price="1.00")


@case()
def reload_before_changes_lacks_row_in_one_tick(t: Messages) -> None:
    for key in (1, 2, 3, 4):
        t.refresh(id=key, name="Ada", price="1.00")
    t.drop(3)
    for key in (1, 2, 4):
        t.refresh(id=key, name="Ada", price="1.00")
    t.refresh(id=5, name="new", price="1.00")


@case()
def reload_of_other_values_lacks_rows(t: Messages) -> None:
    """One row that differs is enough: no message that is delivered twice does."""
    for key in (1, 2, 3, 4):
        t.refresh(id=key, name="Ada", price="1.00")
    t.drop(2), t.drop(3), t.drop(4)
    t.step()
    t.refresh(id=1, name="Eve", price="1.00")


@case()
def reload_of_the_same_behind_changes(t: Messages) -> None:
    """After changes the task loads again; the rows that are left are as they were loaded first."""
    t.refresh(id=1, name="Ada", price="1.00")
    t.refresh(id=2, name="Bob", price="1.00")
    t.upd(1, name="Eve")
    t.upd(1, name="Ada")
    t.step()
    t.drop(2)
    t.refresh(id=1, name="Ada", price="1.00")


@case()
def reload_whole_over_ticks(t: Messages) -> None:
    """Each row of the first load comes again, and a new one: nothing is missing once it has come to its end."""
    for key in (1, 2, 3):
        t.refresh(id=key, name="old", price="1.00")
    for key in (1, 2, 3, 4):
        t.step()
        t.refresh(id=key, name="new", price="1.00")
    t.step()
    t.upd(4, name="newest")


@case()
def refresh_single_row_doubled(t: Messages) -> None:
    sent = [t.refresh(id=key, name="Ada", price="1.00") for key in (1, 2, 3, 4, 5)]
    t.send(sent[3])


@case()
def refresh_behind_first_insert(t: Messages) -> None:
    """The first that is seen of a table are changes, then comes a full load that holds fewer rows."""
    t.ins(id=1, name="Ada", price="1.00")
    t.drop(1)
    t.refresh(id=2, name="Bob", price="1.00")


@case()
def refresh_with_sequence(t: Messages) -> None:
    t.refresh(id=1, name="Ada", price="1.00").head = {"changeSequence": "9" * 35}
    t.upd(1, name="Eve")


@case()
def refresh_mask_partial(t: Messages) -> None:
    t.refresh(id=1, name="Ada", price="1.00")
    sent = t.refresh(id=2, name="Bob", price="1.00")
    del sent.members["data"]["name"]


# -- the message ----------------------------------------------------------------------------------------------------
@case()
def tombstone(t: Messages) -> None:
    """A compacted topic: the record with the same key and no body follows the delete."""
    t.ins(id=1, name="Ada", price="1.00")
    t.delete(1)
    sent = t.message("DELETE", None, None, [])
    sent.rewrite, sent.line = lambda _: None, {"key": "eyJpZCI6MX0="}


@case()
def type_unknown(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve").kind = "XX"


@case()
def magic_other(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve").env = {"magic": "btMSG"}


@case()
def message_as_text(t: Messages) -> None:
    """`message` as a text of JSON instead of an object."""
    t.ins(id=1, name="Ada", price="1.00")
    sent = t.upd(1, name="Eve")
    sent.env = {"message": json.dumps(sent.members)}


@case()
def message_null(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve").env = {"message": None}


@case()
def cut(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve").rewrite = lambda body: body[:-30]


@case()
def bom(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00").rewrite = lambda body: b"\xef\xbb\xbf" + body


@case()
def array(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00").rewrite = lambda body: b"[" + body + b"]"


@case()
def without_envelope_named(t: Messages) -> None:
    """JSON without envelope, with schema and table in its headers."""
    t.enveloped = False
    t.ins(id=1, name="Ada", price="1.00").head = {"schema": "dbo", "table": t.name}


@case(alone=True)
def without_envelope_named_other_case(t: Messages) -> None:
    t.enveloped = False
    t.ins(id=1, name="Ada", price="1.00").head = {"schema": "DBO", "table": t.name.upper()}
    t.step()
    t.send(t.ins(id=2, name="Bob", price="1.00"))
    t.steps[-1][0].head = {"schema": "dbo", "table": t.name}


@case()
def without_envelope_named_outside(t: Messages) -> None:
    t.enveloped = False
    sent = t.ins(id=1, name="Ada", price="1.00")
    sent.members |= {"schema": "dbo", "table": t.name}


@case()
def without_envelope_unnamed(t: Messages) -> None:
    """No envelope, no names: one table announced in the topic."""
    t.enveloped = False
    t.ins(id=1, name="Ada", price="1.00")


@case()
def named_by_headers_against_metadata(t: Messages) -> None:
    """The header names another table than the structure its id tells."""
    t.ins(id=1, name="Ada", price="1.00")
    sent = t.ins(id=2, name="Bob", price="1.00")
    t.drop(2)
    sent.head = {"schema": "dbo", "table": "q_elsewhere"}


@case()
def key_of_record_tells_another(t: Messages) -> None:
    """The record's key names another table; the message itself names none."""
    t.ins(id=1, name="Ada", price="1.00")
    sent = t.ins(id=2, name="Bob", price="1.00")
    t.drop(2)
    sent.schema_id = None
    sent.line = {"key": base64.b64encode(b'{"schema":"dbo","table":"q_elsewhere"}').decode()}


@case()
def other_table_behind_metadata(t: Messages) -> None:
    """A row of a table that is not announced, without id, behind the metadata of this one, in its topic."""
    t.ins(id=1, name="Ada", price="1.00")
    sent = t.ins(id=1, name="of table B", price="9.00")
    sent.schema_id = None
    t.put({"id": 1, "name": "Ada", "price": "1.00"})


@case()
def other_table_behind_metadata_next_tick(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.step()
    sent = t.ins(id=7, name="of table B", price="9.00")
    sent.schema_id = None
    t.drop(7)


@case()
def other_table_without_envelope(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    sent = t.ins(id=7, name="of table B", price="9.00")
    sent.enveloped = False
    t.drop(7)


@case()
def other_schema_same_name(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    sent = t.describe()
    sent.members["lineage"]["schema"] = "archive"
    sent.members["schemaId"] = "E" + t.id[1:]
    other = t.ins(id=2, name="no", price="1.00")
    other.schema_id = "E" + t.id[1:]
    t.drop(2)


@case()
def other_task_same_table(t: Messages) -> None:
    """Two tasks send one table: two lineages, two sequences."""
    t.ins(id=1, name="Ada", price="1.00")
    sent = t.describe()
    sent.members["lineage"]["task"] = "task2"
    sent.members["lineage"]["server"] = "TEST"
    sent.members["schemaId"] = "E" + t.id[1:]
    other = t.upd(1, name="other task")
    other.schema_id = "E" + t.id[1:]
    t.put({"id": 1, "name": "Ada", "price": "1.00"})


@case()
def renamed_table(t: Messages) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.step()
    sent = t.describe()
    sent.members["lineage"]["table"] = t.name + "_new"
    sent.members["schemaId"] = "E" + t.id[1:]
    t.upd(1, name="Eve").schema_id = "E" + t.id[1:]


@case(described=False)
def never_seen(t: Messages) -> None:
    """A mirrored table of which nothing ever comes, though it has rows."""
    t.put({"id": 1, "name": "Ada", "price": "1.00"})


@case(alone=True)
def offset_hole(t: Messages) -> None:
    """Messages are missing: offsets 0, 1, then 5."""
    t.ins(id=1, name="Ada", price="1.00")
    t.pull(t.ins(id=2, name="lost", price="1.00"))
    t.ins(id=3, name="Bob", price="1.00").offset = 5


@case({"id": "INT4", "header__x": "WSTRING(9)", "headers": "WSTRING(9)", "data": "WSTRING(9)"})
def column_names_like_sections(t: Messages) -> None:
    t.ins(id=1, header__x="a", headers="b", data="c")


# -- Avro -----------------------------------------------------------------------------------------------------------
def avro_schema(t: Messages) -> dict[str, Any]:
    kinds = {
        "INT4": "int",
        "WSTRING": "string",
        "NUMERIC": "string",
        "DATETIME": "string",
        "INT8": "long",
        "UINT8": "string",
        "REAL8": "double",
        "BYTES": "bytes",
    }
    data = {"type": "record", "name": "Data", "fields": [
        {"name": n, "type": ["null", kinds[k.partition("(")[0]]], "default": None}
        for n, k in t.columns.items()]}  # fmt: skip
    headers = {"type": "record", "name": "Headers", "fields": [
        {"name": "operation", "type": {"type": "enum", "name": "operation",
                                       "symbols": ["INSERT", "UPDATE", "DELETE", "REFRESH"]}},
        *({"name": n, "type": "string"} for n in ("changeSequence", "timestamp", "streamPosition", "transactionId")),
        *({"name": n, "type": ["null", "bytes"]} for n in ("changeMask", "columnMask")),
        {"name": "transactionEventCounter", "type": ["null", "long"]},
        {"name": "transactionLastEvent", "type": ["null", "boolean"]},
    ]}  # fmt: skip
    return {"type": "record", "name": "DataRecord", "namespace": f"com.attunity.queue.msg.task1.dbo.{t.name}",
            "fields": [{"name": "data", "type": ["null", data]}, {"name": "beforeData", "type": ["null", "Data"]},
                       {"name": "headers", "type": headers}]}  # fmt: skip


def described_avro(t: Messages) -> None:
    sent = t.steps[-1][-1]
    sent.members["dataSchema"] = json.dumps(avro_schema(t))


ENVELOPE = {"type": "record", "name": "MessageEnvelope", "fields": [
    {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 5}}, {"name": "type", "type": "string"},
    {"name": "headers", "type": ["null", {"type": "map", "values": "string"}]},
    {"name": "messageSchemaId", "type": ["null", "string"]}, {"name": "messageSchema", "type": ["null", "string"]},
    {"name": "message", "type": "bytes"}]}  # fmt: skip


def as_avro(t: Messages, sent: Message, *, alter: Callable[[bytes], bytes] = bytes, schema: Any = None) -> Message:
    """The message as Avro, in the Avro envelope."""
    headers = dict(sent.members["headers"])
    for name in ("changeMask", "columnMask"):
        headers[name] = None if headers[name] is None else bytes.fromhex(headers[name])
    message = datum(schema or avro_schema(t), {**sent.members, "headers": headers})
    sent.raw = alter(datum(ENVELOPE, {"magic": b"atMSG", "type": "DT", "headers": None, "messageSchema": None,
                                      "messageSchemaId": sent.schema_id, "message": message}))  # fmt: skip
    return sent


def written_as(name: str, kind: str, avro: Any, sent: Any, true: Any) -> None:
    """A column whose writer schema has another type than its description."""

    def build() -> Messages:
        t = Messages(f"q_avro_{name}", {"id": "INT4", "v": kind})
        t.describe()
        schema = avro_schema(t)
        schema["fields"][0]["type"][1]["fields"][1] = {"name": "v", "type": ["null", avro]}
        t.steps[-1][-1].members["dataSchema"] = json.dumps(schema)
        one = t.ins(id=1, v=V(None, true))
        one.members["data"]["v"] = sent
        as_avro(t, one, schema=schema)
        return t

    CASES[f"q_avro_{name}"] = build


written_as("double_for_numeric", "NUMERIC(28,10)", "double", 123456789.12345679, Decimal("123456789.1234567891"))
written_as("double_for_short_numeric", "NUMERIC(8,2)", "double", 0.1, Decimal("0.1"))
written_as("double_for_uint8", "UINT8", "double", 2.0**53, Decimal(2**53 + 1))
written_as("float_for_real8", "REAL8", "float", 0.1, 0.1)
written_as("long_for_text", "WSTRING(9)", "long", 7, "007")
written_as("boolean_for_text", "WSTRING(9)", "boolean", True, "Y")
written_as("int_for_bytes", "BYTES(4)", "int", 10, b"\x0a")
written_as("text_for_bytes", "BYTES(4)", "string", "0AFF", b"\x0a\xff")


@case()
def avro_plain(t: Messages) -> None:
    described_avro(t)
    as_avro(t, t.ins(id=1, name="Ada", price="1.00"))
    as_avro(t, t.upd(1, id=2, name=None))


@case()
def avro_cut(t: Messages) -> None:
    described_avro(t)
    as_avro(t, t.ins(id=1, name="Ada", price="1.00"), alter=lambda body: body[:-2])


@case()
def avro_column_not_in_mask(t: Messages) -> None:
    """Avro names every column; columnMask tells which are there."""
    described_avro(t)
    as_avro(t, t.ins(id=1, name="Ada", price="1.00"))
    sent = t.upd(1, price="2.00")
    sent.members["data"]["name"], sent.members["headers"]["columnMask"] = None, "05"
    as_avro(t, sent)


@case()
def avro_key_change_untold(t: Messages) -> None:
    described_avro(t)
    as_avro(t, t.ins(id=1, name="Ada", price="1.00"))
    t.before = t.masks = False
    as_avro(t, t.upd(1, id=2))


@case()
def avro_id_null(t: Messages) -> None:
    described_avro(t)
    sent = t.ins(id=1, name="Ada", price="1.00")
    sent.schema_id = None
    as_avro(t, sent)


def file_of(t: Messages, name: str, *messages: Message, alter: Callable[[bytes], bytes] = bytes) -> None:
    for sent in messages:
        t.pull(sent)
    t.files[-1][name] = alter(lines(messages, {}))


@case()
def file_twice_two_names(t: Messages) -> None:
    a, b = t.ins(id=1, name="Ada", price="1.00"), t.upd(1, name="Eve")
    md = t.steps[0][0]
    file_of(t, "q_a.jsonl", md, a, b)
    t.step()
    t.files[-1]["q_b.jsonl"] = t.files[0]["q_a.jsonl"]


@case()
def zz_heartbeat(t: Messages) -> None:
    """The source goes on: something new is read when the time of what waits is over."""
    for number in range(4):
        t.ins(id=number, name="beat", price="1.00")
        t.step()
    t.steps.pop()


# One task may send a TRUNCATE as nothing at all, or as REFRESH rows of an empty table: nothing can be seen of it.
