"""`open-mirroring init`: names are data, nothing is guessed, and what stands in a file is not touched."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from open_mirroring.config import load_mirror
from open_mirroring.config.loading import parse_mirror
from open_mirroring.config.models import BegunMirror
from open_mirroring.errors import TerminalError
from open_mirroring.ledger import open_ledger
from open_mirroring.operate.exit_codes import Exit
from open_mirroring_debezium import DebeziumFormat
from spark_jobs.beginning.announcements import AnnouncedTable
from spark_jobs.beginning.entries import FirstRows, entries, yaml_text
from spark_jobs.beginning.mirror_text import begun_text, indent_of, with_tables
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.cli.command_line import main
from spark_jobs.sources.ces.format import CesFormat
from spark_jobs.sources.qlik.message.format import QlikMessageFormat
from tests.ces_messages import avro_event, event, split
from tests.debezium import event as debezium_event
from tests.noted_facts import record_foreign
from tests.qlik_messages import ID, avro_enveloped, avro_schema, change, datum, dt, md
from tests.unit.spark_jobs.sources.qlik.test_qlik_change_files import COLUMNS, dfm, put

SOURCE = "format: sqlserver-ces, transport: files, path: source, layout: bare"
ODD = [
    "a: b", "# no comment", "'", '"', "-", "- x", "{a}", "[a]", "a, b", "yes", "NULL", "~", "1.5", "2020-01-01", "*a",
    "&a", "!a", "%a", "@a", "`a`", "a\tb", "a\nb", "é", "漢字", "😀", "a #b", "=", "<<", "0x1F", "", " a ", "\u2028",
]  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("OPEN_MIRRORING_HOME", raising=False)
    (tmp_path / "source").mkdir()
    return tmp_path


def deliver(home: Path, *messages: bytes, name: str = "a.jsonl") -> None:
    (home / "source" / name).write_bytes(b"".join(one + b"\n" for one in messages))


def begun(home: Path, *options: str, source: str = SOURCE) -> Path:
    file = home / "mirrors" / "shop.yaml"
    assert main(["init", str(file), *(() if file.exists() else ("--source", source)), *options]) == Exit.DONE
    return file


def comments(file: Path) -> str:
    lines = [line.strip() for line in file.read_text("utf-8").split("tables:")[1].splitlines()]
    return " ".join(line.removeprefix("# ") for line in lines if line.startswith("#"))


@pytest.mark.parametrize("text", ODD)
def test_yaml_reads_back_every_name_as_it_was(text: str) -> None:
    """G-50: alone, in a list and as a name in braces."""
    written = f"a: {yaml_text(text)}\nb: {yaml_text([text, 'x'])}\nc: {yaml_text({text: text})}\n"
    assert len(written.splitlines()) == 3
    assert yaml.safe_load(written) == {"a": text, "b": [text, "x"], "c": {text: text}}


def test_tables_keys_and_types_are_those_that_events_show(home: Path) -> None:
    """G-50, C-45, C-62: JSON and Avro, a key in its own order, the union of column lists."""
    deliver(
        home,
        event(pkkey={"name": "Ada", "id": "7"}),
        event(pkkey={"name": "Ada", "id": "7"}, cols=[("id", "int"), ("name", "nvarchar(50)")], commit=9),
        event("DEL", None, {"id": "7"}, tbl="carts", pkkey={"id": "7"}),
        b"no event",
    )
    file = begun(home)
    assert [(t.source, t.target, t.key) for t in load_mirror(file).tables] == [
        ("dbo.carts", "dbo/carts", ("id",)),
        ("dbo.orders", "dbo/orders", ("name", "id")),
    ]
    assert "id int, name nvarchar(50), price decimal(8,2)" in file.read_text()
    story = CesFormat().announced([RawMessage("f", 0, avro_event(pkkey={"id": "7"}))])
    assert [(one.table, one.key) for one in story] == [("orders", ("id",))]


def test_what_the_source_leaves_open_waits_as_a_comment(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """G-50: no key with updates, a key that cannot be mirrored, two names that are one at the target."""
    key = {"id": "7"}
    deliver(
        home,
        event(pkkey=key, tbl="good"),
        event(pkkey=key, tbl="GOOD"),
        event(tbl="inserts"),
        event("UPD", {"id": "7", "name": "A", "price": "1"}, {"id": "7", "name": "B", "price": "1"}, tbl="updates"),
        event(pkkey={"shape": "x"}, tbl="shapes", cols=[("shape", "geography")], current={"shape": "x"}),
        event(pkkey=key, tbl="part", cols=[("id", "int"), ("doc", "vector")], current={"id": "7", "doc": "x"}),
        event(pkkey=key, tbl="__rowMarker__", cols=[("id", "int"), ("__rowMarker__", "int")], current=key),
        split(event(pkkey=key, tbl="large"), [400])[0],
    )
    file = begun(home)
    mirrored = {table.source: (table.target, table.key, table.columns) for table in load_mirror(file).tables}
    assert mirrored == {
        "dbo.GOOD": ("dbo/GOOD", ("id",), None),
        "dbo.inserts": ("dbo/inserts", (), None),
        "dbo.part": ("dbo/part", ("id",), ("id",)),
        "dbo.__rowMarker__": ("dbo/rowMarker__", ("id",), ("id",)),
    }
    said = capsys.readouterr().out
    assert "4 tables added, 4 as comments" in said
    for words in ("dbo.good: the target 'dbo/good' is the same table", "dbo.updates: it has no primary key, and rows"):
        assert words in said
    assert "dbo.shapes: the key column 'shape' cannot be" in said and "dbo.large: its key is unknown" in said
    assert "# append_only: true" in file.read_text()
    assert "accepts inserts only" in comments(file) and "left out, for the target or the stream" in comments(file)
    text = file.read_text()
    assert begun(home, "--add").read_text() == text, "a comment of an earlier run is not written again"


def test_names_with_periods_brackets_and_line_ends_are_spelled_or_reported(home: Path) -> None:
    """G-50, F-02: nothing in a name can end a comment or a value."""
    key = {"id": "7"}
    deliver(
        home,
        event(pkkey=key, schema="my.own", tbl="a/b"),
        event(pkkey=key, tbl="x\n  - source: dbo.evil"),
        event(pkkey={"k\n#: ]": "1"}, tbl="yes", cols=[("k\n#: ]", "int"), ("a: b", "int")], current={"a: b": "1"}),
        event(pkkey={"a: b": "1"}, tbl="null", cols=[("a: b", "int")], current={"a: b": "1"}),
    )
    file = begun(home)
    assert {table.source: (table.target, table.key) for table in load_mirror(file).tables} == {
        "[my.own].[a/b]": ("my.own/a_b", ("id",)),
        "dbo.null": ("dbo/null", ("a: b",)),
        "[dbo].[x\n  - source: dbo.evil]": ("dbo/x_  - source_ dbo.evil", ("id",)),
    }
    assert "- source: dbo.evil" not in {line.strip() for line in file.read_text().splitlines()}


def with_a_gap(message: bytes) -> bytes:
    """The event with its columns behind the first one place further."""
    whole = json.loads(message)
    data = json.loads(whole["data"])
    for column in data["eventsource"]["cols"][1:]:
        column["index"] += 1
    return json.dumps({**whole, "data": json.dumps(data)}).encode()


def test_warnings_show_how_the_stream_is_set_up(home: Path) -> None:
    """G-50, C-44, C-71, C-12: old values off, changed columns only, two databases."""
    key, row, two = {"id": "7"}, {"id": "7", "b": "2", "c": "3"}, [("id", "int"), ("b", "int")]
    deliver(
        home,
        event(pkkey=key),
        event("UPD", {"id": "7", "name": "B", "price": "1"}, pkkey=key, tbl="blind"),
        event("UPD", {"id": "7", "price": "2"}, {"id": "7", "price": "1"}, pkkey=key, tbl="partial"),
        with_a_gap(event("UPD", {"id": "7", "b": "2"}, {"id": "7", "b": "1"}, pkkey=key, cols=two, tbl="changed")),
        # A column that was dropped leaves a gap, too; another update proves that all columns are sent.
        with_a_gap(event("UPD", {"id": "7", "b": "2"}, {"id": "7", "b": "1"}, pkkey=key, cols=two, tbl="dropped")),
        with_a_gap(event("UPD", row, {**row, "b": "1"}, pkkey=key, cols=[*two, ("c", "int")], tbl="dropped")),
        event("UPD", {"id": "7", "name": "B", "price": "1"}, {"id": "7", "name": "A", "price": "1"}, pkkey=key),
        event(pkkey=key, db="other"),
    )
    file = begun(home)
    blocks = {one.split("\n")[0]: one for one in file.read_text().split("- source: ")}
    above = {name: file.read_text().split(f"- source: {name}")[0].split("key: [")[-1] for name in blocks}
    assert "@include_old_values = 0" in above["dbo.blind"] and "@include_all_columns" not in above["dbo.blind"]
    assert "@include_all_columns = 0" in above["dbo.partial"] and "old_values" not in above["dbo.partial"]
    assert "@include_all_columns = 0" in above["dbo.changed"] and "@include" not in above["dbo.dropped"]
    assert "other and shop" in above["dbo.orders"] and "@include" not in above["dbo.orders"]


def announced(form: QlikMessageFormat | DebeziumFormat, *bodies: bytes, key: bytes | None = None) -> list[tuple]:  # type: ignore[type-arg]
    messages = [RawMessage("topic/0", place, body, key) for place, body in enumerate(bodies)]
    found = [one for one in form.announced(messages) if one.columns or one.notes]
    return [(one.table, one.key, [c.type for c in one.columns], len(one.notes)) for one in found]


def test_metadata_messages_and_writer_schemas_show_tables() -> None:
    """G-50, K-12, K-14, K-70: the key by its positions; a schema alone shows none; types without place are reported."""
    form = QlikMessageFormat()
    types = ["int", "varchar(100)", "decimal(8,2)", "varchar(max)"]
    assert announced(form, md()) == [("orders", ("id",), types, 0)]
    no_key = [("a", "INT4", 0, 0, 0, 0), ("n", "NUMERIC", 0, 0, 0, 0)]
    assert announced(form, md(no_key)) == [("orders", (), ["int", "NUMERIC(0,0)"], 0)]
    two = [("a", "INT4", 0, 0, 0, 2), ("b", "INT4", 0, 0, 0, 1)]
    assert announced(form, md(two))[0][1] == ("b", "a")
    schema = avro_schema()
    written = avro_enveloped("DT", datum(schema, change()), ID, json.dumps(schema))
    assert announced(form, written)[-1][:2] == ("orders", None)
    assert [one[3] for one in announced(form, md(), dt("UPDATE", changeMask=None))] == [1, 0]


def test_debezium_shows_the_key_by_the_messages_key() -> None:
    """G-50: without it nothing tells the key."""
    line = debezium_event("c", None, [1, "Ada", 0], 9)
    types = ["bigint", "nvarchar(max)", "datetime2(6)"]
    keyed = announced(DebeziumFormat(), line, key=b'{"schema": {}, "payload": {"id": 1}}')
    assert keyed == [("orders", ("id",), [keyed[0][2][0], *types[1:]], 0)]
    assert announced(DebeziumFormat(), line)[0][1] is None


def test_metadata_files_show_keys_and_full_loads(home: Path) -> None:
    """G-50, T-40, T-41: from the change table's own metadata, else from the full load's; with neither it waits."""
    put(home / "source", b"x", dfm(columns=COLUMNS))
    file = home / "mirrors" / "shop.yaml"
    source = "format: qlik-change-table, transport: files, path: source"
    assert main(["init", str(file), "--source", source]) == Exit.USAGE, "nothing tells the key of its only table"
    assert not file.exists()
    load = json.loads(dfm(columns=[one for one in COLUMNS if not one[0].startswith("header__")]))
    load["fileInfo"]["name"] = "LOAD00000001.csv"
    load["dataInfo"] |= {"targetTable": load["dataInfo"]["sourceTable"]}
    load["dataInfo"]["columns"][0]["primaryKeyPos"] = 1
    beside = home / "source" / "shop.items"
    beside.mkdir()
    (beside / "LOAD00000001.dfm").write_text(json.dumps(load))
    (table,) = load_mirror(begun(home, source=source)).tables
    assert (table.source, table.key) == ("shop.items", (load["dataInfo"]["columns"][0]["name"],))
    assert table.initial_load is not None and table.initial_load.path == "source/shop.items"  # type: ignore[union-attr]


FILE = """\
mirror: shop
source: {format: sqlserver-ces, transport: files, path: source, layout: bare}
landing_zone: {store: local, path: zone}
ledger: sqlite:///ledger.db
change_log: log
"""
TABLES = """\
tables:
    # the first
    - {source: dbo.a, target: dbo/a, key: [id]} # as ever
    - source: dbo.b
      target: dbo/b
      key: [id]
      # full_rows: true
