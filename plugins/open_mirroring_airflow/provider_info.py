"""What Airflow's provider registry asks of an installed distribution."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """The provider's metadata: the entry point ``apache_airflow_provider``."""
    return {
        "package-name": "open-mirroring",
        "name": "Open Mirroring",
        "description": "Change data into a Microsoft Fabric open mirrored database, with Spark and a ledger.",
    }
