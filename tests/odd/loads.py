"""Odd first rows with a stream behind them: each function is a table, its name the table's, what it says the story."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.odd.inputs import Ces, V

CASES: dict[str, Callable[[], Loaded]] = {}
COLUMNS = {"id": "int", "name": "nvarchar(50)", "price": "decimal(8,2)"}
ARROW = {"id": pa.int32(), "name": pa.string(), "price": pa.decimal128(8, 2)}


class Loaded(Ces):
    """A streamed table with rows that were there before the stream."""

    def __init__(self, name: str, columns: Mapping[str, str] = COLUMNS, key: Sequence[str] = ("id",)) -> None:
        super().__init__(name, columns, key)
        self.table["initial_load"] = {"format": "parquet", "path": f"export/{name}", "stream_from": "beginning"}

    def there(self, **row: Any) -> dict[str, Any]:
        """A row that is there before the stream begins."""
        whole = {name: None for name in self.columns} | row
        self.put(whole)
        return whole

    def parquet(self, rows: Sequence[Mapping[str, Any]], file: str = "part-0.parquet", /, **kinds: Any) -> None:
        schema = pa.schema([(n, k) for n, k in kinds.items()])
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema), buffer)
        self.load_files[file] = buffer.getvalue()

    def usual(self, *rows: tuple[int, str | None, str | None]) -> None:
        """These rows, there and exported soundly."""
        for key, name, price in rows:
            self.there(id=str(key), name=name, price=price)
        self.parquet([{"id": k, "name": n, "price": p if p is None else Decimal(p)} for k, n, p in rows], **ARROW)

    def csv(self, text: str | bytes, **types: str) -> None:
        self.table["initial_load"] |= {"format": "csv", "types": types}
        self.load_files["part-0.csv"] = text if isinstance(text, bytes) else text.encode()


def case(
    columns: Mapping[str, str] = COLUMNS,
    key: Sequence[str] = ("id",),
    *,
    tell: bool = False,
    alone: bool = False,
    **table: Any,
) -> Callable[[Callable[[Loaded], None]], Callable[[Loaded], None]]:
    def take(story: Callable[[Loaded], None]) -> Callable[[Loaded], None]:
        name = f"l_{story.__name__}"

        def build() -> Loaded:
            t = Loaded(name, columns, key)
            t.table |= table
            t.must_tell, t.alone = tell, alone
            story(t)
            return t

        CASES[name] = build
        return story

    return take


@case()
def sound(t: Loaded) -> None:
    t.usual((1, "Ada", "1.00"), (2, None, None))
    t.upd(2, name="Bob")
    t.delete(1)


@case({"id": "int", "at": "time(7)"}, tell=True)
def time_texts_with_fewer_digits(t: Loaded) -> None:
    """A time of day lands as text: a row that is only loaded has other digits than the stream gives them."""
    for key in (1, 2):
        t.there(id=str(key), at="10:00:00.5000000")
    t.parquet([{"id": key, "at": "10:00:00.5"} for key in (1, 2)], id=pa.int32(), at=pa.string())
    t.upd(2, at="11:00:00.0000000")


@case({"id": "int", "at": "time(7)"}, tell=True)
def time_type_with_fewer_digits(t: Loaded) -> None:
    """The same, where `types` of the load says so."""
    for key in (1, 2):
        t.there(id=str(key), at="10:00:00.5000000")
    t.csv("id,at\n1,10:00:00.5\n2,10:00:00.5\n", id="int", at="time(3)")
    t.upd(2, at="11:00:00.0000000")


@case({"id": "int", "at": "time(7)"})
def time_texts_of_the_stream(t: Loaded) -> None:
    for key in (1, 2):
        t.there(id=str(key), at="10:00:00.5000000")
    t.parquet([{"id": key, "at": "10:00:00.5000000"} for key in (1, 2)], id=pa.int32(), at=pa.string())
    t.upd(2, at="11:00:00.0000000")


@case({"id": "int", "made": "datetime2(7)"}, tell=True, types={"made": "string"})
def text_for_a_time_that_lands_as_text(t: Loaded) -> None:
    """`types` of the load calls a text what the stream tells as a time, and the table lands it as text."""
    for key in (1, 2):
        t.there(id=str(key), made=V("2024-01-01 10:00:00.5000000", "2024-01-01T10:00:00.5000000"))
    t.csv("id,made\n1,2024-01-01 10:00:00.5\n2,2024-01-01 10:00:00.5\n", id="int", made="varchar(30)")
    t.upd(2, made=V("2024-01-02 10:00:00.0000000", "2024-01-02T10:00:00.0000000"))


def exchange(t: Loaded, *moves: tuple[int, int], images: str = "all") -> None:
    """Rows take each other's keys in one statement."""
    rows = {key: t.drop(key) for key, _ in moves}
    for at, (key, new) in enumerate(moves):
        row = rows[key] | {"id": str(new)}
        t.put(row)
        t.event("UPD", rows[key] if images == "all" else {"id": str(key)}, row, same=at > 0)


