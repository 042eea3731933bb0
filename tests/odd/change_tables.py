"""Odd Qlik change tables in files: each function is a table, its name the table's, what it says the story."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.odd.inputs import Source, V, wire
from tests.pipeline import Pipeline

CASES: dict[str, Callable[[], ChangeTable]] = {}
COLUMNS = {"id": "INT4", "name": "WSTRING(50)", "price": "NUMERIC(8,2)"}
HEADERS = {
    "change_seq": "STRING(35)",
    "change_oper": "STRING(1)",
    "change_mask": "STRING(258)",
    "stream_position": "STRING(128)",
    "operation": "STRING(12)",
    "transaction_id": "STRING(32)",
    "timestamp": "DATETIME",
}
NAMES = {"I": "INSERT", "U": "UPDATE", "D": "DELETE", "B": "BEFOREIMAGE"}


@dataclass
class Shape:
    """How a step's rows become a file, and what of it is altered."""

    form: str = "csv"
    stem: str = ""
    folder: str = ""
    packed: bool = False
    content: Callable[[bytes], bytes] = bytes
    dfm: Callable[[dict[str, Any]], None] | None = None
    dfm_text: Callable[[bytes], bytes | None] = bytes
    null: str = ""
    quote_texts: bool = True


class ChangeTable(Source):
    """A table whose changes are stored by a task with a file target."""

    def __init__(self, name: str, columns: Mapping[str, str] = COLUMNS, key: Sequence[str] = ("id",)) -> None:
        super().__init__(name, columns, key)
        self.prefix = "header__"
        self.headers = dict(HEADERS)
        self.before = True
        self.masks = True
        self.shapes: dict[int, Shape] = {}
        self.stepped_columns: dict[int, dict[str, str]] = {}

    @property
    def shape(self) -> Shape:
        return self.shapes.setdefault(len(self.steps) - 1, Shape())

    def physical(self) -> dict[str, str]:
        return {f"{self.prefix}{name}": kind for name, kind in self.headers.items()} | self.columns

    def mask(self, names: Sequence[str]) -> str | None:
        if not self.masks:
            return None
        order = list(self.physical())
        return f"{sum(1 << order.index(name) for name in names):X}" if names else ""

    def stored(
        self, oper: str, row: Mapping[str, Any], changed: Sequence[str], commit: int, sequence: int
    ) -> dict[str, Any]:
        scene = {
            "change_seq": f"2026080716301050{commit * 1000 + sequence:019d}",
            "change_oper": oper,
            "change_mask": self.mask(changed),
            "stream_position": f"0000002c:{commit:08x}:0001",
            "operation": NAMES.get(oper, oper),
            "transaction_id": f"{commit:032X}",
            "timestamp": "2026-08-07 16:30:10.000000",
        }
        line = {f"{self.prefix}{n}": v for n, v in scene.items() if n in self.headers} | {
            n: wire(v) for n, v in row.items()
        }
        self.steps[-1].append(line)
        self.stepped_columns[len(self.steps) - 1] = self.physical()
        return line

    def ins(self, *, same: bool = False, **row: Any) -> dict[str, Any]:
        whole = {name: None for name in self.columns} | row
        self.put(whole)
        return self.stored("I", whole, list(self.columns), *self.next(same=same))

    def upd(self, key: Any, *, same: bool = False, **changes: Any) -> dict[str, Any]:
        old = self.drop(key)
        self.put(old | changes)
        place = self.next(same=same)
        if self.before:
            self.stored("B", old, [], *place)
        return self.stored("U", old | changes, list(changes), *place)

    def delete(self, key: Any, *, same: bool = False) -> dict[str, Any]:
        return self.stored("D", self.drop(key), self.key, *self.next(same=same))

    def files_of(self, at: int) -> dict[str, bytes]:
        rows = self.steps[at] if at < len(self.steps) else []
        if not rows:
            return {}
        shape = self.shapes.get(at, Shape())
        columns = self.stepped_columns[at]
        stem = shape.stem or f"20260807-1630{at:02d}000"
        folder = shape.folder or f"dbo.{self.name}__ct"
        data = {"csv": _csv, "json": _json, "parquet": _parquet}[shape.form](columns, rows, shape)
        described = []
        for ordinal, (name, kind) in enumerate(columns.items(), 1):
            base, _, rest = kind.rstrip(")").partition("(")
            numbers = [int(n) for n in rest.split(",")] if rest else []
            numeric = base == "NUMERIC"
            described.append({
                "ordinal": ordinal, "name": name, "type": base, "length": numbers[0] if numbers and not numeric else 0,
                "precision": numbers[0] if numbers and numeric else 0,
                "scale": numbers[1] if len(numbers) > 1 and numeric else 0,
                "primaryKeyPos": self.key.index(name) + 1 if name in self.key else 0,
            })  # fmt: skip
        name = f"{stem}.{shape.form}"
        document: dict[str, Any] = {
            "dfmVersion": "1.1",
            "taskInfo": {"name": "task1", "operation": "fullLoadAndCdc"},
            "fileInfo": {"name": name, "extension": "gz" if shape.packed else "", "location": folder,
                         "content": "changes", "recordCount": len(rows), "errorCount": 0},
            "formatInfo": {"format": "delimited" if shape.form == "csv" else shape.form,
                           "options": {"fieldDelimiter": ",", "recordDelimiter": "\n", "nullValue": shape.null,
                                       "quoteChar": '"', "escapeChar": '"'}},
            "dataInfo": {"sourceSchema": "dbo", "sourceTable": self.name, "targetSchema": "dbo",
                         "targetTable": f"{self.name}__ct", "tableVersion": 1, "columns": described},
        }  # fmt: skip
        if shape.dfm:
            shape.dfm(document)
        content = shape.content(data)
        if shape.packed:
            content = gzip.compress(content, mtime=0)
        files = {f"{folder}/{name}{'.gz' * shape.packed}": content}
        text = shape.dfm_text(json.dumps(document).encode())
        if text is not None:
            files[f"{folder}/{stem}.dfm"] = text
        return files


