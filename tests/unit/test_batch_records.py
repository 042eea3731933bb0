"""The records of batches beside the change log: whole or not there, and left alone by its clean-up."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from open_mirroring.changes.manifest import Manifest
from open_mirroring.errors import TerminalError
from spark_jobs.changelog.batch_records import FOLDER, read_records, write_record
from spark_jobs.changelog.change_log import ChangeLog
from spark_jobs.changelog.retention import vacuum


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
