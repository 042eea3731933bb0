"""Each rule of Qlik's messages, by its id: what a message becomes in the change log."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.errors import TerminalError
from spark_jobs.changelog.schema import LogRow, RawMessage
from spark_jobs.sources.contract.decoded import Damage, Decoded, Dispositions, MirroredTable, SourceSchema, Waiting
from spark_jobs.sources.qlik.message.structures import registry_schema, unfit_schema
from spark_jobs.sources.qlik.positions import qlik_position
from spark_jobs.sources.sql_server.types import converter
from spark_jobs.sources.transports.json_lines import read_lines
from tests.noted_facts import ignored
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
    decoder,
    dt,
    enveloped,
    md,
    metadata,
    only,
    sequence,
)

TEXTS = {"id": "7", "name": "Ada", "price": "1.50", "note": "x"}
COLS = [["id", "int", 0], ["name", "varchar(100)", 1], ["price", "decimal(8,2)", 2], ["note", "varchar(max)", 3]]
OTHER = MirroredTable("dbo.other", ("id",))
OF_ORDERS = {"cdc": "dbo.orders"}


def values(text: str | None) -> dict[str, Any]:
    return dict(json.loads(text or "{}"))


def changed(*args: Any, **parts: Any) -> LogRow:
    """The only row of one JSON data message behind its metadata."""
    decoded = decode(md(), dt(*args, **parts))
    assert decoded.counts == Dispositions(2, 1, 0, 1, 0, 0), decoded.rows
    return only(decoded)


@pytest.mark.parametrize("avro", [False, True])
@pytest.mark.parametrize(("operation", "op"), [("INSERT", "I"), ("UPDATE", "U")])
def test_a_data_message_is_read_by_the_metadata_before_it_k02_k03_k12_k16_k27(
    avro: bool, operation: str, op: str
) -> None:
    before = OLD if op == "U" else None
    decoded = decode(*((avro_md(), avro_dt(operation, ROW, before)) if avro else (md(), dt(operation, ROW, before))))
    assert decoded.counts == Dispositions(2, 1, 0, 1, 0, 0)
    row = only(decoded)
    assert (row.kind, row.tbl, row.op, row.key, row.epoch, row.whole) == (
        "change",
        "dbo.orders",
        op,
        '["7"]',
        "1",
        True,
    )
    assert (values(row.row), json.loads(row.cols or "")) == (TEXTS, COLS)
    assert (row.origin, row.place, row.before, row.raw) == ("cdc/0", 1, None, None)
    assert row.bucket >= 0


def test_a_position_is_sequence_counter_and_half_k17_k25_t10() -> None:
    row = changed("UPDATE", ROW, OLD, number=12, transactionEventCounter=3)
    assert row.pos == qlik_position(sequence(12), 1, 3)
    assert changed("DELETE", ROW).pos == qlik_position(sequence(1), 0, 1)
    assert changed(transactionEventCounter=None).pos == qlik_position(sequence(1), 1, 0)
    positions = [changed(number=n).pos or "" for n in (9, 10, 11)]
    assert positions == sorted(positions)


def test_a_load_is_the_epoch_of_its_messages_g01() -> None:
    assert only(decode(md(), dt(), load="2026-08")).epoch == "2026-08"


@pytest.mark.parametrize("said", ["", None, ...])
def test_a_refresh_is_an_upsert_below_every_change_of_its_load_k18(said: Any) -> None:
    parts = {name: said for name in ("changeSequence", "timestamp", "transactionId", "streamPosition")}
    row = changed("REFRESH", ROW, transactionEventCounter=None, transactionLastEvent=None, **parts)
    assert (row.op, row.pos, values(row.row)) == ("I", qlik_position("0" * 35, 1, 1), TEXTS)
    assert (row.pos or "") < (changed().pos or "")


@pytest.mark.parametrize("position", ["data", "beforeData"])
def test_a_delete_takes_the_first_image_that_holds_the_key_k30(position: str) -> None:
    empty = dict.fromkeys(ROW)
    data, before = (ROW, None) if position == "data" else (empty, ROW)
    row = changed("DELETE", data, before)
    assert (row.op, row.key, row.row, values(row.before)) == ("D", '["7"]', None, TEXTS)
    assert changed("DELETE", None, ROW).key == '["7"]'


def test_a_key_change_is_two_changes_at_one_place_g03_k28_k31() -> None:
    decoded = decode(md(), dt("UPDATE", {**ROW, "id": 8}, OLD))
    assert decoded.counts.changes == 1
    left, row_set = decoded.rows
    assert [(r.op, r.key, (r.pos or "")[-2:]) for r in (left, row_set)] == [("K", '["7"]', ":0"), ("U", '["8"]', ":1")]
    assert (left.pos or "")[:-1] == (row_set.pos or "")[:-1]
    assert values(left.before) == {**TEXTS, "price": "1.00"} and left.row is None
    assert values(row_set.row) == {**TEXTS, "id": "8"} and row_set.before is None


@pytest.mark.parametrize("masks", [{}, {"changeMask": "0F"}, {"changeMask": "05"}, {"columnMask": "0F"}])
def test_an_old_row_that_has_its_key_alone_shows_nothing_else_whatever_the_mask_says_k87(masks: dict[str, str]) -> None:
    before, after = {**dict.fromkeys(ROW), "id": 7}, {"id": 8, "name": None, "price": "1.50", "note": "x"}
    left, _ = decode(md(), dt("UPDATE", after, before, **masks)).rows
    assert (left.op, values(left.before)) == ("K", {"id": "7"})


def test_equal_keys_in_two_spellings_are_no_key_change_g02() -> None:
    columns = [("id", "NUMERIC", 0, 8, 2, 1)]
    decoded = decode(md(columns), dt("UPDATE", {"id": "7.50"}, {"id": "7.5"}))
    assert [(row.op, row.key) for row in decoded.rows] == [("U", '["7.50"]')]


def test_a_key_change_whose_old_key_is_not_reported_stops_the_table_g03_k21() -> None:
    for before in (None, {"name": "Ada"}, dict.fromkeys(ROW)):
        row = only(decode(md(), dt("UPDATE", ROW, before, changeMask="05")))
        assert (row.code, row.tbl, row.key) == ("OLD_KEY_MISSING", "dbo.orders", None)
    assert changed("UPDATE", ROW, None, changeMask="04").op == "U", "the key is not among the changed columns"


@pytest.mark.parametrize("before", [None, {}, {"name": "Ada"}, dict.fromkeys(ROW)])
@pytest.mark.parametrize("mask", [None, ""])
def test_a_key_change_that_nothing_shows_stops_the_table_k70(before: Any, mask: str | None) -> None:
    """G-03: neither changeMask nor the old key: the row of an old key would stay for ever."""
    body = dt("UPDATE", ROW, before, changeMask=mask, columnMask="0F")
    row = only(decode(md(), body))
    assert (row.code, row.tbl, row.key) == ("OLD_KEY_MISSING", "dbo.orders", None)
    for table in (MirroredTable("dbo.orders", ("id",), keys_never_change=True), MirroredTable("dbo.orders", ())):
        assert only(decode(md(), body, tables=[table])).op == "U"
    assert only(decode(md(), dt("UPDATE", ROW, {"id": 7}, changeMask=mask))).op == "U"


def test_columns_outside_the_column_mask_are_absent_and_not_null_k23_g04() -> None:
    row = changed("UPDATE", {"id": 7, "name": None, "price": None, "note": None}, columnMask="03", changeMask="02")
    assert values(row.row) == {"id": "7", "name": None}
    assert json.loads(row.cols or "") == COLS[:2]
    assert row.whole is False
    assert changed("UPDATE", {**ROW, "name": None}, columnMask="0F", changeMask="02").whole is True


def test_an_old_row_shows_every_value_that_it_has_k23_k28_g03() -> None:
    """What tells the row that left its key from another one: only a null outside the column mask may not be sent."""
    data, old = {"id": 8, "name": "Bob", "price": None, "note": None}, {**OLD, "id": 7, "note": None}
    left, _ = decode(md(), dt("UPDATE", data, old, columnMask="03")).rows
    assert values(left.before) == {"id": "7", "name": old["name"], "price": str(old["price"])}


def test_a_message_without_masks_carries_what_it_names_k23() -> None:
    row = changed("UPDATE", {"id": 7, "price": "1.50"}, {"id": 7})
    assert (values(row.row), row.whole) == ({"id": "7", "price": "1.50"}, False)


def test_an_empty_mask_is_no_mask_k18_k23() -> None:
    row = changed("REFRESH", ROW, columnMask="", changeMask="")
    assert (values(row.row), row.whole) == (TEXTS, True)


def test_what_was_not_sent_is_in_no_old_image_either_k23_g03() -> None:
    unsent = {"id": 7, "name": "Ada", "price": None, "note": None}
    left, row_set = decode(md(), dt("UPDATE", {**unsent, "id": 8}, unsent, columnMask="03")).rows
    assert (values(left.before), values(row_set.row)) == ({"id": "7", "name": "Ada"}, {"id": "8", "name": "Ada"})


def test_masks_count_data_columns_by_their_ordinals_k20() -> None:
    columns = [(f"c{n:02d}", "INT4", 10, 0, 0, int(n == 15)) for n in range(16)]
    data: dict[str, int | None] = {name: n for n, (name, *_) in enumerate(columns)}
    data["c07"] = None
    # Bit 7 alone is missing: ordinal 8.
    row = only(
        decode(md(columns), dt("INSERT", data, columnMask="00FF7F"), tables=[MirroredTable("dbo.orders", ("c15",))])
    )
    assert "c07" not in values(row.row) and len(values(row.row)) == 15 and row.key == '["15"]'


def test_large_objects_are_not_judged_by_masks_k22_t25() -> None:
    assert values(changed("INSERT", ROW, columnMask="07").row) == TEXTS, "its value is there, whatever the mask says"
    row = changed("UPDATE", {**ROW, "note": None}, {**OLD, "note": None}, columnMask="07", changeMask="04")
    assert (set(values(row.row)), row.whole) == ({"id", "name", "price"}, False)
    named = changed("UPDATE", {**ROW, "note": None}, OLD, columnMask="0F")
    assert values(named.row)["note"] is None and named.whole is True


def test_old_large_objects_that_are_null_may_not_have_been_sent_k22() -> None:
    left = decode(md(), dt("UPDATE", {**ROW, "id": 8}, {**OLD, "note": None})).rows[0]
    assert set(values(left.before)) == {"id", "name", "price"}


@pytest.mark.parametrize(
    ("masks", "setting", "present"),
    [
        ((b"\x00\x01", b"\x03\x05"), "auto", {"c0", "c2", "c8", "c9"}),
        ((b"\x01\x00", b"\x05\x03"), "auto", {"c0", "c2", "c8", "c9"}),
        ((b"\x00\x01", b"\x01\x02"), "auto", {"c1", "c8"}),
        ((b"\x00\x01", b"\x01\x02"), "le_bytes", {"c0", "c9"}),
        ((b"\x00\x01", b"\x01\x02"), "msb_text", {"c1", "c8"}),
    ],
)
def test_masks_in_bytes_are_read_in_the_order_that_the_row_allows_t24_k20(
    masks: tuple[bytes, bytes], setting: str, present: set[str]
) -> None:
    names = [f"c{n}" for n in range(10)]
    columns = [(name, "INT4", 10, 0, 0, int(name in ("c0", "c8"))) for name in names]
    table = MirroredTable("dbo.orders", ())
    data = {name: 1 if name in present else None for name in names}
    schema = avro_schema(dict.fromkeys(names, "int"))
    body = avro_dt("INSERT", data, schema=schema, changeMask=None, columnMask=masks[1])
    row = only(decode(avro_md(schema, columns), body, tables=[table], mask_order=setting))
    assert set(values(row.row)) == present


def test_a_text_mask_is_read_as_documented_bytes_where_a_number_is_impossible_t24() -> None:
    row = changed("UPDATE", {**ROW, "price": None, "note": None}, columnMask="0300", changeMask="02")
    assert set(values(row.row)) == {"id", "name"}


def test_what_a_restarted_task_sends_again_is_the_same_change_k17_k41_k42() -> None:
    """Sequence and counter alone are the place; stream position, transaction and times may be others than before."""
    again = {"streamPosition": "7:8:9", "transactionId": "FFFF", "timestamp": "1999-01-01T00:00:00.000"}
    assert changed(**again, transactionLastEvent=True) == changed()
    later, earlier = (changed(number=number, transactionId="ABCD") for number in (2, 1))
    assert (later.pos or "") > (earlier.pos or "")


def test_an_external_schema_id_is_information_only_k24() -> None:
    assert values(changed(externalSchemaId="1f2e").row) == TEXTS


def test_the_message_key_decides_nothing_k43() -> None:
    keys = (None, b"", b'{"id":8}', b"\xff")
    rows = decoder().decode([RawMessage("cdc/0", 0, md()), *[RawMessage("cdc/0", 1, dt(), key) for key in keys]]).rows
    assert len(rows) == 4 and len(set(rows)) == 1


# --- metadata, and messages that come before it --------------------------------------------------------------------


def test_metadata_is_announced_once_per_structure_k10_k11() -> None:
    decoded = decode(md(), md(), md(version=2), topic="t")
    assert decoded.counts == Dispositions(3, 0, 0, 3, 0, 0)
    assert [(s.topic, s.schema_id, s.table, s.version) for s in decoded.schemas] == [
        ("t", ID, "dbo.orders", 1),
        ("t", ID, "dbo.orders", 2),
    ]


def test_announced_structures_are_known_to_later_batches_k10() -> None:
    for first, second in ((md(), dt()), (avro_md(), avro_dt())):
        announced = decode(first).schemas
        assert values(only(decode(second, schemas=announced)).row) == TEXTS
        assert decode(first, schemas=announced).schemas == [], "known already"


@pytest.mark.parametrize(("data", "announcement"), [(dt(), md()), (avro_dt(), avro_md())])
def test_a_message_waits_for_its_metadata_and_loses_nothing_k05(data: bytes, announcement: bytes) -> None:
    waiting = decode(data, data)
    assert waiting.counts == Dispositions(2, 0, 2, 0, 0, 0)
    assert [(row.kind, row.fragment_of, row.raw, row.place) for row in waiting.rows] == [
        ("fragment", f"cdc:schema:{ID}", data, place) for place in (0, 1)
    ]
    assert decoder().join(waiting.rows) == Waiting()
    schemas = decode(announcement).schemas
    joined = decoder(schemas=schemas).join(list(reversed(waiting.rows)))
    assert isinstance(joined, Decoded)
    assert joined == decode(data, data, schemas=schemas)


def test_a_waiting_message_shows_its_position_and_table_where_it_can_k05_k15() -> None:
    row = only(decode(dt("DELETE", ROW), topic="orders", topics={"orders": "dbo.orders"}))
    assert (row.tbl, row.epoch, row.pos) == ("dbo.orders", "1", qlik_position(sequence(1), 0, 1))
    assert row.fragment_of == f"dbo.orders:schema:{ID}"
    assert only(decode(avro_dt())).pos is None


def test_a_message_that_waited_too_long_is_a_dead_letter_with_its_bytes_k05() -> None:
    pieces = decode(dt(number=1), dt(number=2), topics={"cdc": "dbo.orders"}).rows
    letters = decoder().incomplete(pieces, "24 hours have passed")
    assert [(r.kind, r.code, r.tbl, r.key, r.place, r.raw) for r in letters] == [
        ("rejected", "METADATA_MISSING", "dbo.orders", None, place, dt(number=place + 1)) for place in (0, 1)
    ]
    assert all("24 hours have passed" in (r.reason or "") and r.pos for r in letters)


def test_joined_messages_of_a_table_that_is_not_mirrored_are_ignored_k05() -> None:
    pieces = decode(dt()).rows
    joined = decoder(OTHER, schemas=decode(md()).schemas).join(pieces)
    assert isinstance(joined, Decoded) and joined.counts == Dispositions(1, 0, 0, 0, 1, 0)


def test_metadata_in_another_topic_serves_k06() -> None:
    messages = [RawMessage("meta/0", 0, md()), RawMessage("cdc/1", 0, dt())]
    assert decoder().decode(messages).counts == Dispositions(2, 1, 0, 1, 0, 0)


def test_an_id_counts_in_its_own_topic_first_k10() -> None:
    other = [("id", "INT8", 19, 0, 0, 1), *COLUMNS[1:]]
    messages = [
        RawMessage("a/0", 0, md()),
        RawMessage("b/0", 0, md(other, table="other")),
        RawMessage("a/0", 1, dt()),
        RawMessage("b/0", 1, dt()),
    ]
    rows = decoder(ORDERS, OTHER).decode(messages).rows
    assert [(row.tbl, json.loads(row.cols or "")[0][1]) for row in rows] == [
        ("dbo.orders", "int"),
        ("dbo.other", "bigint"),
    ]


def test_the_newest_version_of_an_id_holds_whatever_the_order_of_arrival_k11() -> None:
    wide = [*COLUMNS[:1], ("name", "WSTRING", 200, 0, 0, 0), *COLUMNS[2:]]
    for order in ((md(), md(wide, version=2)), (md(wide, version=2), md())):
        assert json.loads(only(decode(*order, dt())).cols or "")[1][1] == "varchar(200)"


def test_without_an_id_the_newest_version_with_the_columns_of_the_message_holds_k11_k14() -> None:
    wider = [*COLUMNS, ("added", "INT4", 10, 0, 0, 0)]
    bodies = [md(), md(wider, version=2, schema_id="F" * 32)]
    bodies += [dt(schema_id=None), dt("INSERT", {**ROW, "added": 1}, number=2, schema_id=None)]
    old, new = decode(*bodies, topics=OF_ORDERS).rows
    assert (old.whole, new.whole) == (True, True)
    assert len(json.loads(old.cols or "")) == 4 and len(json.loads(new.cols or "")) == 5


def test_without_an_id_absent_columns_must_be_those_outside_the_column_mask_k23_k14() -> None:
    part = {"id": 7, "name": "Ada"}
    row = only(decode(md(), dt("UPDATE", part, schema_id=None, columnMask="03", changeMask="02"), topics=OF_ORDERS))
    assert (values(row.row), row.whole) == ({"id": "7", "name": "Ada"}, False)
    for mask in (None, "0F", "0003"):
        waiting = only(decode(md(), dt("UPDATE", part, schema_id=None, columnMask=mask), topics=OF_ORDERS))
        assert waiting.kind == "fragment", "another version of the table may have just these columns"


@pytest.mark.parametrize("document", ["", "[]", "{}", '{"type":"string"}', '{"tableStructure":{}}'])
def test_a_schema_by_hand_that_cannot_be_read_is_an_error_k06(document: str) -> None:
    with pytest.raises(TerminalError) as raised:
        decoder(schemas=[SourceSchema("", "1", "dbo.orders", 1, document)])
    assert raised.value.code == "METADATA_MISSING" and raised.value.next_step


# --- which table ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", [True, False])
def test_the_table_is_known_from_the_message_itself_k15(inside: bool) -> None:
    said = {"schema": "dbo", "table": "orders"}
    body = enveloped("DT", change("INSERT", ROW, **said) if inside else change("INSERT", ROW, members=said))
    assert only(decode(md(), body, topic="any")).tbl == "dbo.orders"


def test_else_the_table_is_known_from_the_promise_for_its_topic_k15() -> None:
    decoded = decode(md(), json.dumps(change()).encode(), topic="t", topics={"t": "dbo.orders"})
    assert only(decoded).tbl == "dbo.orders"


@pytest.mark.parametrize("topic", ["dbo.orders", "one"])
def test_nothing_around_a_message_shows_its_table_k15_k60(topic: str) -> None:
    """Neither the topic's name nor what else was announced in it: a row of another table would become one of this."""
    for body in (json.dumps(change()).encode(), dt(schema_id=None)):
        waiting = only(decode(md(), body, topic=topic))
        assert (waiting.kind, waiting.tbl) == ("fragment", None)
        (letter,) = decoder().incomplete([waiting], "24 hours have passed")
        assert (letter.code, letter.tbl, letter.raw) == ("TABLE_UNNAMED", None, body)


