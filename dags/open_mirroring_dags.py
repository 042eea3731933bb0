"""The DAGs for each mirror file: the folder named by ``OPEN_MIRRORING_MIRRORS``, or ``mirrors`` next to this one.

A mirror file with mistakes has no DAGs; ``open_mirroring_import_errors.py`` shows why.
"""

from __future__ import annotations

from pathlib import Path

from open_mirroring_airflow import mirror_dags
from open_mirroring_airflow.mirror_folder import mirrors_folder

globals().update(mirror_dags(mirrors_folder(Path(__file__).parent)))
