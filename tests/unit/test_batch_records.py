"""The records of batches beside the change log: whole or not there, and left alone by its clean-up."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from open_mirroring.changes.manifest import Manifest
from open_mirroring.errors import TerminalError
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.changelog.batch_records import FOLDER, read_records, write_record
from spark_jobs.changelog.change_log import ChangeLog
from spark_jobs.changelog.retention import vacuum
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


def test_a_damaged_record_is_told_g_80(tmp_path: Path) -> None:
    """G-80: what cannot be read is not taken for what is not there."""
    write_record(tmp_path, 1, "[]", "{}")
    (path,) = (tmp_path / FOLDER).rglob("*.json")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(TerminalError, match="LOG_RECORD_INVALID"):
        read_records(tmp_path, 1)


def test_cleaning_up_the_log_leaves_the_records_g_80(tmp_path: Path) -> None:
    """G-80: a clean-up removes old files that no commit refers to; the records are none of them."""
    ChangeLog(tmp_path / "log", "m").open(1, Manifest(files=[], counts={}), "")
    write_record(tmp_path / "log", 1, "[]", "{}")
    stray = tmp_path / "log" / "batch_block=0" / "stray.parquet"
    stray.parent.mkdir()
    stray.write_bytes(b"x")
    for path in (stray, *(tmp_path / "log" / FOLDER).rglob("*.json")):
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


def test_tables_that_joined_by_a_pattern_have_to_be_written_out_g_80(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-80, G-70: only the lost ledger knew by which key such a table is mirrored."""
    document = {
        "mirror": "m",
        "source": {"format": "sqlserver-ces", "transport": "files", "path": "source"},
        "landing_zone": {"store": "local", "path": "zone"},
        "ledger": "sqlite:///ledger.db",
        "change_log": "log",
        "tables": [{"source": "sales.*"}],
    }
    (tmp_path / "source").mkdir()
    file = tmp_path / "mirrors" / "m.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    log, nothing = ChangeLog(tmp_path / "log", "m"), Manifest(files=[], counts={})
    log.open(1, nothing, "")
    log.commit(1, nothing)
    logged = Manifest(files=[{"path": "batch_block=0/x.parquet", "tables": {"sales.orders": {}}}], counts={})
    write_record(tmp_path / "log", 1, "[]", logged.to_json())
    assert main(["rebuild-ledger", str(file)]) == Exit.TERMINAL
    told = capsys.readouterr().err
    assert "LEDGER_NOT_TOLD" in told and "'sales.orders'" in told and "write them out" in told
    assert not (tmp_path / "ledger.db").exists()
