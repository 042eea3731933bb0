"""Tables of every shape through the whole pipeline: hostile names down to the key, no key at all, every compression."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.ces_messages import event
from tests.e2e.test_bad_input import wrapped
from tests.pipeline import Pipeline, in_order

LONGEST = "L" * 126 + "é😀"
KEYS = ['a key, with "quotes"', "[k.2]; DROP TABLE x;--", LONGEST]
OTHERS = ["__rowmarker", "..", "größe {1}", "=1+1", "ключ\ttab"]
COLUMNS = [*((name, "nvarchar(20)") for name in KEYS), *((name, "nvarchar(40)") for name in OTHERS)]
HOSTILE = {"source": "[a.b].[t]]; --]", "target": "größe 1/T $x", "key": KEYS}
PLAIN = [("id", "int"), ("name", "nvarchar(50)")]


def hostile(key: str, text: str) -> dict[str, str]:
    """A row; its key values are as odd as their names."""
    return {name: f"{key}'\"{place}" for place, name in enumerate(KEYS)} | {name: f"{text} {name}" for name in OTHERS}


def says(operation: str, current: Any, old: Any, commit: int) -> bytes:
    return event(operation, current, old, commit=commit, schema="a.b", tbl="t]; --", cols=COLUMNS)


def files_of(pipeline: Pipeline, folder: str) -> list[Path]:
    """The table's files by number, wherever the service has moved them."""
    found = (path for path in (pipeline.zone / folder).rglob("*.parquet") if path.stem.isdigit())
    return sorted(found, key=lambda path: path.stem)


@pytest.mark.parametrize("compression", ["snappy", "none"])
def test_tables_of_every_shape_end_exactly(compression: str, tmp_path: Path, spark) -> None:
    """F-02, F-03, F-06, F-11, F-12, F-13, F-30, F-51, I16: inserts, updates, a key change, deletes, repetitions."""
    tables = [
        HOSTILE,
        {"source": "dbo.log", "target": "log", "key": []},
    ]
    zone = {"store": "local", "path": "zone", "partner_events": True}
    pipeline = Pipeline(tmp_path, spark, tables, landing_zone=zone, publish={"compression": compression})

    def logs(commit: int, name: str) -> bytes:
        return event("INS", {"id": "1", "name": name}, commit=commit, tbl="log", cols=PLAIN)

    pipeline.deliver(
        "0.jsonl",
        wrapped([
            says("INS", hostile("a", "old"), None, 10), says("INS", hostile("b", "b"), None, 11),
            says("INS", hostile("c", "c"), None, 12),
            logs(10, "same"), logs(11, "same"), logs(10, "same"),
        ]),
    )  # fmt: skip
    pipeline.tick()
    pipeline.deliver(
        "1.jsonl",
        wrapped([
            says("UPD", hostile("a", "new"), hostile("a", "old"), 13),
            says("UPD", hostile("d", "moved"), hostile("b", "b"), 14),
            says("DEL", None, hostile("c", "c"), 15),
            logs(11, "same"), logs(16, "later"),
        ], first=6),
    )  # fmt: skip
    _, published = pipeline.tick()
    assert dict(published.stopped) == {}
    found = in_order(pipeline.mirrored("größe 1", "T $x"), KEYS)
    assert found == in_order([hostile("a", "new"), hostile("d", "moved")], KEYS)
    assert not {path.name for path in pipeline.folder.iterdir()} - {
        "source",
        "mirrors",
        "zone",
        "log",
        "tables",
        "ledger.db",
        "ledger.db-wal",
        "ledger.db-shm",
    }, "no name becomes a path"
    assert sorted(row["name"] for row in pipeline.mirrored("dbo", "log")) == ["later", "same", "same"]
    inserted = [row for path in files_of(pipeline, "log") for row in pq.read_table(path).to_pylist()]
    assert [(row["name"], row["__rowMarker__"]) for row in inserted] == [("same", 0), ("same", 0), ("later", 0)]
    folder = "größe 1.schema/T $x"
    assert json.loads((pipeline.zone / folder / "_metadata.json").read_bytes())["keyColumns"] == KEYS
    assert "keyColumns" not in json.loads((pipeline.zone / "log" / "_metadata.json").read_bytes())
    codecs = {pq.read_metadata(path).row_group(0).column(0).compression for path in files_of(pipeline, folder)}
    assert codecs == {"SNAPPY" if compression == "snappy" else "UNCOMPRESSED"}
    events = json.loads((pipeline.zone / "_partnerEvents.json").read_bytes())
    assert events["sourceInfo"]["sourceType"] == "sqlserver-ces"
