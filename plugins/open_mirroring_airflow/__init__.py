"""Schedules mirrors with Apache Airflow: the DAGs of mirror files, and the operators, sensor and trigger in them.

A file in Airflow's DAG folder that brings all DAGs has two lines::

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
    """The DAGs of every right mirror file of a folder, by their ids; by default of ``OPEN_MIRRORING_MIRRORS``.

    What is wrong with a file, :func:`mirror_errors` raises in a file of its own. The slots of *pool*, which must exist,
    limit how many Spark applications run at a time, over all mirrors.
    """
    from open_mirroring_airflow.dag_factory import build_dags
    from open_mirroring_airflow.mirror_folder import read_mirror_folder

    mirrors, _ = read_mirror_folder(folder)
    return {dag.dag_id: dag for mirror in mirrors for dag in build_dags(mirror, pool)}


def mirror_errors(folder: str | Path | None = None) -> None:
    """Raise everything that is wrong with the mirror files of a folder, for Airflow to show as an import error."""
    from open_mirroring_airflow.mirror_folder import read_mirror_folder

    _, error = read_mirror_folder(folder)
    if error is not None:
        raise error