def _csv(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], shape: Shape) -> bytes:
    def cell(value: Any, kind: str) -> str:
        if value is None:
            return shape.null
        if (
            shape.quote_texts
            and kind.startswith(("STRING", "WSTRING", "NCLOB", "CLOB"))
            and kind not in HEADERS.values()
        ):
            return '"' + str(value).replace('"', '""') + '"'
        return str(value)

    out = [",".join(columns)]
    out += [",".join(cell(row.get(name), kind) for name, kind in columns.items()) for row in rows]
    return "".join(line + "\n" for line in out).encode()


def _json(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], shape: Shape) -> bytes:
    return b"".join(json.dumps({n: row[n] for n in columns if n in row}).encode() + b"\n" for row in rows)


def _parquet(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], shape: Shape) -> bytes:
    kinds = {"INT4": pa.int32(), "INT8": pa.int64(), "REAL8": pa.float64()}
    names = list(columns)
    arrays = [
        pa.array([row.get(n) for row in rows], kinds.get(columns[n].partition("(")[0], pa.string())) for n in names
    ]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, names=names), buffer)
    return buffer.getvalue()


def deliver(pipeline: Pipeline, at: int, sources: Sequence[Source]) -> None:
    for s in sources:
        assert isinstance(s, ChangeTable)
        for name, content in s.files_of(at).items():
            pipeline.deliver(name, content)
        for name, more in (s.files[at] if at < len(s.files) else {}).items():
            if more is None:
                (pipeline.source / name).unlink()
            else:
                pipeline.deliver(name, more)


SETTINGS: dict[str, Any] = {"source": {"format": "qlik-change-table", "layout": None}, "deliver": deliver}


def case(
    columns: Mapping[str, str] = COLUMNS,
    key: Sequence[str] = ("id",),
    *,
    tell: bool = False,
    alone: bool = False,
    **table: Any,
) -> Callable[[Callable[[ChangeTable], None]], Callable[[ChangeTable], None]]:
    def take(story: Callable[[ChangeTable], None]) -> Callable[[ChangeTable], None]:
        name = f"ct_{story.__name__}"

        def build() -> ChangeTable:
            t = ChangeTable(name, columns, key)
            t.table |= table
            t.must_tell, t.alone = tell, alone
            story(t)
            return t

        CASES[name] = build
        return story

    return take


def value(name: str, kind: str, *values: Any, tell: bool = False, form: str = "csv", quote: bool = True) -> None:
    for at, one in enumerate(values if tell else [None]):
        label = f"ct_v_{name}_{at}" if tell else f"ct_v_{name}"

        def build(label: str = label, one: Any = one) -> ChangeTable:
            t = ChangeTable(label, {"id": "INT4", "v": kind})
            t.must_tell = tell
            t.shape.form, t.shape.quote_texts = form, quote
            for number, v in enumerate([one] if tell else values):
                t.ins(id=number, v=V(wire(v), "?") if tell else v)
            return t

        CASES[label] = build


value("int8", "INT8", V("9007199254740993", 9007199254740993), V("+5", 5), V("007", 7))
value("int_bad", "INT4", "2147483648", "5.5", "1_000", "1e3", "NULL", tell=True)
value("int_json_number", "INT8", V(9007199254740993, 9007199254740993), form="json")
value("int_json_true", "INT4", True, tell=True, form="json")
value("text_json_true", "WSTRING(9)", V(True, "true"), form="json")
value("numeric", "NUMERIC(20,4)", V("1.5", Decimal("1.5")), V(".5", Decimal("0.5")), V("-0", Decimal(0)))
value("numeric_json_number", "NUMERIC(28,10)", V(1234567890123456.1, Decimal("1234567890123456.1")), form="json")
value("numeric_bad", "NUMERIC(8,2)", "1.005", "NaN", '"1,5"', tell=True)
value("numeric_0_0", "NUMERIC(0,0)", V("12.5", Decimal("12.5")))
value("real8", "REAL8", V("0.1", 0.1), V("1E+2", 100.0))
value("real8_bad", "REAL8", "NaN", "-Infinity", tell=True)
value("boolean", "BOOLEAN", V("1", True), V("true", True), V("0", False))
value("boolean_bad", "BOOLEAN", "T", "t", "2", tell=True)
value("bytes", "BYTES(8)", V("00FF", b"\x00\xff"), V("0x00ff", b"\x00\xff"))
value("datetime", "DATETIME", V("2021-12-01 11:20:30.4444444", datetime(2021, 12, 1, 11, 20, 30, 444444)),
      V("9999-12-31 23:59:59.9999999", datetime(9999, 12, 31, 23, 59, 59, 999999)))  # fmt: skip
