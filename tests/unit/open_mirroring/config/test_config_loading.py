"""Mirror files: what they give, and how every mistake in them is reported (issue: models, loader, JSON Schema)."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from open_mirroring.changes.manifest import places_left
from open_mirroring.config import ConfigError, Mirror, json_schema, load_mirror, load_mirrors
from open_mirroring.config.models import schema_document
from open_mirroring.config.problems import explain, line_of
from open_mirroring.config.schedule import OnNewData, check_cron
from open_mirroring.config.yaml_tree import YamlTree
from open_mirroring.errors import TerminalError

REPOSITORY = Path(__file__).resolve().parents[4]

GOOD = """\
mirror: shop
source: {format: sqlserver-ces, transport: capture, path: data/capture}
landing_zone: {store: local, path: build/zone}
ledger: sqlite:///build/ledger.db
change_log: build/log
tables:
  - source: dbo.orders
    target: dbo/orders
    key: [order_id]
"""
LOCAL, KEY, PATH = "store: local, path: build/zone", "    key: [order_id]", "path: data/capture"
LOG, LEDGER = "change_log: build/log", "ledger: sqlite:///build/ledger.db"
ZONE = GOOD[GOOD.index("landing_zone") : GOOD.index("tables:")]
GUID = "11111111-2222-3333-4444-555555555555"
CSV = "initial_load: {format: csv, path: x, stream_from: beginning, types: {order_id: int}}"
ON_DATA = "schedule: {on: new_data"

Load = Callable[[str], Mirror]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.delenv("OPEN_MIRRORING_HOME", raising=False)

    def _load(text: str) -> Mirror:
        file = tmp_path / "mirrors" / "shop.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text.encode())
        return load_mirror(file)

    return _load


def _problems(load: Load, text: str) -> list[tuple[str, int, str]]:
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert caught.value.code == "CONFIG_INVALID"
    assert all(p.next_step and p.what for p in caught.value.problems)
    return [(p.code, p.line, p.path) for p in caught.value.problems]


def test_a_setting_of_another_format_is_refused_with_its_default_too(load: Load) -> None:
    text = GOOD.replace("path: data/capture", "path: data/capture, header_prefix: header__")
    assert [(code, path) for code, _, path in _problems(load, text)] == [("CONFIG_INVALID", "source.header_prefix")]


def test_a_good_file_with_its_defaults(load: Load, tmp_path: Path) -> None:
    mirror = load(GOOD)
    assert mirror.name == "shop"
    assert mirror.file == tmp_path / "mirrors" / "shop.yaml"
    assert mirror.home == tmp_path
    assert mirror.resolve("build/log") == tmp_path / "build" / "log"
    assert mirror.resolve("/abs") == Path("/abs")
    assert mirror.ledger_url() == f"sqlite:///{tmp_path}/build/ledger.db"
    assert not (tmp_path / "build").exists()
    table = mirror.tables[0]
    assert (table.folder, table.source_name) == ("dbo.schema/orders", ("dbo", "orders"))
    assert (table.columns, table.key, table.full_rows, table.initial_load) == (None, ("order_id",), None, None)
    assert (mirror.schedule, mirror.spark.connection) == ("0 * * * *", "spark_default")
    assert (mirror.gate.max_files, mirror.gate.max_bytes, mirror.gate.timeout_minutes) == (100, 10**10, 10)
    assert (mirror.publish.max_rows_per_file, mirror.source.fragment_timeout_hours) == (1_000_000, 24)


def test_a_schedule_on_new_data_has_a_cron_expression_for_the_latest_start(load: Load) -> None:
    def loaded(settings: str) -> Mirror:
        return load(GOOD.replace("tables:\n", f"{ON_DATA}{settings}}}\ntables:\n", 1))

    mirror = loaded("")
    assert (mirror.on_new_data, mirror.cron) == (OnNewData(on="new_data"), "0 * * * *")
    assert (mirror.on_new_data.most_seconds, loaded(", at_most_every: 5s").on_new_data.most_seconds) == (60, 5)
    crons = {every: loaded(f", at_least_every: {every}").cron for every in ("5m", "30m", "4h", "24h")}
    assert crons == {"5m": "*/5 * * * *", "30m": "*/30 * * * *", "4h": "0 */4 * * *", "24h": "0 0 * * *"}
    assert all(check_cron(cron) for cron in crons.values())
    assert (load(GOOD).on_new_data, load(GOOD).cron) == (None, "0 * * * *")


def test_change_tables_in_a_database_have_no_schedule_on_new_data(load: Load) -> None:
    text = GOOD.replace("tables:\n", f"{ON_DATA}}}\ntables:\n", 1)
    source = "{format: qlik-change-table, transport: jdbc, connection: c}"
    with pytest.raises(ConfigError) as caught:
        load(text.replace(text.splitlines()[1], f"source: {source}"))
    [problem] = caught.value.problems
    assert (problem.line, problem.path) == (6, "schedule") and "*/5 * * * *" in problem.next_step


def test_home_from_the_environment(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPEN_MIRRORING_HOME", "/srv/mirrors")
    assert load(GOOD).ledger_url() == "sqlite:////srv/mirrors/build/ledger.db"


def test_a_mirror_is_frozen_and_travels_by_value(load: Load) -> None:
    mirror = load(GOOD)
    with pytest.raises(ValueError, match="frozen"):
        mirror.mirror = "other"  # type: ignore[misc]
    again = pickle.loads(pickle.dumps(mirror))
    assert again == mirror and again.home == mirror.home


def test_files_transport_is_wrapped_by_default(load: Load) -> None:
    assert load(GOOD.replace("capture, path", "files, path")).source.layout == "wrapped"
    assert load(GOOD.replace("capture, path", "files, layout: bare, path")).source.layout == "bare"


@pytest.mark.parametrize(
    "source",
    [
        "{format: sqlserver-ces, transport: kafka, connection: c, topics: [a], max_messages_per_run: 5, database: d}",
        "{format: sqlserver-ces, transport: capture, path: x, gap_timeout_minutes: 5}",
        "{format: qlik-message, transport: kafka, connection: hub, topics: [a], load: '2', mask_order: le_bytes}",
        "{format: qlik-message, transport: files, path: x, layout: bare}",
        "{format: qlik-change-table, transport: files, path: x, header_prefix: h_, table_suffix: _ct}",
        "{format: qlik-change-table, transport: jdbc, connection: c, partitions: control.attrep_cdc_partitions}",
        "{format: qlik-change-table, transport: jdbc, connection: c, overlap_minutes: 5, before_images: true}",
    ],
)
def test_every_combination_of_format_and_transport(load: Load, source: str) -> None:
    assert load(GOOD.replace("{format: sqlserver-ces, transport: capture, path: data/capture}", source)).source.format


def test_every_setting_of_a_table(load: Load) -> None:
    mirror = load(
        GOOD
        + """\
    columns: [order_id, note]
    full_rows: true
    initial_load:
      format: csv
      path: exports/orders
      stream_from: '0x0000002c000007300011'
      types: {order_id: int, note: nvarchar(max), password: 'decimal(18, 4)'}
  - source: "[my.schema].[a]]b]"
    target: plain
    key: []
  - source: dbo.items
    target: dbo/items
    key: [id]
    initial_load: {format: jdbc, connection: source_db, split_column: id, chunks: 4}
  - source: dbo.notes
    target: dbo/notes
    key: [id]
    initial_load: {format: parquet, path: x, stream_from: {file: e.json}}
