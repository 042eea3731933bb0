"""Schedules mirrors with Apache Airflow: the DAGs of mirror files, and the operators, sensor and trigger in them.

The core (:mod:`open_mirroring`) decides what is true. This package only decides when to ask, who asks and who is
notified. A file in Airflow's DAG folder that brings all DAGs has two lines::

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
    """The DAGs of every right mirror file of a folder, by their ids.

    A wrong file has no DAGs and hinders no other: Airflow stops scheduling every DAG of a file that raises. What is
    wrong with it, :func:`mirror_errors` raises in a file of its own.

    Args:
        folder: None: the one that ``OPEN_MIRRORING_MIRRORS`` names.
        pool: the Airflow pool of all tasks that start Spark. Its slots limit how many applications run at a time, over
            all mirrors. It must exist: Airflow never starts a task whose pool is missing.
    """
    from open_mirroring_airflow.dag_factory import build_dags
    from open_mirroring_airflow.mirror_folder import read_mirror_folder

    mirrors, _ = read_mirror_folder(folder)
    return {dag.dag_id: dag for mirror in mirrors for dag in build_dags(mirror, pool)}


def mirror_errors(folder: str | Path | None = None) -> None:
    """Raise everything that is wrong with the mirror files of a folder, for Airflow to show as an import error.

    Raises ConfigError; ``PLACE_MISSING``.
    """
    from open_mirroring_airflow.mirror_folder import read_mirror_folder

    _, error = read_mirror_folder(folder)
    if error is not None:
        raise error