KEYS = [
    b"dbo+orders",
    b'"dbo+orders"',
    b'{"schema":"dbo","table":"orders"}',
    b'{"table":"orders","schema":"dbo","id":7}',
]


def avro_key(table: str) -> bytes:
    stream = io.BytesIO()
    schema = {
        "type": "record",
        "name": "KeyRecord",
        "namespace": f"com.attunity.queue.msg.task1.dbo.{table}",
        "fields": [],
    }
    fastavro.writer(stream, fastavro.parse_schema(schema), [{}])
    return stream.getvalue()


@pytest.mark.parametrize("key", [*KEYS, avro_key("orders")])
def test_a_key_of_schema_and_table_shows_whose_change_it_is_k60(key: bytes) -> None:
    bare = json.dumps(change()).encode()
    row = only(decoder().decode([RawMessage("t/0", 0, md(), None), RawMessage("t/0", 1, bare, key)]))
    assert (row.kind, row.tbl) == ("change", "dbo.orders")
    waiting = only(decoder().decode([RawMessage("t/0", 1, bare, key)]))
    assert (waiting.kind, waiting.tbl) == ("fragment", "dbo.orders")
    joined = decoder(schemas=decode(md()).schemas).join([waiting])
    assert isinstance(joined, Decoded) and joined.rows == [row], "the log does not keep the key, and loses nothing"