value("datetime_bad", "DATETIME", "2021-02-30 00:00:00", "01/12/2021", "0000-00-00 00:00:00", tell=True)
value("text", "WSTRING(20)", V("", ""), V(None, None), V("NULL", "NULL"), V(" a ", " a "), V('"', '"'), V("a,b", "a,b"),
      V("a\nb", "a\nb"), V("a\r\nb", "a\r\nb"), V("\\", "\\"), V("é", "é"))  # fmt: skip
value("text_json", "WSTRING(20)", V("", ""), V(None, None), V("NULL", "NULL"), V(" a ", " a "), form="json")
value("text_parquet", "WSTRING(20)", V("", ""), V(None, None), V("NULL", "NULL"), V(" a ", " a "), form="parquet")
value("text_unquoted_nul", "WSTRING(20)", V("a\0b", "a\0b"))
value("uint2_bad", "UINT2", "-1", "65536", tell=True)
value("uint8_bad", "UINT8", "-1", "18446744073709551616", tell=True)
value("uint8", "UINT8", V("18446744073709551615", Decimal(2**64 - 1)), V("0", Decimal(0)))
value("int1_bad", "INT1", "128", tell=True, form="json")
value("text_too_long", "STRING(3)", "abcdefghijklmnopqrstuvwxyz", tell=True)
value("unknown_type", "GEOMETRY", V("x", "x"))


def held(name: str, kind: str, arrow: pa.DataType, value: Any, true: Any, *, tell: bool = False) -> None:
    """A Parquet file that holds the values of one column as another type than its metadata file says."""

    def build() -> ChangeTable:
        t = ChangeTable(f"ct_held_{name}", {"id": "INT4", "v": kind})
        t.must_tell, t.shape.form = tell, "parquet"
        t.ins(id=1, v=V(None, true))

        def altered(content: bytes) -> bytes:
            table, buffer = pq.read_table(io.BytesIO(content)), io.BytesIO()
            at = table.column_names.index("v")
            pq.write_table(table.set_column(at, "v", pa.array([value], arrow)), buffer)
            return buffer.getvalue()

        t.shape.content = altered
        return t

    CASES[f"ct_held_{name}"] = build


held("numeric_as_double", "NUMERIC(20,4)", pa.float64(), 1234567890123456.7, Decimal("1234567890123456.7891"))
held("short_numeric_as_double", "NUMERIC(8,2)", pa.float64(), 0.1, Decimal("0.10"))
held("numeric_as_decimal", "NUMERIC(20,4)", pa.decimal128(20, 4), Decimal("1.5000"), Decimal("1.5"))
held("text_as_int", "WSTRING(9)", pa.int32(), 7, "007")
held("int_as_bool", "INT4", pa.bool_(), True, None, tell=True)
held("boolean", "BOOLEAN", pa.bool_(), True, True)
held("text_as_bytes", "WSTRING(9)", pa.binary(), b"abc", "abc")
held("text_as_timestamp", "WSTRING(30)", pa.timestamp("us"), datetime(2021, 1, 2), "02.01.2021")
held("text_as_bool", "WSTRING(9)", pa.bool_(), True, "Y")
held("bytes_as_int", "BYTES(8)", pa.int32(), 10, b"\x0a")
held("int_as_double", "INT4", pa.float64(), 5.0, 5)
held("int8_as_double", "INT8", pa.float64(), 2.0**53, 2**53 + 1)
held("int8_as_float", "INT8", pa.float32(), 2.0**24, 2**24 + 1)
held("uint8_as_double", "UINT8", pa.float64(), 2.0**53, Decimal(2**53 + 1))
held("numeric_as_float", "NUMERIC(9,2)", pa.float32(), 1234567.89, Decimal("1234567.89"))


@case()
def null_value_is_text(t: ChangeTable) -> None:
    """nullValue is NULL: the quoted text "NULL" is a text."""
    t.shape.null = "NULL"
    t.ins(id=1, name="NULL", price=None)
    t.ins(id=2, name=None, price="1.00")
    t.ins(id=3, name="", price="1.00")


@case()
def empty_unquoted_text_with_other_null(t: ChangeTable) -> None:
    """nullValue is NULL, texts without quotes: an empty field is an empty text."""
    t.shape.null, t.shape.quote_texts = "NULL", False
    t.ins(id=1, name="", price=None)


@case({"id": "INT4", "name": "WSTRING(50)"})
def text_ends_with_carriage_return_unquoted(t: ChangeTable) -> None:
    """The last column of a line, without quotes: a parser takes it for the line's end."""
    t.shape.null, t.shape.quote_texts = "NULL", False
    t.ins(id=1, name="Ada\r")
    t.ins(id=2, name="Ada")


@case()
def empty_unquoted_text(t: ChangeTable) -> None:
    """nullValue is empty, texts are never quoted: empty text and NULL look alike."""
    t.shape.quote_texts = False
    t.ins(id=1, name="", price="1.00")
    t.ins(id=2, name=None, price="1.00")


@case()
def empty_unquoted_text_beside_another(t: ChangeTable) -> None:
    """The same beside a text that shows that texts are never quoted."""
    t.shape.quote_texts = False
    t.ins(id=1, name="", price="1.00")
    t.ins(id=2, name="Ada", price="1.00")


