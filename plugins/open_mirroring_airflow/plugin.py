"""The plugin that Airflow lists. Operators, sensor and trigger are plain imports and need no registration."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class OpenMirroringPlugin(AirflowPlugin):
    """Names the package in ``airflow plugins``."""

    name = "open_mirroring"
