"""Connections from the environment, the ledger's URL, and the look at the machine."""

from __future__ import annotations

import json
import os
import sqlite3
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
import yaml

from open_mirroring.config import Mirror, check_mirror, load_mirror
from open_mirroring.config.connections import Connection, resolve
from open_mirroring.config.storage import stream_from
from open_mirroring.config.tables import ExportLoad
from open_mirroring.errors import TerminalError

CANARY = "hunter2canary"
GOOD = {"conn_type": "postgres", "host": "db", "port": 5433, "login": "me", "password": CANARY, "schema": "ledger"}


def _set(monkeypatch: pytest.MonkeyPatch, content: object, name: str = "LEDGER") -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    monkeypatch.setenv(f"AIRFLOW_CONN_{name}", text)


def test_a_connection_in_the_json_form(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, GOOD | {"conn_type": "postgresql", "port": "5433", "extra": '{"sslmode": "require"}'})
    connection = resolve("ledger")
    assert connection == Connection(
        "ledger", "postgres", "db", 5433, "me", CANARY, "ledger", extra={"sslmode": "require"}
    )
    assert CANARY not in repr(connection)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (f"postgres://me:{CANARY}@db/x", "JSON object"),
        (f"{CANARY}", "not a JSON object"),
        ([CANARY], "not a JSON object"),
        ('{"conn_type": "postgres", "password": "' + CANARY, "not a JSON object"),
        (GOOD | {CANARY: 1}, "key other than"),
        (GOOD | {"conn_type": None}, "no conn_type"),
        (GOOD | {"password": [CANARY]}, "password is not text"),
        (GOOD | {"port": CANARY}, "port"),
        (GOOD | {"port": 0}, "port"),
        (GOOD | {"port": True}, "port"),
        (GOOD | {"extra": CANARY}, "extra"),
        (GOOD | {"extra": [CANARY]}, "extra"),
    ],
)
def test_a_malformed_connection_is_refused_without_its_content(
    monkeypatch: pytest.MonkeyPatch, content: object, what: str
) -> None:
    """I30: the content of the variable is in no part of the error."""
    _set(monkeypatch, content)
    with pytest.raises(TerminalError) as caught:
        resolve("ledger")
    assert (caught.value.code, caught.value.where) == ("CONNECTION_INVALID", "AIRFLOW_CONN_LEDGER")
    assert what in caught.value.what and "conn_type" in caught.value.next_step
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_connection(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_LEDGER", raising=False)
    if value is not None:
        monkeypatch.setenv("AIRFLOW_CONN_LEDGER", value)
    with pytest.raises(TerminalError) as caught:
        resolve("ledger")
    assert (caught.value.code, caught.value.where) == ("CONNECTION_INVALID", "AIRFLOW_CONN_LEDGER")
    assert "set the variable" in caught.value.next_step


def test_a_name_that_is_a_connection_string_is_not_repeated() -> None:
    with pytest.raises(TerminalError) as caught:
        resolve(f"postgres://u:{CANARY}@h")
    assert caught.value.code == "CONNECTION_INVALID" and CANARY not in str(caught.value)


Make = Callable[..., Mirror]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    (tmp_path / "in").mkdir()

    def _make(ledger: object = "sqlite:///build/ledger.db", **table: Any) -> Mirror:
        content = {
            "mirror": "shop",
            "source": {"format": "sqlserver-ces", "transport": "capture", "path": "in"},
            "landing_zone": {"store": "local", "path": "build/zone"},
            "ledger": ledger,
            "change_log": "build/log",
            "tables": [{"source": "dbo.a", "target": "dbo/a", "key": ["id"]} | table],
        }
        file = tmp_path / "mirrors" / "shop.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        return load_mirror(file)

    return _make


@pytest.fixture(autouse=True)
def _no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPEN_MIRRORING_HOME", raising=False)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///a/b.db", "sqlite:///{home}/a/b.db"),
        ("sqlite:////abs/b.db", "sqlite:////abs/b.db"),
        ("sqlite:///b.db?timeout=5", "sqlite:///{home}/b.db?timeout=5"),
        ("postgresql://me@db:5432/ledger", "postgresql+psycopg2://me@db:5432/ledger"),
        ("postgresql+psycopg2://db/ledger?sslmode=require", "postgresql+psycopg2://db/ledger?sslmode=require"),
    ],
)
def test_ledger_urls(make: Make, tmp_path: Path, url: str, expected: str) -> None:
    assert make(url).ledger_url() == expected.format(home=tmp_path)


def test_a_sqlite_ledger_opens_where_the_url_says(make: Make, tmp_path: Path) -> None:
    (tmp_path / "dir ä%20?#").mkdir()
    mirror = make("sqlite:///dir ä%20/l.db")
    (tmp_path / "dir ä%20").mkdir()
    engine = sqlalchemy.create_engine(mirror.ledger_url())
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("create table t (a int)"))
    engine.dispose()
    assert (tmp_path / "dir ä%20" / "l.db").is_file()


