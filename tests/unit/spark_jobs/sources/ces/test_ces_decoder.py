"""CES events become rows of the log: generations, positions, keys, images (C-10 to C-49, C-70 to C-84)."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.changes.manifest import OLD_KEYS_MISSING
from open_mirroring.changes.row_key import KEY_BUCKETS
from spark_jobs.changelog.schema import REJECTED, LogRow, RawMessage
from spark_jobs.sources.contract.decoded import Damage, Decoded, Dispositions, MirroredTable, SourceSchema
from tests.ces_messages import COLS, GUID, ORDERS, ROW, avro_event, decode, decoder, event, only, payload, split
from tests.noted_facts import ignored, ignored_up_to

LSN = "0000002C000000100001"
COLS_TEXT = '[["id","int",0],["name","nvarchar(50)",1],["price","decimal(8,2)",2]]'


def test_an_insert_is_one_row_with_everything_known_of_it() -> None:
    """C-43: the column list keeps each name, full type text and place in the table."""
    decoded = decode(event("INS", ROW))
    assert decoded.counts == Dispositions(1, 1, 0, 0, 0, 0)
    assert only(decoded) == LogRow(
        kind="change",
        origin="in.jsonl",
        place=0,
        tbl="dbo.orders",
        bucket=zlib.crc32(b'["7"]') % KEY_BUCKETS,
        epoch=GUID,
        pos=f"{LSN}:{1:020d}:1",
        op="I",
        key='["7"]',
        cols=COLS_TEXT,
        whole=True,
        row='{"id":"7","name":"Ada","price":"1.50"}',
    )


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("operation", ["INS", "UPD", "DEL"])
def test_all_generations_and_both_encodings_say_the_same_c22(operation: str, indent: int | None) -> None:
    """C-17, C-46: each operation; generation a, without a transaction block, has its place from `logicalid` alone."""
    images = {"INS": (ROW, None), "UPD": (ROW, {**ROW, "name": "Bo"}), "DEL": (None, ROW)}[operation]
    messages = [event(operation, *images, generation=g, indent=indent) for g in "abc"]
    messages += [avro_event(operation, *images, generation=g) for g in "bc"]
    decoded = decode(*messages)
    assert decoded.counts == Dispositions(5, 5, 0, 0, 0, 0)
    assert {row._replace(place=0) for row in decoded.rows} == {decoded.rows[0]}


@pytest.mark.parametrize(
    "content", ["application/json", "application/avro-json", "Application/JSON; charset=utf-8", ...]
)
def test_json_text_goes_by_several_content_types_c16(content: str) -> None:
    assert only(decode(event(replaced={"datacontenttype": content}))).op == "I"


def test_unknown_members_are_allowed_c21() -> None:
    data = payload(ROW)
    data["eventsource"]["extra"] = data["extra"] = [1, {"x": None}]
    assert only(decode(event(replaced={"data": json.dumps(data), "extension": "x"}))).op == "I"


def test_data_may_come_unwrapped_and_under_its_other_name_c41_c42() -> None:
    plain = payload(ROW)
    renamed = {"eventsource": plain["eventsource"], "eventdata": plain["eventrow"]}
    nulled = {**plain, "eventrow": {**plain["eventrow"], "old": None}}
    decoded = decode(*(event(replaced={"data": data}) for data in (plain, json.dumps(renamed), json.dumps(nulled))))
    assert {row._replace(place=0) for row in decoded.rows} == {only(decode(event("INS", ROW)))}


def test_positions_of_a_delete_and_an_update_at_one_place_differ_in_sub_g01() -> None:
    deleted, updated = decode(event("DEL", None, ROW), event("UPD", ROW, ROW)).rows
    assert (deleted.pos, updated.pos) == (f"{LSN}:{1:020d}:0", f"{LSN}:{1:020d}:1")


def test_a_delete_keeps_its_row_as_before_image() -> None:
    row = only(decode(event("DEL", None, ROW)))
    assert (row.op, row.key, row.row, row.before, row.whole) == (
        "D", '["7"]', None, '{"id":"7","name":"Ada","price":"1.50"}', True,
    )  # fmt: skip


@pytest.mark.parametrize("old", [{}, {"name": "Ada"}])
def test_a_delete_without_old_key_takes_the_announced_one_c71(old: dict[str, str]) -> None:
    """C-45: `pkkey` names the row where the old image does not."""
    row = only(decode(event("DEL", None, old, pkkey={"id": "07"})))
    assert (row.op, row.key) == ("D", '["7"]')
    assert row.before == ('{"name":"Ada"}' if old else None), "what is absent is not NULL"


def test_an_update_of_the_key_is_two_changes_at_one_place_g03() -> None:
    decoded = decode(event("UPD", {**ROW, "id": "8"}, ROW))
    left, arrived = decoded.rows
    assert decoded.counts == Dispositions(1, 1, 0, 0, 0, 0)
    assert (left.op, left.key, left.row, left.before) == ("K", '["7"]', None, '{"id":"7","name":"Ada","price":"1.50"}')
    assert (arrived.op, arrived.key, arrived.row) == ("U", '["8"]', '{"id":"8","name":"Ada","price":"1.50"}')
    assert left.pos is not None and arrived.pos is not None and left.pos < arrived.pos
    assert arrived.before is None


@pytest.mark.parametrize("kind", ["decimal(5,2)", "int", "bit"])
def test_another_spelling_of_a_key_is_no_key_change_g02(kind: str) -> None:
    cols = [("id", kind), *COLS[1:]]
    row = only(decode(event("UPD", {**ROW, "id": "1"}, {**ROW, "id": "+1" if kind != "bit" else "true"}, cols=cols)))
    assert row.op == "U"


TWO_KEYS = MirroredTable("dbo.orders", ("id", "name"))


def test_an_update_without_old_values_is_of_its_row_if_pkkey_names_the_current_key_c73() -> None:
    bodies = [event("UPD", ROW, old, pkkey={"id": "07"}) for old in ({}, {"name": "Bo"}, "{ }")]
    promised = MirroredTable("dbo.orders", ("id",), key_is_unique=True)
    wider = event("UPD", ROW, json.dumps({}), pkkey={"id": 7, "other": "1"})
    decoded = decode(*bodies, wider, tables=[promised])
    assert [(row.op, row.key) for row in decoded.rows] == [("U", '["7"]')] * 4
    (row,) = decode(event("UPD", ROW, {"price": "1"}, pkkey={"id": "7", "name": "Ada"}), tables=[TWO_KEYS]).rows
    assert (row.op, row.key) == ("U", '["7","Ada"]')


@pytest.mark.parametrize(
    ("body", "table"),
    [
        (event("UPD", ROW, {}, pkkey={"id": "6"}), ORDERS),
        (event("UPD", ROW, "{ }", pkkey={"id": "x"}), ORDERS),
        (event("UPD", ROW, {"name": "Bo"}, pkkey={"id": "6"}), ORDERS),
        # The key of the mirror file is not the one that is announced, or none is.
        (event("UPD", ROW, {}), ORDERS),
        (event("UPD", ROW, {}, pkkey={"price": "1.50"}), ORDERS),
        (event("UPD", ROW, {}, pkkey={"id": "7"}), TWO_KEYS),
        (event("UPD", ROW, {"id": "6"}, pkkey={"id": "7", "name": "Ada"}), TWO_KEYS),
        (event("UPD", ROW, {"id": "7"}, pkkey={"id": "7", "name": "Bo"}), TWO_KEYS),
        (event("UPD", ROW, {"id": "7"}, pkkey={"id": "7", "name": "Ada"}), TWO_KEYS),
        (event("DEL", None, {"id": "6"}, pkkey={"id": "7", "name": "Ada"}), TWO_KEYS),
    ],
)
def test_a_key_of_which_nothing_proves_that_it_stayed_is_a_dead_letter_without_key_c73(
    body: bytes, table: MirroredTable
) -> None:
    """Whether `pkkey` is the old key or the new one is documented nowhere: which row went is not guessed."""
    row = only(decode(body, tables=[table]))
    assert (row.kind, row.code, row.tbl, row.key) == (REJECTED, "OLD_KEY_MISSING", "dbo.orders", None)


COLS_4 = [*COLS, ("note", "nvarchar(max)"), ("size", "int")]


@pytest.mark.parametrize(
    ("old", "current", "story"),
    [
        # Nothing tells what the others are.
        ({}, {"id": "7", "price": "2"}, ["id", "price"]),
        ({"id": "7", "price": "1"}, {"id": "7", "price": "2"}, ["id", "price"]),
        # They had values, which the current row lacks.
        ({**ROW, "note": "n", "size": "1"}, {"id": "7", "price": "2"}, ["id", "price"]),
        ({**ROW, "note": "n", "size": "1"}, {"id": "7", "name": "Ada", "price": "2"}, ["id", "name", "price"]),
        # NULL stays NULL, unless it is a large object, of which the old row may tell nothing.
        ({**ROW, "note": None, "size": None}, ROW, ["id", "name", "price", "size"]),
        ({**ROW, "size": None}, {**ROW, "note": "n"}, None),
        # Columns come that did not change: what both rows lack is NULL, but for large objects.
        (ROW, {**ROW, "price": "2"}, ["id", "name", "price", "size"]),
        (ROW, {**ROW, "price": "2", "note": None}, None),
        ({"id": "7", "price": "1"}, {"id": "7", "price": "2", "note": None}, ["id", "price", "note"]),
    ],
)
def test_an_update_that_lacks_announced_columns_does_not_call_them_null_c96(
    old: dict[str, Any], current: dict[str, Any], story: list[str] | None
) -> None:
    """G-04: the log holds what was reported, and the columns of the row are those."""
    row = only(decode(event("UPD", current, old, cols=COLS_4, pkkey={"id": "7"})))
    names = story or [name for name, _ in COLS_4]
    assert (json.loads(row.row or ""), row.whole) == ({name: current.get(name) for name in names}, story is None)
    places = [(name, at) for name, _, at in json.loads(row.cols or "")]
    shift = int(0 < len(names) < 5 and names == [name for name, _ in COLS_4][: len(names)])
    assert places == [(name, at + shift) for at, (name, _) in enumerate(COLS_4) if name in names]


@pytest.mark.parametrize(
    ("current", "cols", "is_told"),
    [
        ({"id": "7"}, COLS_4[:2], False),
        ({"id": "7", "price": "2"}, COLS_4, True),
        ({"id": "7", "price": "1"}, COLS, False),
        ({"id": "8"}, COLS_4[:2], True),
        ({"id": "7"}, [*COLS_4[:2], ("large", "nvarchar(max)")], True),
    ],
)
def test_an_update_that_shows_no_change_left_out_what_changed_c96(
    current: dict[str, str], cols: list[tuple[str, str]], is_told: bool
) -> None:
    """A column set to NULL by leaving it out must not be completed by the value that it had; what is large may miss."""
    old = {"id": "7", "name": "Ada", "price": "1"}
    old = {name: value for name, value in old.items() if name in dict(cols)}
    rows = decode(event("UPD", current, old, cols=cols, pkkey={"id": "7"})).rows
    assert [row.code for row in rows if row.code] == ([] if is_told else ["ROW_INVALID"])
    assert is_told or rows[0].key == '["7"]'


def test_a_key_change_may_announce_either_key_c73() -> None:
    decoded = decode(*(event("UPD", {**ROW, "id": "8"}, ROW, pkkey={"id": key}) for key in ("7", "8", "9")))
    assert [(row.place, row.code) for row in decoded.rows if row.code] == [(2, "PKKEY_CONTRADICTED")]


@pytest.mark.parametrize(
    ("sql_type", "in_row", "in_pkkey", "is_another"),
    [
        ("int", "7", "8", True),
        ("int", "7", "+07", False),
        ("int", "7", "seven", False),
        ("decimal(8,2)", "1.50", "1.5", False),
        ("decimal(8,2)", "1.50", "1.51", True),
        ("char(5)", "ab   ", "ab", False),
        ("nvarchar(9)", "Ab", "aB", False),
        ("nvarchar(9)", "\u00e9", "e\u0301", False),
        ("nvarchar(9)", "ab", "ac", True),
        ("uniqueidentifier", "0e984725-c51c-4bf4-9960-e1c80e27aba0", "0E984725-C51C-4BF4-9960-E1C80E27ABA0", False),
        ("binary(2)", "0x0aFF", "0AFF", False),
        ("binary(2)", "0x0aFF", "0x0aFE", True),
        ("float", "0.1", "0.100000001", False),
        ("float", "0.1", "0.2", True),
        ("datetime", "2025-03-14 16:45:01.003", "2025-03-14T16:45:01", False),
        ("datetime", "2025-03-14 16:45:01.003", "2025-03-14T16:45:02.003", True),
        ("time(3)", "16:45:01.003", "16:45:01", False),
        ("time(3)", "16:45:01.003", "16:45:02", True),
        ("date", "2025-03-14", "2025-03-15", True),
        ("int", "7", None, False),
    ],
)
@pytest.mark.parametrize("operation", ["INS", "UPD", "DEL"])
def test_a_primary_key_of_another_row_is_a_dead_letter_without_key_c45(
    sql_type: str, in_row: str, in_pkkey: str | None, is_another: bool, operation: str
) -> None:
    """What may be another spelling of the same key is none, and counted."""
    row = {"id": in_row, "v": "x"}
    images = {"INS": (row, None), "UPD": (row, {**row, "v": "y"}), "DEL": (None, row)}[operation]
    decoded = decode(event(operation, *images, cols=[("id", sql_type), ("v", "varchar(1)")], pkkey={"id": in_pkkey}))
    (found,) = decoded.rows
    assert (found.code, found.key is None) == (("PKKEY_CONTRADICTED", True) if is_another else (None, False))


def test_a_primary_key_outside_the_mirrored_key_is_compared_as_well_c45() -> None:
    table = MirroredTable("dbo.orders", ("name",))
    decoded = decode(*(event("INS", ROW, pkkey={"id": key}) for key in ("7", "8")), tables=[table])
    assert [row.code for row in decoded.rows] == [None, "PKKEY_CONTRADICTED"]


@pytest.mark.parametrize(
    ("old", "current", "whole"),
    [
        (ROW, {**ROW, "name": "Bo"}, True),
        ({**ROW, "price": None}, {**ROW, "name": "Bo", "price": None}, True),
        ({"id": "7", "name": "Ada", "price": "1"}, {"id": "7", "name": "Bo", "price": "2"}, False),
        ({}, ROW, False),
        # Absent is not equal: an old large object may be left out.
        ({"id": "7", "name": "Ada"}, {"id": "7", "name": "Bo"}, False),
    ],
)
def test_an_update_is_complete_when_it_carries_a_column_that_did_not_change_c44(
    old: dict[str, str], current: dict[str, str], whole: bool
) -> None:
    assert only(decode(event("UPD", current, old, pkkey={"id": "7"}))).whole is whole


@pytest.mark.parametrize(("old_note", "whole"), [(None, False), ("long", True)])
def test_an_old_large_object_without_value_proves_nothing_c71(old_note: str | None, whole: bool) -> None:
    """C-44: it may have had one that the source left out, so that the column changed, and others are missing."""
    cols = [("id", "int"), ("note", "nvarchar(max)")]
    message = event("UPD", {"id": "7", "note": old_note}, {"id": "7", "note": old_note}, cols=cols, pkkey={"id": "7"})
    assert only(decode(message)).whole is whole


def test_an_unchanged_primary_key_outside_the_mirrored_key_proves_nothing_c70() -> None:
    table = MirroredTable("dbo.orders", ("name",))
    row = only(decode(event("UPD", {**ROW, "price": "2"}, ROW, pkkey={"id": "7"}), tables=[table]))
    assert row.whole is False


def test_a_changed_columns_event_keeps_its_own_columns_c44() -> None:
    data = payload({"id": "7", "price": "2"}, {"id": "7", "price": "1"}, pkkey={"id": "7"})
    data["eventsource"]["cols"].pop(1)
    row = only(decode(event("UPD", replaced={"data": json.dumps(data)})))
    assert row.cols == '[["id","int",0],["price","decimal(8,2)",2]]'
    assert (row.row, row.whole) == ('{"id":"7","price":"2"}', False)


def test_a_named_column_without_value_is_null_and_the_order_is_that_of_cols_c84() -> None:
    row = only(decode(event("INS", {"price": None, "id": "7"})))
    assert row.row == '{"id":"7","name":null,"price":null}'


def test_an_absent_old_large_object_is_not_called_null_a6() -> None:
    cols = [("id", "int"), ("note", "nvarchar(max)"), ("size", "int")]
    row = only(decode(event("DEL", None, {"id": "7"}, cols=cols)))
    assert row.before == '{"id":"7"}'


@pytest.mark.parametrize("old_note", [{}, {"note": None}], ids=["absent", "null"])
def test_a_key_change_does_not_call_an_old_large_object_null_c71(old_note: dict[str, None]) -> None:
    """G-03: else a row written with a note in the same transaction would be another one, and stay under its old key."""
    cols = [("id", "int"), ("note", "nvarchar(max)"), ("size", "int")]
    old, current = {"id": "7", **old_note, "size": None}, {"id": "8", "note": "long", "size": None}
    left, taken = decode(event("UPD", current, old, cols=cols)).rows
    assert (left.op, left.before) == ("K", '{"id":"7","size":null}')
    assert taken.row == '{"id":"8","note":"long","size":null}'


def test_a_key_change_shows_the_old_large_object_that_the_source_sent_c71() -> None:
    cols = [("id", "int"), ("note", "nvarchar(max)")]
    left, _ = decode(event("UPD", {"id": "8", "note": "b"}, {"id": "7", "note": "a"}, cols=cols)).rows
    assert left.before == '{"id":"7","note":"a"}'


def test_any_plain_value_becomes_text_and_numbers_keep_theirs_c49() -> None:
    current = '{"id": 7, "name": true, "price": 1.10}'
    assert only(decode(event("INS", current))).row == '{"id":"7","name":"true","price":"1.10"}'
    wide = [("id", "int"), ("a", "decimal(38,20)"), ("b", "float"), ("c", "bit")]
    current = '{"id":"7","a":123456789012345678.12345678901234567890,"b":1E400,"c":false}'
    row = only(decode(event("INS", current, cols=wide)))
    assert json.loads(row.row or "") == {
        "id": "7",
        "a": "123456789012345678.12345678901234567890",
        "b": "1E400",
        "c": "false",
    }


def test_a_table_without_key_has_no_bucket() -> None:
    row = only(decode(event(), tables=[MirroredTable("dbo.orders", ())]))
    assert (row.key, row.bucket, row.op) == (None, -1, "I")
    changed = only(decode(event("UPD", {**ROW, "id": "8"}, ROW), tables=[MirroredTable("dbo.orders", ())]))
    assert (changed.key, changed.op) == (None, "U")


def test_only_allowed_columns_leave_g12() -> None:
    table = MirroredTable("dbo.orders", ("id",), ColumnChoice(("price", "unknown")))
    inserted, deleted = decode(event(), event("DEL", None, ROW), tables=[table]).rows
    assert inserted.cols == '[["id","int",0],["price","decimal(8,2)",2]]'
    assert inserted.row == deleted.before == '{"id":"7","price":"1.50"}'


def test_events_of_other_tables_and_databases_are_ignored_and_counted() -> None:
    """C-12, C-40: `source` says nothing, so `eventsource` tells databases, schemas and tables apart."""
    others = [event(tbl="items", commit=9), event(tbl="items"), event(schema="sales"), event(db="other"), event()]
    decoded = decode(*others, database="shop")
    assert decoded.counts == Dispositions(5, 1, 0, 0, 4, 0)
    assert ignored(decoded.facts) == {"dbo.items": 2, "sales.orders": 1, "other.dbo.orders": 1}
    assert only(decoded).place == 4
    highest = f"{LSN}:{1:020d}:0"
    assert ignored_up_to(decoded.facts) == dict.fromkeys(ignored(decoded.facts), highest), "G-140: whatever came last"


def test_a_table_that_is_spelled_in_another_case_is_not_passed_over_g13() -> None:
    (letter,) = decode(event(tbl="ORDERS")).rows
    assert (letter.kind, letter.code, letter.tbl) == (REJECTED, "TABLE_NAME_DIFFERS", "dbo.orders")
    assert "'dbo.ORDERS'" in (letter.reason or "") and "'dbo.orders'" in (letter.reason or "")
    assert letter.raw == event(tbl="ORDERS"), "so that it can be replayed when the mirror file is mended"


def test_every_message_has_one_disposition_and_order_is_kept() -> None:
    """C-23: one message is one change or one piece of one, and each is counted."""
    first, last = event(commit=1), event(commit=2)
    messages = [
        RawMessage("a", 5, first),
        RawMessage("a", 6, None),
        Damage("b", 100, "FILE_DAMAGED", "broken", b"tail"),
        RawMessage("c", 1, event(tbl="other")),
        RawMessage("c", 2, event(replaced={"segmentindex": 0, "finalsegment": False})),
        RawMessage("c", 3, event("UPD", {**ROW, "id": "9"}, ROW)),
        RawMessage("d", 1, last),
    ]
    decoded = decoder().decode(messages)
    assert decoded.counts == Dispositions(messages=7, changes=3, fragments=1, metadata=0, ignored=1, rejected=2)
    assert [(row.origin, row.place) for row in decoded.rows] == [
        ("a", 5), ("a", 6), ("b", 100), ("c", 2), ("c", 3), ("c", 3), ("d", 1),
    ]  # fmt: skip
    damaged = decoded.rows[2]
    assert (damaged.kind, damaged.code, damaged.reason, damaged.raw) == ("rejected", "FILE_DAMAGED", "broken", b"tail")


def test_updates_that_do_not_show_the_old_key_are_noted_unless_promised_c73() -> None:
    """Whole, in pieces, and where `pkkey` is missing, which only the promise lets pass."""
    row = {"id": "7", "name": "Ada", "price": "1.50"}
    untold, no_key = event("UPD", row, None, pkkey={"id": "7"}), event("UPD", row, None)
    kept = [SourceSchema(OLD_KEYS_MISSING, "", "dbo.orders", 0, "")]
    assert decode(untold).schemas == kept
    assert not decode(event("UPD", row, row, pkkey={"id": "7"}), event("INS", row), event("DEL", None, row)).schemas
    assert [one.code for one in decode(no_key).rows] == ["OLD_KEY_MISSING"]
    pieces = decode(*split(untold, [100])).rows
    joined = decoder().join(pieces)
    assert isinstance(joined, Decoded) and joined.schemas == kept
    promised = decode(untold, no_key, tables=[ORDERS._replace(keys_never_change=True)])
    assert [one.op for one in promised.rows] == ["U", "U"] and not promised.schemas
    other = event("UPD", row, None, pkkey={"id": "8"})
    assert decode(other, tables=[ORDERS._replace(keys_never_change=True)]).rows[0].kind == "rejected"


@pytest.mark.parametrize(
    ("kind", "value", "is_cut"),
    [
        ("varchar(max)", "x" * 2**20, True),
        ("varchar(max)", "x" * (2**20 - 1), False),
        ("varchar(max)", "x" * (2**20 + 1), False),
        ("nvarchar(max)", "é" * 2**19, True),
        ("NVARCHAR(MAX)", "é" * 2**19, True),
        ("nvarchar(max)", "é" * (2**19 - 1), False),
        ("nvarchar(max)", "a" + "😀" * (2**18 - 1), True),
        ("varchar(max)", "€" * (2**20 // 3), True),
        ("varchar(max)", "€" * (2**20 // 3 - 1), False),
        ("varchar(max)", "€" * (2**20 // 3) + "\ufffd", True),
        ("varchar(max)", "あ" * 2**19, True),
        ("varbinary(max)", "0x" + "00" * 2**20, True),
    ],
)
def test_a_value_of_exactly_one_megabyte_is_taken_for_cut_c50(kind: str, value: str, is_cut: bool) -> None:
    """G-06: a row that is not the source's is not mirrored as if it were; nor does it matter where it leaves.

    The cut may divide a character of several bytes, which is gone then.
    """
    cols, row = [("id", "int"), ("name", kind)], {"id": "7", "name": value}
    images: list[tuple[str, Any, Any]] = [("INS", row, None), ("UPD", row, {**row, "name": "x"}), ("DEL", None, row)]
    found = decode(*(event(operation, current, old, cols=cols) for operation, current, old in images)).rows
    assert [(row.code, row.key) for row in found] == [("VALUE_INVALID" if is_cut else None, '["7"]')] * 2 + [
        (None, '["7"]')
    ]
    unread = MirroredTable("dbo.orders", ("id",), ColumnChoice(("id",)))
    assert only(decode(event("INS", row, cols=cols), tables=[unread])).code is None


@pytest.mark.parametrize(
    ("kind", "value", "is_known"),
    [
        ("char(5)", "ab", False),
        ("char(5)", "ab   ", True),
        ("nchar(2)", "a", False),
        ("nchar(2)", "😀", True),
        ("char(2)", "é", True),
        ("char", "x", True),
        ("varchar(5)", "ab", True),
    ],
)
def test_only_a_filled_up_key_of_pkkey_alone_is_that_of_the_row_c71(kind: str, value: str, is_known: bool) -> None:
    cols, row = [("id", kind), ("v", "int")], {"id": value, "v": "1"}
    by_pkkey, by_row = decode(
        event("DEL", None, {}, cols=cols, pkkey={"id": value}), event("DEL", None, row, cols=cols)
    ).rows
    assert by_row.key == json.dumps([value], ensure_ascii=False)
    assert (by_pkkey.code, by_pkkey.key) == ((None, by_row.key) if is_known else ("OLD_KEY_MISSING", None))


@pytest.mark.parametrize("operation", ["INS", "UPD", "DEL"])
def test_a_key_narrower_than_the_announced_one_stops_the_table_g83(operation: str) -> None:
    """Rows of two keys would become one; which of them is meant is not known, so no key is noted."""
    images = {"INS": (ROW, None), "UPD": ({**ROW, "price": "2"}, ROW), "DEL": (None, ROW)}[operation]
    body = event(operation, *images, pkkey={"id": "7", "name": "Ada"})
    row = only(decode(body))
    assert (row.kind, row.code, row.tbl, row.key) == (REJECTED, "KEY_DIFFERS", "dbo.orders", None)
    assert "'name'" in (row.reason or "")
    for sound in (TWO_KEYS, MirroredTable("dbo.orders", ("id",), key_is_unique=True), MirroredTable("dbo.orders", ())):
        if operation == "INS" or sound.key:
            assert only(decode(body, tables=[sound])).code is None
