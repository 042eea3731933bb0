"""Every way in which a Qlik message is unreadable is one dead letter with code, reason, coordinates and raw bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from open_mirroring.changes.column_choice import ColumnChoice
from spark_jobs.sources.contract.decoded import Dispositions, MirroredTable
from spark_jobs.sources.qlik.message.structures import registry_schema
from spark_jobs.sources.qlik.positions import qlik_position
from tests.qlik_messages import (
    COLUMNS,
    FIELDS,
    ID,
    OLD,
    ORDERS,
    ROW,
    avro_dt,
    avro_enveloped,
    avro_md,
    avro_schema,
    change,
    datum,
    decode,
    dt,
    enveloped,
    md,
    metadata,
    only,
    sequence,
)

DEEP = b"[" * 100_000 + b"]" * 100_000

# What is left of these tells no table for sure: homeless. The others name the id of its structure, or its lineage.
HOMELESS = frozenset({
    *("tombstone", "empty", "blank", "text", "array", "deep", "other members", "heartbeat", "type is a number"),
    *("noise", "id in other letters", "id is a number", "short frame", "avro of other type", "container cut"),
    *("avro metadata without schema", "avro metadata with bad schema", "avro metadata that is none"),
    *("embedded schema is no json", "embedded schema of other things", "no lineage", "no table", "table is a number"),
    *("a period in the table", "a table against its schema"),
})  # fmt: skip
# The message, the code, words of the reason.
UNREADABLE: list[tuple[str, bytes | None, str, str]] = [
    ("tombstone", None, "BODY_MISSING", "no body"),
    ("empty", b"", "BODY_MISSING", "empty"),
    ("blank", b" \n", "BODY_MISSING", "empty"),
    ("bad utf-8", dt().replace(b"Ada", b"\xff\xfe"), "MESSAGE_INVALID", "0xff"),
    ("cut", dt()[:-9], "MESSAGE_INVALID", ""),
    ("two objects", dt() + dt(), "MESSAGE_INVALID", "Extra data"),
    ("text", b"hello", "MESSAGE_INVALID", "neither JSON nor Avro"),
    ("array", b"[]", "MESSAGE_INVALID", "no JSON object"),
    ("deep", b'{"x":' + DEEP + b"}", "MESSAGE_INVALID", "recursion"),
    ("not a number", dt().replace(b'"id": 7', b'"id": NaN'), "MESSAGE_INVALID", "NaN"),
    ("other magic", enveloped("DT", change(), ID, magic="atmsg"), "MESSAGE_INVALID", "atmsg"),
    ("no magic", enveloped("DT", change(), ID, magic=...), "MESSAGE_INVALID", "magic is None"),
    ("other members", b'{"a":1}', "MESSAGE_INVALID", "'a'"),
    ("heartbeat", enveloped("HB", {}), "MESSAGE_INVALID", "'HB'"),
    ("type is a number", enveloped("DT", change(), type=1), "MESSAGE_INVALID", "1"),
    ("message is a list", enveloped("DT", [change()], ID), "MESSAGE_INVALID", "no object"),
    ("message is text", enveloped("DT", "x", ID), "MESSAGE_INVALID", ""),
    ("id in other letters", enveloped("DT", change(), "é"), "MESSAGE_INVALID", "messageSchemaId"),
    ("a lone surrogate in a name", md(avro="x").replace(b'"price"', b'"\\udc00"'), "METADATA_MISSING", "not text"),
    ("id is a number", enveloped("DT", change(), messageSchemaId=5), "MESSAGE_INVALID", "messageSchemaId"),
    ("noise", b"\xde\xad\xbe\xef", "MESSAGE_INVALID", "begins with"),
    ("short frame", b"\x00\x01\x02", "MESSAGE_INVALID", "3 bytes"),
    ("avro envelope cut", avro_dt()[:-3], "MESSAGE_INVALID", "envelope"),
    ("avro envelope and more", avro_dt() + b"\0", "MESSAGE_INVALID", "1 bytes are left over"),
    ("avro of other type", avro_enveloped("XX", b""), "MESSAGE_INVALID", "'XX'"),
    ("container cut", b"Obj\x01\x02", "MESSAGE_INVALID", "container"),
    ("avro metadata without schema", avro_enveloped("MD", b"\0"), "METADATA_MISSING", "messageSchema"),
    ("avro metadata with bad schema", avro_enveloped("MD", b"\0", schema='{"type":"x"}'), "METADATA_MISSING", ""),
    ("avro metadata that is none", avro_enveloped("MD", b"\0", schema='"string"'), "METADATA_MISSING", "lineage"),
    ("embedded schema is no json", avro_enveloped("DT", b"\0", schema="{"), "METADATA_MISSING", ""),
    ("embedded schema of other things", avro_enveloped("DT", b"\0", schema='"int"'), "METADATA_MISSING", ""),
    ("no lineage", md(lineage=...), "METADATA_MISSING", "lineage"),
    ("no table", md(table=""), "METADATA_MISSING", "names no table"),
    ("table is a number", md(lineage={"schema": "dbo", "table": 5}), "METADATA_MISSING", "table is not text"),
    ("version is text", md(lineage={"schema": "dbo", "table": "orders", "tableVersion": "1"}), "METADATA_MISSING",
     "tableVersion"),
    ("no columns", md([]), "METADATA_MISSING", "0 columns"),
    ("a place twice", md(tableStructure={"tableColumns": {n: {"ordinal": 1, "type": "INT4"} for n in "ab"}}),
     "METADATA_MISSING", "ordinals"),
    ("place zero", md(tableStructure={"tableColumns": {"a": {"ordinal": 0, "type": "INT4"}}}), "METADATA_MISSING",
     "ordinals"),
    ("a column without a place", md(tableStructure={"tableColumns": {"a": {"type": "INT4"}}}), "METADATA_MISSING",
     "ordinals"),
    ("a column is text", md(tableStructure={"tableColumns": {"a": "INT4"}}), "METADATA_MISSING", "'a'"),
    ("schema is a number", md(avro=5), "METADATA_MISSING", "dataSchema"),
    ("a period in the table", md(lineage={"schema": "dbo", "table": "a.b"}), "METADATA_MISSING", "period"),
    ("half a table name", dt("INSERT", ROW, schema="dbo"), "HEADER_INVALID", "`table` is None"),
    ("a table against its schema", dt("INSERT", ROW, schema="dbo", table="other"), "TABLE_NAME_DIFFERS", "'dbo.other'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "code", "words"), UNREADABLE, ids=[case[0] for case in UNREADABLE])
def test_an_unreadable_message_is_a_dead_letter_and_stops_no_other_k01_k10_k63(
    name: str, body: bytes | None, code: str, words: str
) -> None:
    tables = [ORDERS, MirroredTable("dbo.a.b", ())]
    decoded = decode(md(), dt(number=1), body, dt(number=3), tables=tables)
    before, rejected, after = decoded.rows
    assert decoded.counts == Dispositions(4, 2, 0, 1, 0, 1)
    assert (rejected.kind, rejected.code, rejected.origin, rejected.place, rejected.raw) == (
        "rejected", code, "cdc/0", 2, body,
    )  # fmt: skip
    assert words in (rejected.reason or "")
    story = None if name in HOMELESS else "dbo.orders"
    assert (rejected.tbl, rejected.key, rejected.bucket) == (story, None, -1)
    assert [before.op, after.op] == ["I", "I"]


PLACED = '["7"]'
# The message, the code, words of the reason, the key where it is known whose row is now out of date.
OF_A_TABLE: list[tuple[str, bytes, str, str, str | None]] = [
    ("unknown operation", dt("TRUNCATE", ROW), "MESSAGE_INVALID", "'TRUNCATE'", PLACED),
    ("operation in small letters", dt("insert", ROW), "MESSAGE_INVALID", "'insert'", PLACED),
    ("no operation", dt(..., ROW), "MESSAGE_INVALID", "None", PLACED),
    ("no headers", enveloped("DT", {"data": ROW}, ID), "HEADER_INVALID", "headers", PLACED),
    ("counter is text", dt(transactionEventCounter="1"), "HEADER_INVALID", "transactionEventCounter", PLACED),
    ("counter below zero", dt(transactionEventCounter=-1), "HEADER_INVALID", "-1", PLACED),
    ("counter is a fraction", dt(transactionEventCounter=1.5), "HEADER_INVALID", "1.5", PLACED),
    ("mask is a number", dt(columnMask=15), "HEADER_INVALID", "columnMask", PLACED),
    ("no sequence", dt(changeSequence=...), "HEADER_INVALID", "None", PLACED),
    ("sequence is empty", dt(changeSequence=""), "HEADER_INVALID", "''", PLACED),
    ("sequence too short", dt(changeSequence=sequence(1)[1:]), "HEADER_INVALID", "35 digits", PLACED),
    ("sequence too long", dt(changeSequence=sequence(1) + "0"), "HEADER_INVALID", "35 digits", PLACED),
    ("sequence with letters", dt(changeSequence="x" * 35), "HEADER_INVALID", "35 digits", PLACED),
    ("sequence in other digits", dt(changeSequence="٣" * 35), "HEADER_INVALID", "35 digits", PLACED),
    ("sequence of a refresh", dt(changeSequence="0" * 35), "HEADER_INVALID", "35 digits", PLACED),
    ("mask longer than the table", dt(columnMask="1F"), "MASK_INVALID", "beyond the 4", PLACED),
    ("change mask longer than the table", dt(changeMask="10"), "MASK_INVALID", "beyond the 4", PLACED),
    ("mask is not a hexadecimal", dt(columnMask="0G"), "MASK_INVALID", "hexadecimal", PLACED),
    ("mask without end", dt(columnMask="0" * 5000), "MASK_INVALID", "longer than", PLACED),
    ("value outside the mask", dt(columnMask="05"), "MASK_INVALID", "leaves 'name' out", PLACED),
    ("named but not there", dt("INSERT", {"id": 7}, columnMask="03"), "MASK_INVALID", "names 'name'", PLACED),
    ("changed, and not said so", dt("UPDATE", ROW, {**OLD, "name": "Eve"}, changeMask="04"), "MASK_INVALID",
     "'name'", PLACED),
    ("gone, and not said so", dt("UPDATE", {**ROW, "name": None}, OLD, changeMask="04"), "MASK_INVALID", "'name'",
     PLACED),
    ("come, and not said so", dt("UPDATE", ROW, {**OLD, "name": None}, changeMask="04"), "MASK_INVALID", "'name'",
     PLACED),
    ("of another key, and not said so", dt("UPDATE", ROW, {**OLD, "id": 8}, changeMask="01"), "MASK_INVALID",
     "'price'", None),
    ("no data", dt("INSERT", members={"data": None}), "ROW_INVALID", "without data", None),
    ("data is a list", dt("INSERT", [7]), "ROW_INVALID", "not an object", None),
    ("a value is an object", dt("INSERT", {**ROW, "name": {}}), "ROW_INVALID", "'name'", PLACED),
    ("an unknown column", dt("INSERT", {**ROW, "more": 1}), "ROW_INVALID", "'more'", PLACED),
    ("a lone surrogate", dt().replace(b"Ada", b"\\ud800"), "ROW_INVALID", "not text", PLACED),
    ("beforeData is text", dt("UPDATE", ROW, "x"), "ROW_INVALID", "beforeData", PLACED),
    ("key is null", dt("INSERT", {**ROW, "id": None}), "KEY_INVALID", "'id'", None),
    ("key is not there", dt("INSERT", {"name": "Ada"}), "KEY_INVALID", "'id'", None),
    ("key is not a number", dt("INSERT", {**ROW, "id": "x"}), "KEY_INVALID", "whole number", None),
    ("key is no text", dt("INSERT", {**ROW, "id": "@"}).replace(b"@", b"\\udc00"), "KEY_INVALID", "'id'", None),
    # An update that may have left another row's key out of date: it is not enough to know the new one.
    ("old key is not a number", dt("UPDATE", ROW, {**OLD, "id": "x"}), "KEY_INVALID", "beforeData", None),
    ("old key is another", dt("UPDATE", ROW, {**OLD, "id": 8}, columnMask="1F"), "MASK_INVALID", "beyond the 4", None),
    ("old key is the same", dt("UPDATE", ROW, OLD, columnMask="1F"), "MASK_INVALID", "beyond the 4", PLACED),
    ("delete without key", dt("DELETE", {"name": "Ada"}), "KEY_INVALID", "neither data nor beforeData", None),
    ("old key not told", dt("UPDATE", ROW, changeMask="01"), "OLD_KEY_MISSING", "beforeData", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "code", "words", "key"), [case[1:] for case in OF_A_TABLE], ids=[case[0] for case in OF_A_TABLE]
)
def test_an_unreadable_change_of_a_table_names_table_and_key_k16_k20_t10_g06(
    body: bytes, code: str, words: str, key: str | None
) -> None:
    decoded = decode(md(), dt(number=1), body, dt(number=3))
    before, rejected, after = decoded.rows
    assert decoded.counts == Dispositions(4, 2, 0, 1, 0, 1)
    assert (rejected.kind, rejected.code, rejected.origin, rejected.place, rejected.raw) == (
        "rejected", code, "cdc/0", 2, body,
    )  # fmt: skip
    assert words in (rejected.reason or "")
    assert (rejected.tbl, rejected.key) == ("dbo.orders", key)
    assert (rejected.bucket >= 0) == (key is not None)
    assert [before.op, after.op] == ["I", "I"]


SOUND = [
    ("named", dt("UPDATE", ROW, OLD, changeMask="04")),
    ("more than changed is named", dt("UPDATE", ROW, OLD, changeMask="0F")),
    ("one value, spelled in two ways", dt("UPDATE", ROW, {**ROW, "price": "1.5"}, changeMask="00")),
    ("a large object", dt("UPDATE", ROW, {**ROW, "note": None}, changeMask="00")),
    ("not in the old row", dt("UPDATE", ROW, {"id": 7}, changeMask="00")),
    ("not sent", dt("UPDATE", {**ROW, "name": None}, OLD, changeMask="04", columnMask="0D")),
]


@pytest.mark.parametrize("body", [case[1] for case in SOUND], ids=[case[0] for case in SOUND])
def test_what_no_change_mask_denies_is_no_contradiction_k69_k22(body: bytes) -> None:
    assert only(decode(md(), body)).op == "U"


def test_the_position_of_a_dead_letter_is_reported_where_the_headers_are_sound_k17() -> None:
    row = only(decode(md(), dt(columnMask="FF")))
    assert (row.epoch, row.pos) == ("1", qlik_position(sequence(1), 1, 1))
    assert only(decode(md(), dt(changeSequence="x"))).pos is None


def test_a_sequence_of_another_length_is_a_setting_t10() -> None:
    row = only(decode(md(), dt(changeSequence="1" * 40), sequence_digits=40))
    assert row.pos == f"{'1' * 16}:{'1' * 24}{1:020d}:1"
    refresh = only(decode(md(), dt("REFRESH", ROW, changeSequence=""), sequence_digits=40))
    assert (refresh.pos or "") < (row.pos or "")


@pytest.mark.parametrize(
    ("body", "settings"),
    [
        (dt(), {"topics": {"cdc": "dbo.other"}}),
        (dt("INSERT", ROW, schema="dbo", table="orders", schema_id=None), {"topics": {"cdc": "dbo.other"}}),
        (avro_dt(), {"topics": {"cdc": "dbo.other"}}),
        (md(), {"topics": {"cdc": "dbo.other"}}),
    ],
)
def test_a_record_in_the_wrong_topic_is_a_without_table_dead_letter_k15_k43(body: bytes, settings: Any) -> None:
    schemas = decode(md(avro=avro_schema()), topic="meta").schemas
    row = only(decode(body, schemas=schemas, tables=[ORDERS, MirroredTable("dbo.other", ("id",))], **settings))
    assert (row.code, row.tbl, row.key, row.raw) == ("TABLE_NAME_DIFFERS", None, None, body)
    assert "dbo.other" in (row.reason or "")


def test_an_avro_change_that_names_another_table_than_its_schema_is_without_table_k15() -> None:
    schema = avro_schema()
    headers = next(field["type"]["fields"] for field in schema["fields"] if field["name"] == "headers")
    headers += [{"name": name, "type": "string"} for name in ("schema", "table")]
    for table, code in (("orders", None), ("other", "TABLE_NAME_DIFFERS")):
        record = change("INSERT", ROW)
        record["headers"] |= {"schema": "dbo", "table": table}
        row = only(decode(avro_md(schema), avro_enveloped("DT", datum(schema, record), ID)))
        assert (row.code, row.tbl) == (code, None if code else "dbo.orders")


@pytest.mark.parametrize("half", ["\\ud800", "\\udc00"])
def test_a_key_that_is_no_text_is_not_known_g02(half: str) -> None:
    table = MirroredTable("dbo.orders", ("name",))
    for operation, data, before in (("INSERT", "@", None), ("UPDATE", "x", "@"), ("DELETE", "@", None)):
        old = None if before is None else {**ROW, "name": before}
        body = dt(operation, {**ROW, "name": data}, old).replace(b"@", half.encode())
        row = only(decode(md(), body, tables=[table]))
        assert (row.code, row.tbl, row.key) == ("KEY_INVALID", "dbo.orders", None)
        assert "'name'" in (row.reason or "")


@pytest.mark.parametrize(
    ("announced", "body", "code", "words"),
    [
        (avro_md(), avro_dt(schema=avro_schema({**FIELDS, "more": "int"})), "MESSAGE_INVALID", "data message"),
        (avro_md(), avro_enveloped("DT", datum(avro_schema(), change()) + b"\0\0", ID), "MESSAGE_INVALID", "2 bytes"),
        (avro_md(), avro_enveloped("DT", b"", ID), "MESSAGE_INVALID", "data message"),
        (md(), avro_dt(), "METADATA_MISSING", "no dataSchema"),
        (md(avro="{"), avro_dt(), "METADATA_MISSING", "no Avro schema"),
        (md(avro={"type": "record", "name": "R", "fields": []}), avro_dt(), "METADATA_MISSING", "data and headers"),
        (md(avro=avro_schema({"other": "int"})), avro_dt(), "METADATA_MISSING", "'other'"),
        (md(avro=avro_schema({"name": "bytes"})), avro_dt(), "METADATA_MISSING", "bytes for 'name'"),
        (md(avro=avro_schema({"id": ["int", "string"]})), avro_dt(), "METADATA_MISSING", ""),
    ],
)
def test_an_avro_message_that_its_schema_cannot_read_k03_k35(
    announced: bytes, body: bytes, code: str, words: str
) -> None:
    row = only(decode(announced, body))
    assert (row.code, row.tbl, row.key, row.place, row.raw) == (code, "dbo.orders", None, 1, body)
    assert words in (row.reason or "")


def test_an_avro_value_that_its_logical_type_does_not_have_k35() -> None:
    fields: dict[str, Any] = {"id": "int", "name": {"type": "long", "logicalType": "timestamp-micros"}}
    plain = avro_schema({"id": "int", "name": "long"})
    columns = [COLUMNS[0], ("name", "DATETIME", 0, 0, 6, 0)]
    row = only(decode(avro_md(avro_schema(fields), columns), avro_dt("INSERT", {"id": 7, "name": 2**62}, schema=plain)))
    assert (row.code, row.key) == ("ROW_INVALID", PLACED)
    assert "'name'" in (row.reason or "")


def test_an_id_that_several_tables_share_is_not_guessed_k10() -> None:
    other = md(table="other")
    messages = decode(md(), other, dt())
    assert only(messages).code == "TABLE_UNNAMED"
    assert only(decode(md(), other, dt("INSERT", ROW, schema="dbo", table="orders"))).tbl == "dbo.orders"


def test_a_type_that_is_none_rejects_the_changes_that_carry_it_k13() -> None:
    columns = [*COLUMNS[:3], ("note", "GEOMETRY", 0, 0, 0, 0)]
    row = only(decode(md(columns), dt()))
    assert (row.code, row.key) == ("ROW_INVALID", PLACED) and "GEOMETRY" in (row.reason or "")
    without = MirroredTable("dbo.orders", ("id",), ColumnChoice(("name",)))
    assert only(decode(md(columns), dt(), tables=[without])).op == "I", "the way out: leave the column out"


@pytest.mark.parametrize(
    ("scale", "fraction"), [(0, ".123456"), (0, ".1234560"), (0, ""), (9, ".123456000"), (7, ".1")]
)
def test_a_time_as_a_key_is_judged_by_its_value_g02_k66(scale: int, fraction: str) -> None:
    """Qlik never tells how many digits of a second a value has: the type alone must not stop the table."""
    columns = [("id", "DATETIME", 0, 0, scale, 1)]
    row = only(decode(md(columns), dt("INSERT", {"id": f"2023-03-21 14:34:21{fraction}"})))
    assert json.loads(row.key or "") == [f"2023-03-21T14:34:21.{fraction[1:7].ljust(6, '0')}"]
    assert json.loads(row.cols or "") == [["id", "datetime2(6)", 0]]


@pytest.mark.parametrize("fraction", [".1234567", ".123456001", ".12345600"[:-1] + "01"])
def test_a_key_that_loses_digits_is_refused_g02_k66(fraction: str) -> None:
    columns = [("id", "DATETIME", 0, 0, 0, 1)]
    row = only(decode(md(columns), dt("INSERT", {"id": f"2023-03-21 14:34:21{fraction}"})))
    assert (row.code, row.tbl, row.key) == ("KEY_INVALID", "dbo.orders", None)


def test_a_number_without_digits_is_named_with_the_next_step_k13() -> None:
    columns = [*COLUMNS[:2], ("price", "NUMERIC", 0, 0, 0, 0), COLUMNS[3]]
    row = only(decode(md(columns), dt()))
    assert (row.code, row.key) == ("ROW_INVALID", PLACED)
    assert "Oracle NUMBER" in (row.reason or "") and "`columns`" in (row.reason or "")


def test_a_message_beyond_the_limit_is_not_read() -> None:
    row = only(decode(md(), dt("INSERT", {**ROW, "name": "x" * 2000}), max_message_bytes=1900))
    assert row.code == "MESSAGE_INVALID" and "1900" in (row.reason or "")


def test_a_registrys_record_of_another_shape_is_refused_k04() -> None:
    schema = json.dumps(avro_schema())
    row = only(decode(b"\x00\x00\x00\x00\x09\x02", schemas=[registry_schema(9, "dbo.orders", 1, schema)]))
    assert (row.code, row.tbl) == ("MESSAGE_INVALID", "dbo.orders")


def test_metadata_does_not_repair_itself_silently_k10() -> None:
    broken = metadata()
    broken["tableStructure"]["tableColumns"]["id"]["length"] = "10"
    row = only(decode(enveloped("MD", broken)))
    assert row.code == "METADATA_MISSING" and "length" in (row.reason or "")


@pytest.mark.parametrize("operation", ["INSERT", "REFRESH", "DELETE"])
def test_two_keys_in_one_change_of_one_row_are_not_chosen_from_k30_k68(operation: str) -> None:
    row = only(decode(md(), dt(operation, {**ROW, "id": 8}, OLD)))
    assert (row.code, row.tbl, row.key) == ("ROW_INVALID", "dbo.orders", None)
    assert only(decode(md(), dt(operation, ROW, OLD))).key == PLACED


@pytest.mark.parametrize("operation", ["INSERT", "REFRESH"])
def test_a_new_row_that_does_not_show_all_columns_has_to_be_completed_k23_k68(operation: str) -> None:
    absent = dt(operation, {"id": 7, "price": "1.50"})
    masked = dt(operation, {**ROW, "name": None, "note": None}, columnMask="05")
    for body in (absent, masked):
        row = only(decode(md(), body))
        assert (row.op, row.whole, json.loads(row.row or "")) == ("U", False, {"id": "7", "price": "1.50"})
        promised = only(decode(md(), body, tables=[ORDERS._replace(full_rows=True)]))
        assert (promised.code, promised.key) == ("ROW_INVALID", PLACED)
    unsaid = dt(operation, {**ROW, "note": None}, columnMask="07")
    large = only(decode(md(), unsaid))
    assert (large.op, large.whole) == ("I", False), "masks do not speak of large objects"
    filled = only(decode(md(), unsaid, tables=[ORDERS._replace(complete_rows=True)]))
    assert (filled.op, filled.whole, json.loads(filled.row or "")["note"]) == ("I", True, None), "it proves the columns"


def test_a_key_that_is_another_one_now_stops_the_table_k12_k68() -> None:
    moved = [("id", "INT4", 10, 0, 0, 0), ("name", "WSTRING", 100, 0, 0, 1), *COLUMNS[2:]]
    newer = md(moved, version=2, schema_id="F" * 32)
    old, row = decode(md(), newer, dt(number=1), dt(schema_id="F" * 32, number=2)).rows
    assert (old.kind, row.code, row.tbl, row.key) == ("change", "KEY_DIFFERS", "dbo.orders", None)
    assert only(decode(newer, dt(schema_id="F" * 32))).kind == "change", "a key of one's own choice was never another"


@pytest.mark.parametrize("parts", [{"schema_id": "A" * 201}, {"table": "t" * 300}])
def test_what_the_ledger_could_not_keep_is_refused_k10(parts: Any) -> None:
    """Else one message of such a kind would break every run of all tables."""
    table = MirroredTable(f"dbo.{parts.get('table', 'orders')}", ("id",))
    row = only(decode(md(**parts), tables=[table]))
    assert (row.code, row.tbl) == ("METADATA_MISSING", table.source) and "longer" in (row.reason or "")


def test_a_message_of_any_id_waits_under_a_name_that_the_ledger_keeps_k05() -> None:
    names = {only(decode(dt(schema_id="A" * 400 + end), topic="t" * 249)).fragment_of or "" for end in ("B", "C")}
    assert len(names) == 2 and max(map(len, names)) <= 300
    framed = only(decode(b"\x00\x00\x00\x00\x07\x02", topic="t" * 249)).fragment_of or ""
    assert framed.endswith(":schema:registry:7")


@pytest.mark.parametrize(
    ("masks", "order", "code"),
    [
        ({"columnMask": b"\x03\x01"}, "auto", "MASK_INVALID"),
        ({"columnMask": b"\x03\x01"}, "le_bytes", None),
        ({"columnMask": b"\x03\x00"}, "auto", None),
        ({"columnMask": b"\xff\x03"}, "auto", None),
    ],
)
def test_a_column_mask_that_can_be_read_in_two_orders_is_refused_where_they_differ_k86(
    masks: dict[str, bytes], order: str, code: str | None
) -> None:
    """Ten columns: the bytes 03 01 name the first, the second and the ninth, or the first, the ninth and the tenth."""
    columns = [("id", "INT4", 0, 0, 0, 1), *((f"c{n}", "INT4", 0, 0, 0, 0) for n in range(2, 11))]
    schema = avro_schema(dict.fromkeys((name for name, *_ in columns), "int"))
    data = {**{name: None for name, *_ in columns}, "id": 1, "c9": 9 if masks["columnMask"][1] else None}
    update = avro_dt("UPDATE", data, {**data, "c2": 2}, schema=schema, **masks)
    (row,) = decode(avro_md(schema, columns), update, mask_order=order).rows
    assert row.code == code
    assert code is None or "mask_order" in str(row.reason)


@pytest.mark.parametrize(
    ("story", "written", "is_sound"),
    [
        ("INT8", "double", False),
        ("INT8", "float", False),
        ("INT4", "double", True),
        ("INT4", "float", False),
        ("UINT4", "float", False),
        ("INT2", "float", True),
        ("INT8", "int", True),
    ],
)
def test_a_complete_number_by_way_of_a_float_that_does_not_hold_each_is_refused_k35(
    story: str, written: str, is_sound: bool
) -> None:
    columns = [("id", "INT4", 0, 0, 0, 1), ("v", story, 0, 0, 0, 0)]
    schema = avro_schema({"id": "int", "v": written})
    (row,) = decode(avro_md(schema, columns), avro_dt("INSERT", {"id": 1, "v": 5}, schema=schema)).rows
    assert row.code == (None if is_sound else "METADATA_MISSING")


@pytest.mark.parametrize(
    ("masks", "code"),
    [
        ({"changeMask": "04", "columnMask": "0B"}, "MASK_INVALID"),
        ({"changeMask": "02", "columnMask": "0B"}, None),
        ({"changeMask": "0A", "columnMask": "07"}, None),
    ],
)
def test_a_change_that_was_not_sent_is_no_update_k84(masks: dict[str, str], code: str | None) -> None:
    """The columns are id, name, price and a large object."""
    price = None if masks["columnMask"] == "0B" else "1.50"
    row = only(decode(md(), dt("UPDATE", {**ROW, "price": price, "note": None}, None, **masks)))
    assert (row.code, row.key) == (code, '["7"]')
    assert code is None or "was not sent" in str(row.reason)