@case()
def keys_exchanged(t: Loaded) -> None:
    """Rows that no change told of exchange their keys, and then three of them; the images tell them apart."""
    t.usual((1, "Ada", "1.00"), (2, "Bob", "1.00"), (3, None, None))
    exchange(t, (1, 2), (2, 1))
    exchange(t, (1, 3), (3, 2), (2, 1))


@case(full_rows=True)
def keys_exchanged_untold(t: Loaded) -> None:
    """The same, and before images have the key alone: one row that moved there and back sends the same events."""
    t.usual((1, "Ada", "1.00"), (2, "Bob", "1.00"))
    exchange(t, (1, 2), (2, 1), images="key")


@case(full_rows=True)
def keys_exchanged_untold_and_touched(t: Loaded) -> None:
    """What stands at the keys is reported by a later change of each."""
    t.usual((1, "Ada", "1.00"), (2, "Bob", "1.00"))
    exchange(t, (1, 2), (2, 1), images="key")
    t.step()
    t.upd(1, price="2.00")
    t.upd(2, price="2.00")


@case({"id": "int", "name": "nvarchar(50)"})
def keys_exchanged_alike(t: Loaded) -> None:
    """Rows that are equal but for their keys: again one row that moved there and back sends the same events."""
    for key in (1, 2):
        t.there(id=str(key), name="Ada")
    t.parquet([{"id": key, "name": "Ada"} for key in (1, 2)], id=pa.int32(), name=pa.string())
    exchange(t, (1, 2), (2, 1))


@case({"a": "int", "b": "int"}, ("a", "b"))
def keys_exchanged_all_key(t: Loaded) -> None:
    """A table that links two others, and has nothing but its key."""
    for b in (1, 2):
        t.there(a="1", b=str(b))
    t.parquet([{"a": 1, "b": b} for b in (1, 2)], a=pa.int32(), b=pa.int32())
    one, two = t.raw[1, 1], t.raw[1, 2]
    t.event("UPD", one, two)
    t.event("UPD", two, one, same=True)


@case()
def keys_exchanged_by_way_of_a_third(t: Loaded) -> None:
    """As a program exchanges two keys, in three statements: nothing stands at the third one in the end."""
    t.usual((1, "Ada", "1.00"), (2, "Bob", "1.00"))
    t.upd(1, id="3")
    t.upd(2, id="1", same=True)
    t.upd(3, id="2", same=True)


@case({"id": "int", "name": "nvarchar(50)", "doc": "xml"})
def column_never_streamed(t: Loaded) -> None:
    """A loaded column that the stream leaves out; a whole insert and a whole update without it."""
    t.there(id="1", name="Ada", doc="<a/>")
    t.parquet([{"id": 1, "name": "Ada", "doc": "<a/>"}], id=pa.int32(), name=pa.string(), doc=pa.string())
    sent = t.upd(1, name="Eve")
    sent.cols.pop(), sent.old.pop("doc"), sent.current.pop("doc")
    other = t.ins(id="2", name="Bob", doc="<b/>")
    other.cols.pop(), other.current.pop("doc")


@case({"id": "int", "doc": "xml", "name": "nvarchar(50)"})
def column_never_streamed_gap(t: Loaded) -> None:
    """The same, where the place of the column left out is a gap in `cols`."""
    t.there(id="1", name="Ada", doc="<a/>")
    t.parquet([{"id": 1, "name": "Ada", "doc": "<a/>"}], id=pa.int32(), doc=pa.string(), name=pa.string())
    sent = t.upd(1, name="Eve")
    sent.cols.pop(1), sent.old.pop("doc"), sent.current.pop("doc")


@case({"id": "int", "name": "nvarchar(50)", "doc": "xml"})
def column_never_streamed_delete_only(t: Loaded) -> None:
    """Only deletes come: nothing is written over."""
    t.there(id="1", name="Ada", doc="<a/>")
    t.there(id="2", name="Bob", doc="<b/>")
    t.parquet([{"id": k, "name": n, "doc": d} for k, n, d in ((1, "Ada", "<a/>"), (2, "Bob", "<b/>"))],
              id=pa.int32(), name=pa.string(), doc=pa.string())  # fmt: skip
    sent = t.delete(1)
    sent.cols.pop(), sent.old.pop("doc")


