"""`open-mirroring check --sample`: what of a mirror file is not as its source sends it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import event

KEY = {"id": "7"}
SOUND = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("OPEN_MIRRORING_HOME", raising=False)
    (tmp_path / "source").mkdir()
    (tmp_path / "mirrors").mkdir()
    return tmp_path / "mirrors" / "test.yaml"


def checked(
    file: Path, capsys: pytest.CaptureFixture[str], *events: bytes, tables: list[Any] | None = None, **settings: Any
) -> tuple[int, list[str]]:
    """The exit code, and code and setting of each mistake and warning."""
    (file.parent.parent / "source" / "a.jsonl").write_bytes(b"".join(one + b"\n" for one in events))
    document = {
        "mirror": "test",
        "source": {"format": "sqlserver-ces", "transport": "files", "path": "source", "layout": "bare"},
        "landing_zone": {"store": "local", "path": "zone"},
        "ledger": "sqlite:///ledger.db",
        "change_log": "log",
        "tables": tables or [SOUND],
        **settings,
    }
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    code = main(["check", str(file), "--sample", "1000"])
    lines = [line.removeprefix("warning: ") for line in capsys.readouterr().out.splitlines() if f"{file}:" in line]
    return code, [" ".join(part.strip() for part in one.split(": ")[1:3]) for one in lines if ": OK" not in one]


def test_what_is_as_the_source_sends_it_is_not_mentioned_g51(mirror: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(mirror, capsys, event(pkkey=KEY)) == (Exit.DONE, [])


def test_what_differs_and_stops_nothing_is_a_warning_g51(mirror: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """G-51: other keys, columns, types, tables, senders."""
    load = {"format": "csv", "path": "mirrors", "stream_from": "beginning", "types": {"id": "int", "price": "money"}}
    tables = [
        {**SOUND, "key": ["name"]},
        {"source": "dbo.none", "target": "dbo/none", "key": ["id"]},
        {"source": "dbo.loaded", "target": "dbo/loaded", "key": ["id"], "columns": ["id", "lost"]},
        {"source": "dbo.exported", "target": "dbo/exported", "key": ["id"], "initial_load": load},
        {"source": "dbo.two", "target": "dbo/two", "key": ["id"]},
    ]
    events = [event(pkkey=KEY, tbl=name) for name in ("orders", "loaded", "exported", "two", "new", "known")]
    events.append(event(pkkey=KEY, tbl="two", db="other"))
    assert checked(mirror, capsys, *events, tables=tables, ignore=["dbo.known"]) == (
        Exit.DONE,
        [
            "KEY_DIFFERS tables[0].key",
            "NOT_SEEN tables[1].source",
            "NOT_SEEN tables[2].columns",
            "VALUE_INVALID tables[3].initial_load",
            "SENDER_OTHER tables[4].source",
            "TABLE_UNMIRRORED tables",
        ],
    )


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (["id", "NAME"], []),
        (["id", "nmae"], ["NOT_SEEN tables[0].columns"]),
        ({"exclude": ["NAME"]}, []),
        ({"exclude": ["nmae"]}, ["NOT_SEEN tables[0].columns"]),
        ({"include": ["id", "x*"]}, ["NOT_SEEN tables[0].columns"]),
    ],
)
def test_columns_that_stand_for_none_of_the_source_are_reported_g67_g73(
    columns: Any, found: list[str], mirror: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = [{**SOUND, "columns": columns}]
    assert checked(mirror, capsys, event(pkkey=KEY), tables=listed) == (Exit.DONE, found)


@pytest.mark.parametrize(
    ("table", "everywhere", "found"),
    [
        (["NAME"], ["n*"], []),
        (["nmae"], [], ["NOT_SEEN tables[0].hash"]),
        (["x*"], [], ["NOT_SEEN tables[0].hash"]),
        ([], ["name", "nmae", "x*"], ["NOT_SEEN hash.columns", "NOT_SEEN hash.columns"]),
    ],
)
def test_what_is_to_be_hashed_and_stands_for_no_column_is_reported_g73_g121(
    table: list[str],
    everywhere: list[str],
    found: list[str],
    mirror: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G-73, G-121: a column that is spelled otherwise would land in clear."""
    monkeypatch.setenv("AIRFLOW_CONN_SALT", '{"conn_type": "generic", "password": "sixteen characters"}')
    hashed = {"salt": "salt", "columns": everywhere}
    tables = [{**SOUND, "hash": table}]
    assert checked(mirror, capsys, event(pkkey=KEY), tables=tables, hash=hashed) == (Exit.DONE, found)


@pytest.mark.parametrize(
    ("table", "story", "found"),
    [
        ({"key": ["ID"]}, {}, "NOT_SEEN tables[0].key"),
        ({"source": "DBO.orders"}, {}, "TABLE_NAME_DIFFERS tables[0].source"),
        ({}, {"cols": [("id", "int"), ("g", "geography")], "current": KEY}, "TYPE_UNSUPPORTED tables[0].columns"),
    ],
)
def test_what_would_stop_the_table_is_a_mistake_g51(
    table: dict[str, Any], story: dict[str, Any], found: str, mirror: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = checked(mirror, capsys, event(pkkey=KEY, **story), tables=[{**SOUND, **table}])
    assert code == Exit.USAGE and found in lines


def test_a_setting_answers_how_the_stream_is_set_up_g51(mirror: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """G-51, C-44: changed columns only are no news where they are completed."""
    update = event("UPD", {"id": "7", "price": "2"}, {"id": "7", "price": "1"}, pkkey=KEY)
    assert checked(mirror, capsys, update) == (Exit.DONE, ["SETUP_INCOMPLETE tables[0].source"])
    assert checked(mirror, capsys, update, tables=[{**SOUND, "complete_rows": True}]) == (Exit.DONE, [])
