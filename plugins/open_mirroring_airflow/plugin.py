"""The Airflow plugin: adds the mirrors' web page to Airflow's menu, and writes run notes.

An Airflow user sees a mirror on the page if the user may see the mirror's DAG, and may decide about the mirror if the
user may edit its DAG. The page's code is loaded at the first request, because every process of Airflow imports the
plugin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

from open_mirroring_airflow.mirror_folder import mirrors_folder
from open_mirroring_airflow.run_note import RunNotes

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
    from fastapi import FastAPI
    from starlette.requests import Request

    from open_mirroring.config import Mirror
    from open_mirroring.page import Link, Visitor


PREFIX = "/open_mirroring"


def root_path() -> str:
    """The path prefix of Airflow's web server, without a slash at its end; empty if there is none."""
    return urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")


class AirflowDoor:
    """Lets users who are logged in to Airflow use the mirrors' web page.

    A user who may see a mirror's DAG may look at the mirror; a user who may edit the DAG may also decide about the
    mirror.
    """

    async def admit(self, request: Request) -> Visitor:
        """The logged-in user of a request, with the mirrors that the user may see and may decide about."""
        from airflow.api_fastapi.core_api.security import bearer_scheme, get_user
        from fastapi import HTTPException

        from open_mirroring.page import AccessDenied, Visitor

        try:
            user = await get_user(request, None, await bearer_scheme(request))
        except HTTPException as error:
            raise AccessDenied(error.status_code, "log in to Airflow first", login=f"{root_path()}/") from None
        return Visitor(
            user.get_name(),
            looks=lambda mirror: _may("GET", mirror, request, user),
            decides=lambda mirror: _may("PUT", mirror, request, user),
        )

    def cookies(self, request: Request) -> Mapping[str, str]:
        """No cookies: Airflow's own cookies show who is logged in."""
        return {}


def _may(method: ResourceMethod, mirror: str, request: Request, user: BaseUser) -> bool:
    from airflow.api_fastapi.core_api.security import requires_access_dag
    from fastapi import HTTPException

    try:
        requires_access_dag(method=method, param_dag_id=f"{mirror}__replicate")(request, user)
    except HTTPException:
        return False
    return True


def _links(mirror: Mirror) -> Sequence[Link]:
    from open_mirroring.page import Link

    dags = (("Runs", "replicate"), ("Initial load", "initial_load"), ("Reload a table", "reload_table"))
    return [Link(label, f"{root_path()}/dags/{mirror.name}__{dag}") for label, dag in dags]


class LazyPage:
    """The mirrors' web page as an ASGI app that is built at the first request."""

    @cached_property
    def app(self) -> FastAPI:
        """The built web page, with the mirrors for which there are DAGs."""
        from open_mirroring.page import Link, MirrorShelf, Surroundings, build_app
        from open_mirroring_airflow.connections import landing_zone, ledger_url

        folder = mirrors_folder(Path(conf.get("core", "dags_folder")))
        around = Surroundings(
            MirrorShelf([folder]), AirflowDoor(), ledger_url, landing_zone, _links, Link("Airflow", f"{root_path()}/")
        )
        return build_app(around)

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        """Answer a request."""
        await self.app(scope, receive, send)


class OpenMirroringPlugin(AirflowPlugin):
    """Registers the web page, its menu entry and the listener that writes run notes."""

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
