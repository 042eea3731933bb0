"""Decides which mirror files become DAGs. A wrong file becomes an import error and hinders no other file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from open_mirroring.config import ConfigError, Mirror, load_mirror, load_mirrors, mirror_files
from open_mirroring.errors import TerminalError

MIRRORS = "OPEN_MIRRORING_MIRRORS"
"""Environment variable naming the folder of mirror files."""


class MirrorFolder(NamedTuple):
    """The mirrors whose files are right, by file name, and everything that is wrong with the others."""

    mirrors: list[Mirror]
    error: TerminalError | None


def mirrors_folder(dags_folder: Path) -> Path:
    """The folder that :data:`MIRRORS` names, else ``mirrors`` beside the DAGs' folder, as in a checkout."""
    return Path(os.environ.get(MIRRORS) or dags_folder.absolute().parent / "mirrors")


def read_mirror_folder(folder: str | Path | None) -> MirrorFolder:
    """Read the mirror files for a DAG file, of *folder* or, if there is none, of the one that :data:`MIRRORS` names.

    Airflow drops, and after a while forgets, *all* DAGs of a file that raises while it is imported. So the file with
    the DAGs takes the mirrors from here and never raises, and a second file, without DAGs, raises the error: it shows
    as an import error, and every good mirror keeps its schedule.
    """
    folder = Path(folder or os.environ.get(MIRRORS) or "mirrors")
    if not folder.is_dir():
        return MirrorFolder([], _no_folder(folder))
    try:
        return MirrorFolder(load_mirrors(folder), None)
    except ConfigError as error:
        wrong = {problem.file.absolute() for problem in error.problems}
        good = [file for file in mirror_files(folder) if file.absolute() not in wrong]
        return MirrorFolder([load_mirror(file) for file in good], error)


def _no_folder(folder: Path) -> TerminalError:
    return TerminalError(
        "MIRRORS_FOLDER_MISSING",
        "there is no folder of mirror files",
        where=str(folder),
        way_out=f"create it, or name another one in the DAG file or in {MIRRORS}",
    )
