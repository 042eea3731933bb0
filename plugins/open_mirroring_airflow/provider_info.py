"""The description of this Python distribution that Airflow's provider registry reads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from open_mirroring.config.connections import KAFKA_FORM
from open_mirroring.config.kafka import MECHANISMS, PROTOCOLS
from open_mirroring.config.onelake import CONNECTION_TYPE
from open_mirroring.fabric.livy_connection import CONNECTION_TYPE as FABRIC_SPARK
from open_mirroring.fabric.livy_connection import MODES
from open_mirroring.remote.entra import AUTHS

_TEXT = {"type": ["string", "null"]}
_ONELAKE = {
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

_FABRIC_SPARK = {
    **{name: field for name, field in _ONELAKE.items() if name != "dfs_endpoint"},
    "workspace": {"label": "Workspace's id", "schema": _TEXT},
    "lakehouse": {"label": "Lakehouse's id", "schema": _TEXT},
    "environment": {"label": "Environment's id", "description": "It contains open-mirroring.", "schema": _TEXT},
    "mode": {
        "label": "Mode",
        "description": "A batch for each job, or one session for all runs of a mirror.",
        "schema": {"type": "string", "enum": list(MODES), "default": MODES[0]},
    },
    "file": {"label": "Program of a batch", "description": "abfss:// address of livy_job.py.", "schema": _TEXT},
    "job-key": {"label": "Connection with the key", "schema": _TEXT},
    "job-key-file": {
        "label": "The same key in Fabric",
        "description": "https://VAULT.vault.azure.net/secrets/NAME, or a path.",
        "schema": _TEXT,
    },
}

_KAFKA = {
    "security.protocol": {
        "label": "Security protocol",
        "description": "SASL_SSL where there is a login, else PLAINTEXT.",
        "schema": {"type": ["string", "null"], "enum": [*PROTOCOLS, None]},
    },
    "sasl.mechanism": {
        "label": "SASL mechanism",
        "description": "PLAIN unless chosen otherwise.",
        "schema": {"type": ["string", "null"], "enum": [*MECHANISMS, None]},
    },
    "ssl.ca.pem": {
        "label": "Certificate authority",
        "description": "In PEM form; the machine's own where it is empty.",
        "schema": _TEXT,
    },
}
_EVENT_HUBS = {
    "tenant_id": {
        "label": "Tenant",
        "description": "Only for an Entra application: then the login is its client ID, and the password its secret.",
        "schema": _TEXT,
    }
}


def get_provider_info() -> dict[str, Any]:
    """The provider's metadata for Airflow; the entry point ``apache_airflow_provider`` names this function."""
    of_entra = partial(
        _type,
        hidden=["host", "port", "schema", "extra"],
        labels={"login": "Client ID", "password": "Client secret"},
    )
    return {
        "package-name": "open-mirroring",
        "name": "Open Mirroring",
        "description": "Change data into a Microsoft Fabric open mirrored database, with Spark and a ledger.",
        "connection-types": [
            of_entra(CONNECTION_TYPE, "OneLake", _ONELAKE),
            of_entra(FABRIC_SPARK, "Fabric Spark", _FABRIC_SPARK),
            _type(KAFKA_FORM, "Kafka", _KAFKA, hidden=["schema"], labels={"host": "Servers"}),
            _type(
                "event_hubs",
                "Event Hubs",
                _EVENT_HUBS,
                hidden=["schema"],
                labels={"host": "Namespace's host", "login": "Client ID", "password": "Connection string or secret"},
            ),
        ],
    }


def _type(
    name: str, service: str, fields: Mapping[str, Any], *, hidden: list[str], labels: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "connection-type": name,
        "hook-class-name": f"open_mirroring_airflow.hooks.{service.replace(' ', '')}Hook",
        "hook-name": f"Open Mirroring: {service}",
        "ui-field-behaviour": {"hidden-fields": hidden, "relabeling": dict(labels)},
        "conn-fields": dict(fields),
    }
