"""The generator's Qlik messages say what its histories say, in the published form.

They are read here by a small reader of its own, written from the message format, not by the generator.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from typing import Any

import fastavro
import pytest

from workload_generator.delivery import Delivery
from workload_generator.history import ColumnDef, History, random_history
from workload_generator.qlik_messages import QlikMessageOptions, registered, render

ENVELOPE = fastavro.parse_schema(
    {
        "type": "record",
        "name": "MessageEnvelope",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 5}},
            {"name": "type", "type": "string"},
            {"name": "headers", "type": ["null", {"type": "map", "values": "string"}]},
            {"name": "messageSchemaId", "type": ["null", "string"]},
            {"name": "messageSchema", "type": ["null", "string"]},
            {"name": "message", "type": "bytes"},
        ],
    }
)
HEADERS = [
    *("operation", "changeSequence", "timestamp", "streamPosition", "transactionId"),
    *("changeMask", "columnMask", "transactionEventCounter", "transactionLastEvent"),
]


@pytest.fixture(scope="module")
def history() -> History:
    return random_history(7, 40, rows=3, add_column_at={20: ("dbo.customers", ColumnDef("phone", "varchar(30)"))})


def from_avro(datum: bytes, schema: Any) -> Any:
    stream = io.BytesIO(datum)
    record = fastavro.schemaless_reader(stream, schema, None)
    assert stream.tell() == len(datum)
    return record


def read(body: bytes, schemas: dict[str, Any]) -> tuple[str, Any]:
    """Kind and members of a message in an envelope; what metadata announces is added to *schemas*."""
    if body.startswith(b"{"):
        whole = json.loads(body)
        assert whole["magic"] == "atMSG"
        if whole["type"] == "MD":
            schemas[whole["message"]["schemaId"]] = whole["message"]
        else:
            assert whole["messageSchemaId"] in schemas
        return whole["type"], whole["message"]
    whole = from_avro(body, ENVELOPE)
    assert whole["magic"] == b"atMSG"
    if whole["type"] == "MD":
        record = from_avro(whole["message"], json.loads(whole["messageSchema"]))
        schemas[record["schemaId"]] = json.loads(record["dataSchema"])
        return "MD", record
    return "DT", from_avro(whole["message"], schemas[whole["messageSchemaId"]])


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_every_change_is_one_message_in_the_published_form_k01_k10_k16_k25(history: History, encoding: Any) -> None:
    schemas: dict[str, Any] = {}
    sent = [read(m.body, schemas) for m in render(history, QlikMessageOptions(encoding=encoding))]
    kinds = Counter(kind for kind, _ in sent)
    changes = [message for kind, message in sent if kind == "DT"]
    assert kinds["MD"] == len(history.tables) + 1, "one for each table, and one more for the added column (K-11)"
    operations = Counter(message["headers"]["operation"] for message in changes)
    wanted = Counter({"I": "INSERT", "U": "UPDATE", "D": "DELETE"}[change.op] for change in history.changes)
    wanted["REFRESH"] = sum(len(rows) for rows in history.initial.values())
    assert operations == wanted
    for message in changes:
        assert list(message["headers"]) == HEADERS
        if message["headers"]["operation"] != "REFRESH":
            assert len(message["headers"]["changeSequence"]) == 35
    assert sum(message["headers"]["transactionLastEvent"] or 0 for message in changes) == 40
    placed = [m["headers"] for m in changes if m["headers"]["operation"] != "REFRESH"]
    in_order = sorted(placed, key=lambda headers: headers["changeSequence"])
    assert [h["transactionEventCounter"] for h in in_order] == [c.seq for c in history.changes]


def test_masks_are_numbers_over_the_data_columns_k20_k21_k22(history: History) -> None:
    ordinals: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {}
    seen = Counter[str]()
    for message in render(history, QlikMessageOptions()):
        kind, record = read(message.body, schemas)
        if kind == "MD":
            continue
        columns = schemas[json.loads(message.body)["messageSchemaId"]]["tableStructure"]["tableColumns"]
        headers, data, before = record["headers"], record["data"], record["beforeData"]
        ordinals.setdefault(headers["operation"], columns)
        if headers["operation"] == "REFRESH":
            assert headers["changeMask"] is headers["columnMask"] is None
            continue
        seen[headers["operation"]] += 1
        assert len(headers["columnMask"]) == 2 * (len(columns) // 8 + 1)
        assert int(headers["columnMask"], 16) == 2 ** len(columns) - 1
        marked = {name for name, c in columns.items() if int(headers["changeMask"], 16) >> (c["ordinal"] - 1) & 1}
        small = {name for name, c in columns.items() if c["type"] not in ("CLOB", "NCLOB", "BLOB")}
        if headers["operation"] == "INSERT":
            assert marked == small
        elif headers["operation"] == "DELETE":
            assert marked == {name for name, c in columns.items() if c["primaryKeyPosition"]}
        else:
            assert marked == {name for name in small if data[name] != before[name]}
    assert min(seen.values()) > 5


def test_a_replayed_transaction_is_sent_again_from_its_first_message_k40(history: History) -> None:
    one = Delivery(partitions=1, scheme="key")
    once = [m.body for m in render(history, QlikMessageOptions(), one)]
    again = [m.body for m in render(history, QlikMessageOptions(replays=1.0), one)]
    assert set(once) == set(again) and len(again) > len(once) + 40
    repeated = [body for body, count in Counter(again).items() if count > 1]
    firsts = [body for body in once if b'"transactionEventCounter":1,' in body]
    assert set(firsts) <= set(repeated)


def test_a_key_change_is_one_update_keyed_by_the_new_key_k31() -> None:
    history = random_history(3, 60, rows=4)
    assert any(change.is_key_change for change in history.changes)
    moved = 0
    for message in render(history, QlikMessageOptions()):
        whole = json.loads(message.body)
        if whole["type"] == "DT":
            key = json.loads(message.key or b"")
            data, before = whole["message"]["data"], whole["message"]["beforeData"]
            assert key == {name: str(data[name]) for name in key}
            moved += before is not None and any(before[name] != data[name] for name in key)
        else:
            assert message.key is None and message.partition == 0
    assert moved == sum(change.is_key_change for change in history.changes)


def test_a_registry_knows_every_schema_that_messages_name_k04(history: History) -> None:
    options = QlikMessageOptions(encoding="avro", framing="registry")
    known = {schema.number: json.loads(schema.schema) for schema in registered(history, options)}
    assert len(known) == len(history.tables) + 1
    for message in render(history, options):
        assert message.body[0] == 0
        from_avro(message.body[5:], known[int.from_bytes(message.body[1:5], "big")])


@pytest.mark.parametrize(
    "options",
    [
        {"encoding": "json", "framing": "registry"},
        {"encoding": "avro", "framing": "bare"},
        {"encoding": "avro", "table_names": True},
        {"replays": 2},
    ],
)
def test_combinations_that_do_not_exist_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match=r"no .* framing|JSON only|between 0 and 1"):
        QlikMessageOptions(**options)
