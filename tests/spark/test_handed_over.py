"""A job that was handed over leaves its end in the ledger, however it ends (S-16)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from open_mirroring.config.loading import HOME
from open_mirroring.operate.exit_codes import Exit
from open_mirroring.operate.hand_over import JobOrder, sealed
from open_mirroring.operate.job_result import RESULT_FILE, JobResult, recorded_end
from open_mirroring.operate.spark_jars import SUBMITTED
from spark_jobs.handed_over import main
from tests.hand_made_mirror import HandMadeMirror


def test_arguments_that_the_driver_does_not_know_are_its_end(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-16: the jobs there are of another version; a job without an end would be tried again for nothing."""
    for name in (HOME, RESULT_FILE, SUBMITTED):
        monkeypatch.setenv(name, "")  # so that what the driver sets is gone with the test
    made = HandMadeMirror(tmp_path)
    key, file = Fernet.generate_key().decode(), made.mirror.file
    (tmp_path / "key").write_text(key)
    text = file.read_text(encoding="utf-8")
    order = JobOrder("run", "extract_changes", file.name, text, str(made.mirror.home), ["--newer"], {})
    assert main([str(tmp_path / "key"), sealed(order, key)]) == 0
    assert recorded_end(made.ledger, "run") == (Exit.USAGE, JobResult())