OTHER_KEYS = [b"", b"7", b"a+b+c", b"+orders", b"EU+42", b'{"id":7}', b"\xff+", b'{"schema":1,"table":2}']
OTHER_KEYS += [b'{"schema":"EU","table":"42"}', b"{", b"Obj\x01x", b'"x', b"[1]"]


@pytest.mark.parametrize("key", OTHER_KEYS)
def test_a_key_of_anything_else_shows_nothing_k60(key: bytes) -> None:
    bare = json.dumps(change()).encode()
    row = only(decoder().decode([RawMessage("t/0", 0, md(), None), RawMessage("t/0", 1, bare, key)]))
    assert (row.kind, row.tbl) == ("fragment", None)


def test_a_key_of_a_foreign_table_shows_it_once_that_table_is_known_k60() -> None:
    messages = [
        RawMessage("t/0", 0, md(table="other")),
        RawMessage("t/0", 1, json.dumps(change()).encode(), b"dbo+other"),
    ]
    decoded = decoder().decode(messages)
    assert (decoded.rows, decoded.counts.ignored, ignored(decoded.facts)) == ([], 1, {"dbo.other": 1})
    assert only(decoder().decode(messages[1:])).kind == "fragment", "until then it may be a key of any other kind"


def test_a_key_that_is_the_tables_own_shows_nothing_k60() -> None:
    """A table whose key columns are called schema and table."""
    columns = [("schema", "WSTRING", 9, 0, 0, 1), ("table", "WSTRING", 9, 0, 0, 2)]
    row = {"schema": "dbo", "table": "orders"}
    message = RawMessage("t/0", 1, json.dumps(change("INSERT", row)).encode(), json.dumps(row).encode())
    assert only(decoder().decode([RawMessage("t/0", 0, md(columns)), message])).kind == "fragment"


