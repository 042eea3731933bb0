"""Schedules mirrors with Apache Airflow: creates the DAGs of mirror files, with their operators, sensor and triggers.

A file with these two lines in Airflow's DAG folder creates all DAGs::

    from open_mirroring_airflow import mirror_dags
    globals().update(mirror_dags("/opt/mirrors"))
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import DAG

__all__ = ["mirror_dags", "mirror_errors"]


def mirror_dags(folder: str | Path | None = None, *, pool: str = "default_pool") -> dict[str, DAG]:
    """The DAGs, by id, of every valid mirror file in *folder*, by default ``OPEN_MIRRORING_MIRRORS``.

    Invalid mirror files are skipped; call :func:`mirror_errors` in another file to show their mistakes. *pool* is an
    Airflow pool, which must exist; its slots limit how many Spark applications run at a time.
    """
    from open_mirroring_airflow.dag_factory import build_dags
    from open_mirroring_airflow.mirror_folder import read_mirror_folder

    mirrors, _ = read_mirror_folder(folder)
    return {dag.dag_id: dag for mirror in mirrors for dag in build_dags(mirror, pool)}


def mirror_errors(folder: str | Path | None = None) -> None:
    """Raises one error with all mistakes in the mirror files of a folder; Airflow shows it as an import error.

    If all mirror files of the folder are valid, nothing is raised.
    """
    from open_mirroring_airflow.mirror_folder import read_mirror_folder

    _, error = read_mirror_folder(folder)
    if error is not None:
        raise error