@case()
def column_dropped_before_first_event(t: Loaded) -> None:
    t.usual((1, "Ada", "1.00"), (2, "Bob", "2.00"))
    t.drop_column("price")
    t.upd(1, name="Eve")


@case()
def column_missing_in_export(t: Loaded) -> None:
    """The export left out a column that the stream has: loaded rows have values in it at the source."""
    t.there(id="1", name="Ada", price="1.00")
    t.there(id="2", name="Bob", price="2.00")
    t.parquet([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}], id=pa.int32(), name=pa.string())
    t.upd(1, price="3.00")


@case()
def column_more_in_export(t: Loaded) -> None:
    """The export has a column that the source has not (a computed one)."""
    t.there(id="1", name="Ada", price="1.00")
    t.parquet([{"id": 1, "name": "Ada", "price": Decimal("1.00"), "upper": "ADA"}], **ARROW, upper=pa.string())
    t.upd(1, name="Eve")


@case()
def column_in_other_case(t: Loaded) -> None:
    t.there(id="1", name="Ada", price="1.00")
    t.parquet(
        [{"id": 1, "Name": "Ada", "price": Decimal("1.00")}], id=pa.int32(), Name=pa.string(), price=ARROW["price"]
    )
    t.upd(1, name="Eve")


@case()
def key_in_other_case(t: Loaded) -> None:
    t.there(id="1", name="Ada", price="1.00")
    t.parquet(
        [{"ID": 1, "name": "Ada", "price": Decimal("1.00")}], ID=pa.int32(), name=pa.string(), price=ARROW["price"]
    )


@case(tell=True)
def key_twice(t: Loaded) -> None:
    t.there(id="1", name="Ada", price="1.00")
    t.parquet([{"id": 1, "name": n, "price": None} for n in ("Ada", "Eve")], **ARROW)


@case(tell=True)
def key_twice_in_two_files(t: Loaded) -> None:
    t.there(id="1", name="Ada", price="1.00")
    t.parquet([{"id": 1, "name": "Ada", "price": None}], **ARROW)
    t.parquet([{"id": 1, "name": "Eve", "price": None}], "part-1.parquet", **ARROW)


@case(tell=True)
def key_null(t: Loaded) -> None:
    t.parquet([{"id": None, "name": "Ada", "price": None}], **ARROW)


@case({"id": "nvarchar(10)", "v": "int"})
def key_blank_and_case(t: Loaded) -> None:
    """Keys of a binary collation that differ in case or a blank."""
    for key in ("a", "A", "a "):
        t.there(id=key, v="1")
    t.parquet([{"id": k, "v": 1} for k in ("a", "A", "a ")], id=pa.string(), v=pa.int32())
    t.delete("a ")
    t.upd("A", v="2")


@case({"id": "uniqueidentifier", "v": "int"})
def key_guid_lower(t: Loaded) -> None:
    """The export spells GUIDs in small letters, as text; the stream in capitals."""
    guid = "0e984725-c51c-4bf4-9960-e1c80e27aba0"
    t.there(id=V(guid.upper(), guid.upper()), v="1")
    t.parquet([{"id": guid, "v": 1}], id=pa.string(), v=pa.int32())
    t.upd(guid.upper(), v="2")


@case({"id": "char(5)", "v": "int"})
def key_char_trimmed(t: Loaded) -> None:
    """The export cut the blanks of a char(5) key."""
    t.there(id="ab   ", v="1")
    t.parquet([{"id": "ab", "v": 1}], id=pa.string(), v=pa.int32())
    t.upd("ab   ", v="2")


@case({"id": "char(5)", "v": "int"})
def key_char_filled(t: Loaded) -> None:
    t.there(id="ab   ", v="1")
    t.parquet([{"id": "ab   ", "v": 1}], id=pa.string(), v=pa.int32())
    t.upd("ab   ", v="2")


@case({"id": "char(5)", "v": "int"})
def key_char_trimmed_type_told(t: Loaded) -> None:
    t.there(id="ab   ", v="1")
    t.csv("id,v\nab,1\n", id="char(5)", v="int")
    t.upd("ab   ", v="2")