def test_a_key_that_denies_the_promise_is_a_dead_letter_k60() -> None:
    message = RawMessage("cdc/0", 1, dt(schema_id=None), b"dbo+other")
    row = only(decoder(ORDERS, OTHER, topics=OF_ORDERS).decode([RawMessage("cdc/0", 0, md()), message]))
    assert (row.code, row.tbl) == ("TABLE_NAME_DIFFERS", None) and "'dbo.other'" in (row.reason or "")


def test_a_tombstone_is_ignored_and_counted_k64() -> None:
    decoded = decoder().decode([RawMessage("t/0", 0, None, b"7"), RawMessage("t/0", 1, None, b"")])
    assert decoded.counts == Dispositions(2, 0, 0, 0, 2, 0)
    assert only(decode(None)).code == "BODY_MISSING", "without a key it marks nothing"


def test_messages_of_foreign_tables_are_counted_by_name_k63() -> None:
    decoded = decode(md(table="unknown"), dt(), dt("INSERT", ROW, schema="x", table="y"), tables=[OTHER])
    assert (decoded.counts.ignored, ignored(decoded.facts)) == (1, {"dbo.unknown": 1}), (
        "the other one contradicts itself"
    )
    assert ignored(decode(dt(), dt(), md(table="unknown"), tables=[OTHER]).facts) == {"dbo.unknown": 2}
    named = dt("INSERT", ROW, schema="x", table="y", schema_id="E" * 32)
    assert ignored(decode(named, tables=[OTHER]).facts) == {"x.y": 1}


