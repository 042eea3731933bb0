"""An emulated OneLake, and how the product gets to it: what tests over the wire share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fabric_emulator.web.emulator_server import EmulatorServer
from open_mirroring.landing_zone.onelake_address import OneLakeZone
from open_mirroring.remote.entra import EntraLogin

CLIENT, SECRET = "client-1", "canary-secret-7f3a"
CLIENTS = {CLIENT: SECRET}
TENANT = "tenant-1"


def emulator(folder: Path, **options: Any) -> EmulatorServer:
    """An emulator of one mirrored database, with its landing zone in ``zone`` and its tables in ``tables``."""
    return EmulatorServer(folder / "zone", folder / "tables", **options)


def login_of(server: EmulatorServer, **options: Any) -> EntraLogin:
    return EntraLogin(
        "lake", "service_principal", TENANT, CLIENT, **{"secret": SECRET, "authority": server.url, **options}
    )


def zone_of(server: EmulatorServer, **options: Any) -> OneLakeZone:
    endpoints = {"endpoint": server.url, "fabric_endpoint": server.url}
    described = {"login": login_of(server), "timeout_seconds": 10.0, **endpoints}
    return OneLakeZone(server.workspace_id, server.database_id, **{**described, **options})


def connection_of(server: EmulatorServer, **extra: Any) -> Mapping[str, Any]:
    """The connection in Airflow's JSON form."""
    endpoints = {"dfs_endpoint": server.url, "fabric_endpoint": server.url, "authority": server.url}
    return {
        "conn_type": "open_mirroring_onelake",
        "login": CLIENT,
        "password": SECRET,
        "extra": {"tenant_id": TENANT, "timeout_seconds": 10, **endpoints, **extra},
    }


def connection_variable(server: EmulatorServer, **extra: Any) -> str:
    return json.dumps(connection_of(server, **extra))
