"""What is in a source's folder is read, or counted and named: links, pipes, hidden folders (G-62)."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from open_mirroring.operate.exit_codes import Exit
from tests.field.trial import Ended, Trial

FILE = """mirror: links
source: {{format: sqlserver-ces, transport: files, layout: bare, path: events}}
landing_zone: {{store: local, path: zone, tables: tables}}
ledger: sqlite:///ledger.db
change_log: log
tables:
  - {{source: dbo.orders, target: dbo/orders, key: [id]{more}}}
"""


def event(key: int, table: str = "orders") -> str:
    column = {"name": "id", "type": "int", "index": 0}
    data = {
        "eventsource": {
            "db": "fieldlab",
            "schema": "dbo",
            "tbl": table,
            "cols": [column],
            "pkkey": [{"columnname": "id", "value": str(key)}],
            "transaction": {
                "commitlsn": f"0000002C:{key:08X}:0001",
                "beginlsn": f"0000002C:{key:08X}:0001",
                "sequencenumber": 1,
                "committime": "2026-11-20T08:00:00.000Z",
            },
        },
        "eventrow": {"old": "{}", "current": json.dumps({"id": str(key)})},
    }
    return json.dumps(
        {
            "specversion": "1.0",
            "type": "com.microsoft.SQL.CES.DML.V1",
            "source": "/",
            "id": f"{key:032d}",
            "logicalid": f"5b1f0c7e-2d34-4a86-9f10-77c0a1d2e3f4:0000002C{key:08X}0001:00000000000000000001",
            "time": "2026-11-20T08:00:00.000Z",
            "datacontenttype": "application/json",
            "operation": "INS",
            "segmentindex": 0,
            "finalsegment": True,
            "data": json.dumps(data),
        }
    )


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    made = Trial(tmp_path / "trial")
    made.folder.mkdir()
    made.file.write_text(FILE.format(more=""), encoding="utf-8")
    put(made.folder / "events" / "1.jsonl", 1)
    return made


def put(file: Path, *keys: int, table: str = "orders") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{event(key, table)}\n" for key in keys), encoding="utf-8")


def keys(trial: Trial) -> list[int]:
    trial.apply()
    return [row["id"] for row in trial.rows("dbo/orders")]


def ticked(trial: Trial) -> Ended:
    ended = trial.run("tick")
    assert ended.code == Exit.DONE, ended.text
    assert "not read" not in ended.text
    return ended


def test_linked_folders_are_read_once_each(trial: Trial) -> None:
    """Also below each other, two links to one folder, and loops."""
    away = trial.folder / "away"
    put(away / "2.jsonl", 2)
    put(away / "deep" / "3.jsonl", 3)
    put(trial.folder / "other" / "4.jsonl", 4)
    events = trial.folder / "events"
    (events / "b").symlink_to(away)
    (events / "a").symlink_to("../away")
    (away / "deep" / "other").symlink_to(trial.folder / "other")
    (away / "deep" / "up").symlink_to(away)
    (events / "here").symlink_to(".")
    (events / "above").symlink_to("..")
    ticked(trial)
    assert keys(trial) == [1, 2, 3, 4]
    assert "Read: nothing new at the source" in ticked(trial).out, "names of files stay as they are"


def test_a_hidden_folder_that_a_link_leads_to_is_read(trial: Trial) -> None:
    events = trial.folder / "events"
    put(events / ".releases" / "1" / "2.jsonl", 2)
    (events / "current").symlink_to(".releases/1")
    put(events / "..data" / "3.jsonl", 3)
    (events / "3.jsonl").symlink_to("..data/3.jsonl")
    ticked(trial)
    assert keys(trial) == [1, 2, 3]


def dangling(events: Path) -> str:
    (events / "2.jsonl").symlink_to("nowhere")
    return "2.jsonl (a link"


def dangling_folder(events: Path) -> str:
    (events / "november").symlink_to("/nowhere/at/all")
    return "november (a link"


def endless(events: Path) -> str:
    (events / "2.jsonl").symlink_to("2.jsonl")
    return "2.jsonl (a link"


def pipe(events: Path) -> str:
    os.mkfifo(events / "2.jsonl")
    return "2.jsonl (a pipe)"


def a_socket(events: Path) -> str:
    with socket.socket(socket.AF_UNIX) as one:
        before = Path.cwd()
        os.chdir(events)
        try:
            one.bind("control")
        finally:
            os.chdir(before)
    return "control (a socket)"


def hidden_folder(events: Path) -> str:
    put(events / "_audit" / "2.jsonl", 2)
    put(events / "_audit" / "deep" / "3.jsonl", 3)
    return "_audit (hidden by the folder's name: 2 files)"


def hidden_link(events: Path) -> str:
    put(events.parent / "away" / "2.jsonl", 2)
    (events / "_audit").symlink_to("../away")
    return "_audit (hidden by the folder's name: 1 file)"


@pytest.mark.parametrize(
    "odd",
    [dangling, dangling_folder, endless, pipe, a_socket, hidden_folder, hidden_link],
    ids=lambda one: one.__name__,
)
def test_what_cannot_be_read_is_counted_and_named(trial: Trial, odd: Callable[[Path], str]) -> None:
    said = odd(trial.folder / "events")
    for _ in range(2):
        ended = trial.run("tick")
        assert ended.code == Exit.DONE_WITH_LOSSES, ended.text
        assert said in ended.text
    assert keys(trial) == [1]
    status = trial.run("status")
    assert status.code == Exit.DONE_WITH_LOSSES and said in status.text
    # Where it is put right, the next run reads it, and the loss is gone.
    for one in (trial.folder / "events").iterdir():
        if one.name.startswith("_"):
            one.rename(one.with_name(one.name.strip("_")))
        elif one.is_symlink() or not one.is_file():
            one.unlink()
    assert trial.run("tick").code == Exit.DONE
    assert trial.run("status").code == Exit.DONE


def test_a_table_whose_files_are_in_a_hidden_folder_is_not_only_called_never_seen(trial: Trial) -> None:
    trial.file.write_text(
        FILE.format(more="") + "  - {source: dbo._audit, target: dbo/audit, key: [id]}\n", encoding="utf-8"
    )
    put(trial.folder / "events" / "_audit" / "1.jsonl", 7, table="_audit")
    trial.run("tick")
    status = trial.run("status", "--wide")
    (line,) = [line for line in status.out.splitlines() if "NOT_SEEN" in line]
    assert "_audit (hidden by the folder's name: 1 file)" in line


def test_a_hidden_file_beside_one_of_its_name_is_another_if_its_size_is(trial: Trial) -> None:
    put(trial.folder / "events" / "_1.jsonl", 2, 3)
    ended = trial.run("tick")
    assert "_1.jsonl" in ended.text
    assert trial.run("tick").code == Exit.ON_HOLD


def test_what_tools_leave_is_no_loss(trial: Trial) -> None:
    events = trial.folder / "events"
    for name in (".empty", "_also_empty", "_temporary"):
        (events / name).mkdir()
    for name in ("_SUCCESS", ".1.jsonl.crc", "._1.jsonl", "_logs/run.txt", "_spark_metadata/0", "_x/empty.jsonl"):
        (events / name).parent.mkdir(exist_ok=True)
        (events / name).write_bytes(b"" if name.endswith(("SUCCESS", "empty.jsonl")) else b"x")
    for name in (".git/config.json", ".vscode/settings.json", "_delta_log/0.json", "__MACOSX/._1.jsonl"):
        (events / name).parent.mkdir(exist_ok=True)
        (events / name).write_bytes(b"{}")
    (events / ".#1.jsonl").symlink_to("nowhere")
    ticked(trial)
    assert keys(trial) == [1]


def test_a_folder_in_which_a_program_still_writes_is_awaited(trial: Trial) -> None:
    put(trial.folder / "events" / "_temporary" / "0" / "2.jsonl", 2)
    assert "_temporary/0/2.jsonl" in trial.run("tick").text
    assert trial.run("tick").code == Exit.ON_HOLD
    (trial.folder / "events" / "_temporary" / "0" / "2.jsonl").rename(trial.folder / "events" / "2.jsonl")
    ticked(trial)
    assert keys(trial) == [1, 2]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_an_export_with_linked_parts_is_loaded(trial: Trial, form: str) -> None:
    load = f", initial_load: {{format: {form}, path: export, stream_from: beginning, types: {{id: int}}}}"
    trial.file.write_text(FILE.format(more=load), encoding="utf-8")
    part(trial.folder / "export" / f"a.{form}", 101)
    part(trial.folder / "parts" / f"b.{form}", 102)
    (trial.folder / "export" / "parts").symlink_to("../parts")
    (trial.folder / "export" / "once_more").symlink_to("../parts")
    (trial.folder / "export" / "up").symlink_to("..")
    assert trial.run("initial-load").code == Exit.DONE
    ticked(trial)
    assert keys(trial) == [1, 101, 102]


@pytest.mark.parametrize("odd", ["link", "folder link", "pipe"])
def test_an_export_with_what_cannot_be_read_is_refused(trial: Trial, odd: str) -> None:
    load = ", initial_load: {format: parquet, path: export, stream_from: beginning}"
    trial.file.write_text(FILE.format(more=load), encoding="utf-8")
    part(trial.folder / "export" / "a.parquet", 101)
    name = "b" if odd == "folder link" else "b.parquet"
    place = trial.folder / "export" / name
    os.mkfifo(place) if odd == "pipe" else place.symlink_to("nowhere")
    ended = trial.run("initial-load")
    assert ended.code not in (Exit.DONE, Exit.ON_HOLD)
    assert "LOAD_INVALID" in ended.text and f"'{name}'" in ended.text


def part(file: Path, key: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".csv":
        file.write_text(f"id\n{key}\n", encoding="utf-8")
    else:
        pq.write_table(pa.table({"id": pa.array([key], pa.int32())}), file)


@pytest.fixture
def changes(tmp_path: Path) -> Trial:
    """A file target with the folder of one change table."""
    made = Trial(tmp_path / "changes")
    made.folder.mkdir()
    made.file.write_text(
        """mirror: changes