@case({"id": "binary(4)", "v": "int"})
def key_binary_cut(t: Loaded) -> None:
    t.there(id=V("0x0AFF0000", b"\x0a\xff\x00\x00"), v="1")
    t.parquet([{"id": b"\x0a\xff", "v": 1}], id=pa.binary(), v=pa.int32())
    t.upd(b"\x0a\xff\x00\x00", v="2")


@case({"id": "int", "v": "nchar(4)"})
def value_nchar_trimmed(t: Loaded) -> None:
    """The row that nobody changes again has another value than the source's."""
    t.there(id="1", v="ab  ")
    t.parquet([{"id": 1, "v": "ab"}], id=pa.int32(), v=pa.string())
    t.ins(id="2", v="cd  ")


@case({"id": "char(5)", "v": "int"}, complete_rows=True)
def key_char_trimmed_logged(t: Loaded) -> None:
    """The load goes through the log."""
    t.there(id="ab   ", v="1")
    t.parquet([{"id": "ab", "v": 1}], id=pa.string(), v=pa.int32())
    t.upd("ab   ", v="2")


def only_deleted(name: str, kind: str, arrow: pa.DataType, held: Any, scene: V) -> None:
    """The load spells a key otherwise than the stream, of which nothing but a delete comes."""

    def build() -> Loaded:
        t = Loaded(f"l_only_deleted_{name}", {"id": kind, "v": "int"})
        t.there(id=scene, v="1")
        t.parquet([{"id": held, "v": 1}], id=arrow, v=pa.int32())
        t.delete(scene.true)
        return t

    CASES[f"l_only_deleted_{name}"] = build


only_deleted("char", "char(5)", pa.string(), "ab", V("ab   ", "ab   "))
only_deleted("binary", "binary(4)", pa.binary(), b"\x0a", V("0x0A000000", b"\x0a\0\0\0"))
only_deleted("time", "time(7)", pa.string(), "10:00:00", V("10:00:00.0000000", "10:00:00.0000000"))
only_deleted("guid", "uniqueidentifier", pa.string(), "0E" * 16, V("0E0E0E0E-0E0E-0E0E-0E0E-0E0E0E0E0E0E", "x"))
only_deleted("moment", "datetime2(3)", pa.timestamp("us", "+01:00"), datetime(2025, 3, 14, 9, tzinfo=UTC),
             V("2025-03-14 10:00:00.000", datetime(2025, 3, 14, 10)))  # fmt: skip
only_deleted("sound", "char(5)", pa.string(), "ab   ", V("ab   ", "ab   "))


@case({"id": "decimal(8,2)", "v": "int"})
def key_decimal_other_scale(t: Loaded) -> None:
    t.there(id="1.00", v="1")
    t.parquet([{"id": Decimal("1.0"), "v": 1}], id=pa.decimal128(8, 1), v=pa.int32())
    t.upd(Decimal(1), v="2")


@case({"id": "bigint", "v": "int"})
def key_double(t: Loaded) -> None:
    """The export (by way of a data frame) holds whole numbers as doubles."""
    t.there(id="9007199254740993", v="1")
    t.parquet([{"id": 9007199254740992.0, "v": 1}], id=pa.float64(), v=pa.int32())
    t.upd(9007199254740993, v="2")


@case({"id": "datetime", "v": "int"})
def key_datetime_nanoseconds(t: Loaded) -> None:
    t.there(id="2025-03-14 16:45:01.003", v="1")
    t.parquet([{"id": datetime(2025, 3, 14, 16, 45, 1, 3000), "v": 1}], id=pa.timestamp("ns"), v=pa.int32())
    t.upd(datetime(2025, 3, 14, 16, 45, 1, 3000), v="2")


@case({"id": "varbinary(4)", "v": "int"})
def key_binary_as_text(t: Loaded) -> None:
    t.there(id=V("0x0AFF", b"\x0a\xff"), v="1")
    t.parquet([{"id": "0x0AFF", "v": 1}], id=pa.string(), v=pa.int32())
    t.upd(b"\x0a\xff", v="2")


def typed(name: str, kind: str, arrow: pa.DataType, held: Any, sent: Any, tell: bool = False) -> None:
    """A load whose column has another type than the stream's; the row itself is not touched, another is inserted."""

    def build() -> Loaded:
        t = Loaded(f"l_type_{name}", {"id": "int", "v": kind})
        t.must_tell = tell
        t.there(id="1", v=sent)
        t.parquet([{"id": 1, "v": held}], id=pa.int32(), v=arrow)
        t.ins(id="2", v=sent)
        return t

    CASES[f"l_type_{name}"] = build