@pytest.mark.parametrize("early", [False, True])
def test_a_table_that_is_spelled_in_another_case_is_not_passed_over_g13(early: bool) -> None:
    """Nor does it wait for ever where its metadata comes late."""
    table = MirroredTable("dbo.ORDERS", ("id",))
    messages = [dt(), md()] if early else [md(), dt()]
    decoded = decode(*messages, tables=[table])
    assert decoded.counts == Dispositions(2, 0, 0, 1, 0, 1)
    assert [row.code for row in decoded.rows] == ["TABLE_NAME_DIFFERS"]


def test_structures_of_tables_that_are_not_mirrored_are_kept_k15() -> None:
    """Messages that follow them must not wait."""
    decoded = decode(md(table="unknown"), dt(), avro_md(), avro_dt(), tables=[OTHER])
    assert (decoded.counts, len(decoded.schemas)) == (Dispositions(4, 0, 0, 2, 2, 0), 2)
    assert decode(dt(), tables=[OTHER], topics={"cdc": "dbo.orders"}).counts.ignored == 1


def test_only_allowed_columns_leave_and_the_key_always_does_g12() -> None:
    table = MirroredTable("dbo.orders", ("id",), ColumnChoice(("price",)))
    row = only(decode(md(), dt(), tables=[table]))
    assert values(row.row) == {"id": "7", "price": "1.50"}
    assert json.loads(row.cols or "") == [COLS[0], COLS[2]] and row.whole is True


