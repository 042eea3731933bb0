"""Odd change events: each function is a table, its name the table's, what it says the story."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from tests.odd.inputs import COLUMNS, LEFT_OUT, Ces, CesEvent, Split, V, lines, wire

CASES: dict[str, Callable[[], Ces]] = {}


def case(
    columns: Mapping[str, str] = COLUMNS,
    key: Sequence[str] = ("id",),
    *,
    tell: bool = False,
    alone: bool = False,
    **table: Any,
) -> Callable[[Callable[[Ces], None]], Callable[[Ces], None]]:
    def take(story: Callable[[Ces], None]) -> Callable[[Ces], None]:
        def build() -> Ces:
            t = Ces(story.__name__, columns, key)
            t.table |= table
            t.must_tell, t.alone = tell, alone
            story(t)
            return t

        CASES[story.__name__] = build
        return story

    return take


def value(name: str, kind: str, *values: Any, tell: bool = False) -> None:
    """A table with a column of this type and a row for each of these values; each alone, if all have to be told."""
    for at, one in enumerate(values if tell else [None]):
        label = f"{name}_{at}" if tell else name

        def build(label: str = label, one: Any = one) -> Ces:
            t = Ces(label, {"id": "int", "v": kind})
            t.must_tell = tell
            for number, v in enumerate([one] if tell else values):
                t.ins(id=str(number), v=V(wire(v), "?") if tell else v)
            return t

        CASES[label] = build


# -- values ---------------------------------------------------------------------------------------------------------
value("v_bigint_number", "bigint", V(9007199254740993, 9007199254740993), V(-(2**63), -(2**63)))
value("v_decimal_number", "decimal(30,10)", V(12345678901234567890, Decimal(12345678901234567890)),
      V("1e0", Decimal(1)), V("-0.0", Decimal(0)), V(".5", Decimal("0.5")), V("00012.50", Decimal("12.5")))  # fmt: skip
value("v_decimal_json_float", "decimal(28,10)", V(1234567890123456.1, Decimal("1234567890123456.1")))
value("v_float_forms", "float", V("-0", -0.0), V("1E+2", 100.0), V(0.1, 0.1), V("4.9E-324", 5e-324),
      V("1.7976931348623157E+308", 1.7976931348623157e308))  # fmt: skip
value("v_float_bad", "float", "NaN", "Infinity", "1e999", "1_0.5", "0x1p3", tell=True)
value("v_float_near_zero", "float", "1e-400", "2e-324", "-0.0001e-350", tell=True)
value("v_real_near_zero", "real", "1e-50", tell=True)
value("v_float_zeros", "float", V("0e5", 0.0), V("-0.000E-9", -0.0), V("0e-999", 0.0))
value("v_real_forms", "real", V("0.1", 0.10000000149011612), V("3.4028235E38", 3.4028234663852886e38))
value("v_int_bad", "int", "1_000", "\u0663", "5.0", "1e1", "", "0x10", "2147483648", True, 5.5, tell=True)
value("v_int_forms", "int", V("+5", 5), V("007", 7), V("-0", 0))
value("v_tinyint_bad", "tinyint", "256", "-1", tell=True)
value("v_decimal_bad", "decimal(8,2)", "1.005", "1,5", "1 000.00", "1_0.00", "NaN", "\u0663.\u0665", tell=True)
value("v_money", "money", V("-922337203685477.5808", Decimal("-922337203685477.5808")), V("1.5", Decimal("1.5")))
value("v_dt2_digits", "datetime2(7)", V("2026-08-07 16:25:00.9999999", datetime(2026, 8, 7, 16, 25, 0, 999999)),
      V("0001-01-01 00:00:00.0000000", datetime(1, 1, 1)),
      V("9999-12-31 23:59:59.9999999", datetime(9999, 12, 31, 23, 59, 59, 999999)))  # fmt: skip
value("v_datetime_iso", "datetime", V("2025-03-14T16:45:01.003", datetime(2025, 3, 14, 16, 45, 1, 3000)),
      V("2025-03-14 16:45", datetime(2025, 3, 14, 16, 45)))  # fmt: skip
value("v_datetime_bad", "datetime", "2025-02-30 00:00:00", "14/03/2025 10:00:00", "Mar 14 2025  4:45PM", "1741970701",
      "2025-03-14 24:00:00", "2025-03-14 16:45:01+02:00", "0000-00-00 00:00:00", tell=True)  # fmt: skip
value("v_offset", "datetimeoffset(7)", V("2026-08-07 16:25:00.1234567 +14:00", datetime(2026, 8, 7, 2, 25, 0, 123456)),
      V("2026-08-07T16:25:00-05:30", datetime(2026, 8, 7, 21, 55)),
      V("2026-08-07T16:25:00Z", datetime(2026, 8, 7, 16, 25)))  # fmt: skip
value("v_offset_bad", "datetimeoffset(7)", "2026-08-07 16:25:00", "9999-12-31 23:59:59 -14:00",
      "0001-01-01 00:00:00 +14:00", "2026-08-07 16:25:00 +15:00", "2026-08-07 16:25:00 +02:75", tell=True)  # fmt: skip
value("v_date", "date", "0001-01-01", "9999-12-31", "2024-02-29")
value("v_date_bad", "date", "2023-02-29", "2025-03-14 16:45:01", "20250314", "25-03-14", tell=True)
value("v_time_bad", "time(7)", "12:60:00", "4:45PM", tell=True)
value("v_time_beyond_a_day", "time(7)", V("24:00:00", "24:00:00"))
value("v_guid", "uniqueidentifier", V("0e984725-c51c-4bf4-9960-e1c80e27aba0", "0E984725-C51C-4BF4-9960-E1C80E27ABA0"))
value("v_guid_bad", "uniqueidentifier", "0e984725c51c4bf49960e1c80e27aba0x", "0e984725-c51c-4bf4-9960-e1c80e27aba",
      "", tell=True)  # fmt: skip
value("v_guid_braces", "uniqueidentifier", V("{0E984725-C51C-4BF4-9960-E1C80E27ABA0}",
      "0E984725-C51C-4BF4-9960-E1C80E27ABA0"))  # fmt: skip
value("v_bit", "bit", V("true", True), V("1", True), V(True, True), V(1, True), V("0", False), V(False, False),
      V("True", True))  # fmt: skip
value("v_bit_bad", "bit", "T", "yes", "2", "", tell=True)
value("v_varbinary", "varbinary(8)", V("0x00FF", b"\x00\xff"), V("00fF", b"\x00\xff"), V("0x", b""), V("", b""))
value("v_varbinary_base64", "varbinary(8)", V("AP8=", b"\x00\xff"))
value("v_varbinary_bad", "varbinary(8)", "0xABC", "0x 0F", "0x000102030405060708", "0xGG", tell=True)
value("v_binary_short", "binary(4)", "0x0102", tell=True)
value("v_char_pad", "char(5)", V("ab   ", "ab   "), V("", ""))
value("v_text_words", "nvarchar(20)", V("NULL", "NULL"), V("null", "null"), V("", ""), V(" ", " "), V(None, None),
      V("a ", "a "), V("\u0000x\u0000", "\x00x\x00"), V("\ufeffx", "\ufeffx"), V("a\r\nb\u2028c", "a\r\nb\u2028c"),
      V("é", "é"), V("e\u0301", "e\u0301"), V("😀", "😀"), V("\\N", "\\N"), V("{}", "{}"))  # fmt: skip
value("v_text_number", "nvarchar(20)", V(5, "5"))
value("v_text_too_long", "nvarchar(3)", "abcd", "😀😀", tell=True)
value("v_varchar_bytes", "varchar(4)", V("äöü", "äöü"))


@case({"id": "int", "v": "nvarchar(20)"}, tell=True)
def v_lone_surrogate(t: Ces) -> None:
    """Half a character pair, as SQL Server's UTF-16 may hold: no UTF-8 can say it."""
    t.ins(id="1", v="x")
    t.ins(id="2", v="?").current = '{"id":"2","v":"a\\ud83db"}'


