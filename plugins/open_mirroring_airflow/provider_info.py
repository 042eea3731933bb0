"""The description of this distribution that Airflow's provider registry reads."""

from __future__ import annotations

from typing import Any

from open_mirroring.config.onelake import CONNECTION_TYPE
from open_mirroring.remote.entra import AUTHS

_TEXT = {"type": ["string", "null"]}
_FIELDS = {
    "auth": {
        "label": "Auth",
        "description": "A client secret belongs to service_principal alone.",
        "schema": {"type": "string", "enum": list(AUTHS), "default": AUTHS[0]},
    },
    "tenant_id": {"label": "Tenant", "schema": _TEXT},
    "dfs_endpoint": {
        "label": "OneLake endpoint",
        "description": "Only for a regional or private address, or an emulator on this machine.",
        "schema": _TEXT,
    },
    "fabric_endpoint": {"label": "Fabric API endpoint", "description": "As above.", "schema": _TEXT},
    "authority": {"label": "Entra ID authority", "description": "As above.", "schema": _TEXT},
    "timeout_seconds": {
        "label": "Time-out",
        "description": "Seconds after which the outcome of a call counts as unknown.",
        "schema": {"type": ["number", "null"], "default": 60},
    },
}


def get_provider_info() -> dict[str, Any]:
    """The provider's metadata: the entry point ``apache_airflow_provider``."""
    return {
        "package-name": "open-mirroring",
        "name": "Open Mirroring",
        "description": "Change data into a Microsoft Fabric open mirrored database, with Spark and a ledger.",
        "connection-types": [
            {
                "connection-type": CONNECTION_TYPE,
                "hook-class-name": "open_mirroring_airflow.hooks.OneLakeHook",
                "hook-name": "Open Mirroring: OneLake",
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "port", "schema", "extra"],
                    "relabeling": {"login": "Client ID", "password": "Client secret"},
                },
                "conn-fields": _FIELDS,
            }
        ],
    }