# -- rows -----------------------------------------------------------------------------------------------------------
@case()
def plain(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.step()
    t.upd(1, name=None)
    t.ins(id=2, name="Bob", price=None)
    t.upd(2, id=3)
    t.ins(id=4, name="x")
    t.delete(4)


@case()
def plain_json(t: ChangeTable) -> None:
    t.shape.form = "json"
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name=None)


@case()
def plain_parquet(t: ChangeTable) -> None:
    t.shape.form = "parquet"
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name=None)


@case()
def json_lacks_column(t: ChangeTable) -> None:
    """An update's object that leaves a column out: absent, not NULL."""
    t.shape.form = "json"
    t.ins(id=1, name="Ada", price="1.00")
    del t.upd(1, price="2.00")["name"]


@case()
def json_lacks_column_and_mask(t: ChangeTable) -> None:
    t.shape.form = "json"
    t.masks = t.before = False
    t.ins(id=1, name="Ada", price="1.00")
    del t.upd(1, price="2.00")["name"]


@case()
def update_null_not_in_mask(t: ChangeTable) -> None:
    """The mask says that only price changed; the row before holds a name, the row after none."""
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, price="2.00")["name"] = None


@case()
def update_null_not_in_mask_no_before(t: ChangeTable) -> None:
    t.before = False
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, price="2.00")["name"] = None


@case()
def update_null_no_mask(t: ChangeTable) -> None:
    t.before = t.masks = False
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, price="2.00")["name"] = None


@case(tell=True)
def mask_none_on_insert(t: ChangeTable) -> None:
    """T-13, T-21: an insert without any bit."""
    t.ins(id=1, name="Ada", price="1.00")["header__change_mask"] = "00"


@case(tell=True)
def mask_none_on_delete(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.delete(1)["header__change_mask"] = "00"
    t.put({"id": 1, "name": "Ada", "price": "1.00"})


@case(tell=True)
def mask_header_bit(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve")["header__change_mask"] = "3"


@case(tell=True)
def mask_beyond_columns(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve")["header__change_mask"] = "800000"


@case(tell=True)
def mask_no_hex(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve")["header__change_mask"] = "b'\\x01'"


@case(tell=True)
def mask_denies_change(t: ChangeTable) -> None:
    """B and U differ in the name, the mask names the price only."""
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve")["header__change_mask"] = "200"


@case()
def key_change_without_before(t: ChangeTable) -> None:
    """The mask tells that the key changed, the old one stands nowhere."""
    t.before = False
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, id=2)


@case()
def key_change_untold(t: ChangeTable) -> None:
    """Neither mask nor before image."""
    t.before = t.masks = False
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, id=2)


@case()
def key_change_untold_no_mask_column(t: ChangeTable) -> None:
    """change_mask is deselected, before images are off."""
    t.before = t.masks = False
    del t.headers["change_mask"]
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, id=2)


@case()
def key_change_mask_empty(t: ChangeTable) -> None:
    t.before = False
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, id=2)["header__change_mask"] = ""


@case()
def key_change_mask_zero(t: ChangeTable) -> None:
    t.before = False
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, id=2)["header__change_mask"] = "00"


@case({"id": "INT4", "doc": "NCLOB"})
def update_of_large_object_mask_zero(t: ChangeTable) -> None:
    """Masks do not speak of large objects: one that changed alone leaves no bit."""
    t.before = False
    t.ins(id=1, doc="old")
    t.upd(1, doc="new")["header__change_mask"] = "00"


@case()
def key_change_before_in_next_file(t: ChangeTable) -> None:
    """The before image ends one file, its update begins the next."""
    t.ins(id=1, name="Ada", price="1.00")
    update = t.upd(1, id=2)
    t.steps[-1].remove(update)
    t.step()
    t.steps[-1].append(update)
    t.stepped_columns[1] = t.physical()


@case()
def key_change_before_follows_in_next_file(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, id=2)
    before = t.steps[-1].pop(-2)
    t.step()
    t.steps[-1].append(before)
    t.stepped_columns[1] = t.physical()


