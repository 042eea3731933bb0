"""Mistakes in mirror files, shown as an import error of Airflow (``airflow dags list-import-errors``).

This file holds no DAG on purpose: Airflow stops scheduling every DAG of a file that has an import error, and one
mirror's mistake must not stop the others.
"""

from __future__ import annotations

from open_mirroring_airflow.mirror_folder import read_mirror_folder

error = read_mirror_folder(__file__).error
if error is not None:
    raise error