"""
    )
    loads = [t.initial_load for t in mirror.tables]
    assert loads[0] is not None and loads[0].stream_from == "0000002C:00000730:0011"  # C-32
    assert loads[2] is not None and (loads[2].connection, loads[2].chunks) == ("source_db", 4)
    assert loads[3] is not None and loads[3].stream_from.file == "e.json"
    assert mirror.tables[1].source_name == ("my.schema", "a]b")
    assert mirror.tables[1].folder == "plain"


@pytest.mark.parametrize(
    "source",
    [
        "{format: sqlserver-ces, transport: capture, path: x, partition_key_scheme: stream-group}",
        "{format: sqlserver-ces, transport: files, path: x, partition_key_scheme: table, partition_count: 3}",
        "{format: sqlserver-ces, transport: kafka, connection: c, topics: [a], partition_key_scheme: column, "
        "partition_count: 8}",
    ],
)
def test_transactions_can_be_held_back_where_partitions_keep_order(load: Load, source: str) -> None:
    """C-34, C-87, C-88: with the number of partitions that have to show a later commit."""
    text = GOOD.replace("{format: sqlserver-ces, transport: capture, path: data/capture}", source)
    mirror = load(text + "consistency: transaction\n")
    assert mirror.source.ordered_partitions == (mirror.source.partition_count or 1)
    assert load(GOOD).consistency == "key"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("{format: sqlserver-ces, transport: capture, path: x}", "round robin"),
        (
            "{format: sqlserver-ces, transport: capture, path: x, partition_key_scheme: none, partition_count: 1}",
            "round robin",
        ),
        (
            "{format: sqlserver-ces, transport: files, layout: bare, path: x, partition_key_scheme: stream-group}",
            "bare lines",
        ),
        ("{format: sqlserver-ces, transport: capture, path: x, partition_key_scheme: table}", "number must be known"),
        ("{format: qlik-message, transport: files, layout: bare, path: x}", "bare lines"),
        ("{format: qlik-change-table, transport: files, path: x}", "may still come"),
        ("{format: qlik-change-table, transport: jdbc, connection: c}", "closed partitions"),
    ],
)
def test_transactions_cannot_be_held_back_without_a_complete_position(load: Load, source: str, what: str) -> None:
    """C-34, C-88, K-80, T-80: refused with the setting that would help, never promised and not kept."""
    text = GOOD.replace("{format: sqlserver-ces, transport: capture, path: data/capture}", source)
    with pytest.raises(ConfigError) as caught:
        load(text + "consistency: transaction\n")
    (problem,) = caught.value.problems
    assert (problem.code, problem.line, problem.path) == ("CONFIG_INVALID", 10, "consistency")
    assert what in problem.what


@pytest.mark.parametrize(
    ("source", "partitions"),
    [
        ("{format: qlik-message, transport: files, path: x, layout: wrapped}", 1),
        ("{format: qlik-message, transport: capture, path: x}", 1),
        ("{format: qlik-message, transport: kafka, connection: c, topics: [t], partition_count: 3}", 3),
        ("{format: qlik-change-table, transport: jdbc, connection: c, partitions: control.attrep_cdc_partitions}", 1),
    ],
)
def test_tasks_of_qlik_whose_order_is_known_can_hold_transactions_back(
    load: Load, source: str, partitions: int
) -> None:
    """K-80, T-80: messages by partitions, change tables by closed partitions."""
    text = GOOD.replace("{format: sqlserver-ces, transport: capture, path: data/capture}", source)
    mirror = load(text + "consistency: transaction\n")
    assert mirror.source.ordered_partitions == partitions


@pytest.mark.parametrize(
    ("old", "new", "line", "path", "next_step"),
    [
        ("mirror: shop", "mirror: Shop!", 1, "mirror", "lower-case"),
        ("mirror: shop", "mirror: 7", 1, "mirror", "quotes"),
        ("mirror: shop", "mirror:", 1, "mirror", "text"),
        ("mirror: shop\n", "", 1, "mirror", "Name of the mirror"),
        ("change_log: b", "chang_log: b", 5, "chang_log", "did you mean 'change_log'"),
        (KEY, "    kee: [order_id]", 9, "tables[0].kee", "'key'"),
        (KEY, "    kee: [order_id]", 7, "tables[0].key", "empty list"),
        (KEY, "    key: order_id", 9, "tables[0].key", "[a, b]"),
        (KEY, "    key: [1]", 9, "tables[0].key[0]", "quotes"),
        ("sqlserver-ces", "sqlserver_ces", 2, "source.format", "did you mean 'sqlserver-ces'"),
        ("capture, path", "kafka, path", 2, "source.path", "known here: binary"),
        ("capture, path", "kafka, topics: [t], path", 2, "source.connection", "AIRFLOW_CONN_"),
        ("capture, path: data/capture", "kafka, connection: c", 2, "source.topics", "topics: [name]"),
        (PATH, "path: x, topics: [t]", 2, "source.topics", "known here: binary"),
        (PATH, "path: x, load: '2'", 2, "source.load", "known here: binary"),
        (
            "capture, path: data/capture",
            "kafka, connection: c, topics: [a/b]",
            2,
            "source.topics[0]",
            "patterns are not taken",
        ),
        (KEY, "    key: [id]\n    topic: x", 10, "tables[0].topic", "leave"),
        (KEY, "    key: []\n    keys_never_change: true", 10, "tables[0].keys_never_change", "leave it out"),
        ("capture, path", "jdbc, path", 2, "source.transport", "capture, files, kafka"),
        (", path: data/capture", "", 2, "source.path", "folder"),
        (", path: data/capture", ", path: abfss://x/y", 2, "source.path", "abfss://CONTAINER@"),
        (", path: data/capture", ", path: s3://bucket/y", 2, "source.connection", "AIRFLOW_CONN"),
        (", path: data/capture", ", path: x, connection: c", 2, "source.connection", "leave"),
        (LOG, "change_log: s3://bucket/log", 5, "change_log", "connection: NAME"),
        (LOG, "change_log: {path: b, connection: c}", 5, "change_log.path", "text"),
        (LOG, "change_log: {path: az://bucket/b}", 5, "change_log.connection", "set"),
        (LOG, "change_log: {path: az://bucket/100%, connection: c}", 5, "change_log.path", "letters"),
        (PATH, 'path: "a\\0b"', 2, "source.path", "relative"),
        (PATH, "path: x, layout: bare", 2, "source.layout", "known here: binary"),
        (PATH, "path: x, connection: hub", 2, "source.connection", "leave"),
        (PATH, "path: x, fragment_timeout_hours: 0", 2, "source.fragment_timeout_hours", "set it"),
        (PATH, "path: x, fragment_timeout_hours: '24'", 2, "source.fragment_timeout_hours", "without quotes"),
        (LOCAL, "store: onelake, connection: fabric", 3, "landing_zone.workspace", "GUID of the workspace"),
        (
            LOCAL,
            "store: onelake, workspace: Sales, item: shop.MirroredDatabase",
            3,
            "landing_zone.connection",
            "open_mirroring_onelake",
        ),
        pytest.param(
            LOCAL,
            f"store: onelake, connection: c, workspace: {GUID}, item: shop.MirroredDatabase",
            3,
            "landing_zone.item",
            "both by GUID",
            id="O-01 GUID and name",
        ),
        pytest.param(
            LOCAL,
            f"store: onelake, connection: c, workspace: Sales, item: {GUID}",
            3,
            "landing_zone.item",
            "both by GUID",
            id="O-01 name and GUID",
        ),
        pytest.param(
            LOCAL,
            "store: onelake, connection: c, workspace: Sales, item: shop",
            3,
            "landing_zone.item",
            ".MirroredDatabase",
            id="O-01 name without its type",
        ),
        (
            LOCAL,
            "store: onelake, connection: c, workspace: a/b, item: shop.MirroredDatabase",
            3,
            "landing_zone.workspace",
            "copy the GUID",
        ),
        pytest.param(
            LOCAL,
            "store: onelake, connection: c, workspace: Sales, item: shop.MirroredDatabase, path: Tables/x",
            3,
            "landing_zone.path",
            "Files/LandingZone",
            id="O-01 O-03 F-01 not below Files",
        ),
        (
            LOCAL,
            "store: local, path: build/zone, workspace: Sales",
            3,
            "landing_zone.workspace",
            "leave `workspace` out",
        ),
        ("landing_zone: {store: local, path: build/zone}", "landing_zone: here", 3, "landing_zone", "name: value"),
        (LEDGER, "ledger: sqlite://", 4, "ledger", "sqlite:///FILE"),
        (LEDGER, "ledger: 'sqlite:///:memory:'", 4, "ledger", "sqlite:///FILE"),
        (LEDGER, "ledger: mysql://h/d", 4, "ledger", "connection"),
        (LEDGER, "ledger: {connexion: x}", 4, "ledger.connexion", "'connection'"),
        (LEDGER, "ledger: {connection: a b}", 4, "ledger.connection", "AIRFLOW_CONN"),
        (LEDGER, "ledger: [1]", 4, "ledger", "name: value"),
        ("source: dbo.orders", "source: orders", 7, "tables[0].source", "exactly one dot"),
        ("source: dbo.orders", "source: a.b.c", 7, "tables[0].source", "brackets"),
        ("tables:\n", "schedule: 0 * * *\ntables:\n", 6, "schedule", "weekday"),
        ("tables:\n", "schedule: 60 * * * *\ntables:\n", 6, "schedule", "weekday"),
        ("tables:\n", "schedule: {on: data}\ntables:\n", 6, "schedule.on", "new_data"),
        ("tables:\n", f"{ON_DATA}, at_most_every: 1.5m}}\ntables:\n", 6, "schedule.at_most_every", "30s"),
        ("tables:\n", f"{ON_DATA}, at_least_every: 7m}}\ntables:\n", 6, "schedule.at_least_every", "in any case"),
        ("tables:\n", f"{ON_DATA}, at_most_every: 2h}}\ntables:\n", 6, "schedule.at_least_every", "at_most_every"),
        ("tables:\n", "gate: {max_files: yes}\ntables:\n", 6, "gate.max_files", "whole number"),
        ("tables:\n", "spark: {memory: lots}\ntables:\n", 6, "spark.memory", "2g"),
        (KEY, "    key: [a]\n    columns: []", 10, "tables[0].columns", "at least one"),
        (KEY, "    key: [a]\n    columns: [A, b]", 9, "tables[0].key", "`columns`"),
        (KEY, "    key: [a]\n    full_rows: 1", 10, "tables[0].full_rows", "true"),
        (KEY, f"    key: []\n    {CSV}", 10, "tables[0].initial_load", "quiesced"),
        (KEY, f"    key: [k]\n    {CSV}", 10, "tables[0].initial_load", "SQL type"),
        ("[order_id]", f"[order_id]\n    {CSV[:-28]}}}", 10, "tables[0].initial_load.types", "SQL type"),
        (
            "[order_id]",
            f"[order_id]\n    {CSV}".replace(" int", " 'in;t'"),
            10,
            "tables[0].initial_load.types.order_id",
            "decimal",
        ),
        (
            "[order_id]",
            f"[order_id]\n    {CSV}".replace("beginning", "now"),
            10,
            "tables[0].initial_load.stream_from",
            "LSN",
        ),
        ("[order_id]", f"[order_id]\n    {CSV}".replace("csv", "xml"), 10, "tables[0].initial_load.format", "set it"),
        (
            "[order_id]",
            "[order_id]\n    initial_load: {format: jdbc, connection: c, chunks: 2}",
            10,
            "tables[0].initial_load.chunks",
            "split_column",
        ),
        (
            "[order_id]",
            "[order_id]\n    initial_load: {format: jdbc, connection: c, path: x}",
            10,
            "tables[0].initial_load.path",
            "known here: chunks",
        ),
        ("[order_id]", "[order_id]\n    initial_load: 5", 10, "tables[0].initial_load", "name: value"),
    ],
)
def test_one_mistake_is_reported_with_code_line_and_next_step(
    load: Load, old: str, new: str, line: int, path: str, next_step: str
) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        load(GOOD.replace(old, new, 1))
    problems = {(p.code, p.line, p.path): p.next_step for p in caught.value.problems}
    assert ("CONFIG_INVALID", line, path) in problems, caught.value
    assert next_step in problems["CONFIG_INVALID", line, path]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("# nothing\n", 1),
        ("- a\n- b\n", 1),
        ("mirror: shop\nsource: {a: [}\n", 2),
        ("mirror: shop\n\tsource: x\n", 2),
        ("a: 1\n---\nb: 2\n", 2),
        ("a: *missing\n", 1),
        ("a: !!python/object/apply:os.system ['true']\n", 1),
        ("a: !!python/object:os.error {}\n", 1),
        ("a: 1\nb: !own text\n", 2),
        ("a: 1\nb: &x [*x]\n", 1),
        ("a: 1\nb: \x07\n", 2),
        ("a: " + "[" * 5000, 1),
    ],
)
def test_text_that_is_no_mirror_file_at_all(load: Load, text: str, line: int) -> None:
    assert ("CONFIG_INVALID", line) in [(c, at) for c, at, _ in _problems(load, text)]


def test_bytes_that_are_no_utf8_and_a_missing_file(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(b"mirror: a\nx: \xff\n")
    for path, code, line in ((file, "CONFIG_INVALID", 2), (tmp_path / "none.yaml", "CONFIG_INVALID", 1)):
        with pytest.raises(ConfigError) as caught:
            load_mirror(path)
        assert [(p.code, p.line) for p in caught.value.problems] == [(code, line)]


def test_yaml_traps_are_named(load: Load) -> None:
    text = (
        GOOD
        + "  - {source: dbo.x, target: x, key: [a], target: y}\nmirror: again\n1: x\n"
        + 'schedule: "\\ud800"\ngate: 2024-13-45\n'
    )
    assert _problems(load, text) == [
        ("CONFIG_INVALID", 10, "tables[1]"),
        ("CONFIG_INVALID", 11, ""),
        ("CONFIG_INVALID", 12, ""),
        ("CONFIG_INVALID", 13, "schedule"),
        ("CONFIG_INVALID", 14, "gate"),
    ]


def test_aliases_and_merge_keys_mean_what_yaml_says(load: Load) -> None:
    text = GOOD.replace("  - source", "  - &first\n    source")
    text += "  - {<<: *first, source: dbo.b, target: dbo/b}\n  - &c {<<: *first, source: dbo.c, target: dbo/c}\n"
    assert [(t.source, t.key) for t in load(text).tables] == [(f"dbo.{n}", ("order_id",)) for n in ("orders", "b", "c")]
    assert _problems(load, text + "  - *c\n") == [
        ("CONFIG_INVALID", 12, "tables[3].source"),
        ("CONFIG_INVALID", 12, "tables[3].target"),
    ]


def test_two_tables_of_one_change_table_are_refused_t01(load: Load) -> None:
    """T-01: its rows would all be read for the first of them, and the other would stay empty."""
    source = "format: qlik-change-table, transport: jdbc, connection: qlik"
    text = GOOD.replace("format: sqlserver-ces, transport: capture, path: data/capture", source)
    assert text != GOOD
    other = "  - {source: dbo.b, target: dbo/b, key: [id], change_table: dbo.orders%s}\n"
    assert load(text + other % "__changes").tables[1].change_table == "dbo.orders__changes"
    (found,) = _problems(load, text + other % "__ct")
    assert (found[0], found[2]) == ("CONFIG_INVALID", "tables[1].change_table")
    files = text.replace("jdbc, connection: qlik", "files, path: data/qlik") + other % "__changes"
    (found,) = _problems(load, files)
    assert (found[0], found[2]) == ("CONFIG_INVALID", "tables[1].change_table"), "ignored without a word before"


def test_every_mistake_is_reported_at_once(load: Load) -> None:
    """One pass over a bad file names all of it: syntax of values, unknown, missing, doubled, colliding, secret."""
    text = """\
