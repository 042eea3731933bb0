"""The tutorial runs as it stands: every command of the page, in its order, in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"


@pytest.mark.spark
def test_every_command_of_the_tutorial_runs_and_shows_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    blocks = re.findall(r"```sh\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)
    script = "\n".join(blocks)
    done = subprocess.run(["sh", "-e"], input=script, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "00000000000000000001.parquet" in done.stdout
    first, second = re.findall(r"^\[\{.*\}\]$", done.stdout, re.MULTILINE)
    assert "Ada" in first and "Grace" in first and "1.50" in first
    assert "Ada" in second and "Grace" not in second and "9.75" in second