typed("double_for_decimal", "decimal(20,4)", pa.float64(), 1234567890123456.7, "1234567890123456.7891")
typed("text_for_decimal", "decimal(8,2)", pa.string(), "1.50", "1.50")
typed("long_for_int", "int", pa.int64(), 5, "5")
typed("float_for_double", "float", pa.float32(), 0.1, "0.1")
typed(
    "nanoseconds",
    "datetime2(7)",
    pa.timestamp("ns"),
    datetime(2025, 3, 14, 1, 2, 3, 456789),
    "2025-03-14 01:02:03.4567891",
)
typed("timestamp_for_date", "date", pa.timestamp("us"), datetime(2025, 3, 14), "2025-03-14")
typed("date_for_datetime", "datetime", pa.date32(), date(2025, 3, 14), "2025-03-14 10:11:12.000")
typed("int_for_bit", "bit", pa.int32(), 1, "1")
typed("text_for_int", "int", pa.string(), "5", "5")
typed("decimal_for_money", "money", pa.decimal128(19, 4), Decimal("1.5000"), "1.5000")
typed("int_for_text", "varchar(10)", pa.int32(), 7, "007")
typed("bool_for_int", "int", pa.bool_(), True, "1")
typed("dictionary_text", "varchar(10)", pa.dictionary(pa.int32(), pa.string()), "x", "x")
typed("list", "varchar(10)", pa.list_(pa.string()), ["x"], '["x"]')
typed("binary_for_text", "varchar(10)", pa.binary(), b"x", "x")
typed("null_type", "varchar(10)", pa.null(), None, "x")


typed(
    "wall_clock_for_offset",
    "datetimeoffset(3)",
    pa.timestamp("us"),
    datetime(2025, 3, 14, 10),
    V("2025-03-14 10:00:00 +01:00", datetime(2025, 3, 14, 9)),
)
typed("milliseconds", "datetime2(7)", pa.timestamp("ms"), datetime(2025, 3, 14, 10), "2025-03-14 10:00:00.0001")
typed(
    "moment_in_utc",
    "datetime2(3)",
    pa.timestamp("us", "UTC"),
    datetime(2025, 3, 14, 10, tzinfo=UTC),
    "2025-03-14 10:00:00",
)
typed(
    "moment_elsewhere",
    "datetime2(3)",
    pa.timestamp("us", "+01:00"),
    datetime(2025, 3, 14, 9, tzinfo=UTC),
    "2025-03-14 10:00:00",
)


@case({"id": "uniqueidentifier", "v": "int"})
def key_guid_in_braces(t: Loaded) -> None:
    guid = "0E984725-C51C-4BF4-9960-E1C80E27ABA0"
    t.there(id=guid, v="1")
    t.parquet([{"id": "{" + guid + "}", "v": 1}], id=pa.string(), v=pa.int32())
    t.upd(guid, v="2")


@case({"id": "uniqueidentifier", "v": "int"})
def key_guid_bare(t: Loaded) -> None:
    guid = "0E984725-C51C-4BF4-9960-E1C80E27ABA0"
    t.there(id=guid, v="1")
    t.parquet([{"id": guid.replace("-", ""), "v": 1}], id=pa.string(), v=pa.int32())
    t.upd(guid, v="2")


@case({"id": "int", "v": "datetimeoffset(3)"})
def value_offset_int96(t: Loaded) -> None:
    """Spark's old spelling of moments, which Arrow reads as wall clocks: they are in UTC."""
    t.there(id="1", v=V("2025-03-14 10:00:00.000 +01:00", datetime(2025, 3, 14, 9)))
    buffer = io.BytesIO()
    rows = pa.table({"id": pa.array([1], pa.int32()), "v": pa.array([datetime(2025, 3, 14, 9)], pa.timestamp("ns"))})
    pq.write_table(rows, buffer, use_deprecated_int96_timestamps=True)
    t.load_files["part-0.parquet"] = buffer.getvalue()
    t.ins(id="2", v=V("2025-03-14 10:00:00.000 Z", datetime(2025, 3, 14, 10)))


@case({"id": "int", "v": "float"})
def value_nan(t: Loaded) -> None:
    """NaN in a double column, as a data frame writes NULL."""
    t.there(id="1", v=None)
    t.parquet([{"id": 1, "v": float("nan")}], id=pa.int32(), v=pa.float64())


