"""Random histories as Qlik messages decode and fold to the histories' final states, wherever batches are cut."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.changelog.schema import LogRow, RawMessage
from spark_jobs.sources.contract.decoded import Decoded, MirroredTable, SourceSchema
from spark_jobs.sources.qlik.message.decoder import QlikMessageDecoder, QlikMessageSettings
from spark_jobs.sources.qlik.message.structures import registry_schema
from spark_jobs.sources.sql_server.types import converter
from tests.qlik_messages import ROW, avro_dt, avro_md, dt, md
from workload_generator.delivery import Delivery
from workload_generator.history import SHOP_TABLES, ColumnDef, History, TableDef, random_history
from workload_generator.qlik_messages import QlikMessageOptions, registered, render

EVERY_TYPE = TableDef(
    "odd",
    "every_type",
    (
        ColumnDef("id", "bigint", nullable=False),
        *(
            ColumnDef(f"c{n}", sql_type)
            for n, sql_type in enumerate(
                (
                    *("tinyint", "smallint", "int", "bit", "decimal(38,10)", "numeric(5,0)", "money", "smallmoney"),
                    *("float", "real", "date", "datetime", "datetime2(0)", "datetime2(7)", "smalldatetime"),
                    *("datetimeoffset(7)", "uniqueidentifier", "varchar(5)", "nvarchar(5)", "nvarchar(max)"),
                    *("binary(4)", "varbinary(max)"),
                )
            )
        ),
    ),
    ("id",),
)
TABLES = (*SHOP_TABLES, EVERY_TYPE)
ADDED = {4: ("dbo.customers", ColumnDef("phone", "varchar(30)")), 7: ("odd.every_type", ColumnDef("z", "decimal(9,3)"))}

FORMS: dict[str, QlikMessageOptions] = {
    "json": QlikMessageOptions(replays=0.3),
    "json, delete in beforeData": QlikMessageOptions(replays=0.3, delete_in="beforeData"),
    "json without envelope": QlikMessageOptions(framing="bare", table_names=True, replays=0.3),
    "avro": QlikMessageOptions(encoding="avro", replays=0.3),
    "avro, masks as documented": QlikMessageOptions(encoding="avro", mask_bytes="le", replays=0.3),
    "avro without logical types": QlikMessageOptions(encoding="avro", logical_types=False, replays=0.3),
    "avro behind a registry": QlikMessageOptions(encoding="avro", framing="registry", replays=0.3),
}


class Mirror:
    """The smallest extraction: it keeps announced schemas and waiting messages from batch to batch."""

    def __init__(self, history: History, schemas: Iterable[SourceSchema]) -> None:
        self.tables = {name: MirroredTable(name, table.key) for name, table in history.tables.items()}
        self.schemas = [*schemas]
        self.waiting: dict[str, list[LogRow]] = {}
        self.changes: list[LogRow] = []

    def decoder(self) -> QlikMessageDecoder:
        return QlikMessageDecoder(self.tables, self.schemas, QlikMessageSettings())

    def read(self, batch: Sequence[RawMessage]) -> None:
        decoded = self.decoder().decode(batch)
        assert sum(decoded.counts[1:]) == decoded.counts.messages == len(batch)
        assert decoded.counts.rejected == decoded.counts.ignored == 0, decoded.rows
        self.schemas += decoded.schemas
        for row in decoded.rows:
            if row.kind == "fragment":
                self.waiting.setdefault(str(row.fragment_of), []).append(row)
            else:
                self.changes.append(row)
        for identity in [*self.waiting]:
            joined = self.decoder().join(self.waiting[identity])
            if isinstance(joined, Decoded):
                assert joined.counts.changes == len(self.waiting.pop(identity))
                self.changes += joined.rows


def folded(changes: Iterable[LogRow], table: str) -> dict[str, dict[str, Any]]:
    """The table after its changes in the order of their positions; an old key's row leaves only if it is that row."""
    rows: dict[str, tuple[dict[str, Any], LogRow]] = {}
    seen: set[tuple[str | None, str | None]] = set()
    for change in sorted((c for c in changes if c.tbl == table), key=lambda c: (c.pos or "", c.key or "")):
        if (change.pos, change.key) in seen:
            continue
        seen.add((change.pos, change.key))
        assert change.key is not None
        if change.row is not None:
            rows[change.key] = (json.loads(change.row), change)
        elif change.op == "D" or _is_row(json.loads(change.before or ""), rows[change.key][0]):
            del rows[change.key]
    return {key: _typed(values, change) for key, (values, change) in rows.items()}