"""
BEHIND = "\n# every hour\nschedule: 0 * * * *\n"


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("behind", ["", BEHIND])
@pytest.mark.parametrize("head", ["", "\ufeff", "# ours\n"])
def test_added_tables_leave_every_other_byte_as_it_was(home: Path, head: str, behind: str, ending: str) -> None:
    """G-50: comments, order and line ends stay."""
    deliver(home, event(pkkey={"id": "7"}, tbl="a"), event(pkkey={"id": "7"}, tbl="c"))
    file = home / "mirrors" / "shop.yaml"
    file.parent.mkdir()
    before = (head + FILE + TABLES + behind).replace("\n", ending)
    file.write_bytes(before.encode())
    file.chmod(0o640)
    begun(home, "--add")
    after = file.read_bytes().decode()
    cut = len((head + FILE + TABLES).replace("\n", ending))
    assert after[:cut] == before[:cut] and after.endswith(before[cut:]) and file.stat().st_mode & 0o777 == 0o640
    assert f"    - source: dbo.c{ending}" in after and after.count("\n") == after.count(ending)
    assert [table.source for table in load_mirror(file).tables] == ["dbo.a", "dbo.b", "dbo.c"]
    assert begun(home, "--add").read_bytes().decode() == after


@pytest.mark.parametrize(
    "tables",
    [
        "tables:\n- source: dbo.a\n  target: dbo/a\n  key: [id]\n  # mine\n|# of the next\nschedule: 0 * * * *\n",
        "tables:\n  - source: dbo.a\n# here\n    target: dbo/a\n    key:\n      - id\n    # mine\n|\n  # of the next\n",
        "tables:\n  - {source: dbo.a,\n     target: dbo/a,\n     key: [id]}   # c\n|\n\n",
        "tables:\n  - &t\n    source: dbo.a\n    target: dbo/a\n    key: &k [id]\n  - <<: *t\n    key: *k\n"
        "    target: dbo/b\n    source: dbo.b\n|schedule: 0 * * * *\n",
        "tables:\n  - target: dbo/a\n    key: [id]\n    source: |-\n      dbo.a\n|schedule: 0 * * * *\n".replace(
            "|-", ">-"
        ),
        'tables:\n  - key: [id]\n    source: dbo.a\n    target: "dbo/\\\n      a"\n|# end',
    ],
)
def test_tables_are_added_behind_the_last_one_and_its_comments(tables: str) -> None:
    """G-50: the place is where | stands."""
    before, _, behind = tables.partition("|")
    text = FILE + before + behind
    line = f"{indent_of(text)}- {{source: dbo.z, target: dbo/z, key: []}}"
    assert with_tables(text, [line], Path("mirrors/shop.yaml")) == f"{FILE}{before}{line}\n{behind}"


@pytest.mark.parametrize("tables", ["", "tables:\n", "tables: []\n", "tables: # none yet\n"])
def test_a_file_without_tables_gets_them(home: Path, tables: str) -> None:
    """G-50: whatever stands for none."""
    deliver(home, event(pkkey={"id": "7"}))
    file = home / "mirrors" / "shop.yaml"
    file.parent.mkdir()
    for behind in ("", "schedule: 0 * * * *"):
        file.write_text(FILE + tables + behind)
        assert [table.source for table in load_mirror(begun(home)).tables] == ["dbo.orders"]


@pytest.mark.parametrize(
    "text",
    [
        FILE + "tables: [{source: dbo.a, target: dbo/a, key: [id]}]\n",
        FILE + TABLES + "...\n",
        FILE + "tables:\n  - {source: dbo.a, target: dbo/a, key: &k [id]}\n  - source: dbo.b\n    target: dbo/b\n"
        "    key:\n      *k\n",
        "{" + ", ".join(FILE.splitlines()) + ", tables: [{source: dbo.a, target: dbo/a, key: [id]}]}\n",
    ],
)
def test_a_shape_that_cannot_be_added_to_is_refused(text: str) -> None:
    """G-50: nothing is written anew to make room."""
    with pytest.raises(TerminalError) as refused:
        with_tables(text, ["- {source: dbo.z, target: dbo/z, key: []}"], Path("mirrors/shop.yaml"))
    assert refused.value.code == "ARGUMENT_INVALID"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], "ARGUMENT_INVALID"),
        (["--source", "3"], "CONFIG_INVALID"),
        (["--source", "["], "ARGUMENT_INVALID"),
        (["--source", SOURCE, "--export", "nowhere"], "PLACE_MISSING"),
        (["--source", SOURCE], "ARGUMENT_INVALID"),
        (["--source", SOURCE.replace("bare", "none")], "CONFIG_INVALID"),
    ],
)
def test_what_cannot_be_begun_is_refused_and_nothing_is_written(
    home: Path, arguments: Sequence[str], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / "mirrors" / "shop.yaml"
    assert main(["init", str(file), *arguments]) == Exit.USAGE
    assert code in capsys.readouterr().err and not file.parent.exists()


def test_a_file_that_has_tables_is_added_to_only_when_reported(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deliver(home, event(pkkey={"id": "7"}))
    file = begun(home)
    text = file.read_text()
    for arguments, code in (([], "ARGUMENT_INVALID"), (["--source", SOURCE], "ARGUMENT_INVALID")):
        assert main(["init", str(file), *arguments]) == Exit.USAGE
        assert code in capsys.readouterr().err
    deliver(home, event(pkkey={"id": "7"}, tbl="later"), name="b.jsonl")
    assert main(["init", str(file), "--add", "--print"]) == Exit.DONE
    assert "dbo.later" in capsys.readouterr().out and file.read_text() == text


def test_first_rows_come_from_an_export_by_the_tables_names(home: Path) -> None:
    """G-50, G-08: types for CSV, the export's own manifest or a position for where the stream goes on."""
    key = {"id": "7"}
    deliver(
        home,
        event(pkkey=key),
        event(pkkey=key, tbl="none"),
        event(tbl="keyless"),
        event(pkkey=key, schema=str(home), tbl="led"),
        event(pkkey=key, schema="..", tbl="/led"),
    )
    (home / "export").mkdir()
    for outside in (Path(f"{home}.led.csv"), home / "led.csv"):
        outside.write_text("id,name,price\n")
    (home / "export" / "dbo.orders.csv").write_text("id,name,price\n")
    given = ["--export", str(home / "export"), "--export-format", "csv"]
    text = begun(home, *given, "--stream-from", "0x0000002C000007300011", "--print").name
    assert text == "shop.yaml"
    file = begun(home, *given, "--stream-from", str(home / "export" / "export.json"))
    loads = {table.source: table.initial_load for table in load_mirror(file).tables}
    assert loads["dbo.orders"].model_dump(exclude_none=True) == {  # type: ignore[union-attr]
        "format": "csv",
        "path": "export/dbo.orders.csv",
        "stream_from": {"file": "export/export.json"},
        "types": {"id": "int", "name": "nvarchar(50)", "price": "decimal(8,2)"},
    }
    assert [source for source, load in loads.items() if load is not None] == ["dbo.orders"] and len(loads) > 2
    assert "there is no export 'dbo.none.csv'" in comments(file)


