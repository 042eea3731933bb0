"""The DAGs for each mirror file: the folder named by ``OPEN_MIRRORING_MIRRORS``, or ``mirrors`` beside this one.

A mirror file with mistakes has no DAGs; ``open_mirroring_import_errors.py`` shows why.
"""

from __future__ import annotations

from open_mirroring_airflow.dag_factory import build_dags
from open_mirroring_airflow.mirror_folder import read_mirror_folder

for mirror in read_mirror_folder(__file__).mirrors:
    for dag in build_dags(mirror):
        globals()[dag.dag_id] = dag
