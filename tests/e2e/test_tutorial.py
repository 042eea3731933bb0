"""The tutorial runs as it stands: every command of the page, in its order, in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"


def commands_of(page: str) -> list[str]:
    """The blocks of commands of a page, in its order."""
    return re.findall(r"```sh\n(.*?)```", page, re.DOTALL)


@pytest.mark.spark
def test_every_command_of_the_tutorial_runs_and_shows_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    script = "\n".join(commands_of(TUTORIAL.read_text(encoding="utf-8")))
    done = subprocess.run(["sh", "-e"], input=script, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "00000000000000000001.parquet" in done.stdout
    first, second = re.findall(r"^\[\{.*\}\]$", done.stdout, re.MULTILINE)
    assert "Ada" in first and "Grace" in first and "1.50" in first
    assert "Ada" in second and "Grace" not in second and "9.75" in second


def first_mirror_of_the_readme(folder: Path) -> list[str]:
    """The README's mirror file, with the tutorial's events where it says; the commands behind it, line by line."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Your first mirror")[2]
    (mirror,) = re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
    (commands,) = commands_of(readme)
    (folder / "mirrors").mkdir(exist_ok=True)
    (folder / "mirrors" / "first.yaml").write_text(mirror, encoding="utf-8")
    events = re.findall(r"^\{\"specversion.*$", TUTORIAL.read_text(encoding="utf-8"), re.MULTILINE)
    (folder / "data" / "events").mkdir(parents=True)
    (folder / "data" / "events" / "1.jsonl").write_text("\n".join(events[:2]) + "\n", encoding="utf-8")
    return commands.splitlines()


def test_the_readme_s_mirror_file_is_one_that_check_accepts(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    check, *_ = first_mirror_of_the_readme(tmp_path)
    done = subprocess.run(["sh", "-e"], input=check, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "OK" in done.stdout, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.spark
def test_every_command_of_the_readme_s_first_mirror_runs(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    script = "\n".join(first_mirror_of_the_readme(tmp_path))
    done = subprocess.run(["sh", "-e"], input=script, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 tables mirrored" in done.stdout
    assert list((tmp_path / "build" / "first" / "tables").rglob("*.parquet")), "the emulator made the table"