def _is_row(before: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    return all(row.get(name) == value for name, value in before.items())


def _cells(table: TableDef, row: Mapping[str, Any]) -> str:
    """A row as text that shows every digit; four-byte floats as the four bytes that they are."""
    return repr(
        [
            struct.pack("<f", row[c.name]) if c.sql_type == "real" and row.get(c.name) is not None else row.get(c.name)
            for c in table.columns
        ]
    )


def _typed(values: Mapping[str, Any], change: LogRow) -> dict[str, Any]:
    types = {name: sql_type for name, sql_type, _ in json.loads(change.cols or "")}
    typed = {name: None if text is None else converter(types[name])(text) for name, text in values.items()}
    return {n: v.replace(tzinfo=None) if isinstance(v, datetime) else v for n, v in typed.items()}


@pytest.mark.parametrize("form", FORMS)
@settings(derandomize=True, deadline=None, max_examples=20)
@given(st.data())
def test_messages_fold_to_the_final_state_wherever_batches_are_cut_g03_g09_k05_k31_k35_k40(
    form: str, data: st.DataObject
) -> None:
    options = FORMS[form]
    history = random_history(data.draw(st.integers(0, 10**6)), 12, tables=TABLES, rows=2, add_column_at=ADDED)
    delivery = Delivery(scheme="key", disorder=data.draw(st.sampled_from([0, 30])), duplicates=0.1)
    sent = [RawMessage(f"cdc/{m.partition}", m.offset, m.body, m.key) for m in render(history, options, delivery)]
    cuts = data.draw(st.lists(st.integers(0, len(sent)), max_size=6))
    known = [registry_schema(*one) for one in registered(history, options) if options.framing == "registry"]
    mirror = Mirror(history, known)
    for start, end in pairwise([0, *sorted(cuts), len(sent)]):
        mirror.read(sent[start:end])
    assert not mirror.waiting
    for name, table in history.tables.items():
        found = [_cells(table, row) for row in folded(mirror.changes, name).values()]
        assert sorted(found) == sorted(_cells(table, row) for row in history.typed_final(name)), name


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.data())
def test_no_bytes_stop_the_decoder_g06(data: st.DataObject) -> None:
    bodies = [md(), dt(), dt("UPDATE", columnMask="0F"), dt("DELETE", {"id": 1}), avro_md(), avro_dt()]
    body = bytearray(data.draw(st.sampled_from(bodies) | st.binary(max_size=100)))
    for _ in range(data.draw(st.integers(0, 3)) if body else 0):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        if not body:
            break
    damaged = RawMessage("cdc/0", 1, bytes(body))
    sound = [RawMessage("cdc/0", 0, md()), damaged, RawMessage("cdc/0", 2, dt())]
    tables = {"dbo.orders": MirroredTable("dbo.orders", ("id",))}
    decoded = QlikMessageDecoder(tables).decode(sound)
    assert sum(decoded.counts[1:]) == decoded.counts.messages == 3
    for row in decoded.rows:
        assert row.kind == "change" or row.raw == (damaged.body if row.place == 1 else sound[2].body)
        assert (row.kind == "rejected") == bool(row.code and row.reason)
        # Only other metadata under the same id can make a difference to the message behind.
        assert row.place != 2 or row.kind == "change" or decoded.counts.metadata == 2


ODD = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1.5,
        10**40,
        "",
        "x",
        "0",
        "F" * 9,
        "\ud800",
        "\u0661",
        [],
        [1],
        {},
        {"": None},
        {"a": {"b": []}},
    ]
)


def replaced(value: Any, path: Sequence[int], odd: Any) -> Any:
    """The value with one of its members, found by *path*, replaced."""
    if not path or not isinstance(value, dict | list) or not value:
        return odd
    names = [*value] if isinstance(value, dict) else [*range(len(value))]
    name = names[path[0] % len(names)]
    copy = value.copy()
    copy[name] = replaced(value[name], path[1:], odd)
    return copy


