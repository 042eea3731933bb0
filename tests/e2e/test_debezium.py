"""Debezium's change events, the worked example of docs/how-to/add-a-source.md: command line, log, emulator."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.cli.command_line import main
from spark_jobs.sources.contract.decoded import MirroredTable
from spark_jobs.sources.debezium.format import DebeziumFormat
from tests.pipeline import Pipeline

TYPES = {name: "string" for name in ("name", "city", "price", "cost")}
TYPES |= {"id": "int32", "at": "io.debezium.time.MicroTimestamp", "d": "org.apache.kafka.Decimal"}


def event(op: str, before: Any, after: Any, commit: int, names: str = "id name at", **source: Any) -> bytes:
    fields = [{"field": name, "type": "int64", "name": TYPES[name], "optional": name != "id"} for name in names.split()]
    schema = {"fields": [{"field": image, "type": "struct", "fields": fields} for image in ("before", "after")]}
    lsn = f"0000002c:{commit:08x}:0001"
    at: dict[str, Any] = {"commit_lsn": lsn, "change_lsn": lsn, "event_serial_no": 1}
    at |= {"connector": "sqlserver", "name": "shop", "db": "s", "schema": "dbo", "table": "orders"} | source
    images = [None if row is None else dict(zip(names.split(), row, strict=True)) for row in (before, after)]
    payload = {"op": op, "before": images[0], "after": images[1], "source": at}
    return json.dumps({"schema": schema, "payload": payload}).encode() + b"\n"


def test_events_end_equal_and_what_is_odd_is_told(tmp_path: Any, spark: Any) -> None:
    """G-01, G-03, G-06: snapshot, update, delete, change of key, order by commit, an unknown table, a broken line."""
    table = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}
    pipeline = Pipeline(tmp_path / "m", spark, [table], source={"format": "debezium-json", "layout": "bare"})
    lines = [event("u", [1, "Ada", 0], [1, "Eve", 1_500_000], 9), event("r", None, [1, "Ada", 0], 8, change_lsn=None)]
    lines += [event("c", None, [2, None, 0], 10), event("d", [2, None, 0], None, 12), b"null\n", b'{"payload": {"\n']
    lines += [event("c", None, [3, "Bob", None], 13), event("d", [3, "Bob", None], None, 14), b"null\n"]
    lines += [event("c", None, [4, "Bob", None], 14, event_serial_no=2), event("c", None, [1, "", 0], 9, table="other")]
    lines += [event("u", [4, "Bob", None], [5, "Bob", None], 15)]
    pipeline.deliver("a.jsonl", b"".join(lines))
    assert main(["tick", str(pipeline.file)]) == Exit.DONE_WITH_LOSSES
    pipeline.service.poll()
    rows = sorted(tuple(row[name] for name in ("id", "name", "at")) for row in pipeline.mirrored("dbo", "orders"))
    assert rows == [(1, "Eve", datetime(1970, 1, 1, 0, 0, 1, 500_000)), (5, "Bob", None)]
    assert [(one["code"], one["tbl"]) for one in pipeline.letters()] == [("JSON_MALFORMED", None)]


REFUSED = [
    (event("c", None, [1, 1], 9, "id d"), "COLUMNS_INVALID", "decimal.handling.mode=string"),
    (event("c", None, ["1"], 9, "id"), "VALUE_INVALID", "no int32"),
    (event("u", None, [1], 9, "id"), "OLD_KEY_MISSING", "before"),
    (event("t", None, [1], 9, "id"), "OPERATION_UNKNOWN", "'t'"),
    (event("c", None, [1], 9, "id", connector="postgresql", lsn=5), "ENVELOPE_INVALID", "sqlserver"),
]


@pytest.mark.parametrize(("line", "code", "words"), REFUSED)
def test_what_is_not_proved_is_a_dead_letter(line: bytes, code: str, words: str) -> None:
    decoder = DebeziumFormat().decoder({"dbo.orders": MirroredTable("dbo.orders", ("id",))})
    (row,) = decoder.decode([RawMessage("f", 0, line)]).rows
    assert (row.tbl, row.code, words in (row.reason or "")) == ("dbo.orders", code, True)