@case({"id": "int", "v": "uniqueidentifier"})
def value_guid_lower(t: Loaded) -> None:
    t.there(id="1", v=V("0E984725-C51C-4BF4-9960-E1C80E27ABA0", "0E984725-C51C-4BF4-9960-E1C80E27ABA0"))
    t.parquet([{"id": 1, "v": "0e984725-c51c-4bf4-9960-e1c80e27aba0"}], id=pa.int32(), v=pa.string())
    t.ins(id="2", v=V("1E984725-C51C-4BF4-9960-E1C80E27ABA0", "1E984725-C51C-4BF4-9960-E1C80E27ABA0"))


@case({"id": "int", "v": "varchar(20)"})
def value_texts(t: Loaded) -> None:
    texts = ["", " ", "NULL", "\0", "a\r\nb", "é", "e\u0301", "😀", "x" * 20]
    for number, text in enumerate(texts):
        t.there(id=str(number), v=text)
    t.parquet([{"id": n, "v": text} for n, text in enumerate(texts)], id=pa.int32(), v=pa.string())


@case()
def empty(t: Loaded) -> None:
    t.parquet([], **ARROW)
    t.ins(id="1", name="Ada", price="1.00")


@case()
def empty_folder(t: Loaded) -> None:
    """The export wrote nothing: an empty table, or a failed export?"""
    t.there(id="1", name="Ada", price="1.00")
    t.load_files["_SUCCESS"] = b""


@case()
def zero_byte_part(t: Loaded) -> None:
    t.usual((1, "Ada", "1.00"))
    t.there(id="2", name="Bob", price="1.00")
    t.load_files["part-1.parquet"] = b""


@case()
def cut_part(t: Loaded) -> None:
    t.usual((1, "Ada", "1.00"))
    t.load_files["part-0.parquet"] = t.load_files["part-0.parquet"][:-9]


@case()
def hidden_part(t: Loaded) -> None:
    """A part whose name begins with an underscore or a dot, as unfinished ones have."""
    t.usual((1, "Ada", "1.00"))
    t.there(id="2", name="Bob", price="1.00")
    t.parquet([{"id": 2, "name": "Bob", "price": Decimal("1.00")}], "_part-1.parquet", **ARROW)


def hidden(name: str, *, csv: bool = False) -> None:
    """Half of the rows lie in a file of this name, hidden, unfinished or in a hidden folder."""

    def build() -> Loaded:
        t = Loaded("l_hidden_" + re.sub(r"\W", "_", name.replace(".", "dot_")))
        t.there(id="1", name="Ada", price="1.00")
        t.there(id="2", name="Bob", price="1.00")
        if csv:
            t.csv("id,name,price\n1,Ada,1.00\n", **TYPES)
            t.load_files[name] = gzip.compress(b"id,name,price\n2,Bob,1.00\n", mtime=0)
            return t
        for file, key, text in (("part-0.parquet", 1, "Ada"), (name, 2, "Bob")):
            t.parquet([{"id": key, "name": text, "price": Decimal("1.00")}], file, **ARROW)
        return t

    built = build().name
    CASES[built] = build


TYPES = {"id": "int", "name": "nvarchar(50)", "price": "decimal(8,2)"}
for odd in ("_x/part-1.parquet", ".x/part-1.parquet", "_part-1.PARQUET", ".part-1.parquet.tmp"):
    hidden(odd)
hidden("_temporary/0/task_1/part-1.parquet")
hidden("_part-1.csv.gz", csv=True)


@case()
def marks_beside_parts(t: Loaded) -> None:
    """Marks and checksums, as Spark and Hadoop leave them, are no part of an export."""
    t.usual((1, "Ada", "1.00"))
    for mark in ("_SUCCESS", "._SUCCESS.crc", ".part-0.parquet.crc", "_committed_12", ".DS_Store", "_logs/run.txt"):
        t.load_files[mark] = b"x"


@case()
def part_of_other_ending(t: Loaded) -> None:
    t.usual((1, "Ada", "1.00"))
    t.there(id="2", name="Bob", price="1.00")
    t.parquet([{"id": 2, "name": "Bob", "price": Decimal("1.00")}], "part-1.pq", **ARROW)


@case()
def part_in_capitals(t: Loaded) -> None:
    t.usual((1, "Ada", "1.00"))
    t.there(id="2", name="Bob", price="1.00")
    t.parquet([{"id": 2, "name": "Bob", "price": Decimal("1.00")}], "part-1.PARQUET", **ARROW)


@case()
def part_copied(t: Loaded) -> None:
    t.usual((1, "Ada", "1.00"))
    t.load_files["part-0 - Copy.parquet"] = t.load_files["part-0.parquet"]