def test_a_name_that_looks_like_a_secret_is_neither_written_nor_shown(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """I30: and it is reported that something was left out."""
    key = {"id": "7"}
    deliver(home, event(pkkey=key), event(pkkey=key, tbl="x AccountKey=abcdefghijklmnop1234=="))
    file = begun(home)
    shown = capsys.readouterr()
    assert "1 table is left out" in shown.err and "AccountKey" not in shown.out + shown.err + file.read_text()
    assert [table.source for table in load_mirror(file).tables] == ["dbo.orders"]


@pytest.mark.parametrize("transport", ["files", "jdbc"])
def test_the_settings_in_comments_are_good_ones_for_the_source(transport: str) -> None:
    more = {"connection": "c"} if transport == "jdbc" else {"path": "data"}
    text = begun_text("shop", {"format": "qlik-change-table", "transport": transport, **more})
    settings = re.sub(r"^# (?=schedule:|prove:)", "", text, flags=re.MULTILINE)
    mirror = parse_mirror(settings, Path("mirrors/shop.yaml"), BegunMirror)
    assert mirror.prove.cover_in_days == 7
    # New rows in a database start no run.
    assert (mirror.on_new_data is None) == (transport == "jdbc")


def test_a_full_load_in_object_storage_is_read_by_the_sources_connection() -> None:
    """G-50, S-03: it lies beside the change tables."""
    source = {"format": "qlik-change-table", "transport": "files", "path": "s3://bucket/qlik", "connection": "store"}
    mirror = parse_mirror(begun_text("shop", source), Path("mirrors/shop.yaml"), BegunMirror)
    ready = {"format": "qlik-full-load", "path": "s3://bucket/qlik/dbo.a", "stream_from": "beginning"}
    (entry,) = entries(mirror, [AnnouncedTable("dbo", "a", key=("id",), load=ready)], FirstRows())
    assert entry.waits == "" and entry.settings["initial_load"] == {**ready, "connection": "store"}


def test_tables_are_chosen_by_patterns(home: Path) -> None:
    """G-50: as the source spells them."""
    names = (("sales", "orders"), ("sales", "tmp_a"), ("sales", "x"), ("hr", "people"), ("Sales", "odd"))
    deliver(home, *(event(pkkey={"id": "7"}, schema=schema, tbl=name) for schema, name in names))
    file = begun(home, "--only", "sales.*", "--only", "hr.people", "--exclude", "*.tmp_*")
    assert [table.source for table in load_mirror(file).tables] == ["hr.people", "sales.orders", "sales.x"]


def test_a_table_whose_changes_were_ignored_so_far_says_so(home: Path) -> None:
    """G-24, G-50: without a load its rows in them would be missing."""
    deliver(home, event(pkkey={"id": "7"}))
    file = begun(home)
    mirror = load_mirror(file)
    ledger = open_ledger(mirror.ledger_url())
    with ledger.begin() as db:
        record_foreign(db, mirror.name, 1, datetime(2026, 1, 5, tzinfo=UTC), {"dbo.later": 3})
    deliver(home, event(pkkey={"id": "7"}, tbl="later"), event(pkkey={"id": "7"}, tbl="new"))
    begun(home, "--add")
    assert comments(file).count("CHANGES_IGNORED") == 1
    assert "Warning: 3 messages of it came before and were ignored" in comments(file)
