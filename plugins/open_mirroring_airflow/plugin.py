"""The plugin that Airflow lists. Operators, sensor and trigger are plain imports and need no registration."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from open_mirroring_airflow.page import PREFIX, LazyPage, root_path
from open_mirroring_airflow.run_note import RunNotes


class OpenMirroringPlugin(AirflowPlugin):
    """Names the package in ``airflow plugins``, puts the page into Airflow's menu, and has runs noted."""

    name = "open_mirroring"
    fastapi_apps: list[Any] = [  # noqa: RUF012  # as Airflow declares it
        {"app": LazyPage(), "url_prefix": PREFIX, "name": "Open mirroring"}
    ]
    # Without a route of Airflow's own it opens as a whole page: no other page may show it in a frame.
    external_views: list[Any] = [  # noqa: RUF012
        {
            "name": "Mirrors",
            "href": f"{root_path()}{PREFIX}/",
            "icon": f"{root_path()}{PREFIX}/static/icon.svg",
            "destination": "nav",
            # At the top level Airflow 3.3 makes a button of it that leads nowhere.
            "category": "browse",
        }
    ]
    listeners: list[Any] = [RunNotes()]  # noqa: RUF012