def test_a_ledger_by_connection(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "p@ss/w:rd?#% " + CANARY
    _set(monkeypatch, GOOD | {"password": hostile, "extra": {"sslmode": "require", "connect_timeout": 3}})
    url = sqlalchemy.engine.make_url(make({"connection": "ledger"}).ledger_url())
    assert (url.drivername, url.host, url.port, url.database) == ("postgresql+psycopg2", "db", 5433, "ledger")
    assert (url.username, url.password) == ("me", hostile)
    assert dict(url.query) == {"sslmode": "require", "connect_timeout": "3"}


@pytest.mark.parametrize(
    "content",
    [
        GOOD | {"conn_type": "mysql"},
        GOOD | {"schema": ""},
        GOOD | {"host": None},
        GOOD | {"extra": {"iam": CANARY}},
        {"conn_type": "sqlite", "host": "x/l.db"},
    ],
)
def test_a_connection_that_is_no_ledger(make: Make, monkeypatch: pytest.MonkeyPatch, content: object) -> None:
    _set(monkeypatch, content)
    mirror = make({"connection": "ledger"})
    with pytest.raises(TerminalError) as caught:
        mirror.ledger_url()
    assert caught.value.code == "CONNECTION_INVALID" and caught.value.next_step
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert [(p.code, p.line, p.path) for p in check_mirror(mirror)] == [("CONNECTION_INVALID", 9, "ledger")]


def test_everything_missing_on_the_machine_is_reported_at_once(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_LEDGER", raising=False)
    export = {"format": "parquet", "path": "exports/a", "stream_from": {"file": "exports/a.json"}}
    mirror = make({"connection": "ledger"}, initial_load=export)
    (tmp_path / "in").rmdir()
    (tmp_path / "build").write_text("a file, not a folder")
    problems = check_mirror(mirror)
    assert [(p.code, p.path) for p in problems] == [
        ("PLACE_MISSING", "source.path"),
        ("ACCESS_DENIED", "landing_zone.path"),
        ("ACCESS_DENIED", "change_log"),
        ("CONNECTION_INVALID", "ledger"),
        ("PLACE_MISSING", "tables[0].initial_load.path"),
        ("STREAM_FROM_INVALID", "tables[0].initial_load.stream_from"),
    ]
    lines = mirror.file.read_text().splitlines()
    keys = [lines[p.line - 1].strip().partition(":")[0] for p in problems]
    assert keys == ["path", "path", "change_log", "ledger", "path", "stream_from"]
    assert all(p.file == mirror.file and p.what and p.next_step for p in problems)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write(make: Make, tmp_path: Path) -> None:
    (tmp_path / "build").mkdir(mode=0o555)
    assert {p.code for p in check_mirror(make())} == {"ACCESS_DENIED", "UNREACHABLE"}


def test_a_ledger_file_that_is_no_database(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "build" / "ledger.db"
    file.parent.mkdir()
    file.write_text("this is no database, although it is long enough to be read as the header of one" * 20)
    assert [(p.code, p.path) for p in check_mirror(make())] == [("UNREACHABLE", "ledger")]
    file.unlink()
    file.mkdir()
    assert [(p.code, p.path) for p in check_mirror(make())] == [("UNREACHABLE", "ledger")]
    file.rmdir()
    connection = sqlite3.connect(file)
    connection.execute("create table t (a int)")
    connection.close()
    assert check_mirror(make()) == []


def test_a_postgresql_ledger_that_does_not_answer(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, GOOD | {"host": "127.0.0.1", "port": 1})
    (problem,) = check_mirror(make({"connection": "ledger"}))
    assert problem.code == "UNREACHABLE" and "127.0.0.1:1" in problem.what and "start" in problem.next_step
    assert CANARY not in str(problem)


@pytest.mark.parametrize(
    "content", [None, b"", b"\xff", b"[]", b"{}", b'{"stream_from": 5}', b'{"stream_from": "yesterday"}']
)
def test_an_export_that_does_not_show_where_it_begins(make: Make, tmp_path: Path, content: bytes | None) -> None:
    """G-08: an export names its place in the stream."""
    (tmp_path / "x").write_text("rows")
    if content is not None:
        (tmp_path / "e.json").write_bytes(content)
    mirror = make(initial_load={"format": "parquet", "path": "x", "stream_from": {"file": "e.json"}})
    load = mirror.tables[0].initial_load
    assert isinstance(load, ExportLoad)
    with pytest.raises(TerminalError) as caught:
        stream_from(mirror, load)
    assert (caught.value.code, caught.value.where) == ("STREAM_FROM_INVALID", str(tmp_path / "e.json"))
    assert "LSN" in caught.value.next_step
    assert [p.code for p in check_mirror(mirror)] == ["STREAM_FROM_INVALID"]


def test_an_export_that_shows_where_it_begins(make: Make, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("rows")
    (tmp_path / "e.json").write_text('{"stream_from": "0000002c:00000730:0011", "rows": 5}')
    mirror = make(initial_load={"format": "parquet", "path": "x", "stream_from": {"file": "e.json"}})
    load = mirror.tables[0].initial_load
    assert isinstance(load, ExportLoad)
    assert stream_from(mirror, load) == "0000002C:00000730:0011"
    assert check_mirror(mirror) == []


def test_a_jdbc_load_needs_its_connection(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SRC", raising=False)
    mirror = make(initial_load={"format": "jdbc", "connection": "src"})
    assert [(p.code, p.path) for p in check_mirror(mirror)] == [
        ("CONNECTION_INVALID", "tables[0].initial_load.connection")
    ]
    _set(monkeypatch, GOOD, "SRC")
    assert check_mirror(mirror) == []