@case()
def parts_of_two_schemas(t: Loaded) -> None:
    """One part has a column more."""
    t.usual((1, "Ada", "1.00"))
    t.there(id="2", name="Bob", price="2.00")
    t.parquet([{"id": 2, "name": "Bob"}], "part-1.parquet", id=pa.int32(), name=pa.string())


@case()
def parts_of_two_schemas_fewer_first(t: Loaded) -> None:
    t.there(id="1", name="Ada", price="1.00")
    t.there(id="2", name="Bob", price="2.00")
    t.parquet([{"id": 2, "name": "Bob"}], "part-0.parquet", id=pa.int32(), name=pa.string())
    t.parquet([{"id": 1, "name": "Ada", "price": Decimal("1.00")}], "part-1.parquet", **ARROW)


@case()
def parts_of_two_orders(t: Loaded) -> None:
    """The columns of one part stand in another order."""
    t.columns = {"id": "int", "a": "varchar(9)", "b": "varchar(9)"}
    t.there(id="1", a="A", b="B")
    t.there(id="2", a="A", b="B")
    t.parquet([{"id": 1, "a": "A", "b": "B"}], id=pa.int32(), a=pa.string(), b=pa.string())
    t.parquet([{"id": 2, "a": "A", "b": "B"}], "part-1.parquet", b=pa.string(), a=pa.string(), id=pa.int32())


@case()
def folders_of_partitions(t: Loaded) -> None:
    """Hive folders: the column `name` stands in the path only."""
    t.there(id="1", name="Ada", price="1.00")
    t.parquet([{"id": 1, "price": Decimal("1.00")}], "name=Ada/part-0.parquet", id=pa.int32(), price=ARROW["price"])


@case()
def delta_table(t: Loaded) -> None:
    """The export is a Delta table with a file that its log has removed."""
    t.usual((1, "Ada", "1.00"))
    t.parquet([{"id": 9, "name": "removed", "price": None}], "part-old.parquet", **ARROW)
    t.load_files["_delta_log/00000000000000000000.json"] = b'{"add":{"path":"part-0.parquet"}}\n'


@case()
def key_changed_while_loading(t: Loaded) -> None:
    """The load shows a row under its new key, the stream tells the change."""
    t.there(id="2", name="Ada", price="1.00")
    t.parquet([{"id": 2, "name": "Ada", "price": Decimal("1.00")}], **ARROW)
    row = t.raw[2,]
    t.event("UPD", row | {"id": "1"}, row)


@case()
def deleted_while_loading(t: Loaded) -> None:
    t.usual((1, "Ada", "1.00"))
    t.delete(1)


@case()
def stream_from_behind_the_stream(t: Loaded) -> None:
    """stream_from is a commit far behind everything that is streamed: all of the stream would be old."""
    t.usual((1, "Ada", "1.00"))
    t.upd(1, name="Eve")
    t.table["initial_load"]["stream_from"] = "FFFFFFFF:FFFFFFFF:FFFF"


@case()
def stream_from_reached(t: Loaded) -> None:
    """What came before the export is in it; what comes later is published over it."""
    t.usual((1, "Ada", "1.00"))
    t.upd(1, name="Eve")
    t.load_files.clear()
    t.parquet([{"id": 1, "name": "Eve", "price": Decimal("1.00")}], **ARROW)
    t.table["initial_load"]["stream_from"] = f"0000002C:{t.commit + 1:08X}:0001"
    t.upd(1, name="Zoe")


# -- CSV ------------------------------------------------------------------------------------------------------------


def of_csv(
    label: str, text: str | bytes, *rows: tuple[Any, ...], tell: bool = False, file: str = "", **types: str
) -> None:
    """An export as CSV, and the rows that it was made of."""

    def build() -> Loaded:
        t = Loaded(f"l_csv_{label}")
        t.must_tell = tell
        for key, text_of, price in rows:
            t.there(id=str(key), name=text_of, price=price)
        t.csv(text, **(types or TYPES))
        if file:
            t.load_files[file] = t.load_files.pop("part-0.csv")
        t.ins(id="99", name="later", price="9.00")
        return t

    CASES[f"l_csv_{label}"] = build


