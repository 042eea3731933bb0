"""The records of batches beside the change log: whole or not there, and left alone by its clean-up."""

from __future__ import annotations

import os
import stat
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
import yaml

from open_mirroring.changes.manifest import RECORDS, Manifest
from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.arrow_schema import file_schema
from open_mirroring.landing_zone.data_file import Footer, write_data_file
from open_mirroring.landing_zone.schema import LandingColumn
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.changelog.batch_records import read_records, write_record
from spark_jobs.changelog.change_log import ChangeLog, vacuum
from spark_jobs.cli.command_line import main
from tests.object_storage import KINDS, StorageServers


def test_a_record_is_read_as_it_was_written_and_only_up_to_the_log_g_80(tmp_path: Path) -> None:
    """G-80: one of a batch that never came into the log says nothing, and is written over."""
    write_record(tmp_path, 1, "[]", '{"files":[]}')
    write_record(tmp_path, 2, "lost", "lost")
    assert list(read_records(tmp_path, 1)) == [1]
    write_record(tmp_path, 2, '["a"]', "{}")
    found = read_records(tmp_path, 3)
    assert {n: (one.ranges, one.manifest) for n, one in found.items()} == {
        1: ("[]", '{"files":[]}'),
        2: ('["a"]', "{}"),
    }


def test_a_record_is_on_the_disk_when_it_is_written_g_80(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-80: else a power cut leaves a batch in the log, which is synced, and an empty record of it."""
    done, sync, replace = list[str](), os.fsync, os.replace

    def synced(descriptor: int) -> None:
        done.append(f"sync {'folder' if stat.S_ISDIR(os.fstat(descriptor).st_mode) else 'file'}")
        sync(descriptor)

    def replaced(source: Path, target: Path) -> None:
        done.append("name")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    write_record(tmp_path, 1, "[]", "{}")
    assert done[-3:] == ["sync file", "name", "sync folder"]
    assert done[:-3] == ["sync folder"] * 2, "and so are the folders that it made"


def test_a_damaged_record_is_reported_g_80(tmp_path: Path) -> None:
    """G-80: what cannot be read is not taken for what is not there."""
    write_record(tmp_path, 1, "[]", "{}")
    (path,) = (tmp_path / RECORDS).rglob("*.json")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(TerminalError, match="LOG_DAMAGED"):
        read_records(tmp_path, 1)


def test_cleaning_up_the_log_leaves_the_records_g_80(tmp_path: Path) -> None:
    """G-80: a clean-up removes old files that no commit refers to; the records are none of them."""
    ChangeLog(tmp_path / "log", "m").open(1, Manifest(files=[], counts={}), "")
    write_record(tmp_path / "log", 1, "[]", "{}")
    stray = tmp_path / "log" / "batch_block=0" / "stray.parquet"
    stray.parent.mkdir()
    stray.write_bytes(b"x")
    for path in (stray, *(tmp_path / "log" / RECORDS).rglob("*.json")):
        os.utime(path, (0, 0))
    assert vacuum(tmp_path / "log", timedelta(hours=1)) == 1 and not stray.exists()
    assert list(read_records(tmp_path / "log", 1)) == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_records_lie_in_object_storage_as_the_log_does_g_80(storage_servers: StorageServers, kind: str) -> None:
    """G-80: created once; the same again changes nothing, and one that never came into the log is written over."""
    log = storage_servers.new(kind).place("log")
    write_record(log, 1, "[]", "{}")
    first = read_records(log, 1)
    write_record(log, 1, "[]", "{}")
    assert read_records(log, 2) == first
    write_record(log, 1, "[]", '{"files":[]}')
    assert [one.manifest for one in read_records(log, 1).values()] == ['{"files":[]}']


def mirror_with_log(folder: Path, tables: list[dict[str, Any]], logged: str) -> Path:
    """A mirror without a ledger whose change log has one batch, of the table *logged*."""
    document = {
        "mirror": "m",
        "source": {"format": "sqlserver-ces", "transport": "files", "path": "source"},
        "landing_zone": {"store": "local", "path": "zone"},
        "ledger": "sqlite:///ledger.db",
        "change_log": "log",
        "tables": tables,
    }
    (folder / "source").mkdir()
    file = folder / "mirrors" / "m.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    log, nothing = ChangeLog(folder / "log", "m"), Manifest(files=[], counts={})
    log.open(1, nothing, "")
    log.commit(1, nothing)
    manifest = Manifest(files=[{"path": "batch_block=0/x.parquet", "tables": {logged: {}}}], counts={})
    write_record(folder / "log", 1, "[]", manifest.to_json())
    return file


def test_tables_that_joined_by_a_pattern_have_to_be_written_out_g_80(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-80, G-70: only the lost ledger knew by which key such a table is mirrored."""
    file = mirror_with_log(tmp_path, [{"source": "sales.*"}], "sales.orders")
    assert main(["rebuild-ledger", str(file)]) == Exit.TERMINAL
    story = capsys.readouterr().err
    assert "COMMAND_REFUSED" in story and "'sales.orders'" in story and "write them out" in story
    assert not (tmp_path / "ledger.db").exists()


@pytest.mark.parametrize(("of", "is_refused"), [("m", True), (None, True), ("another", False)])
def test_a_table_that_is_still_at_the_target_is_not_taken_for_a_dropped_one_g_80(
    of: str | None, is_refused: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-80: taken out of the mirror file alone it would stand still at the target, and every run would say PASS."""
    kept = {"source": "dbo.kept", "target": "dbo/kept", "key": ["id"]}
    file = mirror_with_log(tmp_path, [kept], "dbo.gone")
    zone = tmp_path / "zone"
    for folder in ("dbo.schema/kept", "dbo.schema/gone"):
        (zone / folder).mkdir(parents=True)
        (zone / folder / layout.INCARNATION_FILE).write_bytes(layout.incarnation_document(str(uuid4())))
    if of is not None:
        columns = file_schema((LandingColumn("id", "int64"),), ["id"], marker=True)
        rows = pa.table({"id": [1], "__rowMarker__": [4]}, schema=columns)
        path = zone / "dbo.schema/gone" / layout.file_name(1)
        write_data_file(path, rows, columns, Footer(of, "id", 1, 1, 0, 1, "changes"))
    code, story = main(["rebuild-ledger", str(file)]), capsys.readouterr()
    if not is_refused:
        assert code == Exit.DONE and "nothing was changed" in story.out, story
        return
    assert code == Exit.TERMINAL and "COMMAND_REFUSED" in story.err, story
    assert "['dbo.schema/gone']" in story.err and "drop-table" in story.err
