"""Structures that a mirror file gives by hand: what they describe, and what is refused of them (K-61)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from open_mirroring.config import ConfigError, Mirror, load_mirror
from open_mirroring.errors import TerminalError
from spark_jobs.cli.command_line import main
from spark_jobs.sources.qlik.message.given_structures import given_structures
from spark_jobs.sources.registry import source_of
from tests.qlik_messages import ID, ROW, avro_enveloped, avro_schema, change, datum, decode, dt, md, metadata, only

COLUMNS = {"id": "INT4", "name": "WSTRING(100)", "price": "NUMERIC(8,2)", "note": "NCLOB"}
SOURCE = {"format": "qlik-message", "transport": "files", "path": "source"}
OF_ORDERS = {"cdc": "dbo.orders"}


def mirror(folder: Path, *structures: dict[str, Any], tables: Any = None, **source: Any) -> Mirror:
    (folder / "mirrors").mkdir(exist_ok=True)
    (folder / "source").mkdir(exist_ok=True)
    document = {
        "mirror": "test",
        "source": {name: one for name, one in {**SOURCE, **source}.items() if one is not None},
        "landing_zone": {"store": "local", "path": "zone"},
        "ledger": "sqlite:///ledger.db",
        "change_log": "log",
        "tables": tables or [{"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}],
        "structures": list(structures),
    }
    file = folder / "mirrors" / "test.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return load_mirror(file)


def by_columns(folder: Path, **parts: Any) -> Any:
    return given_structures(mirror(folder, {"table": "dbo.orders", "columns": COLUMNS, "key": ["id"], **parts}))


def test_a_list_of_columns_reads_messages_as_their_metadata_would_k61(tmp_path: Path) -> None:
    (given,) = by_columns(tmp_path)
    plain = json.loads(given.document)["tableStructure"]["tableColumns"]
    announced = metadata([("id", "INT4", 0, 0, 0, 1), ("name", "WSTRING", 100, 0, 0, 0),
                          ("price", "NUMERIC", 0, 8, 2, 0), ("note", "NCLOB", 0, 0, 0, 0)])  # fmt: skip
    assert plain == announced["tableStructure"]["tableColumns"]
    wanted = only(decode(md(), dt())).row
    for body in (dt(schema_id=None), dt(schema_id="E" * 32)):
        assert only(decode(body, schemas=[given], topics=OF_ORDERS)).row == wanted
    assert only(decode(dt(), schemas=[given])).kind == "fragment", "an id that nobody knows may be another table's"
    named = dt("INSERT", ROW, schema="dbo", table="orders", schema_id="E" * 32)
    assert only(decode(named, schemas=[given])).row == wanted
    odd = dt("INSERT", {**ROW, "more": 1}, schema_id="E" * 32)
    assert only(decode(odd, schemas=[given], topics=OF_ORDERS)).kind == "fragment", "it follows another structure"


def test_a_structure_with_an_id_counts_for_its_messages_alone_k61(tmp_path: Path) -> None:
    given = by_columns(tmp_path, schema_id=ID)
    assert only(decode(dt(), schemas=given)).tbl == "dbo.orders"
    assert only(decode(dt(schema_id="E" * 32), schemas=given, topics=OF_ORDERS)).kind == "fragment"


@pytest.mark.parametrize("whole", [True, False])
def test_a_metadata_message_in_a_file_is_announced_by_it_k61(whole: bool, tmp_path: Path) -> None:
    (tmp_path / "md.json").write_bytes(md() if whole else json.dumps(metadata()).encode())
    (given,) = given_structures(mirror(tmp_path, {"table": "dbo.orders", "metadata": "md.json"}))
    assert (given.schema_id, given.version) == (ID, 1)
    assert only(decode(dt(), schemas=[given])).row == only(decode(md(), dt())).row


@pytest.mark.parametrize("columns", [None, COLUMNS])
def test_an_avro_schema_in_a_file_reads_its_messages_k61(columns: Any, tmp_path: Path) -> None:
    (tmp_path / "data.avsc").write_text(json.dumps(avro_schema()))
    parts = {"columns": columns, "key": ["id"]} if columns else {}
    record = datum(avro_schema(), change())
    for named, body in (
        ({"registry_number": 7}, b"\x00\x00\x00\x00\x07" + record),
        ({"schema_id": ID}, avro_enveloped("DT", record, ID)),
    ):
        given = given_structures(mirror(tmp_path, {"table": "dbo.orders", "avro": "data.avsc", **parts, **named}))
        row = only(decode(body, schemas=given))
        assert (row.kind, row.tbl) == ("change", "dbo.orders")
    (given,) = given_structures(mirror(tmp_path, {"table": "dbo.orders", "avro": "data.avsc", **parts}))
    bare = only(decode(record, schemas=[given], topics=OF_ORDERS, unframed_avro=True))
    assert (bare.kind, bare.tbl) == ("change", "dbo.orders")


@pytest.mark.parametrize(
    ("structure", "content", "code"),
    [
        ({"metadata": "x.json"}, None, "METADATA_MISSING"),
        ({"metadata": "x.json"}, "{", "METADATA_MISSING"),
        ({"metadata": "x.json"}, json.dumps(metadata(table="other")), "METADATA_MISSING"),
        ({"metadata": "x.json"}, json.dumps(metadata([])), "METADATA_MISSING"),
        ({"avro": "x.json"}, '"string"', "METADATA_MISSING"),
        ({"avro": "x.json"}, json.dumps(avro_schema(table="other")), "METADATA_MISSING"),
        ({"columns": {"id": "NUMBER(5)"}}, None, "TYPE_UNSUPPORTED"),
        ({"columns": {"id": "NUMERIC"}}, None, "TYPE_UNSUPPORTED"),
    ],
)
def test_check_shows_what_cannot_be_read_k61(
    structure: Any, content: str | None, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "x.json").write_text(content)
    made = mirror(tmp_path, {"table": "dbo.orders", **structure})
    with pytest.raises(TerminalError) as raised:
        source_of(made)
    assert raised.value.code == code and raised.value.next_step
    assert main(["check", str(made.file)]) == 2
    assert code in capsys.readouterr().out


@pytest.mark.parametrize(
    ("structures", "tables", "source", "words"),
    [
        ([{"table": "dbo.orders"}], None, {}, "columns"),
        ([{"table": "dbo.orders", "metadata": "a", "columns": COLUMNS}], None, {}, "metadata"),
        ([{"table": "dbo.orders", "metadata": "a", "avro": "b"}], None, {}, "avro"),
        ([{"table": "dbo.orders", "columns": COLUMNS, "key": ["no"]}], None, {}, "'no'"),
        ([{"table": "dbo.orders", "columns": COLUMNS, "schema_id": "A", "registry_number": 1}], None, {}, "number"),
        ([{"table": "dbo.others", "columns": COLUMNS}], None, {}, "no mirrored table"),
        ([{"table": "dbo.orders", "columns": COLUMNS}], None, {"format": "sqlserver-ces"}, "structures"),
        ([], [{"source": f"x.{n}", "target": f"x/{n}", "key": ["id"], "topic": "t"} for n in "ab"], {}, "tables[0]"),
        ([], [{"source": "dbo.a", "target": "dbo/a", "key": ["id"], "topic": "t"}],
         {"transport": "kafka", "connection": "c", "topics": ["u"], "path": None}, "source.topics"),
        ([], None, {"format": "qlik-change-table", "unframed_avro": True}, "unframed_avro"),
    ],
)  # fmt: skip
def test_a_mirror_file_that_contradicts_itself_is_refused_k15_k61(
    structures: Any, tables: Any, source: Any, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as raised:
        mirror(tmp_path, *structures, tables=tables, **source)
    assert words in str(raised.value)


def test_a_setting_that_could_not_be_reached_reaches_what_reads_k06(tmp_path: Path) -> None:
    assert source_of(mirror(tmp_path, unframed_avro=True)).format.settings.unframed_avro is True
