"""Published samples decode."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.ces.decoder import CesDecoder
from spark_jobs.sources.contract.decoded import MirroredTable
from spark_jobs.sources.sql_server.types import converter


@pytest.mark.parametrize("operation", ["ins", "upd", "del"])
@pytest.mark.parametrize(
    ("edition", "table"),
    [
        ("2025-03", MirroredTable("dbo.Purchases", ("purchase_id",))),
        ("2026-08", MirroredTable("dbo.Employees", ("Id",))),
    ],
)
def test_published_samples_decode(shared_data: Path, edition: str, table: MirroredTable, operation: str) -> None:
    body = (shared_data / "samples" / "ces" / f"msdocs-{edition}-{operation}.json").read_bytes()
    decoded = CesDecoder({table.source: table}).decode([RawMessage("sample", 0, body)])
    (row,) = decoded.rows
    assert (row.kind, row.tbl, row.op) == ("change", table.source, operation[0].upper())
    inner = json.loads(json.loads(body)["data"])
    image, text = ("old", row.before) if operation == "del" else ("current", row.row)
    assert json.loads(text or "") == json.loads(inner["eventrow"][image])
    assert row.key == json.dumps([inner["eventsource"]["pkkey"][0]["value"]])
    for name, sql_type, _ in json.loads(row.cols or ""):
        converter(sql_type)(json.loads(text or "")[name])
