"""What a worker reports of the log files it wrote."""

from __future__ import annotations

from pathlib import Path

from deltalake.exceptions import DeltaError

from spark_jobs.changelog.delta_log import log_error
from spark_jobs.changelog.schema import FRAGMENT, LogRow
from spark_jobs.changelog.writing import LogWriter


def piece(identity: str, place: int, pos: str | None) -> LogRow:
    return LogRow(FRAGMENT, "t/0", place, epoch="1" if pos else None, pos=pos, fragment_of=identity, raw=b"x")


def test_pieces_of_one_event_have_its_place_and_messages_that_wait_together_have_none(tmp_path: Path) -> None:
    """C-51, K-05: one message's place must not decide about the others that wait for the same structure."""
    writer = LogWriter(tmp_path, 1, "a", 0)
    writer.add([piece("event", 1, "5:1:1"), piece("event", 2, "5:1:1")])
    writer.add([piece("schema", 3, "5:1:1"), piece("schema", 4, "6:1:1"), piece("schema", 5, None)])
    found = writer.finish()
    (file,) = (file["path"] for file in found.files)
    assert found.fragments == {"event": ("1", "5:1:1", [file]), "schema": ("", "", [file])}


def test_what_the_log_s_library_draws_is_reported_in_one_line_s26(tmp_path: Path) -> None:
    """It draws causes in lines and colours."""
    drawn = DeltaError("it failed\n  \x1b[31m↳\x1b[0m No space left on device")
    story = log_error(tmp_path, "it did not take batch 2", drawn)
    assert story.what == "the change log: it did not take batch 2: it failed ↳ No space left on device"
    assert (story.code, log_error(tmp_path, "x", DeltaError("else")).code) == ("DISK_FULL", "CHANGED_MEANWHILE")
