"""What is taken from blocks and what the exact decoder makes of the rest are what it makes of all Qlik messages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.facts.senders import senders_in
from spark_jobs.changelog.schema import LogRow, RawMessage
from spark_jobs.sources.contract.decoded import Damage, MirroredTable, SourceSchema
from spark_jobs.sources.contract.message_blocks import Block, blocks_of
from spark_jobs.sources.qlik.message.avro import LOGICAL_TYPES, DataSchema
from spark_jobs.sources.qlik.message.avro_rows import texts_of
from spark_jobs.sources.qlik.message.decoder import QlikMessageDecoder, QlikMessageSettings
from spark_jobs.sources.qlik.message.fast_path import FastQlikMessages
from spark_jobs.sources.qlik.message.structures import registry_schema
from spark_jobs.sources.transports.json_lines import ranges, read_lines
from tests.noted_facts import ignored
from tests.property.test_qlik_messages import ADDED, FORMS, TABLES
from tests.qlik_messages import ORDERS, ROW, avro_dt, avro_md, avro_schema, by_name, change, datum, dt, md, metadata
from workload_generator.delivery import Delivery
from workload_generator.history import random_history
from workload_generator.qlik_messages import registered, render

# Bytes that break JSON, that mean something in Avro, or both.
DAMAGE = [b'"', b"\\", b"{", b"}", b",", b"0", b"1", b"-", b" ", b"\n", b"\x00", b"\x02", b"\x7f", b"\xff", b"\\u0061"]
# Text of a sound message, and what a producer gone wrong, or another kind of task, might put in its place.
REWRITTEN = [
    (b'"data":{', b'"data":null,"data":{'),
    (b'"data":{', b'"data":{},"more":{'),
    (b'"beforeData":null', b'"beforeData":{}'),
    (b'"beforeData":null', b'"beforeData":[]'),
    (b'"message":{', b'"message":{"schema":"dbo","table":"other",'),
    (b'"headers":{"op', b'"headers":{"schema":"dbo","table":"customers","op'),
    (b'"messageSchema":null', b'"messageSchema":"x"'),
    (b'"type":"DT"', b'"type":"MD"'),
    (b'"type":"DT"', b'"type":"DT","\\u0074ype":"MD"'),
    (b'"operation":"UPDATE"', b'"operation":"INSERT"'),
    (b'"operation":"INSERT"', b'"operation":"UPDATE"'),
    (b'"operation":"INSERT"', b'"operation":"DELETE"'),
    (b'"operation":"INSERT"', b'"operation":"REFRESH"'),
    (b'"operation":"', b'"operation":"UP'),
    (b'"changeSequence":"', b'"changeSequence":"0'),
    (b'"changeSequence":"20', b'"changeSequence":"\xd9\xa1'),
    (b'"changeMask":"', b'"changeMask":"F'),
    (b'"timestamp":"', b'"timestamp":null,"x":"'),
    (b'"transactionId":"', b'"transactionId":"\\"'),
    (b'"transactionId":"', b'"transactionId":"","x":"'),
    (b'"changeMask":"', b'"changeMask":"0'),
    (b'"columnMask":"', b'"columnMask":"0'),
    (b'"columnMask":"0', b'"columnMask":"1'),
    (b'"columnMask":"', b'"columnMask":null,"x":"'),
    (b'"transactionEventCounter":', b'"transactionEventCounter":-'),
    (b'"transactionEventCounter":', b'"transactionEventCounter":99999999999999999'),
    (b'"transactionEventCounter":', b'"externalSchemaId":"5","transactionEventCounter":'),
    (b":null", b":true"),
    (b":null", b':"x"'),
    (b":1", b":1.50"),
    (b":1", b":-0"),
    (b":1", b":1e5,"),
    (b":1", b':"1"'),
    (b":", b": "),
    (b'","', b'\\"","'),
    (b'","', b'\\/","'),
    (b'","', b'\\ud800","'),
    (b'","', b'\xff","'),
]


def damaged(draw: st.DrawFn, body: bytes) -> bytes:
    kind = draw(st.sampled_from(["cut", "drop", "replace", "insert", "rewrite", "rewrite", "rewrite"]))
    if kind == "rewrite":
        found, put = draw(st.sampled_from(REWRITTEN))
        return body.replace(found, put, draw(st.integers(1, 3)))
    at, byte = draw(st.integers(0, len(body) - 1)), draw(st.sampled_from(DAMAGE))
    return {
        "cut": body[:at],
        "drop": body[:at] + body[at + 1 :],
        "replace": body[:at] + byte + body[at + 1 :],
        "insert": body[:at] + byte + body[at:],
    }[kind]


class Pair:
    """Both readers, which learn what is announced; how many messages were taken."""

    def __init__(
        self,
        tables: Sequence[MirroredTable] = (ORDERS,),
        schemas: Sequence[SourceSchema] = (),
        **chosen: Any,
    ) -> None:
        self._tables = by_name(*tables)
        self._schemas, self._settings = [*schemas], QlikMessageSettings(**chosen)
        self._fast = FastQlikMessages(self._tables, self._schemas, self._settings)
        self.taken = 0

    def read(self, messages: Sequence[RawMessage | Damage]) -> list[str]:
        """Both agree on the rows, the counts and what was announced; the kinds of the rows."""
        return [kind for block in blocks_of(messages) for kind in self._read(block)]

    def _read(self, block: Block) -> list[str]:
        took = self._fast.take(block)
        rows, taken, foreign = took.rows, took.taken, ignored(took.facts)
        assert len(set(taken.tolist())) == len(taken)
        exact = QlikMessageDecoder(self._tables, self._schemas, self._settings)
        every = np.arange(len(block.starts))
        rest = exact.decode(block.messages(np.delete(every, taken)))
        wanted = exact.decode(block.messages(every))
        rows.validate(full=True)
        assert Counter(rest.rows) + Counter(LogRow(**row) for row in rows.to_pylist()) == Counter(wanted.rows)
        counted = {"messages": len(taken), "changes": len(rows), "ignored": len(taken) - len(rows)}
        counts = {name: count + counted.get(name, 0) for name, count in rest.counts._asdict().items()}
        assert counts == wanted.counts._asdict()
        assert Counter(ignored(rest.facts)) + Counter(foreign) == Counter(ignored(wanted.facts))
        assert {*rest.schemas, *took.schemas} == {*wanted.schemas}
        assert {*senders_in(rest.facts), *senders_in(took.facts)} == {*senders_in(wanted.facts)}
        self.taken += len(taken)
        self._schemas += wanted.schemas
        self._fast.learn(wanted.schemas)
        return [row.kind for row in wanted.rows]


def messages(*bodies: bytes | None, origin: str = "cdc/0") -> list[RawMessage]:
    return [RawMessage(origin, place, body) for place, body in enumerate(bodies, 100)]


def compact(body: bytes) -> bytes:
    return json.dumps(json.loads(body), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("form", FORMS)
@settings(derandomize=True, deadline=None, max_examples=15)
@given(st.data())
def test_any_messages_become_the_rows_of_the_exact_decoder_k16_k20_k30_k31_k35_k85(
    form: str, data: st.DataObject
) -> None:
    options = FORMS[form]
    history = random_history(data.draw(st.integers(0, 10**6)), 8, tables=TABLES, rows=2, add_column_at=ADDED)
    sent = [message.body for message in render(history, options, Delivery(scheme="key", duplicates=0.1))]
    foreign, partial = data.draw(st.permutations(sorted(history.tables)))[:2]
    tables = [
        MirroredTable(
            name,
            table.key,
            ColumnChoice(
                tuple(c.name for c in table.columns[:3]) if name == partial else None,
                types=tuple((column, "string") for column in table.key[:1]),
                extra=() if name == partial else (("transaction", "transaction"),),
            ),
        )
        for name, table in history.tables.items()
        if name != foreign
    ]
    known = [registry_schema(*one) for one in registered(history, options) if options.framing == "registry"]
    both = Pair(tables, known)
    bodies: list[bytes | None] = [*sent]
    for _ in range(8):
        bodies.append(damaged(data.draw, data.draw(st.sampled_from(sent)) or b"x"))
    bodies.insert(data.draw(st.integers(0, len(bodies))), data.draw(st.sampled_from([None, b"", b" ", b"x"])))
    cut = data.draw(st.integers(0, len(bodies)))
    both.read(messages(*bodies[:cut], origin=data.draw(st.sampled_from(["cdc/0", "meta/0"]))))
    both.read(messages(*bodies[cut:]))
    both.read(messages(*bodies))  # by what was announced the first time


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.data())
def test_any_byte_of_a_message_may_be_damaged_g06(data: st.DataObject) -> None:
    is_avro = data.draw(st.booleans())
    make, announced = (avro_dt, avro_md()) if is_avro else (dt, md())
    masks = {"columnMask": b"\x0f", "changeMask": b"\x02"} if is_avro else {"columnMask": "0F", "changeMask": "02"}
    good = [
        make("INSERT", ROW, number=1, **masks),
        make("UPDATE", ROW, {**ROW, "name": "Bob"}, number=2, **masks),
        make("DELETE", ROW, number=3),
        make("REFRESH", ROW, number=4),
    ]
    sent = good if is_avro else [*map(compact, good)]
    both = Pair()
    both.read(messages(announced))
    both.read(messages(*sent))
    assert both.taken == 3  # large objects are not sure in a row that leaves (K-22)
    broken = [damaged(data.draw, data.draw(st.sampled_from(sent))) for _ in range(6)]
    both.read(messages(*sent, *broken, *sent))


_VALUES: Sequence[Any] = ["", "a/b", 'say "hi"', "\\", "\n\t\b\f\r", "\x01", "\x7f", "é😀", "x" * 300, None]


@pytest.mark.parametrize("value", _VALUES)
def test_every_text_is_copied_as_the_exact_decoder_writes_it_k35(value: str | None) -> None:
    row = {**ROW, "name": value}
    json_pair, avro_pair = Pair(), Pair()
    json_pair.read(messages(md()))
    json_pair.read(messages(compact(dt("INSERT", row)), compact(dt("UPDATE", row, row))))
    assert json_pair.taken == 2 * (value != "\x01")  # this one has two spellings
    avro_pair.read(messages(avro_md()))
    avro_pair.read(messages(avro_dt("INSERT", row), avro_dt("UPDATE", row, row)))
    assert avro_pair.taken == 2


ORDINARY: dict[str, bytes] = {
    "insert": dt(),
    "null values": dt("INSERT", {**ROW, "price": None, "note": None}),
    "update": dt("UPDATE", ROW, {**ROW, "price": "1.00"}, changeMask="04", columnMask="0F"),
    "update of a large object": dt("UPDATE", ROW, {**ROW, "note": "y"}, changeMask="00", columnMask="0F"),
    "update without old row": dt("UPDATE", ROW, changeMask="04", columnMask="0F"),
    "update without column mask": dt("UPDATE", ROW, changeMask="04"),
    "full load": dt("REFRESH", ROW, changeSequence="", transactionEventCounter=None, transactionLastEvent=None),
    "negative key": dt("INSERT", {**ROW, "id": -7}),
    "external schema": compact(dt()).replace(b'"transactionEv', b'"externalSchemaId":null,"transactionEv', 1),
    "no masks, no counter": dt("INSERT", transactionEventCounter=None),
}
OTHERS: dict[str, bytes] = {
    "a change that its mask denies": dt("UPDATE", ROW, {**ROW, "name": "Eve"}, changeMask="04", columnMask="0F"),
    "a NULL that its mask denies": dt("UPDATE", {**ROW, "name": None}, ROW, changeMask="04", columnMask="0F"),
    "delete of a table with a large object": dt("DELETE", ROW),
    "key change": dt("UPDATE", ROW, {**ROW, "id": 8}),
    "changed key without the old one": dt("UPDATE", ROW, changeMask="01", columnMask="0F"),
    "update that does not tell its old key": dt("UPDATE", ROW, columnMask="0F"),
    "update that tells nothing": dt("UPDATE", ROW),
    "row without a column": dt("INSERT", {n: v for n, v in ROW.items() if n != "price"}, columnMask="0B"),
    "unknown value": dt("INSERT", {**ROW, "price": None}, columnMask="0B"),
    "mask too long": dt("INSERT", ROW, changeMask="10"),
    "no key": dt("INSERT", {**ROW, "id": None}),
    "key out of range": dt("INSERT", {**ROW, "id": 2**31}),
    "key as text": dt("INSERT", {**ROW, "id": "7"}),
    "sequence of zeros": dt(changeSequence="0" * 35),
    "sequence too short": dt(changeSequence="20260807"),
    "unknown structure": dt(schema_id="F" * 32),
    "other order": dt("INSERT", {name: ROW[name] for name in reversed(ROW)}),
    "names its table": dt(schema="dbo", table="orders"),
}


@pytest.mark.parametrize(
    ("body", "is_fast"),
    [(body, True) for body in ORDINARY.values()] + [(body, False) for body in OTHERS.values()],
    ids=[*ORDINARY, *OTHERS],
)
def test_sure_messages_are_taken_and_others_left_k16_k20_k21_k23_k30_k31(body: bytes, is_fast: bool) -> None:
    """Taking nothing would be equal, too: what a task usually sends has to be taken."""
    both = Pair()
    both.read(messages(md()))
    both.read(messages(compact(body)))
    assert both.taken == is_fast


def test_what_the_mirror_file_promises_is_taken_k70() -> None:
    both = Pair([ORDERS._replace(keys_never_change=True)])
    both.read(messages(md()))
    bodies = [compact(dt("UPDATE", ROW, **masks)) for masks in ({}, {"columnMask": "0F"}, {"changeMask": ""})]
    assert both.read(messages(*bodies)) == ["change"] * 3 and both.taken == 3
    assert both.read(messages(compact(dt("UPDATE", ROW, changeMask="05")))) == ["rejected"]


def test_a_delete_is_taken_with_its_row_in_either_image_k30() -> None:
    columns = [("id", "INT4", 10, 0, 0, 1), ("name", "WSTRING", 9, 0, 0, 0), ("day", "DATE", 0, 0, 0, 0)]
    row = {"id": 7, "name": None, "day": 20000}
    fields: Any = {"id": "int", "name": "string", "day": {"type": "int", "logicalType": "date"}}
    schema = avro_schema(fields)
    both = Pair()
    both.read(messages(avro_md(schema, columns)))
    bodies = [avro_dt("DELETE", *images, schema=schema) for images in ((row,), (None, row), (row, row))]
    assert both.read(messages(*bodies)) == ["change"] * 3 and both.taken == 3
    # A day that no calendar has is a dead letter, also in the image that is not the row.
    odd = avro_dt("UPDATE", row, {**row, "day": 10**8}, schema=schema)
    assert both.read(messages(odd)) == ["rejected"] and both.taken == 3
    json_row = {**row, "day": "2026-08-07"}
    both = Pair()
    both.read(messages(md(columns)))
    both.read(messages(*(compact(dt("DELETE", *images)) for images in ((json_row,), (None, json_row)))))
    assert both.taken == 2


@pytest.mark.parametrize(
    ("kind", "value", "is_one"),
    [("UINT4", 2**32 - 1, True), ("UINT4", 2**32, False), ("UINT4", -1, False), ("UINT4", None, True),
     ("UINT2", 65535, True), ("UINT2", 65536, False), ("INT1", -128, True), ("INT1", 128, False),
     ("INT1", -129, False)],
)  # fmt: skip
def test_a_complete_number_beyond_its_own_type_is_a_dead_letter_k35(kind: str, value: int | None, is_one: bool) -> None:
    """The log's type holds more than Qlik's; what leaves a row is not judged."""
    columns = [("id", "INT4", 10, 0, 0, 1), ("v", kind, 0, 0, 0, 0)]
    row, schema = {"id": 7, "v": value}, avro_schema({"id": "int", "v": "long"})
    wanted = ["change" if is_one else "rejected", "change", "change"]
    text, avro = Pair(), Pair()
    text.read(messages(md(columns)))
    bodies = [compact(dt("INSERT", row)), compact(dt("UPDATE", {"id": 7, "v": 1}, row)), compact(dt("DELETE", row))]
    assert text.read(messages(*bodies)) == wanted and text.taken == 2 + is_one
    avro.read(messages(avro_md(schema, columns)))
    records = [avro_dt("INSERT", row, schema=schema), avro_dt("UPDATE", {"id": 7, "v": 1}, row, schema=schema),
               avro_dt("DELETE", row, schema=schema)]  # fmt: skip
    assert avro.read(messages(*records)) == wanted and avro.taken == 2 + is_one


@pytest.mark.parametrize("value", [True, False])
def test_a_truth_value_is_no_text_k35(value: bool) -> None:
    both = Pair()
    both.read(messages(md()))
    assert both.read(messages(compact(dt("INSERT", {**ROW, "name": value})))) == ["rejected"]


def test_nothing_behind_a_message_that_may_announce_is_taken_k05_k11() -> None:
    """The same id names another structure from there on: the new order of columns is the one that counts."""
    both = Pair()
    both.read(messages(md()))
    newer = metadata([*reversed([("id", "INT4", 10, 0, 0, 1), ("name", "WSTRING", 100, 0, 0, 0)])], version=2)
    short = {"id": 7, "name": "Ada"}
    announced = compact(dt()).replace(b'"DT"', b'"MD"').split(b'"message":')[0] + b'"message":'
    body = compact(dt("INSERT", short))
    both.read(messages(compact(dt()), announced + json.dumps(newer).encode() + b"}", body, body))
    assert both.taken == 1
    both.read(messages(compact(dt("INSERT", {"name": "Ada", "id": 7}))))
    assert both.taken == 2


def test_settings_decide_what_is_taken_k15_t10_k04() -> None:
    other = Pair(topics={"cdc": "dbo.other"})
    other.read(messages(md(), origin="all/0"))
    other.read(messages(compact(dt())))
    known = QlikMessageDecoder({}).decode(messages(md())).schemas
    longest = len(compact(dt(changeSequence="1" * 20)))
    short = Pair(schemas=known, sequence_digits=20, max_message_bytes=longest)
    short.read(messages(compact(dt()), compact(dt("INSERT", {**ROW, "name": "longer"}, changeSequence="1" * 20))))
    assert other.taken == short.taken == 0
    short.read(messages(compact(dt(changeSequence="1" * 20))))
    assert short.taken == 1
    framed = b"\x00" + (5).to_bytes(4, "big") + datum(avro_schema(), change())
    known = [registry_schema(5, "dbo.orders", 1, json.dumps(avro_schema()))]
    quoted = [ORDERS._replace(source="[dbo].[orders]")]
    registry, bare = Pair(quoted, known), Pair(schemas=known, unframed_avro=True)
    registry.read(messages(framed))
    bare.read(messages(framed))
    assert (registry.taken, bare.taken) == (1, 0)
    elsewhere = Pair([], known)
    assert elsewhere.read(messages(framed, framed[:5])) == [] and elsewhere.taken == 1  # its number tells the table


@pytest.mark.shared_data
@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_a_real_history_decodes_alike(shared_data: Path, encoding: str) -> None:
    root, name = shared_data / "qlik-kafka", f"{encoding}.jsonl.gz"
    found = [m for r in ranges(root, name, 0, (root / name).stat().st_size) for m in read_lines(root, *r, "wrapped")]
    both = Pair([MirroredTable("dbo.district_offices", ("office_id",))])
    announced = [m for m in found if isinstance(m, RawMessage) and b"tableStructure" in (m.body or b"")]
    both.read(announced)
    both.read(sorted((m for m in found if m not in announced), key=lambda message: message.origin))
    assert both.taken > 0.9 * len(found)


@pytest.mark.parametrize("key", [None, b"7", b"dbo+orders", b"dbo+other", b"\xff"])
def test_a_message_without_an_id_is_taken_only_where_the_topic_is_promised_k60(key: bytes | None) -> None:
    known = QlikMessageDecoder({}).decode(messages(md())).schemas
    body = compact(dt(schema_id=None))
    promised, other = Pair(schemas=known, topics={"cdc": "dbo.orders"}), Pair(schemas=known)
    for both in (promised, other):
        both.read([RawMessage("cdc/0", 1, body, key), RawMessage("cdc/0", 2, None, key)])
    assert (promised.taken, other.taken) == (key != b"dbo+other", 0)


_EDGES = [0, 1, -1, 59, 86_399, 86_400, -719_162, -719_163, 2_932_896, 2_932_897, 2**31 - 1, -(2**31)]
_MOMENTS = [
    at * unit + add for at in (-62_135_596_800, 253_402_300_799) for unit in (1000, 10**6) for add in (-1, 0, 1)
]
_NUMBERS = [*_EDGES, 10**10, -(10**15), 86_399_999_999, 2**63 - 1, -(2**63), *_MOMENTS, 253_402_300_799_999_999]
_DECIMALS = [
    b"",
    b"\x00",
    b"\x05",
    b"\xfb",
    b"\x00\xff",
    b"\x80",
    b"\x7f" + b"\xff" * 7,
    b"\x80" + b"\x00" * 7,
    b"\x01" * 16,
]
_PRIMITIVES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "int": (pa.int64(), _EDGES),
    "long": (pa.int64(), _NUMBERS),
    "boolean": (pa.bool_(), [True, False]),
    "double": (pa.float64(), [0.0, -0.0, 0.1, 1e300, 5e-324, 1e16, -1.5]),
    "float": (pa.float32(), [0.0, 0.1, 3.4e38, 1e-45]),
    "bytes": (pa.binary(), _DECIMALS),
    "string": (pa.string(), ["", "é"]),
}


@pytest.mark.parametrize(
    ("plain", "logical", "scale"),
    [*((plain, "", 0) for plain in _PRIMITIVES), *((*one, 0) for one in LOGICAL_TYPES)]
    + [("bytes", "decimal", scale) for scale in (0, 2, 6, 7, 20)],
)
def test_a_column_of_avro_has_the_texts_of_its_values_k35(plain: str, logical: str, scale: int) -> None:
    kind = {"type": plain, "logicalType": logical, "precision": 38, "scale": scale} if logical else plain
    values = {"type": "record", "name": "Row", "fields": [{"name": "v", "type": kind}]}
    fields = [{"name": "data", "type": values}, {"name": "headers", "type": "string"}]
    schema = DataSchema(json.dumps({"type": "record", "name": "DataRecord", "fields": fields}))
    (field,) = schema.fields
    arrow, given = _PRIMITIVES[plain]
    for column in (pa.array([None, *given], arrow), pa.array(given[:7], arrow)[1:]):
        wanted: list[str | None] = []
        for value in column.to_pylist():
            try:
                wanted.append(None if value is None else schema.image({"v": value})["v"])
            except ValueError:
                wanted.append(None)
        assert texts_of(column, field.logical, field.scale).to_pylist() == wanted
