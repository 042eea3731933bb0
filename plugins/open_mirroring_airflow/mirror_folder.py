"""Decides which mirror files become DAGs. An invalid mirror file becomes an import error, and affects no other file."""

from __future__ import annotations

import os
from pathlib import Path

from open_mirroring.config import ConfigError, Mirror, load_mirror, load_mirrors, mirror_files
from open_mirroring.errors import MirroringError, TerminalError

MIRRORS = "OPEN_MIRRORING_MIRRORS"
"""Environment variable naming the folder of mirror files."""


def mirrors_folder(dags_folder: Path) -> Path:
    """The folder of mirror files that the environment variable :data:`MIRRORS` names.

    If the variable is not set, it is the folder ``mirrors`` next to *dags_folder*, Airflow's DAG folder.
    """
    return Path(os.environ.get(MIRRORS) or dags_folder.absolute().parent / "mirrors")


def read_mirror_folder(folder: str | Path | None) -> tuple[list[Mirror], TerminalError | None]:
    """The valid mirrors of a folder, and one error about all invalid mirror files; None if all files are valid.

    *folder* is by default the folder that the environment variable :data:`MIRRORS` names. Airflow drops *all* DAGs of
    a Python file that raises an error while it is imported. So the file with the DAGs uses the valid mirrors and
    raises nothing, and a second file, without DAGs, raises the error. If two mirror files have the same name or
    landing zone, the one that the ledger knows is valid.
    """
    folder = Path(folder or os.environ.get(MIRRORS) or "mirrors")
    if not folder.is_dir():
        next_step = f"create it, or name another one in the DAG file or in {MIRRORS}"
        what = "there is no folder of mirror files"
        return [], TerminalError("PLACE_MISSING", what, where=str(folder), next_step=next_step)
    try:
        return load_mirrors(folder, _standing), None
    except ConfigError as error:
        wrong = {problem.file.absolute() for problem in error.problems}
        good = [file for file in mirror_files(folder) if file.absolute() not in wrong]
        return [load_mirror(file) for file in good], error


def _standing(mirror: Mirror) -> int:
    """As :func:`~open_mirroring.reconciliation.owning.standing`; asked only of files that claim one name or place."""
    # Imported here: DAG files are read all the time, and seldom does one need a ledger.
    from open_mirroring.reconciliation.owning import standing
    from open_mirroring_airflow.connections import ledger_url

    try:
        return standing(mirror, ledger_url(mirror))
    except MirroringError:
        return 0
