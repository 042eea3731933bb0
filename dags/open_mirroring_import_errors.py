"""Mistakes in mirror files, shown as an import error of Airflow (``airflow dags list-import-errors``).

This file contains no DAG on purpose. Airflow stops scheduling every DAG of a file that has an import error, and a
mistake in one mirror file must not stop the DAGs of all mirrors.
"""

from __future__ import annotations

from pathlib import Path

from open_mirroring_airflow import mirror_errors
from open_mirroring_airflow.mirror_folder import mirrors_folder

mirror_errors(mirrors_folder(Path(__file__).parent))
