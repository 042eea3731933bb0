"""Tables without rows: no folder with metadata waits at the target without a data file (F-92)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from fabric_emulator.service import MirroringService
from tests.ces_messages import event
from tests.field.trial import Trial

COLS = (("id", "int"), ("name", "nvarchar(20)"))


def made(folder: Path, *tables: dict[str, Any], **settings: Any) -> Trial:
    """A mirror of these tables, each with the key `id`, and no event yet."""
    (folder / "events").mkdir(exist_ok=True)
    document = {
        "mirror": "few",
        "source": {"format": "sqlserver-ces", "transport": "files", "layout": "bare", "path": "events"},
        "landing_zone": {"store": "local", "path": "zone", "tables": "tables"},
        "ledger": "sqlite:///ledger.db",
        "change_log": "change_log",
        "tables": [{"target": one["source"].replace(".", "/"), "key": ["id"], **one} for one in tables],
        **settings,
    }
    (folder / "mirror.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return Trial(folder)


def deliver(trial: Trial, name: str, *events: bytes) -> None:
    (trial.folder / "events" / name).write_bytes(b"".join(one + b"\n" for one in events))


def change(table: str, operation: str, current: Any, old: Any, commit: int) -> bytes:
    return event(operation, current, old, commit=commit, cols=COLS, tbl=table)


def export(trial: Trial, table: str, **columns: pa.Array) -> dict[str, Any]:
    """A table with an initial load from a Parquet file."""
    folder = trial.folder / table
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "1.parquet")
    load = {"format": "parquet", "path": table, "stream_from": "beginning"}
    return {"source": f"dbo.{table}", "initial_load": load}


def data_files(trial: Trial, table: str) -> list[str]:
    return sorted(path.name for path in (trial.zone / "dbo.schema" / table).glob("0*.*"))


def hung(trial: Trial) -> list[str]:
    """The table folders that the service would wait at: metadata, and no data file."""
    described = [path.parent for path in trial.zone.rglob("_metadata.json")]
    return [folder.name for folder in described if not [*folder.glob("0*.*")]]


NO_ROWS = {"id": pa.array([], pa.int32()), "name": pa.array([], pa.string())}


def test_a_table_that_never_changed_gets_no_folder(shared_data: Path, tmp_path: Path) -> None:
    trial = Trial.of("N_empty", shared_data, tmp_path)
    for command in ("check", "tick", "tick", "status"):
        assert trial.run(command).code == 0, command
    assert not (trial.zone / "dbo.schema" / "rarely_used").exists()
    assert data_files(trial, "orders") == [f"{1:020}.parquet"]
    trial.apply()
    assert len(trial.rows("dbo/orders")) == 1
    assert [entry["status"] for entry in MirroringService(trial.zone, trial.tables).status().values()] == [
        "Replicating"
    ]


def test_the_first_row_makes_the_table_and_later_ones_follow(tmp_path: Path) -> None:
    trial = made(tmp_path, {"source": "dbo.a"}, {"source": "dbo.late"})
    deliver(trial, "1.jsonl", change("a", "INS", {"id": "1", "name": "x"}, None, 10))
    assert trial.run("tick").code == 0 and hung(trial) == []
    assert not (trial.zone / "dbo.schema" / "late").exists()
    deliver(trial, "2.jsonl", change("late", "INS", {"id": "5", "name": "y"}, None, 11))
    assert trial.run("tick").code == 0
    deliver(trial, "3.jsonl", change("late", "UPD", {"id": "5", "name": "z"}, {"id": "5", "name": "y"}, 12))
    assert trial.run("tick").code == 0
    trial.apply()
    assert trial.rows("dbo/late") == [{"id": 5, "name": "z"}]
    assert trial.run("reconcile").code == 0


@pytest.mark.parametrize("empty_tables", ["wait", "create"])
def test_a_table_with_dead_letters_alone(tmp_path: Path, empty_tables: str) -> None:
    """Nothing of it can be published; it is made without rows where that is asked for, and heals either way."""
    trial = made(tmp_path, {"source": "dbo.bad"}, publish={"empty_tables": empty_tables})
    cols = (("id", "int"), ("n", "int"))
    deliver(trial, "1.jsonl", event("INS", {"id": "1", "n": "many"}, None, commit=10, cols=cols, tbl="bad"))
    assert trial.run("tick").code != 0
    assert hung(trial) == []
    assert data_files(trial, "bad") == ([] if empty_tables == "wait" else [f"{1:020}.parquet"])
    assert (trial.zone / "dbo.schema" / "bad").exists() == (empty_tables == "create")
    deliver(trial, "2.jsonl", event("INS", {"id": "2", "n": "7"}, None, commit=11, cols=cols, tbl="bad"))
    trial.run("tick")
    trial.apply()
    assert trial.rows("dbo/bad") == [{"id": 2, "n": 7}]
    assert "many" in trial.run("dead-letters").text


@pytest.mark.parametrize("empty_tables", ["wait", "create"])
def test_a_load_without_rows(tmp_path: Path, empty_tables: str) -> None:
    """F-41: `create` makes the table with its columns; else its first change makes it."""
    trial = Trial(tmp_path)
    loaded = export(trial, "none", **NO_ROWS)
    trial = made(tmp_path, loaded, publish={"empty_tables": empty_tables})
    assert trial.run("initial-load").code == 0
    assert trial.run("tick").code == 0
    assert hung(trial) == []
    assert data_files(trial, "none") == ([] if empty_tables == "wait" else [f"{1:020}.parquet"])
    assert (trial.zone / "dbo.schema" / "none").exists() == (empty_tables == "create")
    if empty_tables == "create":
        trial.apply()
        assert trial.rows("dbo/none") == []
    status = json.loads(trial.run("status", "--json").out)
    assert [table["verdict"] for table in status["tables"]] == ["PASS"]
    deliver(trial, "1.jsonl", change("none", "INS", {"id": "1", "name": "x"}, None, 10))
    assert trial.run("tick").code == 0
    trial.apply()
    assert trial.rows("dbo/none") == [{"id": 1, "name": "x"}]
    assert trial.run("reconcile").code == 0


def test_a_load_that_stops_leaves_no_metadata(tmp_path: Path) -> None:
    """Two rows with one key: nothing can be published, so the target is shown no table."""
    trial = Trial(tmp_path)
    twice = export(trial, "twice", id=pa.array([1, 1], pa.int32()), name=pa.array(["a", "b"]))
    trial = made(tmp_path, twice)
    assert trial.run("initial-load").code != 0
    assert trial.run("tick").code != 0
    assert [*trial.zone.rglob("_metadata.json")] == []


def test_a_reset_of_a_table_without_rows_ends(tmp_path: Path) -> None:
    """It waits for no table that no file makes, and the next change makes it."""
    trial = made(tmp_path, {"source": "dbo.a"})
    assert trial.run("tick").code == 0
    trial.tables.mkdir()
    reload_table = ("reload-table", "--table", "dbo.a", "--reason", "a test", "--approved-by", "Ada", "--wait", "0")
    for _ in range(4):
        ended = trial.run(*reload_table)
        if ended.code == 0:
            break
    assert ended.code == 0, ended.text
    assert [*trial.zone.rglob("_metadata.json")] == []
    deliver(trial, "1.jsonl", change("a", "INS", {"id": "1", "name": "x"}, None, 10))
    assert trial.run("tick").code == 0
    trial.apply()
    assert trial.rows("dbo/a") == [{"id": 1, "name": "x"}]


def test_a_second_writer_is_named_before_a_lost_ledger(tmp_path: Path) -> None:
    """A file of another writer, in a folder that is not ours yet and on the next number of one that is."""
    trial = made(tmp_path, {"source": "dbo.a"}, {"source": "dbo.b"})
    deliver(trial, "1.jsonl", change("a", "INS", {"id": "1", "name": "x"}, None, 10))
    assert trial.run("tick").code == 0
    for folder, number in ((trial.zone / "dbo.schema" / "a", 2), (trial.zone / "dbo.schema" / "b", 1)):
        folder.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": [7]}), folder / f"{number:020}.parquet")
    ended = trial.run("tick")
    assert ended.code != 0
    assert ended.text.count("FOREIGN_WRITER") >= 2 and "LEDGER_BEHIND" not in ended.text
    assert "second writer" in ended.text


def test_the_service_fails_a_table_without_a_file_in_time(tmp_path: Path) -> None:
    """Field: Snapshotting for about two weeks, then failed, and the replication of all tables is paused."""
    folder = tmp_path / "zone" / "dbo.schema" / "hangs"
    folder.mkdir(parents=True)
    (folder / "_metadata.json").write_text('{"keyColumns": ["id"]}', encoding="utf-8")
    service = MirroringService(tmp_path / "zone", tmp_path / "tables")
    service.poll()
    (entry,) = service.status().values()
    assert (entry["status"], service.database_status()) == ("Snapshotting", "Running")
    service.advance_clock(13 * 86_400)
    service.poll()
    assert service.status()["dbo.schema/hangs"]["status"] == "Snapshotting"
    service.advance_clock(86_400)
    service.poll()
    (entry,) = service.status().values()
    assert (entry["status"], entry["error"]["errorCode"]) == ("Failed", "NoDataFiles")
    assert service.database_status() == "Paused"