@case({"id": "int", "v": "varchar(max)"})
def v_one_megabyte(t: Ces) -> None:
    """C-50: the source cut a longer value to exactly 1 MB, and the message is whole."""
    t.ins(id="1", v=V("x" * 1_048_576, "x" * 1_500_000))


@case({"id": "int", "v": "nvarchar(max)"})
def v_one_megabyte_of_utf16(t: Ces) -> None:
    """The same of two-byte characters: 524,288 of them are 1 MB."""
    t.ins(id="1", v=V("y" * 524_288, "y" * 900_000))


@case({"id": "int", "v": "varchar(max)"})
def v_one_megabyte_in_pieces(t: Ces) -> None:
    """The same, in five pieces, as it really comes."""
    sent = t.pull(t.ins(id="1", v=V("x" * 1_048_576, "x" * 1_500_000)))
    t.send(*Split(sent, 250_000, 500_000, 750_000, 1_000_000).pieces)


# -- rows -----------------------------------------------------------------------------------------------------------
@case()
def r_insert_lacks_column(t: Ces) -> None:
    """C-84: a NULL is left out of `current` while `cols` names it."""
    del t.ins(id="1", name=None, price="1.00").current["name"]


@case()
def r_update_lacks_column(t: Ces) -> None:
    """`cols` names all, `current` of the update holds what changed."""
    t.ins(id="1", name="Ada", price="1.00")
    del t.upd(1, price="2.00").current["name"]


@case()
def r_update_lacks_column_in_both(t: Ces) -> None:
    """The same, and `old` lacks it, too."""
    t.ins(id="1", name="Ada", price="1.00")
    sent = t.upd(1, price="2.00")
    del sent.current["name"], sent.old["name"]


