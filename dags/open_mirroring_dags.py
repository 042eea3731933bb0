"""The DAGs for each mirror file: the folder named by ``OPEN_MIRRORING_MIRRORS``, or ``mirrors`` beside this one.

A mirror file with mistakes has no DAGs; ``open_mirroring_import_errors.py`` shows why.
"""

from __future__ import annotations

import os
from pathlib import Path

from open_mirroring_airflow import mirror_dags

globals().update(
    mirror_dags(os.environ.get("OPEN_MIRRORING_MIRRORS") or Path(__file__).absolute().parents[1] / "mirrors")
)
