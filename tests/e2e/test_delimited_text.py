"""A table whose files are delimited text, through the whole pipeline into the emulator."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from open_mirroring.config import load_mirror
from open_mirroring.errors import MirroringError
from open_mirroring.ledger.auditing import Reason
from spark_jobs.initial_load import load
from spark_jobs.reconcile_sequence import reconcile_deep
from spark_jobs.reload_table import reload_table, request_reload
from spark_jobs.repairs import repair_number
from tests.ces_messages import event
from tests.e2e.test_bad_input import wrapped
from tests.pipeline import Pipeline, in_order

COLS = (("id", "int"), ("name", "nvarchar(50)"), ("at", "datetime2(6)"), ("rate", "float"))
TEXT = {"columns": {"id": "int32", "name": "string", "at": "timestamp", "rate": "float64"}, "column_separator": ";"}
TABLE = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], "delimited_text": TEXT}
ODD = ["a;b", 'say "hi"', "", None, "two\r\nlines", "null"]


def row(key: int, name: str | None) -> dict[str, Any]:
    return {"id": str(key), "name": name, "at": "2026-01-05 10:00:00.123456", "rate": "1.5E0"}


def says(operation: str, current: Any, old: Any, commit: int, cols: Any = COLS) -> bytes:
    return event(operation, current, old, commit=commit, cols=cols) + b"\n"


def names_of(pipeline: Pipeline) -> dict[int, str | None]:
    return {line["id"]: line["name"] for line in in_order(pipeline.mirrored("dbo", "orders"), ["id"])}


def made(tmp_path: Path, spark: Any, **settings: Any) -> Pipeline:
    pipeline = Pipeline(tmp_path, spark, [TABLE], source={"layout": "bare"}, **settings)
    pipeline.deliver("a.jsonl", b"".join(says("INS", row(at, name), None, 10 + at) for at, name in enumerate(ODD)))
    return pipeline


def test_a_table_of_text_ends_exactly_wherever_it_was_killed(tmp_path: Path, spark) -> None:
    """F-20 to F-25, F-30, F-31, F-39, I9: a renamed file is known again by its bytes; the deep check reads them."""
    pipeline = made(tmp_path, spark, publish={"max_rows_per_file": 4})
    pipeline.extract()
    pipeline.killed("publish_changes", "publish.renamed")
    pipeline.publish()
    pipeline.service.poll()
    assert names_of(pipeline) == dict(enumerate(ODD))
    pipeline.deliver(
        "b.jsonl",
        says("UPD", row(0, "new"), row(0, ODD[0]), 20)
        + says("DEL", None, row(1, ODD[1]), 21)
        + says("UPD", row(9, "moved"), row(2, ""), 22),
    )
    _, published = pipeline.tick()
    assert dict(published.stopped) == {}
    assert names_of(pipeline) == {0: "new", 3: None, 4: ODD[4], 5: "null", 9: "moved"}
    folder = pipeline.zone / "dbo.schema" / "orders"
    files = sorted(folder.rglob("0*.csv"), key=lambda path: path.stem)
    assert [int(path.stem) for path in files] == [1, 2, 3]
    assert files[0].read_bytes().splitlines()[0] == b'"id";"name";"at";"rate";"__rowMarker__"'
    assert reconcile_deep(pipeline.mirror, pipeline.ledger, spark).findings == []
    last = files[-1]
    last.write_bytes(last.read_bytes().replace(b"moved", b"other"))
    codes = {finding.code for finding in reconcile_deep(pipeline.mirror, pipeline.ledger, spark).findings}
    assert "CONTENT_CHANGED" in codes


def test_a_lost_number_of_text_is_made_again_byte_for_byte(tmp_path: Path, spark) -> None:
    """F-40, I9: what the ledger sealed of it are its bytes."""
    pipeline = made(tmp_path, spark, publish={"max_rows_per_file": 2})
    pipeline.extract()
    pipeline.publish()
    lost = pipeline.zone / "dbo.schema" / "orders" / "00000000000000000002.csv"
    content = lost.read_bytes()
    lost.unlink()
    pipeline.service.poll()
    why = Reason("Ada", "ticket 4711")
    done = repair_number(pipeline.mirror, pipeline.ledger, "dbo.orders", 2, why, not_applied="looked")
    assert (done.number, done.rows, lost.read_bytes()) == (2, 2, content)
    pipeline.service.poll()
    assert names_of(pipeline) == dict(enumerate(ODD))


def test_another_column_stops_it_and_a_reset_with_its_new_form_goes_on(tmp_path: Path, spark) -> None:
    """F-23, F-90: no evolution; F-13: what was declared is for the life of the folder."""
    pipeline = made(tmp_path, spark, landing_zone={"store": "local", "path": "zone", "tables": "tables"})
    pipeline.tick()
    wider = (*COLS, ("note", "nvarchar(9)"))
    pipeline.deliver("b.jsonl", says("INS", {**row(7, "x"), "note": "n"}, None, 30, wider))
    _, published = pipeline.tick()
    stop = dict(published.stopped)["dbo.orders"]
    assert "SCHEMA_CHANGED" in stop and "'note' string" in stop
    assert names_of(pipeline) == dict(enumerate(ODD))
    document = yaml.safe_load(pipeline.file.read_text(encoding="utf-8"))
    text = {**TEXT, "columns": {**TEXT["columns"], "note": "string"}, "extension": "tsv", "column_separator": "\t"}
    document["tables"][0]["delimited_text"] = text
    pipeline.file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    with pytest.raises(MirroringError, match="TABLE_REDECLARED"):
        pipeline.publish()
    request_reload(pipeline.mirror, pipeline.ledger, "dbo.orders", Reason("Ada", "a column more"))
    for _ in range(4):
        reload_table(pipeline.mirror, pipeline.ledger, spark, "dbo.orders", wait=timedelta(0))
        pipeline.service.poll()
    assert names_of(pipeline) == {**dict(enumerate(ODD)), 7: "x"}
    metadata = json.loads((pipeline.zone / "dbo.schema" / "orders" / "_metadata.json").read_bytes())
    assert (metadata["FileExtension"], metadata["FileFormat"]) == ("tsv", "DelimitedText")


LOAD = {
    "format": "csv",
    "path": "export.csv",
    "stream_from": "0000002C:00000004:0001",
    "types": {"id": "int", "name": "nvarchar(50)", "at": "datetime2(6)", "rate": "float"},
}


@pytest.mark.parametrize("settings", [{}, {"consistency": "transaction"}], ids=["key", "transaction"])
@pytest.mark.parametrize("fault", [None, "extract.sealed"])
def test_its_first_rows_are_text_too(tmp_path: Path, spark, settings: dict[str, Any], fault: str | None) -> None:
    """G-08, F-25, I1, I19: they go through the log, are published from there, and changes come over them."""
    lines = ["id,name,at,rate", "1,Ada,2026-01-05 10:00:00.123456,1.5", '2,"a;""b",2026-01-05 10:00:00,', '3,"",,2.5']
    (tmp_path / "export.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    table = {**TABLE, "initial_load": LOAD}
    source = {"layout": "wrapped", "partition_key_scheme": "table", "partition_count": 1}
    pipeline = Pipeline(tmp_path, spark, [table], source=source, **settings)
    if fault:
        pipeline.killed("initial_load", fault)
    assert dict(load(pipeline.mirror, pipeline.ledger, spark).rows) == ({} if fault else {"dbo.orders": 3})
    changes = [("UPD", row(1, "new"), row(1, "Ada")), ("DEL", None, row(3, "")), ("INS", row(4, "last"), None)]
    pipeline.deliver("a.jsonl", wrapped([says(*change, 50 + at).strip() for at, change in enumerate(changes)]))
    for _ in range(2):
        _, published = pipeline.tick()
        assert dict(published.stopped) == {}
    assert names_of(pipeline) == {1: "new", 2: 'a;"b', **({} if settings else {4: "last"})}
    assert not list((pipeline.zone / "dbo.schema" / "orders").rglob("*.parquet"))
    assert reconcile_deep(pipeline.mirror, pipeline.ledger, spark).findings == []


@pytest.mark.parametrize(
    ("change", "code", "path"),
    [
        ({"columns": {"id": "int32", "price": "decimal(8,2)"}}, "TYPE_UNSUPPORTED", "delimited_text.columns"),
        ({"columns": {"name": "string"}}, "CONFIG_INVALID", "delimited_text"),
        ({"columns": {"id": "int32", "ID": "string"}}, "COLUMN_NAME_INVALID", "delimited_text.columns"),
        ({"extension": "parquet"}, "CONFIG_INVALID", "delimited_text.extension"),
        ({"extension": ".csv"}, "CONFIG_INVALID", "delimited_text.extension"),
        (["id", "name"], "CONFIG_INVALID", "delimited_text"),
        (["id", "name", "at", "rate", "note"], "CONFIG_INVALID", "delimited_text"),
    ],
)
def test_what_text_cannot_be_is_refused(tmp_path: Path, change: Any, code: str, path: str) -> None:
    """F-21, F-23, F-24, F-88: in the mirror file, before anything is written; two lists of columns have to agree."""
    changed = {"columns": change} if isinstance(change, list) else {"delimited_text": {**TEXT, **change}}
    pipeline = Pipeline(tmp_path, None, [{**TABLE, **changed}])
    with pytest.raises(Exception, match=code) as refused:
        load_mirror(pipeline.file)
    assert f"tables[0].{path}" in str(refused.value)
