"""Looks up a mirror's connections in Airflow, and passes them to jobs as environment variables.

Each connection becomes one variable ``AIRFLOW_CONN_…`` of the job's process, in Airflow's JSON form. The variables'
values are masked in Airflow's logs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from open_mirroring.config import Mirror
from open_mirroring.config import connections as core
from open_mirroring.config.ledger_address import from_connection
from open_mirroring.config.models import LedgerConnection
from open_mirroring.errors import TerminalError

if TYPE_CHECKING:
    from open_mirroring.landing_zone.opening import ZoneAddress


def named_connections(mirror: Mirror) -> list[str]:
    """The sorted names of the Airflow connections that jobs of this mirror read.

    The connection of Spark itself is left out: only the submitting task needs it.
    """
    names = {*mirror.source.connections.values(), mirror.landing_zone.connection}
    names |= {mirror.ledger.connection} if isinstance(mirror.ledger, LedgerConnection) else set()
    names |= set() if mirror.hash is None else {mirror.hash.salt}
    sources = [source for entry in mirror.entries for source in (entry.initial_load, entry.prove)]
    places = [mirror.change_log, mirror.landing_zone.tables, *sources]
    names |= {getattr(place, "connection", None) for place in places}
    return sorted(name for name in names if name is not None)


def job_connections(mirror: Mirror) -> dict[str, str]:
    """The environment variables that contain this mirror's connections; their values are masked in logs.

    Raises ``CONNECTION_INVALID`` if Airflow does not know one of the connections.
    """
    variables = {
        core.variable(name): json.dumps(content(_found(name, mirror.file))) for name in named_connections(mirror)
    }
    for text in variables.values():
        mask_secret(text)
    return variables


Known = Mapping[str, Any]
"""Connections by name that were looked up already, so that they need no query to Airflow."""


def ledger_url(mirror: Mirror, known: Known | None = None) -> str:
    """The SQLAlchemy URL of the mirror's ledger, including secrets: never print it.

    *known* are connections that were already looked up; None: Airflow is asked. Raises ``CONNECTION_INVALID`` if the
    ledger's connection does not exist or is not valid.
    """
    if not isinstance(mirror.ledger, LedgerConnection):
        return mirror.ledger_url()
    name = mirror.ledger.connection
    return from_connection(resolved(name, _found(name, mirror.file, known)))


def landing_zone(mirror: Mirror, known: Known | None = None) -> ZoneAddress:
    """The address of the mirror's landing zone, including the login to it: never print it.

    *known* are connections that were already looked up; None: Airflow is asked. Raises ``CONNECTION_INVALID`` if the
    landing zone's connection does not exist or is not valid.
    """
    from open_mirroring.reconciliation.inspection import zone_address

    name = mirror.landing_zone.connection
    return zone_address(mirror, None if name is None else resolved(name, _found(name, mirror.file, known)))


async def known_in_trigger(mirror: Mirror) -> Known:
    """The connections of a mirror's ledger and landing zone, looked up without blocking the triggerer.

    Raises ``CONNECTION_INVALID`` if Airflow does not know one of them.
    """
    of_ledger = mirror.ledger.connection if isinstance(mirror.ledger, LedgerConnection) else None
    found = {}
    for name in filter(None, (of_ledger, mirror.landing_zone.connection)):
        try:
            found[name] = await BaseHook.aget_connection(name)
        except AirflowNotFoundException:
            raise missing(name, mirror.file) from None
    return found


def missing(name: str, file: Path | str) -> TerminalError:
    """Returns the error for the connection *name*, which the mirror file *file* names and Airflow does not know."""
    return TerminalError(
        "CONNECTION_INVALID",
        f"Airflow knows no connection {name!r}",
        where=str(file),
        next_step=f"add it under Admin, Connections, in the secrets backend, or as {core.variable(name)}; "
        "or correct the name in the mirror file",
    )


def _found(name: str, file: Path, known: Known | None = None) -> Any:
    try:
        return BaseHook.get_connection(name) if known is None else known[name]
    except AirflowNotFoundException:
        raise missing(name, file) from None


def content(found: Any) -> dict[str, Any]:
    """The fields of an Airflow connection that are not empty. They contain secrets: never print them."""
    names = ("conn_type", "host", "port", "login", "password", "schema", "extra")
    return {name: value for name in names if (value := getattr(found, name)) not in (None, "")}


def resolved(name: str, found: Any) -> core.Connection:
    """Converts the Airflow connection *found* to the product's own class.

    Raises ``CONNECTION_INVALID`` if a field of the connection is missing or wrong.
    """
    return core.parsed(name, json.dumps(content(found)))