mirror: SHOP
mirrors: shop
source: {format: sqlserver-ces, transport: carrier-pigeon}
landing_zone: {store: local, path: zone, password: canary}
ledger: postgresql://user:canary@host/db
tables:
  - {source: dbo.a, target: dbo/a, key: [id]}
  - {source: dbo.b, target: DBO/A, key: [id, ID]}
  - {source: dbo.a, target: ../up, key: [id]}
  - {source: dbo.c, target: dbo/A, key: [id]}
  - {source: dbo.d, target: dbo/d, key: [id], full_rows: maybe, full_rows: true}
schedule: hourly
gate: {max_files: -1}
"""
    assert _problems(load, text) == [
        ("CONFIG_INVALID", 1, "change_log"),
        ("CONFIG_INVALID", 1, "mirror"),
        ("CONFIG_INVALID", 2, "mirrors"),
        ("CONFIG_INVALID", 3, "source.transport"),
        ("SECRET_IN_FILE", 4, "landing_zone"),
        ("SECRET_IN_FILE", 5, "ledger"),
        ("COLUMN_NAME_INVALID", 8, "tables[1].key"),
        ("CONFIG_INVALID", 9, "tables[2].target"),
        ("CONFIG_INVALID", 10, "tables[3].target"),
        ("CONFIG_INVALID", 11, "tables[4]"),
        ("CONFIG_INVALID", 12, "schedule"),
        ("CONFIG_INVALID", 13, "gate.max_files"),
    ]


def test_the_error_reads_well_and_travels_by_value(load: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        load(GOOD.replace("change_log", "chang_log"))
    text = str(caught.value)
    assert "shop.yaml:5: CONFIG_INVALID: chang_log: " in text and "Next step: did you mean 'change_log'?" in text
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, TerminalError) and again.problems == caught.value.problems and str(again) == text


@pytest.mark.parametrize(
    ("cron", "good"),
    [
        ("*/15 0-6,22 1 JAN-jun mon", True), ("0 * * * *", True), ("5 4 * * 7", True), ("0 0/2 * * *", True),
        ("@hourly", False), ("* * * * * *", False), ("0 24 * * *", False), ("0 * 0 * *", False), ("0 * * 13 *", False),
        ("5-1 * * * *", False), ("*/0 * * * *", False), ("0 * * * fun", False), (", * * * *", False),
        ("٣ * * * *", False),
    ],
)  # fmt: skip
def test_cron(cron: str, good: bool) -> None:
    if good:
        assert check_cron(cron) == cron
    else:
        with pytest.raises(ValueError, match="schedule"):
            check_cron(cron)


def _write(folder: Path, **files: str) -> None:
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)


def _mirror(name: str, **changed: str) -> str:
    paths = {"zone": f"b/{name}/zone", "ledger": f"sqlite:///b/{name}/ledger.db", "log": f"b/{name}/log"} | changed
    text = GOOD.replace("mirror: shop", f"mirror: {name}").replace("build/zone", paths["zone"])
    return text.replace("sqlite:///build/ledger.db", paths["ledger"]).replace("build/log", paths["log"])


def test_a_folder_of_mirrors(tmp_path: Path) -> None:
    _write(tmp_path / "mirrors", b=_mirror("b"), a=_mirror("a"))
    (tmp_path / "mirrors" / "note.txt").write_text("no mirror")
    assert [mirror.name for mirror in load_mirrors(tmp_path / "mirrors")] == ["a", "b"]


@pytest.mark.parametrize(
    ("other", "path"),
    [
        (_mirror("a"), "mirror"),
        (_mirror("b", zone="b/a/zone"), "landing_zone.path"),
        (_mirror("b", zone="b/x/../A/ZONE/"), "landing_zone.path"),
        (_mirror("b", zone="b/a/zone/inner"), "landing_zone.path"),
        (_mirror("b", zone="b/a"), "landing_zone.path"),
        (_mirror("b", log="b/a/log"), "change_log"),
        (_mirror("b", log="b/a/zone/log"), "change_log"),
        (_mirror("b", ledger="sqlite:///b/a/ledger.db?timeout=5"), "ledger"),
        (_mirror("b", ledger="sqlite:///b/b/log/ledger.db"), "ledger"),
        (_mirror("b", zone="data"), "landing_zone.path"),
    ],
)
def test_mirrors_that_would_write_to_one_place_are_refused(tmp_path: Path, other: str, path: str) -> None:
    """F-01: a landing zone has one mirror, and nothing else in it."""
    _write(tmp_path / "mirrors", a=_mirror("a"), b=other)
    with pytest.raises(ConfigError) as caught:
        load_mirrors(tmp_path / "mirrors")
    assert {p.code for p in caught.value.problems} == {"MIRROR_CLASH"}
    assert path in {p.path for p in caught.value.problems}
    assert "b.yaml" in {p.file.name for p in caught.value.problems}


@pytest.mark.parametrize(
    ("names", "path"),
    [
        (f"workspace: {GUID}, item: {GUID}", "Files/LandingZone"),
        ("workspace: Sales EU, item: shop.MirroredDatabase, path: Files/LandingZone", "Files/LandingZone"),
        ("workspace: Sales, item: shop.MountedRelationalDatabase, path: Files/Other", "Files/Other"),
    ],
)
def test_a_zone_in_onelake_is_named_by_two_guids_or_two_names_o_01(load: Load, names: str, path: str) -> None:
    mirror = load(GOOD.replace("store: local, path: build/zone", f"store: onelake, connection: lake, {names}"))
    assert (mirror.landing_zone.path, mirror.landing_zone.connection) == (path, "lake")
    assert mirror.landing_zone.place.endswith(path)


def test_two_mirrors_in_one_zone_of_onelake_are_refused(tmp_path: Path) -> None:
    """Whatever connections lead there, and however the name is written."""
    for name, item in (("a", "shop.MirroredDatabase"), ("b", "SHOP.mirroreddatabase")):
        zone = f"store: onelake, connection: lake_{name}, workspace: Sales, item: {item}"
        text = GOOD.replace("store: local, path: build/zone", zone).replace("mirror: shop", f"mirror: {name}")
        (tmp_path / f"{name}.yaml").write_text(text.replace("build/", f"build/{name}/"))
    with pytest.raises(ConfigError) as caught:
        load_mirrors(tmp_path)
    assert [(p.code, p.file.name, p.path) for p in caught.value.problems] == [
        ("MIRROR_CLASH", "a.yaml", "landing_zone"),
        ("MIRROR_CLASH", "b.yaml", "landing_zone"),
    ]


def test_two_mirrors_on_one_ledger_connection_are_refused(tmp_path: Path) -> None:
    _write(tmp_path / "mirrors", a=_mirror("a", ledger="{connection: pg}"), b=_mirror("b", ledger="{connection: PG}"))
    with pytest.raises(ConfigError) as caught:
        load_mirrors(tmp_path / "mirrors")
    assert [(p.code, p.file.name, p.line, p.path) for p in caught.value.problems] == [
        ("MIRROR_CLASH", "a.yaml", 4, "ledger"),
        ("MIRROR_CLASH", "b.yaml", 4, "ledger"),
    ]


def test_of_two_files_that_clash_the_one_that_runs_is_right_whatever_its_name_g_175(tmp_path: Path) -> None:
    _write(tmp_path / "mirrors", a=_mirror("b"), b=_mirror("b"), c=_mirror("b", zone="b/other"))
    ranks = {"a.yaml": 1, "b.yaml": 2, "c.yaml": 0}
    with pytest.raises(ConfigError) as caught:
        load_mirrors(tmp_path / "mirrors", lambda mirror: ranks[mirror.file.name])
    assert {p.file.name for p in caught.value.problems} == {"a.yaml", "c.yaml"}
    assert "the name 'b' is taken by b.yaml" in str(caught.value)


def test_mistakes_of_all_files_of_a_folder_come_together(tmp_path: Path) -> None:
    _write(tmp_path / "mirrors", a=_mirror("a") + "gat: 1\n", b=_mirror("b") + "x: [\n", c=_mirror("c"))
    with pytest.raises(ConfigError) as caught:
        load_mirrors(tmp_path / "mirrors")
    assert [(p.file.name, p.code) for p in caught.value.problems] == [
        ("a.yaml", "CONFIG_INVALID"),
        ("b.yaml", "CONFIG_INVALID"),
    ]


def test_the_committed_schema_is_the_models_own() -> None:
    assert (REPOSITORY / "docs" / "mirror.schema.json").read_text("utf-8") == schema_document()


def test_every_setting_is_described_in_the_schema() -> None:
    schema = json_schema()
    for part in (schema, *schema["$defs"].values()):
        assert part["additionalProperties"] is False
        for name, setting in part["properties"].items():
            referred = schema["$defs"].get(setting.get("$ref", "").rpartition("/")[2], {})
            assert setting.get("description") or referred.get("description"), name


def test_the_example_is_valid_by_loader_and_by_schema(load: Load) -> None:
    text = (REPOSITORY / "mirrors" / "shop.yaml").read_text("utf-8")
    assert load(text).name == "shop"
    jsonschema.validate(yaml.safe_load(text), json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text) | {"passwort": "x"}, json_schema())


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12) | st.dates()
_KEYS = st.text("abcdefgh_<= ", max_size=6)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.recursive(_SCALARS, lambda c: st.lists(c, max_size=4) | st.dictionaries(_KEYS, c, max_size=4), max_leaves=20))
def test_the_tree_reads_what_safe_load_reads(value: Any) -> None:
    """Values and structure are those of ``yaml.safe_load`` for everything that it writes itself."""
    text = yaml.safe_dump(value, allow_unicode=True)
    tree = YamlTree(text)
    assert tree.findings == []
    assert tree.data == yaml.safe_load(text)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.data())
def test_any_file_loads_or_is_refused_with_lines_in_it(data: st.DataObject) -> None:
    """Hostile cuts and insertions never end in anything but a ConfigError whose lines exist."""
    cut = data.draw(st.integers(0, len(GOOD)))
    text = GOOD[:cut] + data.draw(st.text(max_size=8)) + GOOD[data.draw(st.integers(cut, len(GOOD))) :]
    tree = YamlTree(text)
    assert all(1 <= finding.line <= text.count("\n") + 1 for finding in tree.findings)
    try:
        Mirror.model_validate(tree.data)
    except ValidationError as error:
        for detail in error.errors():
            found = explain(detail, Mirror)
            assert found.what and found.next_step and 1 <= line_of(found.path, tree.lines) <= text.count("\n") + 1


def test_json_lines_of_problems_are_plain_values(load: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        load(GOOD + "x: 1\n")
    (problem,) = caught.value.problems
    assert json.loads(json.dumps(problem._asdict(), default=str))["line"] == 10


EXPORT = "format: parquet, path: x"


@pytest.mark.parametrize(
    ("key", "given", "said"),
    [
        ("", "format: jdbc, connection: c", "handover: quiesced"),
        ("", "format: jdbc, connection: c, handover: exact", "an export"),
        ("id", "format: jdbc, connection: c, handover: quiesced", "leave `handover`"),
        ("", f"{EXPORT}, stream_from: beginning", "handover: quiesced"),
        ("", f"{EXPORT}, stream_from: '0000002C:00000730:0011', handover: quiesced", "exact"),
        ("", f"{EXPORT}, stream_from: beginning, handover: exact", "quiesced"),
        ("id", f"{EXPORT}, stream_from: beginning, handover: quiesced", "leave `handover`"),
    ],
)
def test_the_load_of_a_table_without_key_says_how_it_was_handed_over_g127(
    load: Load, key: str, given: str, said: str
) -> None:
    text = GOOD.replace("[order_id]", f"[{key}]\n    initial_load: {{{given}}}")
    with pytest.raises(TerminalError) as refused:
        load(text)
    assert "CONFIG_INVALID" in str(refused.value) and said in str(refused.value)


KEPT = "format: jdbc, connection: c, stream_from: beginning"
ENTRIES = ("{source: dbo.orders, target: dbo/orders, key: [id], %s}", "{source: dbo.*, %s}")
EVENTS = "format: sqlserver-ces, transport: capture, path: x"
CHANGE_TABLES = "format: qlik-change-table, transport: jdbc, connection: c"


def of_load(source: str, entry: str, load: str) -> str:
    """A mirror file with one entry, whose load or proof is *load*."""
    return GOOD.partition("source:")[0] + f"source: {{{source}}}\n" + ZONE + f"tables: [{entry % load}]\n"


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    ("source", "setting"),
    [
        (EVENTS, "initial_load"),
        ("format: qlik-message, transport: files, layout: wrapped, path: x", "initial_load"),
        ("format: qlik-change-table, transport: files, path: x", "initial_load"),
        (CHANGE_TABLES.replace("connection: c", "connection: other"), "initial_load"),
        (CHANGE_TABLES, "prove"),
    ],
)
def test_only_a_table_that_its_task_keeps_may_stay_as_it_was_loaded_t30(
    load: Load, source: str, setting: str, entry: str
) -> None:
    """Elsewhere `stream_from` was taken, and meant nothing, or that rows of today are older than all changes."""
    assert load(of_load(CHANGE_TABLES, entry, f"initial_load: {{{KEPT}}}")).entries
    with pytest.raises(TerminalError, match=r"CONFIG_INVALID.*stream_from.*leave `stream_from` out"):
        load(of_load(source, entry, f"{setting}: {{{KEPT}}}"))


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_proof_hands_nothing_over_g127(load: Load, entry: str) -> None:
    with pytest.raises(TerminalError, match=r"CONFIG_INVALID.*a proof hands nothing over"):
        load(of_load(EVENTS, entry, "prove: {format: jdbc, connection: c, handover: quiesced}"))


def test_a_hand_over_that_is_declared_is_taken_where_the_stream_can_be_split_g127(load: Load) -> None:
    exact = f"{EXPORT}, stream_from: '0000002C:00000730:0011', handover: exact"
    text = GOOD.replace("[order_id]", f"[]\n    initial_load: {{{exact}}}")
    assert load(text).tables[0].initial_load is not None
    qlik = text.replace("sqlserver-ces, transport: capture", "qlik-message, transport: files, layout: wrapped")
    with pytest.raises(TerminalError, match="only the commits of change events divide"):
        load(qlik)
    quiesced = f"{EXPORT}, stream_from: beginning, handover: quiesced"
    assert load(qlik.replace(exact, quiesced)).tables[0].initial_load is not None
    text = qlik.replace(exact, quiesced).replace(
        "    key: []", "    key: []\n    delimited_text: {columns: {id: int32}}"
    )
    with pytest.raises(TerminalError, match="delimited_text"):
        load(text)


def test_a_place_that_is_spelled_otherwise_is_read_as_before_g142(load: Load, tmp_path: Path) -> None:
    """G-142: a path in any spelling, relative or not, an address with a slash behind it, a connection in any case."""

    def reads(path: str, connection: str = "") -> dict[str, list[str]]:
        return load(GOOD.replace("data/capture", f"{path}{connection and f', connection: {connection}'}")).reads

    here = reads("data/capture")
    assert here["path"] == ["data/capture"]
    for same in ("data/capture/", "./data/capture", "data/../data//capture", str(tmp_path / "data" / "capture")):
        assert reads(same) == here, same
    assert reads("data/capture/2") != here != reads("../data/capture") != reads("data/Capture") != here
    assert reads("s3://bucket/cdc/", "lake") == reads("s3://bucket/cdc", "LAKE") != reads("s3://bucket/CDC", "lake")


def test_a_mirror_says_whether_its_source_was_expected_to_have_gaps_g_113(load: Load) -> None:
    """G-113: so that who reads the source elsewhere knows it; the setting by itself is no place (G-142)."""
    lines = GOOD.replace("capture, path: data/capture", "files, path: data")
    expected = load(lines.replace("path: data", "path: data, offset_gaps: expected")).reads
    assert load(lines).reads == {name: said for name, said in expected.items() if name != "offset_gaps"}
    assert expected["offset_gaps"] == ["expected"]
    assert places_left(expected, load(lines).reads) == [] == places_left(load(lines).reads, expected)
