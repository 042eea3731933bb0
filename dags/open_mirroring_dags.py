"""The DAGs for each mirror file in the folder named by ``OPEN_MIRRORING_MIRRORS``.

If ``OPEN_MIRRORING_MIRRORS`` is not set, the mirror files come from the folder ``mirrors`` next to the folder of this
file. A mirror file with mistakes has no DAGs; ``open_mirroring_import_errors.py`` shows the mistakes.
"""

from __future__ import annotations

from pathlib import Path

from open_mirroring_airflow import mirror_dags
from open_mirroring_airflow.mirror_folder import mirrors_folder

globals().update(mirror_dags(mirrors_folder(Path(__file__).parent)))