of_csv("sound", 'id,name,price\n1,"Ada",1.00\n2,,\n3,"",2.00\n', (1, "Ada", "1.00"), (2, None, None), (3, "", "2.00"))
of_csv("word_null", "id,name,price\n1,NULL,NULL\n", (1, None, None))
of_csv("backslash_n", "id,name,price\n1,\\N,\\N\n", (1, None, None))
of_csv("text_null", 'id,name,price\n1,"NULL",1.00\n', (1, "NULL", "1.00"))
of_csv("bom_crlf", b'\xef\xbb\xbfid,name,price\r\n1,"A\r\nB",1.00\r\n', (1, "A\r\nB", "1.00"))
of_csv("semicolons", "id;name;price\n1;Ada;1.00\n", (1, "Ada", "1.00"))
of_csv("tabs", "id\tname\tprice\n1\tAda\t1.00\n", (1, "Ada", "1.00"))
of_csv("blanks", "id, name, price\n1, Ada, 1.00\n", (1, "Ada", "1.00"))
of_csv("header_in_capitals", "ID,NAME,PRICE\n1,Ada,1.00\n", (1, "Ada", "1.00"))
of_csv("header_missing", "1,Ada,1.00\n2,Bob,2.00\n", (1, "Ada", "1.00"), (2, "Bob", "2.00"))
of_csv("header_reordered", "name,price,id\nAda,1.00,1\n", (1, "Ada", "1.00"))
of_csv("header_twice", "id,name,name\n1,Ada,Eve\n", (1, "Ada", None), tell=True)
of_csv(
    "header_in_each_part",
    "id,name,price\n1,Ada,1.00\nid,name,price\n2,Bob,1.00\n",
    (1, "Ada", "1.00"),
    (2, "Bob", "1.00"),
)
of_csv("ragged_long", "id,name,price\n1,Ada,1.00,x\n", (1, "Ada", "1.00"), tell=True)
of_csv("ragged_short", "id,name,price\n1,Ada\n", (1, "Ada", "1.00"), tell=True)
of_csv("cut", 'id,name,price\n1,Ada,1.00\n2,"Bo', (1, "Ada", "1.00"), (2, "Bob", "1.00"))
of_csv("cut_in_number", "id,name,price\n1,Ada,1.00\n2,Bob,12", (1, "Ada", "1.00"), (2, "Bob", "12.34"))
of_csv("latin1", "id,name,price\n1,José,1.00\n".encode("latin-1"), (1, "José", "1.00"))
of_csv("utf16", "id,name,price\n1,Ada,1.00\n".encode("utf-16"), (1, "Ada", "1.00"))
of_csv("backslash_quote", 'id,name,price\n1,"A\\"da",1.00\n', (1, 'A"da', "1.00"))
of_csv("blank_line", "id,name,price\n\n1,Ada,1.00\n\n", (1, "Ada", "1.00"))
of_csv("only_header", "id,name,price\n")
of_csv("zero_bytes", "", (1, "Ada", "1.00"))
of_csv("decimal_comma", 'id,name,price\n1,Ada,"1,00"\n', (1, "Ada", "1.00"))
of_csv("thousands", 'id,name,price\n1,Ada,"1,234.00"\n', (1, "Ada", "1234.00"))
of_csv("rounds", "id,name,price\n1,Ada,1.005\n", (1, "Ada", "1.00"), tell=True)
of_csv("number_as_float", "id,name,price\n1.0,Ada,1.00\n", (1, "Ada", "1.00"))
of_csv("id_exponent", "id,name,price\n1E+3,Ada,1.00\n", (1000, "Ada", "1.00"))
of_csv("packed", gzip.compress(b"id,name,price\n1,Ada,1.00\n", mtime=0), (1, "Ada", "1.00"), file="part-0.csv.gz")
of_csv(
    "packed_cut",
    gzip.compress(b"id,name,price\n1,Ada,1.00\n" * 1, mtime=0)[:-6],
    (1, "Ada", "1.00"),
    file="part-0.csv.gz",
)
of_csv("footer", "id,name,price\n1,Ada,1.00\n\n(1 rows affected)\n", (1, "Ada", "1.00"))
of_csv("dashes", "id,name,price\n--,----,-----\n1,Ada,1.00\n", (1, "Ada", "1.00"))
of_csv("type_missing", "id,name,price\n1,Ada,1.00\n", (1, "Ada", "1.00"), id="int", name="nvarchar(50)")
of_csv("type_too_many", "id,name\n1,Ada\n", (1, "Ada", "1.00"), **TYPES)
of_csv("nul", "id,name,price\n1,A\0da,1.00\n", (1, "A\0da", "1.00"))
of_csv("trailing_comma", "id,name,price,\n1,Ada,1.00,\n", (1, "Ada", "1.00"))
of_csv("trailing_blank", "id,name,price\n1,Ada ,1.00\n", (1, "Ada ", "1.00"))