@settings(derandomize=True, deadline=None, max_examples=400)
@given(
    st.sampled_from([md(), dt("UPDATE", None, {"id": 8}, columnMask="0F", changeMask="01"), dt("DELETE", {"id": 1})]),
    st.lists(st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=5), ODD), min_size=1, max_size=3),
)
def test_no_member_of_any_type_stops_the_decoder_g06_k02(body: bytes, changes: list[tuple[list[int], Any]]) -> None:
    whole = json.loads(body)
    for path, odd in changes:
        whole = replaced(whole, path, odd)
    message = RawMessage("cdc/0", 1, json.dumps(whole).encode())
    tables = {"dbo.orders": MirroredTable("dbo.orders", ("id",))}
    for schemas in ((), QlikMessageDecoder(tables).decode([RawMessage("cdc/0", 0, md())]).schemas):
        decoded = QlikMessageDecoder(tables, schemas).decode([message, RawMessage("cdc/0", 2, dt())])
        assert sum(decoded.counts[1:]) == decoded.counts.messages == 2
        for schema in decoded.schemas:
            QlikMessageDecoder(tables, [schema])
        for row in decoded.rows:
            assert row.kind == "change" or row.raw == (message.body if row.place == 1 else dt())
            assert (row.kind == "rejected") == bool(row.code and row.reason)
            for text in row:
                if isinstance(text, str):
                    text.encode()


def _sent_by_two_tables() -> list[RawMessage]:
    """Messages of two tables in one topic: announced or not, with an id or a key that tells, or with nothing."""
    bodies: list[tuple[bytes, bytes | None]] = [
        (md(table="a", schema_id="A" * 32), None),
        (md(table="b", schema_id="B" * 32), None),
        (md(table="foreign", schema_id="C" * 32), None),
    ]
    story: list[tuple[str | None, bytes | None]] = [("A" * 32, None), ("B" * 32, b"7"), ("C" * 32, None)]
    story += [("D" * 32, None), (None, b"dbo+a"), (None, b'{"schema":"dbo","table":"b"}'), (None, b"dbo+foreign")]
    for number, (schema_id, key) in enumerate([*story, (None, b"7"), (None, None)], 1):
        bodies.append((dt("INSERT", {**ROW, "id": number}, schema_id=schema_id, number=number), key))
    bodies += [(dt(schema_id="A" * 32)[:-9], None), (dt(schema_id="B" * 32)[:-9], None)]
    return [RawMessage("t/0", place, body, key) for place, (body, key) in enumerate(bodies)]


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.data())
def test_neither_order_nor_cuts_decide_whose_a_message_is_k15_k60_g09(data: st.DataObject) -> None:
    sent = data.draw(st.permutations(_sent_by_two_tables()))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=4)))
    tables = {f"dbo.{name}": MirroredTable(f"dbo.{name}", ("id",)) for name in "ab"}
    schemas: list[SourceSchema] = []
    changes: set[tuple[str | None, str | None, int]] = set()
    waiting: dict[str, list[LogRow]] = {}
    for start, end in pairwise([0, *cuts, len(sent)]):
        decoded = QlikMessageDecoder(tables, schemas).decode(sent[start:end])
        schemas += decoded.schemas
        for one in decoded.rows:
            if one.kind == "fragment":
                waiting.setdefault(str(one.fragment_of), []).append(one)
        changes |= {(one.tbl, one.key, one.place) for one in decoded.rows if one.kind == "change"}
        for identity in [*waiting]:
            joined = QlikMessageDecoder(tables, schemas).join(waiting[identity])
            if isinstance(joined, Decoded):
                changes |= {(one.tbl, one.key, one.place) for one in joined.rows if one.kind == "change"}
                del waiting[identity]
    assert changes == {("dbo.a", '["1"]', 3), ("dbo.b", '["2"]', 4), ("dbo.a", '["5"]', 7), ("dbo.b", '["6"]', 8)}
    left = [
        one for pieces in waiting.values() for one in QlikMessageDecoder(tables, schemas).incomplete(pieces, "late")
    ]
    story = {one.place: (one.code, one.tbl) for one in left}
    assert story == {6: ("METADATA_MISSING", None), 10: ("TABLE_UNNAMED", None), 11: ("TABLE_UNNAMED", None)}
