"""A stranger's path: README and tutorial, word by word, on a root file system that has Python, Java and make alone.

The root is made of mounts: Debian's own programs are below ``/usr`` as always, but only those of its required packages,
Python, Java and make are found by name, and there is neither a home nor anything that was installed beside the system's
packages. So what a document forgets to name is missing here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.test_tutorial import commands_of, first_mirror_of_the_readme

ROOT = Path(__file__).resolve().parents[2]
NAMED_BY_THE_README = ("python3.11", "java", "make")
# Mounts end with the process that made them, and so does whatever was started below it.
OWN_MOUNTS = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
ENTER = """
cd "$1"
for one in etc usr; do mount --bind "/$one" "$one"; mount -o remount,bind,ro "$one"; done
mount -t tmpfs none usr/local
mount --rbind /dev dev
mount -t proc none proc
exec chroot . /programs/env -i HOME=/root PATH=/programs LANG=C.UTF-8 "${@:3}" /programs/sh -euc "cd ~/clone; $2"
"""


def _programs() -> dict[str, Path]:
    """The programs of a system on which nothing was installed, and those that the README names."""
    listed = subprocess.run(
        ["dpkg-query", "-Wf", "${Package} ${Essential} ${Priority}\n"], capture_output=True, text=True, check=True
    )
    required = [line.split()[0] for line in listed.stdout.splitlines() if {"yes", "required"} & {*line.split()[1:]}]
    files = subprocess.run(["dpkg-query", "-L", *required], capture_output=True, text=True, check=True).stdout
    found = {Path(file).name: Path(file) for file in files.splitlines() if re.match(r"(/usr)?/s?bin/[^/]+$", file)}
    # Debian chooses among several of these: no package has the name itself.
    chosen = {name: Path("/usr/bin") / name for name in ("awk", *NAMED_BY_THE_README)}
    return found | chosen


@pytest.fixture
def clean_root(tmp_path: Path) -> Path:
    """A root file system of mounts to be made, with a clone of this project in its root user's home."""
    if os.geteuid() != 0 or subprocess.run([*OWN_MOUNTS, "true"], capture_output=True).returncode:
        pytest.skip("only root may mount a root file system of its own")
    if shutil.which("dpkg-query") is None or not all(Path("/usr/bin", name).exists() for name in NAMED_BY_THE_README):
        pytest.skip("the system's own packages bring no python3.11, java and make")
    root = tmp_path / "root"
    for folder in ("etc", "usr", "dev", "proc", "root", "run", "var/tmp", "tmp", "programs"):
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    for name, program in _programs().items():
        (root / "programs" / name).symlink_to(program)
    subprocess.run(["git", "clone", "--quiet", ROOT, root / "root" / "clone"], check=True)
    return root


def _run(root: Path, script: str, seconds: float) -> str:
    # How packages are fetched is the machine's matter, and what a company's certificates are.
    fetching = [
        f"{name}={text}" for name, text in os.environ.items() if re.match("PIP_|UV_|SSL_|.*_proxy$", name, re.I)
    ]
    done = subprocess.run(
        [*OWN_MOUNTS, "bash", "-euc", ENTER, "bash", root, script, *fetching],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


@pytest.mark.long
def test_readme_and_tutorial_run_word_by_word_where_only_python_java_and_make_are(clean_root: Path) -> None:
    clone = clean_root / "root" / "clone"
    readme = (clone / "README.md").read_text(encoding="utf-8")
    demo = re.search(r"^make demo(?= )", readme, re.MULTILINE)
    assert demo is not None
    assert "proved: every table is equal" in _run(clean_root, demo[0], 1800)
    tutorial = (clone / "docs" / "tutorial.md").read_text(encoding="utf-8")
    assert "`make setup`" in tutorial
    commands = ["make setup", *commands_of(tutorial)]
    story = _run(clean_root, "\n".join(commands), 600)
    assert "Ada" in story and "9.75" in story
    story = _run(clean_root, "\n".join(first_mirror_of_the_readme(clone)), 600)
    assert "1 of 1 tables mirrored" in story
    assert list((clone / "build" / "first" / "tables").rglob("*.parquet")), "the emulator made the table"
