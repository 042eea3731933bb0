"""The plugin that Airflow lists. Operators, sensor and trigger are plain imports and need no registration."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from open_mirroring_airflow.page import PREFIX, LazyPage, root_path


class OpenMirroringPlugin(AirflowPlugin):
    """Names the package in ``airflow plugins``, and puts the page into Airflow's menu."""

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