@case()
def key_swap(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.ins(id=2, name="Bob", price="1.00")
    one, two = t.drop(1), t.drop(2)
    t.put(one | {"id": 2}), t.put(two | {"id": 1})
    place = t.next()
    t.stored("B", one, [], *place), t.stored("U", one | {"id": 2}, ["id"], *place)
    place = t.next(same=True)
    t.stored("B", two, [], *place), t.stored("U", two | {"id": 1}, ["id"], *place)


@case()
def key_swap_alike(t: ChangeTable) -> None:
    """Rows that are equal but for their keys."""
    t.ins(id=1, name="Ada", price="1.00")
    t.ins(id=2, name="Ada", price="1.00")
    one, two = t.raw[1,], t.raw[2,]
    place = t.next()
    t.stored("B", one, [], *place), t.stored("U", two, ["id"], *place)
    place = t.next(same=True)
    t.stored("B", two, [], *place), t.stored("U", one, ["id"], *place)


@case()
def key_change_behind_insert_old_key_alone(t: ChangeTable) -> None:
    """A source logs the keys of old rows alone: all else is NULL in before images; the mask names what is not now."""
    t.ins(id=1, name="Ada", price="1.00")
    new = t.drop(1) | {"id": 2}
    t.put(new)
    place = t.next(same=True)
    t.stored("B", {"id": 1, "name": None, "price": None}, [], *place), t.stored("U", new, list(t.columns), *place)


@case({"id": "INT4", "name": "WSTRING(50)", "note": "NCLOB"})
def key_change_behind_insert_old_large_object_null(t: ChangeTable) -> None:
    """Before images have no large objects."""
    t.ins(id=1, name="Ada", note="long")
    new = t.drop(1) | {"id": 2}
    t.put(new)
    place = t.next(same=True)
    t.stored("B", {"id": 1, "name": "Ada", "note": None}, [], *place), t.stored("U", new, ["id"], *place)


@case()
def key_swap_without_values(t: ChangeTable) -> None:
    """Before images have the key alone, and there are no masks; one row moves on in the same transaction."""
    t.masks = False
    for key, name in ((1, "Ada"), (2, "Bob")):
        t.ins(id=key, name=name, price="1.00")
    for at, (old, new) in enumerate(t.swap_and_move_on()):
        place = t.next(same=at > 0)
        t.stored("B", {"id": old["id"], "name": None, "price": None}, [], *place), t.stored("U", new, ["id"], *place)


@case()
def before_alone(t: ChangeTable) -> None:
    """A before image whose update never comes."""
    t.ins(id=1, name="Ada", price="1.00")
    update = t.upd(1, name="Eve")
    t.steps[-1].remove(update)


@case()
def oper_lower(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve")["header__change_oper"] = "u"


@case()
def oper_unknown(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve")["header__change_oper"] = "X"


@case()
def oper_null(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve")["header__change_oper"] = None


@case(tell=True)
def oper_and_operation_differ(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve")["header__operation"] = "DELETE"


@case()
def seq_null(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.ins(id=2, name="Bob", price="1.00")["header__change_seq"] = None


@case()
def seq_short(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve")["header__change_seq"] = "20260807163010501"


@case()
def seq_in_float(t: ChangeTable) -> None:
    """A human opened the file in a table calculation."""
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve")["header__change_seq"] = "2.02608E+34"


@case()
def seq_same_for_two_changes(t: ChangeTable) -> None:
    """Two updates of one row with one change_seq."""
    t.before = False
    t.ins(id=1, name="Ada", price="1.00")
    first = t.upd(1, name="first")
    t.upd(1, name="second", same=True)["header__change_seq"] = first["header__change_seq"]


@case()
def timestamp_epoch(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")["header__timestamp"] = "1970-01-01 00:00:00.000000"


@case()
def key_null(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.ins(id=2, name="Ada", price="1.00")["id"] = None


@case()
def doubled(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve")
    rows = list(t.steps[-1])
    t.step()
    t.steps[-1] += rows
    t.stepped_columns[1] = t.physical()


@case()
def late(t: ChangeTable) -> None:
    late = t.ins(id=1, name="Ada", price="1.00")
    t.steps[-1].remove(late)
    t.delete(1)
    t.step()
    t.steps[-1].append(late)
    t.stepped_columns[1] = t.physical()


@case()
def delete_only_key(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    gone = t.delete(1)
    gone["name"] = gone["price"] = None


@case({"id": "WSTRING(10)", "v": "INT4"})
def key_text_case_untold(t: ChangeTable) -> None:
    """A key that changes its case only; under a collation without case Qlik sees no change of key."""
    t.before = False
    t.ins(id="abc", v=1)
    t.upd("abc", id="ABC")["header__change_mask"] = "100"


@case({"id": "WSTRING(10)", "v": "INT4"})
def key_text_blank(t: ChangeTable) -> None:
    t.ins(id="abc", v=1)
    t.upd("abc", id="abc ")


@case({"id": "DATETIME", "v": "INT4"})
def key_datetime(t: ChangeTable) -> None:
    t.ins(id="2023-03-21 14:34:21.000000", v=1)
    t.delete(datetime(2023, 3, 21, 14, 34, 21))["id"] = "2023-03-21 14:34:21"


@case({"id": "NUMERIC(10,2)", "v": "INT4"})
def key_decimal(t: ChangeTable) -> None:
    t.before = False
    t.ins(id="1", v=1)
    t.upd(Decimal(1), v=2)["id"] = "1.00"


# -- files ----------------------------------------------------------------------------------------------------------
@case()
def dfm_missing(t: ChangeTable) -> None:
    """A data file whose .dfm never comes."""
    t.shape.dfm_text = lambda _: None
    t.ins(id=1, name="Ada", price="1.00")


@case()
def dfm_missing_behind_good_one(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.step()
    t.shape.dfm_text = lambda _: None
    t.upd(1, name="Eve")


@case()
def dfm_in_capitals(t: ChangeTable) -> None:
    t.shape.dfm_text = lambda _: None
    t.ins(id=1, name="Ada", price="1.00")
    files = _again(t, 0, dfm=True)
    t.files[-1] |= {name.replace(".dfm", ".DFM"): c for name, c in files.items() if name.endswith(".dfm")}


def _again(t: ChangeTable, at: int, *, dfm: bool = False) -> dict[str, bytes]:
    shape = t.shapes.setdefault(at, Shape())
    kept, shape.dfm_text = shape.dfm_text, bytes if dfm else shape.dfm_text
    files = t.files_of(at)
    shape.dfm_text = kept
    return files


@case()
def folder_in_other_case(t: ChangeTable) -> None:
    t.shape.folder = f"DBO.{t.name.upper()}__CT"
    t.ins(id=1, name="Ada", price="1.00")


@case()
def folder_suffix_in_other_case(t: ChangeTable) -> None:
    t.shape.folder = f"dbo.{t.name}__CT"
    t.ins(id=1, name="Ada", price="1.00")


@case()
def folder_without_schema(t: ChangeTable) -> None:
    t.shape.folder = f"{t.name}__ct"
    t.ins(id=1, name="Ada", price="1.00")


@case()
def seq_all_zero(t: ChangeTable) -> None:
    """A sequence without any digit but zero lies below every other one."""
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve")
    for row in t.steps[-1][1:]:
        row["header__change_seq"] = "0" * 35


@case()
def json_lone_surrogate(t: ChangeTable) -> None:
    """Half a surrogate pair is no text: its file is damaged, and no other table's."""
    t.shape.form = "json"
    t.shape.content = lambda content: content.replace(b"Ada", b"\\ud83d")
    t.ins(id=1, name="Ada", price="1.00")


@case()
def folder_of_another_suffix(t: ChangeTable) -> None:
    """The task's change tables end otherwise than the mirror file says: nothing of them would be read."""
    t.shape.folder = f"dbo.{t.name}__changes"
    t.ins(id=1, name="Ada", price="1.00")


@case()
def folder_of_another_suffix_beside(t: ChangeTable) -> None:
    """A copy of older changes, put aside under another name."""
    t.ins(id=2, name="Bob", price="1.00")
    t.step()
    t.shape.folder = f"dbo.{t.name}__ct_old"
    t.ins(id=1, name="Ada", price="1.00")
    t.drop(1)


@case()
def folder_missing(t: ChangeTable) -> None:
    """Nothing of the table ever comes, though it has rows."""
    t.put({"id": 1, "name": "Ada", "price": "1.00"})


@case()
def folder_of_partition(t: ChangeTable) -> None:
    t.shape.folder = f"dbo.{t.name}__ct/20260807T160000_20260807T170000"
    t.ins(id=1, name="Ada", price="1.00")


@case()
def dfm_names_other_table(t: ChangeTable) -> None:
    t.shape.dfm = lambda d: d["dataInfo"].update(sourceTable="q_other", targetTable="q_other__ct")
    t.ins(id=1, name="Ada", price="1.00")
    t.rows.clear()
    t.must_tell = True


@case()
def dfm_count_too_high(t: ChangeTable) -> None:
    t.shape.dfm = lambda d: d["fileInfo"].update(recordCount=3)
    t.ins(id=1, name="Ada", price="1.00")
    t.must_tell = True


@case()
def dfm_count_missing(t: ChangeTable) -> None:
    t.shape.dfm = lambda d: d["fileInfo"].pop("recordCount")
    t.ins(id=1, name="Ada", price="1.00")


@case()
def file_cut_at_line(t: ChangeTable) -> None:
    """The file was copied while it was written: whole lines are missing."""
    t.ins(id=1, name="Ada", price="1.00")
    t.ins(id=2, name="Bob", price="1.00")
    t.shape.content = lambda c: c[: c.rindex(b"2026")]


@case()
def file_cut_at_line_no_count(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.ins(id=2, name="Bob", price="1.00")
    t.shape.content = lambda c: c[: c.rindex(b"2026")]
    t.shape.dfm = lambda d: d["fileInfo"].pop("recordCount")


@case()
def error_count(t: ChangeTable) -> None:
    """The task itself says that it could not write one record."""
    t.ins(id=1, name="Ada", price="1.00")
    t.ins(id=2, name="lost", price="1.00")
    t.steps[-1].pop()
    t.shape.dfm = lambda d: d["fileInfo"].update(errorCount=1)


@case()
def zero_bytes(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.shape.content = lambda _: b""


@case()
def zero_bytes_of_json(t: ChangeTable) -> None:
    t.shape.form = "json"
    t.ins(id=1, name="Ada", price="1.00")
    t.shape.content = lambda _: b""


@case()
def bom_crlf(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.shape.content = lambda c: b"\xef\xbb\xbf" + c.replace(b"\n", b"\r\n")


@case()
def latin1(t: ChangeTable) -> None:
    t.ins(id=1, name="José", price="1.00")
    t.shape.content = lambda c: c.decode().encode("latin-1")


@case()
def header_line_missing(t: ChangeTable) -> None:
    """The task writes no header line (a setting)."""
    t.ins(id=1, name="Ada", price="1.00")
    t.ins(id=2, name="Bob", price="1.00")
    t.shape.content = lambda c: c[c.index(b"\n") + 1 :]


@case()
def header_line_missing_value_is_a_name(t: ChangeTable) -> None:
    """No header line, and a text of the first row is the name of a column."""
    t.ins(id=1, name="price", price="1.00")
    t.ins(id=2, name="Bob", price="1.00")
    t.shape.content = lambda c: c[c.index(b"\n") + 1 :]


@case()
def other_delimiter(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.shape.content = lambda c: c.replace(b",", b";")
    t.shape.dfm = lambda d: d["formatInfo"]["options"].update(fieldDelimiter=";")


@case()
def other_delimiter_unsaid(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.shape.content = lambda c: c.replace(b",", b";")


@case()
def columns_in_other_order_than_dfm(t: ChangeTable) -> None:
    """The file's header has name and price swapped, the .dfm has not."""
    t.columns = {"id": "INT4", "a": "WSTRING(9)", "b": "WSTRING(9)"}
    t.ins(id=1, a="A", b="B")
    t.shape.content = lambda c: c.replace(b",a,b\n", b",b,a\n").replace(b'"A","B"', b'"B","A"')


@case()
def packed_two_members(t: ChangeTable) -> None:
    t.shape.packed = True
    t.ins(id=1, name="Ada", price="1.00")
    t.ins(id=2, name="Bob", price="1.00")
    name = f"dbo.{t.name}__ct/20260807-163000000.csv.gz"
    files = t.files_of(0)
    whole = gzip.decompress(files[name]).splitlines(True)
    t.files[-1] |= {name: b"".join(gzip.compress(line, mtime=0) for line in whole)}


@case()
def packed_and_cut(t: ChangeTable) -> None:
    t.shape.packed = True
    t.ins(id=1, name="Ada", price="1.00")
    name = f"dbo.{t.name}__ct/20260807-163000000.csv.gz"
    t.files[-1] |= {name: t.files_of(0)[name][:-12]}


@case()
def delivered_twice_two_names(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve")
    t.step()
    for name, content in t.files_of(0).items():
        renamed = name.replace("20260807-163000000", "20260807-163000001")
        t.files[-1][renamed] = content.replace(b"20260807-163000000", b"20260807-163000001")


@case()
def copied_by_hand(t: ChangeTable) -> None:
    """A copy beside the file, as a file manager names it."""
    t.ins(id=1, name="Ada", price="1.00")
    t.step()
    for name, content in t.files_of(0).items():
        stem, dot, ending = name.partition(".csv" if ".csv" in name else ".dfm")
        t.files[-1][f"{stem} - Copy{dot}{ending}"] = content


@case()
def file_earlier_than_read_ones(t: ChangeTable) -> None:
    """A file with an earlier name comes later."""
    t.ins(id=1, name="Ada", price="1.00")
    t.step()
    t.shape.stem = "20260101-000000000"
    t.upd(1, name="Eve")


@case(alone=True)
def file_replaced(t: ChangeTable) -> None:
    """A file that was read is written again with another content."""
    t.ins(id=1, name="Ada", price="1.00")
    t.step()
    t.shape.stem = "20260807-163000000"
    t.ins(id=2, name="Bob", price="1.00")


@case(alone=True)
def file_grows(t: ChangeTable) -> None:
    """A file that was read has more rows now, and so says its .dfm."""
    t.ins(id=1, name="Ada", price="1.00")
    rows = list(t.steps[-1])
    t.step()
    t.shape.stem = "20260807-163000000"
    t.steps[-1] += rows
    t.ins(id=2, name="Bob", price="1.00")


@case()
def ending_txt(t: ChangeTable) -> None:
    """The task writes .txt files."""
    t.ins(id=1, name="Ada", price="1.00")
    files = t.files_of(0)
    t.steps[-1].clear()
    t.files[-1] |= {n.replace(".csv", ".txt"): c.replace(b".csv", b".txt") for n, c in files.items()}


@case()
def ending_csv_in_capitals(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    files = t.files_of(0)
    t.steps[-1].clear()
    t.files[-1] |= {n.replace(".csv", ".CSV"): c.replace(b".csv", b".CSV") for n, c in files.items()}


@case()
def gz_without_ending(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.shape.content = lambda c: gzip.compress(c, mtime=0)


@case({"id": "INT4", "part": "INT4", "name": "WSTRING(50)"}, ("id", "part"))
def key_wider(t: ChangeTable) -> None:
    """The source's key has a column more than the mirror file's: rows of two keys become one."""
    t.table["key"] = ["id"]
    t.ins(id=1, part=1, name="Ada")
    t.ins(id=1, part=2, name="Bob")


@case({"id": "INT4", "part": "INT4", "name": "WSTRING(50)"}, ("id", "part"), key_is_unique=True)
def key_wider_promised(t: ChangeTable) -> None:
    """The mirror file says that its key tells rows apart all the same."""
    t.table["key"] = ["id"]
    t.ins(id=1, part=1, name="Ada")
    t.ins(id=2, part=1, name="Bob")
    t.upd((2, 1), name="Eve")


def full_load(t: ChangeTable, rows: bytes, records: int) -> dict[str, bytes]:
    """The files of a full load of the table, in the folder of the task."""
    columns = [{"ordinal": at, "name": name, "type": kind.partition("(")[0]} for at, (name, kind)
               in enumerate({"id": "INT4", "name": "WSTRING"}.items(), 1)]  # fmt: skip
    document = {
        "fileInfo": {"name": "LOAD00000001.csv", "recordCount": records},
        "formatInfo": {"format": "delimited"},
        "dataInfo": {"sourceSchema": "dbo", "sourceTable": t.name, "columns": columns},
    }
    folder = f"dbo.{t.name}/LOAD00000001"
    return {f"{folder}.csv": b"id,name\n" + rows, f"{folder}.dfm": json.dumps(document).encode()}


@case()
def full_load_unread(t: ChangeTable) -> None:
    """The task loaded the table before its changes, and the mirror file names no initial load."""
    t.ins(id=1, name="Ada", price="1.00")
    t.put({"id": 7, "name": "old", "price": None})
    t.files[-1] |= full_load(t, b'7,"old"\n', 1)


@case()
def full_load_empty(t: ChangeTable) -> None:
    """The table was empty when it was loaded."""
    t.ins(id=1, name="Ada", price="1.00")
    t.files[-1] |= full_load(t, b"", 0)


@case()
def other_task(t: ChangeTable) -> None:
    """Two tasks write into one folder; each counts for itself, and the later change has the lower sequence."""
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name="Eve")
    t.step()
    t.shape.dfm = lambda d: d["taskInfo"].update(name="task2")
    t.upd(1, name="Zoe")
    for row in t.steps[-1]:
        row["header__change_seq"] = "2020" + row["header__change_seq"][4:]


@case()
def task_unnamed(t: ChangeTable) -> None:
    """A file that does not name its task, and one that spells it otherwise and comes from another server."""
    t.ins(id=1, name="Ada", price="1.00")
    t.step()
    t.shape.dfm = lambda d: d["taskInfo"].update(name="")
    t.upd(1, name="Eve")
    t.step()
    t.shape.dfm = lambda d: d["taskInfo"].update(name="Task1", replicationServer="standby")
    t.upd(1, name="Zoe")


# -- columns --------------------------------------------------------------------------------------------------------
@case({"id": "INT4", "header__note": "WSTRING(9)", "name": "WSTRING(9)"})
def column_with_header_prefix(t: ChangeTable) -> None:
    """A column of the source whose name begins like a header column."""
    t.ins(id=1, header__note="x", name="Ada")


@case()
def column_added_with_default(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.step()
    t.add_column("city", "WSTRING(20)", "Rome")
    t.ins(id=2, name="Bob", price="1.00", city="Oslo")


@case()
def column_dropped(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.step()
    t.drop_column("price")
    t.ins(id=2, name="Bob")


@case()
def column_renamed(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.step()
    for rows in (t.rows, t.raw):
        for row in rows.values():
            row["full_name"] = row.pop("name")
    t.columns = {"id": "INT4", "full_name": "WSTRING(50)", "price": "NUMERIC(8,2)"}
    t.ins(id=2, full_name="Bob", price="1.00")


@case()
def column_case_changed(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.step()
    for rows in (t.rows, t.raw):
        for row in rows.values():
            row["NAME"] = row.pop("name")
    t.columns = {"id": "INT4", "NAME": "WSTRING(50)", "price": "NUMERIC(8,2)"}
    t.ins(id=2, NAME="Bob", price="1.00")


@case()
def column_retyped(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.step()
    t.columns["price"] = "WSTRING(20)"
    for row in t.rows.values():
        row["price"] = str(row["price"])
    t.ins(id=2, name="Bob", price="x")


@case()
def column_not_in_dfm(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price="1.00")
    t.shape.dfm = lambda d: d["dataInfo"]["columns"].pop()


@case()
def dfm_column_not_in_file(t: ChangeTable) -> None:
    t.ins(id=1, name="Ada", price=None)
    t.shape.content = lambda c: c.replace(b",price\n", b"\n").replace(b'"Ada",', b'"Ada"')


@case()
def key_in_other_case(t: ChangeTable) -> None:
    t.columns = {"ID": "INT4", "name": "WSTRING(50)"}
    t.stored("I", {"ID": 1, "name": "Ada"}, ["ID", "name"], *t.next())
    t.rows[1,] = {"ID": 1, "name": "Ada"}


@case()
def prefix_other(t: ChangeTable) -> None:
    """The task's prefix is another one, and the mirror file does not say so."""
    t.prefix = "hdr_"
    t.ins(id=1, name="Ada", price="1.00")


@case()
def mask_deselected(t: ChangeTable) -> None:
    del t.headers["change_mask"]
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name=None)


@case()
def oper_deselected(t: ChangeTable) -> None:
    """Only change_seq and operation are kept."""
    del t.headers["change_oper"]
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name=None)


@case()
def seq_deselected(t: ChangeTable) -> None:
    del t.headers["change_seq"]
    t.ins(id=1, name="Ada", price="1.00")
    t.upd(1, name=None)


@case()
def ragged_line(t: ChangeTable) -> None:
    """A line with a field more than the header."""
    t.ins(id=1, name="Ada", price="1.00")
    t.shape.content = lambda c: c.replace(b'"Ada",', b'"A","da",')


@case()
def unquoted_comma(t: ChangeTable) -> None:
    """Texts without quotes, and one of them with a comma."""
    t.columns = {"id": "INT4", "a": "WSTRING(9)", "b": "WSTRING(9)"}
    t.shape.quote_texts = False
    t.ins(id=1, a="x,y", b="z")


@case()
def zz_heartbeat(t: ChangeTable) -> None:
    """The source goes on: something new is read when the time of what waits is over."""
    for number in range(4):
        t.ins(id=number, name="beat", price="1.00")
        t.step()
    t.steps.pop()