def test_a_table_without_key_has_no_key_g02() -> None:
    row = only(decode(md(), dt(), tables=[MirroredTable("dbo.orders", ())]))
    assert (row.key, row.bucket, row.op) == (None, -1, "I")


@pytest.mark.parametrize("body", [avro_dt()[:-3], dt()[:-9]])
def test_what_cannot_be_read_of_a_foreign_table_is_no_risk_k63(body: bytes) -> None:
    decoded = decode(md(table="unknown"), body, tables=[OTHER])
    assert (decoded.rows, ignored(decoded.facts)) == ([], {"dbo.unknown": 1})
    late = decode(body, md(), tables=[ORDERS])
    assert (only(late).kind, only(late).tbl) == ("rejected", "dbo.orders"), "what is announced behind it counts, too"


# --- sections that the task names otherwise ------------------------------------------------------------------------

HEADERS = change()["headers"]
CUSTOM: dict[str, Any] = {
    "headers renamed": {"data": ROW, "beforeData": None, "meta": HEADERS},
    "data renamed": {"row": ROW, "beforeData": None, "headers": HEADERS},
    "before image renamed": {"data": ROW, "old": OLD, "headers": HEADERS},
    "headers flattened": {"data": ROW, "beforeData": None, **HEADERS},
    "data flattened": {**ROW, "beforeData": None, "headers": HEADERS},
    "all flattened": {**ROW, **HEADERS},
}


@pytest.mark.parametrize("record", CUSTOM.values(), ids=CUSTOM.keys())
def test_a_message_format_of_the_tasks_own_is_one_clear_code_k65(record: Any) -> None:
    bare = json.dumps(record).encode()
    for body, settings in ((enveloped("DT", record, ID), {}), (bare, {"topics": OF_ORDERS})):
        row = only(decode(md(), body, **settings))
        assert (row.code, row.tbl, row.key) == ("MESSAGE_INVALID", "dbo.orders", None)
        assert "Message Format" in (row.reason or "")
    assert (only(decode(md(), bare)).code, only(decode(md(), bare)).tbl) == ("MESSAGE_INVALID", None)


def test_an_avro_message_format_of_the_tasks_own_is_reported_by_its_schema_k65() -> None:
    schema = avro_schema()
    for name, other in (("headers", "meta"), ("data", "row"), ("beforeData", "old")):
        odd = json.loads(json.dumps(schema))
        next(field for field in odd["fields"] if field["name"] == name)["name"] = other
        record = {other if n == name else n: value for n, value in change().items()}
        row = only(decode(avro_md(odd), avro_enveloped("DT", datum(odd, record), ID)))
        assert (row.code, row.tbl) == ("MESSAGE_INVALID", "dbo.orders"), name


@pytest.mark.parametrize("members", [{"more": 1}, {"more": {"operation": "x", "changeSequence": "y"}}])
def test_more_members_than_the_sections_are_no_other_format_k65(members: Any) -> None:
    assert only(decode(md(), dt("INSERT", ROW, members=members))).kind == "change"
    assert only(decode(b'{"operation":"x","a":{}}')).code == "MESSAGE_INVALID", "it has nothing of Qlik"


# --- forms ---------------------------------------------------------------------------------------------------------


def test_json_without_envelope_k04_k06() -> None:
    bodies = [json.dumps(metadata()).encode(), json.dumps(change()).encode()]
    decoded = decode(*bodies, topics=OF_ORDERS)
    assert decoded.counts == Dispositions(2, 1, 0, 1, 0, 0) and values(only(decoded).row) == TEXTS


def test_avro_framed_by_a_schema_registry_k04_k06() -> None:
    schema = avro_schema({**FIELDS, "price": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}})
    body = b"\x00\x00\x00\x01\x02" + datum(schema, change("INSERT", {**ROW, "price": b"\x00\x96"}))
    waiting = only(decode(body))
    assert (waiting.kind, waiting.fragment_of) == ("fragment", "cdc:schema:registry:258")
    known = registry_schema(258, "dbo.orders", 3, json.dumps(schema))
    row = only(decode(body, schemas=[known]))
    assert values(row.row) == TEXTS
    assert json.loads(row.cols or "") == [
        ["id", "int", 0],
        ["name", "varchar(max)", 1],
        ["price", "decimal(8,2)", 2],
        ["note", "varchar(max)", 3],
    ]