@case()
def r_update_lacks_column_old_empty(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.step()
    t.old_values = False
    del t.upd(1, price="2.00").current["name"]


@case(full_rows=True)
def r_update_lacks_column_full_rows(t: Ces) -> None:
    """`full_rows: true` says that `cols` is whole; `current` is not."""
    t.ins(id="1", name="Ada", price="1.00")
    del t.upd(1, price="2.00").current["name"]


@case(complete_rows=True)
def r_update_lacks_column_complete(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.step()
    del t.upd(1, price="2.00").current["name"]


@case(complete_rows=True)
def r_partial_completed(t: Ces) -> None:
    """Proper partial rows, over two ticks."""
    t.ins(id="1", name="Ada", price="1.00")
    t.step()
    sent = t.upd(1, price="2.00")
    sent.cols = [sent.cols[0], sent.cols[2]]
    sent.current.pop("name"), sent.old.pop("name")


@case(complete_rows=True)
def r_partial_completed_name_null(t: Ces) -> None:
    """A column that an update sets to NULL by leaving it out, while `cols` names it and `old` holds it."""
    t.ins(id="1", name="Ada", price="1.00")
    t.step()
    sent = t.upd(1, name=None)
    sent.cols = sent.cols[:2]
    del sent.current["name"], sent.current["price"], sent.old["price"]
    t.must_tell = False


@case()
def r_partial_is_the_first(t: Ces) -> None:
    """The first that is ever seen of the table is a partial update of a row that was there."""
    t.pull(t.ins(id="1", name="Ada", price="1.00"))
    sent = t.upd(1, price="2.00")
    sent.cols = [sent.cols[0], sent.cols[2]]
    sent.current.pop("name"), sent.old.pop("name")


@case()
def r_partial_is_all_there_is(t: Ces) -> None:
    """Updates of one column only, again and again."""
    t.pull(t.ins(id="1", name="Ada", price="1.00"))
    for price in ("2.00", "3.00"):
        sent = t.upd(1, price=price)
        sent.cols = [sent.cols[0], sent.cols[2]]
        sent.current.pop("name"), sent.old.pop("name")
        t.step()


@case(complete_rows=True)
def r_partial_is_the_first_completed(t: Ces) -> None:
    """The same, to be completed: the gap between the places of `cols` says that there is a column more."""
    t.pull(t.ins(id="1", name="Ada", price="1.00"))
    sent = t.upd(1, price="2.00")
    sent.cols = [sent.cols[0], sent.cols[2]]
    sent.current.pop("name"), sent.old.pop("name")


@case(complete_rows=True)
def r_partial_then_whole_completed(t: Ces) -> None:
    """Of the row only a partial update was ever seen; another row tells the third column later."""
    t.pull(t.ins(id="1", name="Ada", price="1.00"))
    sent = t.upd(1, price="2.00")
    sent.cols = [sent.cols[0], sent.cols[2]]
    sent.current.pop("name"), sent.old.pop("name")
    t.step()
    t.ins(id="2", name="Bob", price="2.00")


@case()
def r_partial_then_whole(t: Ces) -> None:
    t.pull(t.ins(id="1", name="Ada", price="1.00"))
    sent = t.upd(1, price="2.00")
    sent.cols = [sent.cols[0], sent.cols[2]]
    sent.current.pop("name"), sent.old.pop("name")
    t.step()
    t.ins(id="2", name="Bob", price="2.00")


@case()
def r_partial_old_is_whole(t: Ces) -> None:
    """`current` holds what changed, `old` the whole row, `cols` all columns."""
    t.ins(id="1", name="Ada", price="1.00")
    t.step()
    sent = t.upd(1, price="2.00")
    sent.current = {"id": "1", "price": "2.00"}


@case()
def r_update_current_empty(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.upd(1, price="2.00").current = {}


@case()
def r_update_current_null(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.upd(1, price="2.00").row = {"current": None}


@case()
def r_insert_current_text_null(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").row = {"current": "null"}


@case()
def r_insert_current_left_out(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").row = {"current": LEFT_OUT}


@case()
def r_images_are_objects(t: Ces) -> None:
    """`old` and `current` as objects, not as text."""
    sent = t.ins(id="1", name="Ada", price="1.00")
    sent.row = {"current": sent.current, "old": {}}


@case()
def r_insert_only_key(t: Ces) -> None:
    t.ins(id="1", name=None, price=None).current = {"id": "1"}


@case()
def r_json_more_members(t: Ces) -> None:
    """Members that nobody knows, in the lists, too: they are passed over (C-21)."""
    sent = t.ins(id="1", name="Ada", price="1.00")
    columns = [{"name": c[0], "type": c[1], "index": c[2], "nullable": True, "x": {"name": 'a":'}} for c in sent.cols]
    sent.src = {"cols": columns, "pkkey": [{"columnname": "id", "value": "1", "type": "int"}]}


@case()
def r_delete_by_pkkey(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.delete(1).old = {}


@case()
def r_delete_by_nothing(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    sent = t.delete(1)
    sent.old, sent.pk = {}, {}


@case(tell=True)
def r_delete_contradicts_pkkey(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.ins(id="2", name="Bob", price="1.00")
    t.delete(1).pk = {"id": "2"}


@case(tell=True)
def r_insert_contradicts_pkkey(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").pk = {"id": "2"}


@case(tell=True)
def r_update_contradicts_pkkey(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.ins(id="2", name="Bob", price="1.00")
    t.upd(1, price="2.00").pk = {"id": "2"}


@case()
def r_delete_has_current(t: Ces) -> None:
    """A delete whose `current` holds the row: which is it?"""
    t.ins(id="1", name="Ada", price="1.00")
    sent = t.delete(1)
    sent.current = dict(sent.old)


@case()
def r_delete_row_in_current(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    sent = t.delete(1)
    sent.current, sent.old = dict(sent.old), {}


@case()
def r_delete_old_lacks_key(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    del t.delete(1).old["id"]


@case()
def r_delete_key_null_in_old(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.delete(1).old["id"] = None


@case()
def r_update_of_missing(t: Ces) -> None:
    t.pull(t.ins(id="1", name="Ada", price="1.00"))
    t.upd(1, price="2.00")


@case()
def r_delete_and_again_in_one_transaction(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.step()
    t.delete(1)
    t.ins(id="1", name="Eve", price=None, same=True)


@case()
def r_insert_and_delete_in_one_transaction(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.delete(1, same=True)
    t.step()
    t.ins(id="2", name="x")


@case()
def r_delete_before_insert(t: Ces) -> None:
    sent = t.pull(t.ins(id="1", name="Ada", price="1.00"))
    t.delete(1)
    t.step()
    t.send(sent)


@case()
def r_out_of_order_over_files(t: Ces) -> None:
    first = t.pull(t.ins(id="1", name="Ada", price="1.00"))
    second = t.pull(t.upd(1, name="Bob"))
    t.upd(1, name=None)
    t.step()
    t.send(second)
    t.step()
    t.send(first)


@case()
def r_doubled(t: Ces) -> None:
    sent = t.ins(id="1", name="Ada", price="1.00")
    t.send(sent)
    t.upd(1, name="x")
    t.step()
    t.send(sent)


@case()
def r_doubled_other_spelling(t: Ces) -> None:
    """The same event once more, its decimal written otherwise, with an id of its own."""
    sent = t.ins(id="1", name="Ada", price="1.50")
    again = CesEvent(**{name: getattr(sent, name) for name in sent.__dataclass_fields__})
    again.current, again.env = {"id": "01", "name": "Ada", "price": "1.5"}, {"id": "other"}
    t.step()
    t.send(again)


@case(tell=True)
def r_doubled_other_values(t: Ces) -> None:
    sent = t.ins(id="1", name="Ada", price="1.50")
    again = CesEvent(**{name: getattr(sent, name) for name in sent.__dataclass_fields__})
    again.current = {**sent.current, "name": "Eve"}
    t.step()
    t.send(again)


@case(tell=True)
def r_doubled_null_and_absent(t: Ces) -> None:
    """Once with a value, once without the column."""
    sent = t.ins(id="1", name="Ada", price="1.50")
    again = CesEvent(**{name: getattr(sent, name) for name in sent.__dataclass_fields__})
    again.current = {"id": "1", "price": "1.50"}
    t.step()
    t.send(again)


@case()
def r_same_id_two_events(t: Ces) -> None:
    """C-31: one CloudEvents id on two events at two places: positions tell them apart, so both count."""
    first = t.ins(id="1", name="Ada", price="1.50")
    t.ins(id="2", name="Bob", price="1.50").env = {"id": first.envelope()["id"]}


@case(tell=True)
def r_same_position_other_operation(t: Ces) -> None:
    sent = t.ins(id="1", name="Ada", price="1.50")
    again = CesEvent(**{name: getattr(sent, name) for name in sent.__dataclass_fields__})
    again.op, again.old, again.current = "DEL", sent.current, {}
    t.send(again)


@case()
def r_one_place_two_rows(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50")
    sent = t.ins(id="2", name="Bob", price="1.50")
    sent.commit, sent.sequence = t.commit - 1, 1


# -- keys -----------------------------------------------------------------------------------------------------------
@case()
def k_changed_without_old(t: Ces) -> None:
    """pkkey tells the old key, current the new one."""
    t.ins(id="5", name="Ada", price="1.00")
    t.step()
    t.old_values = False
    t.upd(5, id="6").pk = {"id": "5"}


@case()
def k_changed_old_lacks_key(t: Ces) -> None:
    t.ins(id="5", name="Ada", price="1.00")
    sent = t.upd(5, id="6", name="Eve")
    sent.old, sent.pk = {"name": "Ada"}, {"id": "5"}


@case()
def k_changed_untold(t: Ces) -> None:
    """No old image, and pkkey holds the new key: nothing tells which row went."""
    t.ins(id="5", name="Ada", price="1.00")
    t.old_values = False
    t.upd(5, id="6")


@case()
def k_changed_pkkey_missing(t: Ces) -> None:
    t.ins(id="5", name="Ada", price="1.00")
    t.old_values = False
    t.upd(5, id="6").src = {"pkkey": LEFT_OUT}


@case()
def k_changed_pkkey_empty(t: Ces) -> None:
    t.ins(id="5", name="Ada", price="1.00")
    t.old_values = False
    t.upd(5, id="6").pk = {}


@case({"a": "int", "b": "int", "v": "varchar(9)"}, ("a", "b"))
def k_changed_half_of_two(t: Ces) -> None:
    """One of two key columns changes; `old` holds only the changed one."""
    t.ins(a="1", b="1", v="x")
    sent = t.upd((1, 1), b="2")
    sent.old = {"b": "1"}


@case({"a": "int", "b": "int", "v": "varchar(9)"}, ("a", "b"))
def k_pkkey_in_other_order(t: Ces) -> None:
    t.ins(a="1", b="2", v="x")
    t.ins(a="2", b="1", v="y")
    sent = t.delete((1, 2))
    sent.old, sent.pk = {}, {"b": "2", "a": "1"}


@case({"a": "int", "b": "int", "v": "varchar(9)"}, ("a", "b"))
def k_delete_half_a_pkkey(t: Ces) -> None:
    t.ins(a="1", b="2", v="x")
    sent = t.delete((1, 2))
    sent.old, sent.pk = {}, {"a": "1"}


@case()
def k_swapped(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.ins(id="2", name="Bob", price="2.00")
    t.step()
    one, two = t.drop(1), t.drop(2)
    t.put(one | {"id": "2"})
    t.put(two | {"id": "1"})
    t.event("UPD", one, one | {"id": "2"})
    t.event("UPD", two, two | {"id": "1"}, same=True)


@case()
def k_swapped_without_old(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.ins(id="2", name="Bob", price="2.00")
    t.step()
    one, two = t.drop(1), t.drop(2)
    t.put(one | {"id": "2"})
    t.put(two | {"id": "1"})
    t.event("UPD", None, one | {"id": "2"}).pk = {"id": "1"}
    t.event("UPD", None, two | {"id": "1"}, same=True).pk = {"id": "2"}


@case()
def k_moved_and_back(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.upd(1, id="2")
    t.upd(2, id="1", name="back")


@case()
def k_moved_and_back_in_one_transaction_late(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    first = t.pull(t.upd(1, id="2"))
    t.upd(2, id="1", name="back", same=True)
    t.step()
    t.send(first)


@case()
def k_chain_in_one_transaction(t: Ces) -> None:
    """1→2, 2→3, 3→4, from the top, as one UPDATE does."""
    for number in (1, 2, 3):
        t.ins(id=str(number), name=f"n{number}")
    t.step()
    t.upd(3, id="4")
    t.upd(2, id="3", same=True)
    t.upd(1, id="2", same=True)


@case()
def k_chain_from_below(t: Ces) -> None:
    """The same from below: for a moment two rows have one key."""
    for number in (1, 2, 3):
        t.ins(id=str(number), name=f"n{number}")
    t.step()
    rows = {number: t.drop(number) for number in (1, 2, 3)}
    for number in (1, 2, 3):
        new = rows[number] | {"id": str(number + 1)}
        t.put(new)
        t.event("UPD", rows[number], new, same=number > 1)


@case({"a": "int", "b": "int"}, ("a", "b"))
def k_swapped_alike(t: Ces) -> None:
    """Two rows that are equal but for their keys, as in a table that links two others, swap them in one statement."""
    t.ins(a="1", b="1")
    t.ins(a="1", b="2")
    t.step()
    one, two = t.raw[1, 1], t.raw[1, 2]
    for _ in range(2):  # who stood there before came in the same way
        t.event("UPD", one, two)
        t.event("UPD", two, one, same=True)
        t.step()


@case({"a": "int", "b": "int"}, ("a", "b"))
def k_swapped_alike_late(t: Ces) -> None:
    """The same, and the event that comes first is the last to arrive."""
    t.ins(a="1", b="1")
    t.ins(a="1", b="2")
    t.step()
    one, two = t.raw[1, 1], t.raw[1, 2]
    first = t.pull(t.event("UPD", one, two))
    t.event("UPD", two, one, same=True)
    t.step()
    t.send(first)


@case({"a": "int", "b": "int"}, ("a", "b"))
def k_moved_alike_and_back(t: Ces) -> None:
    """One row moves to a free key and back in one transaction: the same events but for the insert."""
    t.ins(a="1", b="1")
    one = t.raw[1, 1]
    t.event("UPD", one, one | {"b": "2"})
    t.event("UPD", one | {"b": "2"}, one, same=True)


@case()
def k_chain_alike_from_below(t: Ces) -> None:
    """1→2, 2→3, 3→4 of rows that are equal but for their keys."""
    for number in (1, 2, 3):
        t.ins(id=str(number), name="n")
    t.step()
    rows = {number: t.drop(number) for number in (1, 2, 3)}
    for number in (1, 2, 3):
        new = rows[number] | {"id": str(number + 1)}
        t.put(new)
        t.event("UPD", rows[number], new, same=number > 1)


@case()
def k_moved_with_unreadable_image(t: Ces) -> None:
    """A row is changed and moves in one transaction; the image before the move has a value that is none of its type."""
    t.ins(id="1", name="Ada", price="1.00")
    t.step()
    t.upd(1, name="Eve")
    moved = t.upd(1, id="2", same=True)
    moved.old["price"] = "1,00"


@case()
def k_swapped_with_unreadable_images(t: Ces) -> None:
    """Two rows swap their keys, and what tells them apart cannot be read before the move."""
    t.ins(id="1", name="Ada", price="1.00")
    t.ins(id="2", name="Ada", price="2.00")
    t.step()
    one, two = t.drop(1), t.drop(2)
    t.put(one | {"id": "2"})
    t.put(two | {"id": "1"})
    t.event("UPD", one, one | {"id": "2"}).old["price"] = "1,00"
    t.event("UPD", two, two | {"id": "1"}, same=True).old["price"] = "2,00"


@case()
def k_moved_twice_with_unreadable_image(t: Ces) -> None:
    """A row moves twice in one transaction; the image before the second move has a value that is none of its type."""
    t.ins(id="1", name="Ada", price="1.00")
    t.step()
    t.upd(1, id="2")
    t.upd(2, id="3", same=True).old["price"] = "1,00"


@case()
def k_moved_twice_with_lacking_image(t: Ces) -> None:
    """The same, and the image before the second move has the key alone."""
    t.ins(id="1", name="Ada", price="1.00")
    t.step()
    t.upd(1, id="2")
    t.upd(2, id="3", same=True).old = {"id": "2"}


@case()
def k_taken_by_another(t: Ces) -> None:
    """A row leaves its key, and an insert takes it, in one transaction; the insert's event comes first."""
    t.ins(id="1", name="Ada")
    t.step()
    gone = t.pull(t.upd(1, id="2"))
    t.ins(id="1", name="new", same=True)
    t.step()
    t.send(gone)


@case()
def k_taken_from_a_deleted_row(t: Ces) -> None:
    """One statement deletes a row and gives its key to another one; the DELETE is reported last."""
    t.ins(id="1", name="Ada", price="1.00")
    t.ins(id="2", name="Bob", price="2.00")
    t.step()
    gone, moved = t.drop(1), t.drop(2)
    t.put(moved | {"id": "1"})
    t.event("UPD", moved, moved | {"id": "1"})
    t.event("DEL", gone, None, same=True)


@case({"a": "int", "b": "int"}, ("a", "b"))
def k_taken_from_a_deleted_row_alike_late(t: Ces) -> None:
    """The same of two rows that are equal but for their keys, in Avro; the DELETE arrives when the rest is mirrored."""
    t.ins(a="1", b="1")
    t.ins(a="1", b="2")
    t.step()
    gone, moved = t.drop((1, 1)), t.drop((1, 2))
    t.put(moved | {"b": "1"})
    t.event("UPD", moved, moved | {"b": "1"}).in_avro()
    t.step()
    t.event("DEL", gone, None, same=True).in_avro()


@case()
def k_inserted_over_a_deleted_row(t: Ces) -> None:
    """One statement deletes a row and inserts another one with its key; the DELETE is reported last."""
    t.ins(id="1", name="Ada", price="1.00")
    t.step()
    gone = t.drop(1)
    t.ins(id="1", name="Bob", price="2.00")
    t.event("DEL", gone, None, same=True)


@case()
def k_moved_and_deleted_in_one_transaction(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.ins(id="2", name="Bob", price="1.00")
    t.step()
    t.delete(1)
    t.upd(2, same=True, id="1")
    t.delete(1, same=True)


@case({"id": "nvarchar(10)", "v": "int"})
def k_text_case_changed(t: Ces) -> None:
    t.ins(id="abc", v="1")
    t.upd("abc", id="ABC")


@case({"id": "nvarchar(10)", "v": "int"})
def k_text_blank_added(t: Ces) -> None:
    t.ins(id="abc", v="1")
    t.upd("abc", id="abc ")


@case({"id": "nvarchar(10)", "v": "int"})
def k_text_normal_form_changed(t: Ces) -> None:
    t.ins(id="é", v="1")
    t.upd("é", id="e\u0301")


@case({"id": "char(5)", "v": "int"})
def k_char_pkkey_trimmed(t: Ces) -> None:
    """pkkey without the blanks that the row has."""
    t.ins(id="ab   ", v="1").pk = {"id": "ab"}
    sent = t.delete("ab   ")
    sent.old, sent.pk = {}, {"id": "ab"}


@case({"id": "decimal(8,2)", "v": "int"})
def k_decimal_spellings(t: Ces) -> None:
    t.ins(id="1", v="1").current["id"] = "1.00"
    sent = t.upd(Decimal(1), v="2")
    sent.current["id"], sent.old["id"], sent.pk = "1.0", "1", {"id": "1e0"}
    t.ins(id="2", v="2")
    t.delete(Decimal(2)).old["id"] = "002.000"


@case({"id": "uniqueidentifier", "v": "int"})
def k_guid_case(t: Ces) -> None:
    guid = "0e984725-c51c-4bf4-9960-e1c80e27aba0"
    t.ins(id=V(guid, guid.upper()), v="1")
    sent = t.upd(guid.upper(), v="2")
    sent.current["id"] = guid.upper()


@case({"id": "varbinary(8)", "v": "int"})
def k_binary_spellings(t: Ces) -> None:
    t.ins(id=V("0x0aff", b"\x0a\xff"), v="1")
    sent = t.upd(b"\x0a\xff", v="2")
    sent.current["id"], sent.old["id"] = "0AFF", "0x0AFF"


@case({"id": "float", "v": "int"})
def k_float_minus_zero(t: Ces) -> None:
    """-0 and 0 are one key at the source."""
    t.ins(id=V("-0", 0.0), v="1")
    sent = t.delete(0.0)
    sent.old["id"], sent.pk = "0", {"id": "0"}


@case({"id": "datetime", "v": "int"})
def k_datetime_spellings(t: Ces) -> None:
    t.ins(id="2025-03-14 16:45:01.000", v="1")
    sent = t.delete(datetime(2025, 3, 14, 16, 45, 1))
    sent.old["id"] = "2025-03-14T16:45:01"


@case({"id": "datetime2(7)", "v": "int"})
def k_datetime2_seven_digits(t: Ces) -> None:
    """Two keys that differ in their seventh digit."""
    t.ins(id=V("2025-03-14 16:45:01.0000001", "a"), v="1")
    t.ins(id=V("2025-03-14 16:45:01.0000002", "b"), v="2")


@case({"id": "datetimeoffset(3)", "v": "int"})
def k_offset_same_instant(t: Ces) -> None:
    when = datetime(2025, 3, 14, 16, 0)
    t.ins(id=V("2025-03-14 16:00:00.000 +00:00", when), v="1")
    sent = t.delete(when)
    sent.old["id"], sent.pk = "2025-03-14 17:00:00.000 +01:00", {"id": "2025-03-14 17:00:00.000 +01:00"}


@case({"id": "time(3)", "v": "int"})
def k_time_spellings(t: Ces) -> None:
    t.ins(id=V("16:45:01.000", "16:45:01.000"), v="1")
    sent = t.delete("16:45:01.000")
    sent.old["id"], sent.pk = "16:45:01", {"id": "16:45:01"}


@case({"id": "int", "v": "int"})
def k_null(t: Ces) -> None:
    t.ins(id="1", v="1")
    t.ins(id="2", v="2").current["id"] = None


@case({"id": "nvarchar(10)", "v": "int"})
def k_empty_text(t: Ces) -> None:
    t.ins(id="", v="1")
    t.ins(id=" ", v="2")
    t.delete("")


@case({"id": "int", "part": "int", "name": "nvarchar(50)"}, ("id", "part"))
def k_wider(t: Ces) -> None:
    """The source's key has a column more than the mirror file's: rows of two keys become one."""
    t.table["key"] = ["id"]
    t.ins(id="1", part="1", name="Ada")
    t.ins(id="1", part="2", name="Bob")


@case({"id": "int", "part": "int", "name": "nvarchar(50)"}, ("id", "part"), key_is_unique=True)
def k_wider_promised(t: Ces) -> None:
    """The mirror file says that its key tells rows apart all the same."""
    t.table["key"] = ["id"]
    t.ins(id="1", part="1", name="Ada")
    t.ins(id="2", part="1", name="Bob")
    t.upd((2, 1), name="Eve")
    t.delete((1, 1))


# -- columns --------------------------------------------------------------------------------------------------------
@case({"id": "int", "a\0b": "varchar(9)"})
def c_name_with_nul(t: Ces) -> None:
    """Readers of Parquet end a name at its NUL: the column would come under another name."""
    t.ins(id="1", **{"a\0b": "x"})


@case()
def c_cols_left_out(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").src = {"cols": LEFT_OUT}


@case()
def c_cols_empty(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").cols = []


@case()
def c_cols_null(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").src = {"cols": None}


@case()
def c_cols_lack_a_column_of_current(t: Ces) -> None:
    sent = t.ins(id="1", name="Ada", price="1.00")
    sent.cols = sent.cols[:2]


@case()
def c_cols_without_type(t: Ces) -> None:
    sent = t.ins(id="1", name="Ada", price="1.00")
    sent.src = {"cols": [{"name": c[0], "index": c[2]} for c in sent.cols]}


@case()
def c_cols_type_without_length(t: Ces) -> None:
    sent = t.ins(id="1", name="Ada", price="1.50")
    sent.cols = [["id", "INT", 0], ["name", "VARCHAR", 1], ["price", "DECIMAL", 2]]


@case()
def c_cols_twice_same_index(t: Ces) -> None:
    sent = t.ins(id="1", name="Ada", price="1.50")
    for c in sent.cols:
        c[2] = 0


@case()
def c_reordered(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50")
    t.step()
    sent = t.ins(id="2", name="Bob", price="2.50")
    sent.cols = [["price", "decimal(8,2)", 0], ["id", "int", 1], ["name", "nvarchar(50)", 2]]


@case()
def c_added_with_default(t: Ces) -> None:
    """ADD … NOT NULL DEFAULT 'x': the rows that were there have it."""
    t.ins(id="1", name="Ada", price="1.50")
    t.step()
    t.add_column("city", "nvarchar(20)", "Rome")
    t.ins(id="2", name="Bob", price="2.50", city="Oslo")


@case()
def c_added_with_default_same_tick(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50")
    t.add_column("city", "nvarchar(20)", "Rome")
    t.ins(id="2", name="Bob", price="2.50", city="Oslo")


@case()
def c_added_nullable(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50")
    t.step()
    t.add_column("city", "nvarchar(20)")
    t.upd(1, name="Eve")
    t.ins(id="2", name="Bob", price="2.50", city="Oslo")


@case()
def c_added_filled_by_update_late(t: Ces) -> None:
    """An event without the new column comes after one with it, but is older."""
    late = t.pull(t.ins(id="1", name="Ada", price="1.50"))
    t.ins(id="2", name="Bob", price="1.50")
    t.step()
    t.add_column("city", "nvarchar(20)")
    t.upd(1, city="Rome")
    t.step()
    t.send(late)


@case()
def c_dropped(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50")
    t.step()
    t.drop_column("price")
    t.ins(id="2", name="Bob")


@case()
def c_dropped_seen_in_update_only(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50")
    t.step()
    t.drop_column("price")
    t.upd(1, name="Eve")


@case()
def c_dropped_and_added_with_other_meaning(t: Ces) -> None:
    """Dropped and added again under the same name and type between two events: rows that were there lost the value."""
    t.ins(id="1", name="Ada", price="1.50")
    t.step()
    t.drop_column("name")
    t.add_column("name", "nvarchar(50)")
    sent = t.ins(id="2", price="2.50", name="new")
    sent.cols = [["id", "int", 0], ["price", "decimal(8,2)", 1], ["name", "nvarchar(50)", 2]]


@case()
def c_dropped_and_another_added_at_once(t: Ces) -> None:
    """It looks like a rename, which a streamed table refuses (C-74)."""
    t.ins(id="1", name="Ada", price="1.50")
    t.step()
    t.drop_column("name")
    t.add_column("full_name", "nvarchar(50)")
    t.ins(id="2", full_name="Bob", price="2.50")


@case()
def c_renamed_case_only(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50")
    t.step()
    for rows in (t.rows, t.raw):
        for row in rows.values():
            row["Name"] = row.pop("name")
    t.columns = {"id": "int", "Name": "nvarchar(50)", "price": "decimal(8,2)"}
    t.ins(id="2", Name="Bob", price="2.50")


def respelled(name: str, before: str, after: str) -> None:
    """A column's name comes in a spelling that looks the same, behind events with the first one (G-60)."""

    def build() -> Ces:
        t = Ces(f"c_name_{name}", {"id": "int", before: "nvarchar(9)", "price": "int"})
        t.ins(id="1", price="1", **{before: "x"})
        t.step()
        sent = t.upd(1, **{before: "y"})
        sent.cols[1][0] = after
        for image in (sent.old, sent.current):
            image[after] = image.pop(before)
        return t

    CASES[f"c_name_{name}"] = build


respelled("with_blank", "name", "name ")
respelled("with_unseen_sign", "name", "na\u200bme")
respelled("in_other_normal_form", "é", "e\u0301")


@case()
def c_key_in_other_case(t: Ces) -> None:
    """The mirror file says `id`, the source `ID`."""
    sent = t.ins(id="1", name="Ada", price="1.50")
    sent.cols[0][0] = "ID"
    sent.current["ID"] = sent.current.pop("id")
    sent.pk = {"ID": "1"}


@case()
def c_current_in_other_case(t: Ces) -> None:
    """`cols` says name, the row says Name."""
    sent = t.ins(id="1", name="Ada", price="1.50")
    sent.current["Name"] = sent.current.pop("name")


@case()
def c_retyped_wider(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50")
    t.step()
    t.columns["name"] = "nvarchar(max)"
    t.ins(id="2", name="B" * 60, price="1.50")


@case()
def c_retyped_scale(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50")
    t.step()
    t.columns["price"] = "decimal(10,4)"
    t.ins(id="2", name="Bob", price="1.2345")


@case()
def c_retyped_int_to_text(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50")
    t.step()
    t.columns["price"] = "varchar(20)"
    for row in t.rows.values():
        row["price"] = str(row["price"])
    t.ins(id="2", name="Bob", price="x")


@case({"id": "int", "v": "datetime"})
def c_retyped_datetime_to_date(t: Ces) -> None:
    t.ins(id="1", v="2025-03-14 16:45:01.000")
    t.step()
    t.columns["v"] = "date"
    for row in t.rows.values():
        row["v"] = row["v"].date()
    t.ins(id="2", v="2025-03-15")


@case({"id": "int", "v": "datetime2(7)"})
def c_retyped_rounds_in_place(t: Ces) -> None:
    """ALTER COLUMN to datetime2(0) rounds the rows that are there; no event says so, the landing type stays."""
    t.ins(id="1", v="2025-03-14 16:45:01.6000000")
    t.step()
    t.columns["v"] = "datetime2(0)"
    for row in t.rows.values():
        row["v"] = datetime(2025, 3, 14, 16, 45, 2)
    t.ins(id="2", v="2025-03-15 00:00:00")


@case({"id": "int", "v": "nvarchar(20)"})
def c_retyped_to_varchar(t: Ces) -> None:
    """ALTER COLUMN nvarchar → varchar turns what the code page lacks into question marks, without an event."""
    t.ins(id="1", v="Łódź")
    t.step()
    t.columns["v"] = "varchar(20)"
    for row in t.rows.values():
        row["v"] = "Lódz"
    t.ins(id="2", v="x")


@case({"id": "int", "v": "geography", "name": "varchar(9)"})
def c_type_unknown(t: Ces) -> None:
    t.ins(id="1", v=V("POINT (1 1)", "POINT (1 1)"), name="x")


@case({"id": "int", "v": "dbo.phone", "name": "varchar(9)"})
def c_type_of_user(t: Ces) -> None:
    """An alias type of the database."""
    t.ins(id="1", v=V("1", "1"), name="x")


# -- names ----------------------------------------------------------------------------------------------------------
@case()
def n_table_in_other_case(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50").tbl = t.name.upper()


@case()
def n_table_with_unseen_sign(t: Ces) -> None:
    """The name has a sign without width in it, behind events with the right one."""
    t.ins(id="1", name="Ada", price="1.00")
    t.upd(1, name="Eve").src = {"tbl": t.name + "\u200b"}


@case()
def n_schema_with_blank(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.upd(1, name="Eve").src = {"schema": "dbo "}


@case()
def n_schema_in_other_case(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50").schema = "DBO"


@case()
def n_table_with_blank(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50").tbl = t.name + " "


@case()
def n_table_in_brackets(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50").tbl = f"[{t.name}]"


@case()
def n_other_schema(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50")
    commit, sequence = t.next()
    t.send(CesEvent("INS", {}, {"id": "2", "name": "no", "price": None},
                    [[n, k, i] for i, (n, k) in enumerate(t.columns.items())], {"id": "2"}, commit, sequence, t.name,
                    schema="archive", topic=t.name))  # fmt: skip


@case()
def n_other_database(t: Ces) -> None:
    """A table of the same name in another database, in the same hub."""
    t.ins(id="1", name="Ada", price="1.50")
    commit, sequence = t.next()
    t.send(CesEvent("UPD", {"id": "1", "name": "no", "price": None}, {"id": "1", "name": "other", "price": None},
                    [[n, k, i] for i, (n, k) in enumerate(t.columns.items())], {"id": "1"}, commit, sequence, t.name,
                    db="shop_test", topic=t.name))  # fmt: skip


@case()
def n_database_in_other_case(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50")
    t.ins(id="2", name="Bob", price="1.50").db = "SHOP"


@case()
def n_other_database_other_guid(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50")
    commit, sequence = t.next()
    t.send(CesEvent("INS", {}, {"id": "2", "name": "no", "price": None},
                    [[n, k, i] for i, (n, k) in enumerate(t.columns.items())], {"id": "2"}, commit, sequence, t.name,
                    db="shop_test", guid="00000000-0000-0000-0000-000000000002", topic=t.name))  # fmt: skip


@case()
def n_renamed_table(t: Ces) -> None:
    """sp_rename: the same rows go on under another name."""
    t.ins(id="1", name="Ada", price="1.50")
    t.step()
    t.upd(1, name="Eve").tbl = t.name + "_new"


@case()
def n_table_left_out(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.50")
    t.ins(id="2", name="Bob", price="1.50").src = {"schema": LEFT_OUT}


# -- the message ----------------------------------------------------------------------------------------------------
def message(name: str, tell: bool = False, **env: Any) -> None:
    """A table whose second row comes in a message with these members altered."""

    def build() -> Ces:
        t = Ces(name)
        t.must_tell = tell
        t.ins(id="1", name="Ada", price="1.00")
        t.ins(id="2", name="Bob", price="2.00").env = env
        return t

    CASES[name] = build


message("m_type_version", type="com.microsoft.SQL.CES.DML.V2")
message("m_type_other_case", type="com.microsoft.sql.ces.dml.v1")
message("m_type_ddl", type="com.microsoft.SQL.CES.DDL.V1")
message("m_type_left_out", type=LEFT_OUT)
message("m_specversion", specversion="2.0")
message("m_operation_unknown", operation="MERGE")
message("m_operation_lower", operation="ins")
message("m_operation_left_out", operation=LEFT_OUT)
message("m_operation_null", operation=None)
message("m_operation_truncate", operation="TRUNCATE")
message("m_data_left_out", data=LEFT_OUT)
message("m_data_null", data=None)
message("m_data_empty", data="")
message("m_content_type", datacontenttype="application/xml")
message("m_content_type_null", datacontenttype=None)
message("m_content_type_left_out", datacontenttype=LEFT_OUT)
message("m_content_type_charset", datacontenttype="application/json; charset=utf-8")
message("m_logicalid_left_out", logicalid=LEFT_OUT)
message("m_logicalid_null", logicalid=None)
message("m_logicalid_short", logicalid=f"{'9c8d4ad2-bf54-4f10-a96f-038af496997f'}:12:1")
message("m_segment_left_out", segmentindex=LEFT_OUT, finalsegment=LEFT_OUT)
message("m_segment_null", segmentindex=None, finalsegment=None)
message("m_segment_negative", segmentindex=-1)
message("m_final_text", finalsegment="true")
message("m_segment_and_split", splitindex=0, splittotalcnt=0)
message("m_source_other", source="/other")
message("m_extension", traceparent="00-1")


@case()
def m_data_object(t: Ces) -> None:
    sent = t.ins(id="1", name="Ada", price="1.00")
    sent.data = json.loads


@case()
def m_data_base64(t: Ces) -> None:
    """CloudEvents' own member for bytes."""
    sent = t.ins(id="1", name="Ada", price="1.00")
    data = json.dumps(sent.payload()).encode()
    sent.env = {"data": LEFT_OUT, "data_base64": base64.b64encode(data).decode()}


@case()
def m_data_camel(t: Ces) -> None:
    """eventSource and eventRow, as the specification's prose spells them."""
    sent = t.ins(id="1", name="Ada", price="1.00")
    sent.data = lambda data: data.replace('"eventsource"', '"eventSource"').replace('"eventrow"', '"eventRow"')


@case()
def m_data_eventdata(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").data = lambda data: data.replace('"eventrow"', '"eventdata"')


@case()
def m_data_eventrow_missing(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").dat = {"eventrow": LEFT_OUT}


@case()
def m_data_cut(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").data = lambda data: data[:-20]


@case()
def m_data_trailing(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").data = lambda data: data + "}"


@case()
def m_data_doubly_encoded(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").data = json.dumps


@case()
def m_pkkey_missing(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").src = {"pkkey": LEFT_OUT}


@case()
def m_pkkey_null(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").src = {"pkkey": None}


@case()
def m_pkkey_object(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").src = {"pkkey": {"id": "1"}}


@case()
def m_pkkey_value_null(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").pk = {"id": None}


@case()
def m_transaction_null(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").src = {"transaction": None}


@case()
def m_transaction_sequence_null(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").txn = {"sequencenumber": None}


@case()
def m_transaction_lsn_lower(t: Ces) -> None:
    sent = t.ins(id="1", name="Ada", price="1.00")
    sent.txn = {"commitlsn": sent.lsn.lower()}


@case()
def m_lsn_differs(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").txn = {"commitlsn": "0000002C:0000FFFF:0001"}


@case()
def m_lsn_lower_everywhere(t: Ces) -> None:
    """Hexadecimal digits in small letters: the order of their texts must not change."""
    t.commit = t.base + 0x0A
    first = t.ins(id="1", name="Ada", price="1.00")
    first.env = {"logicalid": first.envelope()["logicalid"].lower()}
    first.txn = {"commitlsn": first.lsn.lower()}
    t.commit = t.base + 0x0F
    t.upd(1, name="Eve")


@case()
def m_guid_in_capitals(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    sent = t.upd(1, name="Eve")
    sent.guid = sent.guid.upper()


@case()
def m_new_guid(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.step()
    sent = t.upd(1, name="Eve")
    sent.guid, sent.commit = "00000000-0000-0000-0000-000000000009", 1


@case()
def m_generation_a(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").generation = "a"
    t.upd(1, name="Eve").generation = "a"


@case()
def m_array_of_one(t: Ces) -> None:
    """A batch of CloudEvents, as an array."""
    t.ins(id="1", name="Ada", price="1.00").rewrite = lambda body: b"[" + body + b"]"


@case()
def m_bom(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").rewrite = lambda body: b"\xef\xbb\xbf" + body


@case()
def m_utf16(t: Ces) -> None:
    sent = t.ins(id="1", name="Ada", price="1.00")
    sent.rewrite = lambda body: body.decode().encode("utf-16")


@case()
def m_gzipped(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00").rewrite = lambda body: gzip.compress(body, mtime=0)


@case()
def m_base64_in_utf8(t: Ces) -> None:
    """The consumer wrote base64 and called it utf8."""
    t.ins(id="1", name="Ada", price="1.00").rewrite = base64.b64encode


@case()
def m_cut_message(t: Ces) -> None:
    """The body ends in the middle: what names the table is still there."""
    t.ins(id="1", name="Ada", price="1.00").rewrite = lambda body: body[:-40]


@case()
def m_latin1(t: Ces) -> None:
    t.ins(id="1", name="José", price="1.00").rewrite = lambda body: body.decode().encode("latin-1")


@case()
def m_two_in_one(t: Ces) -> None:
    """Two events in one body, one behind the other."""
    t.ins(id="1", name="Ada", price="1.00").rewrite = lambda body: body + b"\n" + body


@case()
def m_avro(t: Ces) -> None:
    for sent in (t.ins(id="1", name="Ada", price="1.00"), t.upd(1, name="Eve")):
        body = sent.avro()
        sent.rewrite = lambda _, body=body: body  # type: ignore[misc]


@case()
def m_avro_cut(t: Ces) -> None:
    sent = t.ins(id="1", name="Ada", price="1.00")
    body = sent.avro()
    sent.rewrite = lambda _: body[:-3]


@case()
def m_avro_longer(t: Ces) -> None:
    sent = t.ins(id="1", name="Ada", price="1.00")
    body = sent.avro()
    sent.rewrite = lambda _: body + b"\0"


@case()
def m_avro_version(t: Ces) -> None:
    sent = t.ins(id="1", name="Ada", price="1.00")
    sent.env = {"type": "com.microsoft.SQL.CES.DML.V2"}
    body = sent.avro()
    sent.rewrite = lambda _: body


@case()
def m_avro_confluent(t: Ces) -> None:
    sent = t.ins(id="1", name="Ada", price="1.00")
    body = sent.avro()
    sent.rewrite = lambda _: b"\0\0\0\0\1" + body


@case()
def m_avro_update_lacks_column(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    sent = t.upd(1, price="2.00")
    del sent.current["name"]
    body = sent.avro()
    sent.rewrite = lambda _: body


@case()
def m_avro_key_change_without_old(t: Ces) -> None:
    t.ins(id="5", name="Ada", price="1.00")
    t.old_values = False
    sent = t.upd(5, id="6")
    sent.pk = {"id": "5"}
    body = sent.avro()
    sent.rewrite = lambda _: body


# -- pieces ---------------------------------------------------------------------------------------------------------
@case()
def p_over_ticks(t: Ces) -> None:
    pieces = Split(t.pull(t.ins(id="1", name="Ada", price="1.00")), 50, 300).pieces
    t.send(pieces[2])
    t.step()
    t.send(pieces[0])
    t.step()
    t.send(pieces[1])


@case()
def p_never_complete(t: Ces) -> None:
    """A piece that never comes, and the time for it is over."""
    pieces = Split(t.pull(t.ins(id="1", name="Ada", price="1.00")), 50, 300).pieces
    t.send(pieces[0], pieces[2])


@case()
def p_never_complete_delete(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    pieces = Split(t.pull(t.delete(1)), 50, 300).pieces
    t.send(pieces[0], pieces[1])


@case()
def p_first_never_comes(t: Ces) -> None:
    """The piece that names the table is the one that is missing."""
    pieces = Split(t.pull(t.ins(id="1", name="Ada", price="1.00")), 10, 300).pieces
    t.send(pieces[1], pieces[2])


@case()
def p_contradict(t: Ces) -> None:
    whole = t.pull(t.ins(id="1", name="Ada", price="1.00"))
    pieces = Split(whole, 50, 300).pieces
    other = Split(whole, 50, 300).pieces[1]
    other.env["data"] = other.env["data"].replace("int", "xxx")
    t.send(pieces[0], pieces[1], other, pieces[2])


@case()
def p_two_finals(t: Ces) -> None:
    pieces = Split(t.pull(t.ins(id="1", name="Ada", price="1.00")), 50, 300).pieces
    pieces[1].env["finalsegment"] = True
    t.send(*pieces)


@case()
def p_base_one(t: Ces) -> None:
    pieces = Split(t.pull(t.ins(id="1", name="Ada", price="1.00")), 50, 300, base=1).pieces
    t.send(*reversed(pieces))


@case()
def p_doubled(t: Ces) -> None:
    pieces = Split(t.pull(t.ins(id="1", name="Ada", price="1.00")), 50, 300).pieces
    t.send(pieces[0], pieces[0], pieces[1], pieces[2])
    t.step()
    t.send(pieces[1], pieces[2])


@case()
def p_cut_in_character(t: Ces) -> None:
    whole = t.pull(t.ins(id="1", name="😀 x", price="1.00"))
    at = json.loads(whole.body() or b"")["data"].index("😀")
    t.send(*Split(whole, at, at + 1).pieces)


@case()
def p_operations_differ(t: Ces) -> None:
    pieces = Split(t.pull(t.ins(id="1", name="Ada", price="1.00")), 50, 300).pieces
    pieces[2].env["operation"] = "DEL"
    t.send(*pieces)


@case()
def p_generation_a(t: Ces) -> None:
    whole = t.pull(t.ins(id="1", name="Ada", price="1.00"))
    whole.generation = "a"
    t.send(*Split(whole, 50, 300).pieces)


@case()
def p_generation_a_total_differs(t: Ces) -> None:
    whole = t.pull(t.ins(id="1", name="Ada", price="1.00"))
    whole.generation = "a"
    pieces = Split(whole, 50, 300).pieces
    pieces[2].env["splittotalcnt"] = 4
    t.send(*pieces)


@case()
def p_update_lacks_column(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    whole = t.pull(t.upd(1, price="2.00"))
    del whole.current["name"]
    t.send(*Split(whole, 50, 300).pieces)


@case()
def p_key_change_without_old(t: Ces) -> None:
    t.ins(id="5", name="Ada", price="1.00")
    t.old_values = False
    whole = t.pull(t.upd(5, id="6"))
    whole.pk = {"id": "5"}
    t.send(*Split(whole, 50, 300).pieces)


@case()
def p_unknown_version(t: Ces) -> None:
    whole = t.pull(t.ins(id="1", name="Ada", price="1.00"))
    whole.env = {"type": "com.microsoft.SQL.CES.DML.V2"}
    t.send(*Split(whole, 50, 300).pieces)


@case()
def p_whole_and_pieces_differ(t: Ces) -> None:
    """The event once whole, once in pieces, with other values."""
    whole = t.ins(id="1", name="Ada", price="1.00")
    other = CesEvent(**{name: getattr(whole, name) for name in whole.__dataclass_fields__})
    other.current = {**whole.current, "name": "Eve"}
    t.send(*Split(other, 50, 300).pieces)
    t.must_tell = True


# -- files ----------------------------------------------------------------------------------------------------------
def own(t: Ces, name: str, *events: CesEvent, alter: Callable[[bytes], bytes] = bytes, first: int = 0) -> None:
    """Deliver these in a file of their own."""
    for at, sent in enumerate(events):
        t.pull(sent)
        sent.offset = first + at if sent.offset is None else sent.offset
    t.files[-1][name] = alter(lines(events, {}))


@case()
def f_bom_crlf(t: Ces) -> None:
    a, b = t.ins(id="1", name="Ada"), t.ins(id="2", name="Bob")
    own(t, "f_bom.jsonl", a, b, alter=lambda c: b"\xef\xbb\xbf" + c.replace(b"\n", b"\r\n\r\n"))


@case()
def f_no_last_newline(t: Ces) -> None:
    own(t, "f_last.jsonl", t.ins(id="1", name="Ada"), t.ins(id="2", name="Bob"), alter=lambda c: c.rstrip(b"\n"))
    t.step()


@case()
def f_gz_two_members(t: Ces) -> None:
    a, b = t.ins(id="1", name="Ada"), t.ins(id="2", name="Bob")
    own(t, "f_two.jsonl.gz", a, b, alter=lambda c: b"".join(gzip.compress(x, mtime=0) for x in c.splitlines(True)))


@case()
def f_gz_named_jsonl(t: Ces) -> None:
    """Packed, but its name does not say so."""
    own(t, "f_packed.jsonl", t.ins(id="1", name="Ada"), alter=lambda c: gzip.compress(c, mtime=0))


@case()
def f_jsonl_named_gz(t: Ces) -> None:
    own(t, "f_plain.jsonl.gz", t.ins(id="1", name="Ada"))


@case()
def f_other_ending_json(t: Ces) -> None:
    t.ins(id="1", name="Ada")
    own(t, "f_more.json", t.ins(id="2", name="Bob"), first=1)


@case()
def f_other_ending_ndjson(t: Ces) -> None:
    t.ins(id="1", name="Ada")
    own(t, "f_more.ndjson", t.ins(id="2", name="Bob"), first=1)


@case()
def f_other_ending_capitals(t: Ces) -> None:
    t.ins(id="1", name="Ada")
    own(t, "F_MORE.JSONL", t.ins(id="2", name="Bob"), first=1)


@case()
def f_other_ending_zst(t: Ces) -> None:
    t.ins(id="1", name="Ada")
    own(t, "f_more.jsonl.zst", t.ins(id="2", name="Bob"), first=1)


@case()
def f_twice_two_names(t: Ces) -> None:
    a, b = t.ins(id="1", name="Ada"), t.upd(1, name="Eve")
    own(t, "f_once.jsonl", a, b)
    t.step()
    t.files[-1]["f_copy of once.jsonl"] = t.files[0]["f_once.jsonl"]


@case(alone=True)
def f_renamed(t: Ces) -> None:
    own(t, "f_old_name.jsonl", t.ins(id="1", name="Ada"), t.upd(1, name="Eve"))
    t.step()
    t.files[-1]["f_old_name.jsonl"] = None
    t.files[-1]["f_new_name.jsonl"] = t.files[0]["f_old_name.jsonl"]


@case()
def f_grows(t: Ces) -> None:
    a, b = t.ins(id="1", name="Ada"), t.ins(id="2", name="Bob")
    own(t, "f_grows.jsonl", a, b)
    whole = t.files[0]["f_grows.jsonl"] or b""
    t.files[0]["f_grows.jsonl"] = whole[: whole.index(b"\n") + 30]
    t.step()
    t.files[-1]["f_grows.jsonl"] = whole


@case(alone=True)
def f_written_anew_longer(t: Ces) -> None:
    """A file that was read is written anew: other lines, and more of them."""
    a = t.ins(id="1", name="Ada")
    own(t, "f_anew.jsonl", a)
    t.step()
    b, c = t.ins(id="2", name="Bob"), t.ins(id="3", name="C" * 40)
    own(t, "f_anew.jsonl", b, c, first=1)


@case(alone=True)
def f_written_anew_same_length(t: Ces) -> None:
    a = t.ins(id="1", name="Ada")
    own(t, "f_same.jsonl", a)
    t.step()
    b = t.ins(id="2", name="Bob")
    own(t, "f_same.jsonl", b, first=1)


@case(alone=True)
def f_written_anew_shorter(t: Ces) -> None:
    own(t, "f_short.jsonl", t.ins(id="1", name="Ada" * 9), t.ins(id="2", name="Ada"))
    t.step()
    own(t, "f_short.jsonl", t.ins(id="3", name="Bob"), first=2)


@case(alone=True)
def f_written_over_with_the_same(t: Ces) -> None:
    """A copying program writes what was read once more, and then more of it behind that."""
    a, b = t.ins(id="1", name="Ada"), t.ins(id="2", name="Bob")
    own(t, "f_again.jsonl", a)
    t.step()
    own(t, "f_again.jsonl", a)
    t.step()
    own(t, "f_again.jsonl", a, b)


@case(alone=True)
def f_packed_written_anew(t: Ces) -> None:
    """A packed file is another one, of the same length: it is read as a whole again."""
    a, b = t.ins(id="1", name="Ada"), t.ins(id="2", name="Bob")
    for sent in (a, b):
        own(t, "f_packed.jsonl.gz", sent, alter=lambda c: gzip.compress(c, 0, mtime=0))
        t.step()
    assert len({len(files["f_packed.jsonl.gz"] or b"") for files in t.files[:2]}) == 1


@case()
def f_zero_bytes(t: Ces) -> None:
    t.files[-1]["f_zero.jsonl"] = b""
    t.step()
    own(t, "f_zero.jsonl", t.ins(id="1", name="Ada"))


@case(tell=True)
def f_offset_twice(t: Ces) -> None:
    """Two files claim one offset of one partition for two messages (a consumer that counts from 0 again)."""
    own(t, "f_offset_a.jsonl", t.ins(id="1", name="Ada"))
    own(t, "f_offset_b.jsonl", t.ins(id="2", name="Bob"))
    t.must_tell = False


@case(alone=True)
def f_offset_hole(t: Ces) -> None:
    """Offsets 0, 1, 5: three messages are missing."""
    a, b = t.ins(id="1", name="Ada"), t.ins(id="2", name="Bob")
    lost = [t.ins(id=str(n), name="lost") for n in (3, 4, 5)]
    last = t.ins(id="6", name="Eve")
    for sent in lost:
        t.pull(sent)
    last.offset = 5
    own(t, "f_hole.jsonl", a, b, last)


@case()
def f_encoding_unknown(t: Ces) -> None:
    t.ins(id="1", name="Ada").line = {"encoding": "hex"}


@case()
def f_wrapped_value_object(t: Ces) -> None:
    """The consumer wrote the message as an object, not as its text."""
    sent = t.ins(id="1", name="Ada")
    sent.line = {"value": sent.envelope()}


@case()
def f_wrapped_offset_beyond(t: Ces) -> None:
    """An offset that eight bytes do not hold: one line is no reason that nothing is read any more."""
    t.ins(id="1", name="Ada").line = {"offset": 2**63}


@case()
def f_folder_below(t: Ces) -> None:
    own(t, "deep/er/f_deep.jsonl", t.ins(id="1", name="Ada"))


@case()
def f_hidden(t: Ces) -> None:
    t.ins(id="1", name="Ada")
    own(t, ".f_hidden.jsonl", t.ins(id="2", name="Bob"), first=1)


@case()
def f_unfinished(t: Ces) -> None:
    """The program that copied it died."""
    t.ins(id="1", name="Ada")
    own(t, "f_unfinished.jsonl.part", t.ins(id="2", name="Bob"), first=1)


@case()
def f_hidden_beside_its_own(t: Ces) -> None:
    """What another system keeps beside a file, under its name with a prefix, is no second copy of it."""
    own(t, "f_beside.jsonl", t.ins(id="1", name="Ada"))
    t.files[-1]["._f_beside.jsonl"] = b"\0\5\26\7"
    t.files[-1][".f_beside.jsonl.crc"] = b"crc\0"
    t.files[-1]["_SUCCESS"] = b"1"


@case()
def zz_heartbeat(t: Ces) -> None:
    """The source goes on: something new is read when the time of what waits is over."""
    for number in range(4):
        t.ins(id=str(number), name="beat")
        t.step()
    t.steps.pop()