source: {format: qlik-change-table, transport: files, path: data}
landing_zone: {store: local, path: zone, tables: tables}
ledger: sqlite:///ledger.db
change_log: log
tables:
  - {source: dbo.orders, target: dbo/orders, key: [id]}
  - {source: dbo._audit, target: dbo/audit, key: [id]}
""",
        encoding="utf-8",
    )
    put_changes(made.folder / "data" / "dbo.orders__ct", 1)
    put_changes(made.folder / "data" / "dbo._audit__ct", 1, table="_audit")
    return made


def put_changes(folder: Path, key: int, table: str = "orders") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    types = {"header__change_seq": "STRING", "header__change_oper": "STRING", "id": "INT4"}
    names = [{"ordinal": at, "name": n, "type": t, "length": 35} for at, (n, t) in enumerate(types.items(), 1)]
    options = {"fieldDelimiter": ",", "recordDelimiter": "\n", "nullValue": "", "quoteChar": '"', "escapeChar": '"'}
    described = {
        "dfmVersion": "1.1",
        "fileInfo": {"name": f"{key}.csv", "extension": "csv", "content": "changes", "recordCount": 1},
        "formatInfo": {"format": "delimited", "options": options},
        "dataInfo": {
            **{"sourceSchema": "dbo", "sourceTable": table, "targetSchema": "dbo", "targetTable": f"{table}__ct"},
            **{"tableVersion": 1, "columns": names},
        },
    }
    row = f"2026112008000000{key:019d},I,{key}"
    (folder / f"{key}.csv").write_text(f"{','.join(types)}\n{row}\n", encoding="utf-8")
    (folder / f"{key}.dfm").write_text(json.dumps(described), encoding="utf-8")


def test_linked_folders_of_change_tables_and_partitions_are_read(changes: Trial) -> None:
    data, away = changes.folder / "data", changes.folder / "away"
    (data / "dbo.orders__ct").rename(away)
    (data / "dbo.orders__ct").symlink_to("../away")
    put_changes(changes.folder / "partition", 2)
    (away / "20261120T080000_20261120T090000").symlink_to("../partition")
    assert changes.run("check").code == Exit.DONE
    ticked(changes)
    assert keys(changes) == [1, 2]


@pytest.mark.parametrize("inside", ["data", "data/dbo.orders__ct", "data/dbo.orders__ct/part"])
def test_a_change_table_or_partition_that_cannot_be_read_is_named(changes: Trial, inside: str) -> None:
    (changes.folder / inside).mkdir(exist_ok=True)
    (changes.folder / inside / "more").symlink_to("nowhere")
    ended = changes.run("tick")
    assert ended.code == Exit.DONE_WITH_LOSSES, ended.text
    assert "more (a link that cannot be followed: target missing)" in ended.text
    assert keys(changes) == [1]


def test_a_change_table_without_a_plain_name_is_named(changes: Trial) -> None:
    data = changes.folder / "data"
    (data / "dbo._audit__ct").rename(data / "_audit__ct")
    check = changes.run("check")
    assert "NOT_SEEN" in check.text and "_audit__ct (hidden by the folder's name: 2 files)" in check.text
    ended = changes.run("tick")
    assert ended.code == Exit.DONE_WITH_LOSSES
    assert "_audit__ct (hidden by the folder's name: 2 files)" in ended.text


@pytest.mark.parametrize("odd", ["", "link", "hidden"])
def test_a_full_load_in_a_linked_folder_is_read_as_a_complete_or_refused(changes: Trial, odd: str) -> None:
    load = "initial_load: {format: qlik-full-load, path: data/dbo.orders, stream_from: beginning}"
    text = changes.file.read_text(encoding="utf-8")
    changes.file.write_text(text.replace("key: [id]}", f"key: [id], {load}}}", 1), encoding="utf-8")
    for at in (1, 2):
        put_load(changes.folder / "loads" / str(at), at, 100 + at)
    (changes.folder / "data" / "dbo.orders").mkdir()
    for at in (1, 2):
        (changes.folder / "data" / "dbo.orders" / f"part{at}").symlink_to(f"../../loads/{at}")
    if odd == "link":
        (changes.folder / "data" / "dbo.orders" / "part3").symlink_to("nowhere")
    elif odd == "hidden":
        put_load(changes.folder / "data" / "dbo.orders" / "_part3", 3, 103)
    ended = changes.run("initial-load")
    if odd:
        assert ended.code not in (Exit.DONE, Exit.ON_HOLD) and "LOAD_INVALID" in ended.text
        assert "part3 (" in ended.text
        return
    assert ended.code == Exit.DONE, ended.text
    ticked(changes)
    assert keys(changes) == [1, 101, 102]


def put_load(folder: Path, number: int, key: int) -> None:
    put_changes(folder, key)
    described = json.loads((folder / f"{key}.dfm").read_text(encoding="utf-8"))
    described["fileInfo"] |= {"name": f"LOAD{number}.csv", "content": "data"}
    described["dataInfo"] |= {"targetTable": "orders"}
    described["dataInfo"]["columns"] = [{"ordinal": 1, "name": "id", "type": "INT4", "length": 0}]
    (folder / f"LOAD{number}.dfm").write_text(json.dumps(described), encoding="utf-8")
    (folder / f"LOAD{number}.csv").write_text(f"id\n{key}\n", encoding="utf-8")
    for name in (f"{key}.csv", f"{key}.dfm"):
        (folder / name).unlink()


def test_a_proof_reads_linked_parts_of_its_export_and_names_what_it_cannot(trial: Trial) -> None:
    proof = ", prove: {format: csv, path: proof, types: {id: int}}"
    trial.file.write_text(FILE.format(more=proof), encoding="utf-8")
    ticked(trial)
    trial.apply()
    part(trial.folder / "parts" / "a.csv", 1)
    (trial.folder / "proof").mkdir()
    (trial.folder / "proof" / "parts").symlink_to("../parts")
    assert trial.run("prove").code == Exit.DONE
    (trial.folder / "proof" / "more").symlink_to("nowhere")
    ended = trial.run("prove")
    assert ended.code != Exit.DONE and "'more' is a link that cannot be followed" in ended.text


def test_a_source_that_is_neither_a_folder_nor_a_file_is_refused(trial: Trial) -> None:
    os.mkfifo(trial.folder / "pipe")
    trial.file.write_text(FILE.format(more="").replace("path: events", "path: pipe"), encoding="utf-8")
    assert "PLACE_MISSING" in trial.run("check").text
    ended = trial.run("tick")
    assert ended.code not in (Exit.DONE, Exit.ON_HOLD) and "is neither a folder nor a file" in ended.text