def unfit(kind: str, text: str) -> Any:
    body = b"\x00\x00\x00\x00\x07" + b"{}"
    schemas = [unfit_schema(7, kind, text), *decode(md()).schemas]
    return decode(body, dt(), schemas=schemas)


KEY_RECORD = {"type": "record", "name": "KeyRecord", "namespace": "com.attunity.queue.msg.task1.dbo.@", "fields": []}


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [("JSON", '{"type": "object"}', "type 'JSON'"), ("PROTOBUF", "message A {}", "type 'PROTOBUF'"),
     ("AVRO", '{"type": "record", "name": "acme.Customer", "fields": []}', "has not data and headers"),
     ("AVRO", '"string"', ""), ("AVRO", "", ""), ("AVRO", "{", "")],
)  # fmt: skip
def test_a_registered_schema_of_others_concerns_its_own_messages_alone_k62(kind: str, text: str, words: str) -> None:
    letter, row = unfit(kind, text).rows
    assert (letter.code, letter.tbl, row.kind) == ("METADATA_MISSING", None, "change")
    assert words in letter.reason and "registry:7" in letter.reason


def test_a_registered_schema_may_show_its_table_all_the_same_k62_k63() -> None:
    text = json.dumps(KEY_RECORD)
    assert unfit("AVRO", text.replace("@", "orders")).rows[0].tbl == "dbo.orders"
    foreign = unfit("AVRO", text.replace("@", "other"))
    assert len(foreign.rows) == 1 and ignored(foreign.facts) == {"dbo.other": 1}


def test_a_registered_schema_whose_name_shows_no_table_k04_k60() -> None:
    """Ignored as nobody's before: now the promise or the key tells, or it waits."""
    schema = {**avro_schema(), "namespace": "acme"}
    body = b"\x00\x00\x00\x00\x07" + datum(schema, change())
    known = [registry_schema(7, "", 1, json.dumps(schema))]
    assert values(only(decode(body, schemas=known, topics=OF_ORDERS)).row) == TEXTS
    waiting = only(decode(body, schemas=known))
    assert (waiting.kind, waiting.tbl) == ("fragment", None)
    assert decoder().incomplete([waiting], "late")[0].code == "TABLE_UNNAMED"


def test_an_avro_container_and_an_embedded_schema_bring_their_schema_k06() -> None:
    stream = io.BytesIO()
    fastavro.writer(stream, fastavro.parse_schema(avro_schema()), [change()], codec="deflate")
    embedded = avro_enveloped("DT", datum(avro_schema(), change()), schema=json.dumps(avro_schema()))
    for body in (stream.getvalue(), embedded):
        row = only(decode(body))
        assert (row.tbl, values(row.row)) == ("dbo.orders", TEXTS)


def test_bare_avro_is_read_by_the_only_schema_of_its_topic_that_fits_k06() -> None:
    longer = avro_schema({**FIELDS, "added": "int"})
    schemas = [
        registry_schema(number, "dbo.orders", number, json.dumps(schema))
        for number, schema in enumerate((avro_schema(), longer), 1)
    ]
    settings: Any = {"topics": {"cdc": "dbo.orders"}, "unframed_avro": True}
    body = datum(avro_schema(), change())
    assert values(only(decode(body, schemas=schemas, **settings)).row) == TEXTS
    assert only(decode(body, **settings)).kind == "fragment"
    twin = registry_schema(3, "dbo.orders", 3, json.dumps(avro_schema({**FIELDS, "id": "long"})))
    assert only(decode(body, schemas=[*schemas, twin], **settings)).code == "TABLE_UNNAMED"
    assert only(decode(body, schemas=schemas)).code == "MESSAGE_INVALID", "only where the setting says so"


def test_damaged_bytes_are_one_dead_letter_each() -> None:
    decoded = decoder().decode([Damage("f", 5, "FILE_DAMAGED", "cut", b"x"), RawMessage("cdc/0", 0, md())])
    assert decoded.counts == Dispositions(2, 0, 0, 1, 0, 1)
    assert (decoded.rows[0].code, decoded.rows[0].raw) == ("FILE_DAMAGED", b"x")


# --- values --------------------------------------------------------------------------------------------------------

LOGICAL: list[tuple[str, tuple[int, int, int], Any, Any, str]] = [
    ("DATE", (0, 0, 0), {"type": "int", "logicalType": "date"}, -719162, "0001-01-01"),
    ("TIME", (0, 0, 3), {"type": "int", "logicalType": "time-millis"}, 52461007, "14:34:21.007"),
    ("DATETIME", (0, 0, 6), {"type": "long", "logicalType": "timestamp-micros"}, -1, "1969-12-31 23:59:59.999999"),
    ("DATETIME", (0, 0, 6), "string", "2023-03-21 14:34:21.000000", "2023-03-21 14:34:21.000000"),
    ("NUMERIC", (0, 30, 10), {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 10},
     (-(10**29) - 1).to_bytes(13, "big", signed=True), "-10000000000000000000.0000000001"),
    ("NUMERIC", (0, 30, 10), "string", "-1.5", "-1.5"),
    ("UINT8", (0, 20, 0), {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0},
     (2**64 - 1).to_bytes(9, "big"), str(2**64 - 1)),
    ("BYTES", (4, 0, 0), "bytes", b"\x00\xff", "0x00FF"),
    ("REAL8", (0, 0, 0), "double", 0.1 + 0.2, "0.30000000000000004"),
    ("REAL4", (0, 0, 0), "float", 0.5, "0.5"),
    ("INT8", (0, 0, 0), "long", -(2**63), str(-(2**63))),
    ("BOOLEAN", (1, 0, 0), "boolean", True, "true"),
    ("STRING", (5, 0, 0), "string", "\ud7ff€", "\ud7ff€"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "numbers", "avro", "value", "text"), LOGICAL)
def test_avro_values_lose_nothing_with_logical_types_on_and_off_k35(
    kind: str, numbers: tuple[int, int, int], avro: Any, value: Any, text: str
) -> None:
    columns = [("id", "INT4", 10, 0, 0, 1), ("v", kind, *numbers, 0)]
    # The writer must not convert the value: without its logical type the bytes are the same.
    plain = avro if isinstance(avro, str) else avro["type"]
    body = avro_dt("INSERT", {"id": 1, "v": value}, schema=avro_schema({"id": "int", "v": plain}))
    row = only(decode(avro_md(avro_schema({"id": "int", "v": avro}), columns), body))
    assert values(row.row)["v"] == text
    assert converter(json.loads(row.cols or "")[1][1])(text) is not None


@pytest.mark.parametrize(
    ("kind", "numbers", "value", "text"),
    [
        (
            "NUMERIC",
            (0, 38, 20),
            '"123456789012345678.12345678901234567890"',
            "123456789012345678.12345678901234567890",
        ),
        ("NUMERIC", (0, 38, 20), "123456789012345678.12345678901234567890", "123456789012345678.12345678901234567890"),
        ("REAL8", (0, 0, 0), "-84.972033199999990001", "-84.972033199999990001"),
        ("INT8", (0, 0, 0), "9223372036854775807", "9223372036854775807"),
        ("UINT8", (0, 0, 0), '"18446744073709551615"', "18446744073709551615"),
        ("BOOLEAN", (0, 0, 0), "true", "true"),
        ("BYTES", (8, 0, 0), '"00ff"', "00ff"),
        ("DATE", (0, 0, 0), '"2023-03-21"', "2023-03-21"),
        ("DATETIME", (0, 0, 0), '"2023-03-21 14:34:21.000000"', "2023-03-21 14:34:21.000000"),
        ("DATETIME", (0, 0, 9), '"2023-03-21T14:34:21.123456789"', "2023-03-21T14:34:21.123456789"),
        ("WSTRING", (0, 0, 0), '"\\ud83d\\ude00\\u0000"', "😀\0"),
        ("NCLOB", (0, 0, 0), "null", None),
    ],
)
def test_json_values_keep_every_digit_k35(
    kind: str, numbers: tuple[int, int, int], value: str, text: str | None
) -> None:
    columns = [("id", "INT4", 10, 0, 0, 1), ("v", kind, *numbers, 0)]
    body = dt("INSERT", {"id": 1, "v": "@"}).replace(b'"@"', value.encode())
    row = only(decode(md(columns), body))
    assert values(row.row)["v"] == text
    if text is not None:
        assert converter(json.loads(row.cols or "")[1][1])(text) is not None


def test_binary_in_base64_becomes_hexadecimal_in_the_log_k35() -> None:
    columns = [("id", "BYTES", 8, 0, 0, 1)]
    row = only(decode(md(columns), dt("INSERT", {"id": "AP8="}), binary="base64"))
    assert (values(row.row), row.key) == ({"id": "0x00FF"}, '["00FF"]')
    bad = only(decode(md(columns), dt("INSERT", {"id": "AP8"}), binary="base64"))
    assert bad.code == "ROW_INVALID" and "base64" in (bad.reason or "")


@pytest.mark.parametrize(
    ("key", "read"),
    [
        (None, None),
        ("ZGJvK29yZGVycw==", b"dbo+orders"),
        ("dbo+orders", b"dbo+orders"),
        ("dbo+cars", b"dbo+cars"),
        ({"schema": "dbo", "table": "orders"}, b'{"schema":"dbo","table":"orders"}'),
        (7, b"7"),
    ],
)
def test_the_key_of_a_message_comes_along_in_wrapped_lines_k60(key: Any, read: bytes | None, tmp_path: Path) -> None:
    line = json.dumps({"topic": "t", "partition": 0, "offset": 5, "key": key, "value": "{}"})
    (tmp_path / "a.jsonl").write_text(f"{line}\n")
    assert list(read_lines(tmp_path, "a.jsonl", 0, len(line) + 1, "wrapped")) == [RawMessage("t/0", 5, b"{}", read)]


def test_a_key_narrower_than_the_announced_one_stops_the_table_g83() -> None:
    two = [(name, *rest, 2 if name == "name" else place) for name, *rest, place in COLUMNS]
    row = only(decode(md(two), dt()))
    assert (row.code, row.tbl, row.key) == ("KEY_DIFFERS", "dbo.orders", None)
    promised = MirroredTable("dbo.orders", ("id",), key_is_unique=True)
    for sound in (MirroredTable("dbo.orders", ("name", "id")), promised):
        assert only(decode(md(two), dt(), tables=[sound])).kind == "change"
