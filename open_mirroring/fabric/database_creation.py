"""Creates the mirrored database of a mirror, and starts it after its structure and first files exist (R-06, F-42).

Every step first checks what is done already, so the next run continues where a killed run ended. A stopped database is
never started: a start would rebuild every table from scratch (R-07, F-76).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from open_mirroring.config import Mirror
from open_mirroring.config.landing_zone import is_guid
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fabric.api import FabricApi, MirroredDatabase, generic_mirror
from open_mirroring.fabric.target_status import DatabaseState, DatabaseStatus

log = logging.getLogger(__name__)

_PASSING = (DatabaseState.INITIALIZING, DatabaseState.STARTING)
_ASK_AGAIN_SECONDS = 5.0
_PATIENCE_SECONDS = 600.0


def find_or_create(mirror: Mirror, api: FabricApi) -> MirroredDatabase:
    """Find the mirrored database; create the database if it is given by name and does not exist (R-05).

    Raises ``PLACE_MISSING`` if the workspace or a database given by GUID does not exist, or if the database is not an
    open mirror. Raises the API's errors if a call fails. If a failed call did create the database, the next run finds
    the database.
    """
    zone = mirror.landing_zone
    workspace, item = zone.workspace or "", zone.item or ""
    if is_guid(workspace):
        found = api.get(workspace, item)
        if found is None:
            raise TerminalError(
                "PLACE_MISSING",
                "the workspace holds no mirrored database of this GUID, or does not show it to this login",
                where=str(mirror.file),
                next_step="correct `landing_zone.item`; to have the database made, give workspace and item by name",
            )
    else:
        identity = api.find_workspace(workspace)
        if identity is None:
            raise TerminalError(
                "PLACE_MISSING",
                f"the login sees no workspace {workspace!r}",
                where=str(mirror.file),
                next_step="make the workspace, and give the identity Contributor in it; or correct the name",
            )
        name = item.rpartition(".")[0]
        found = api.find_database(identity, name)
        if found is None:
            wanted = generic_mirror(retention_days=zone.retention_days, change_data_feed=zone.change_data_feed)
            return api.create(identity, name, wanted, f"Mirror {mirror.name}, published by open_mirroring")
    definition = api.definition(found)
    source = ((definition or {}).get("properties") or {}).get("source") or {}
    if source.get("type") != "GenericMirror":
        raise TerminalError(
            "PLACE_MISSING",
            "the database mirrors another kind of source, or has no definition",
            where=f"database {found.name}",
            next_step="name another item, or delete this one if no one needs it",
        )
    _report_differences(mirror, definition or {})
    return found


def _report_differences(mirror: Mirror, definition: Mapping[str, Any]) -> None:
    """Report settings that an existing database keeps although the mirror file has others (R-10)."""
    zone = mirror.landing_zone
    wanted = generic_mirror(retention_days=zone.retention_days, change_data_feed=zone.change_data_feed)
    there = ((definition.get("properties") or {}).get("target") or {}).get("typeProperties") or {}
    for name, value in wanted["properties"]["target"]["typeProperties"].items():
        if name in ("retentionInDays", "enableDeltaChangeDataFeed") and there.get(name) != value:
            has = "does not set it" if name not in there else f"has {there[name]!r}"
            log.warning("the mirror file wants %s %r, the database %s: change it in Fabric", name, value, has)


def settled(api: FabricApi, database: MirroredDatabase, sleep: Callable[[float], None] = time.sleep) -> DatabaseStatus:
    """Wait until a database is neither initializing nor starting, and return the status of the database.

    Raises ``TARGET_FAILED`` if the database is stopped. Raises ``TARGET_BUSY`` if the wait takes too long, or if the
    state of the database is unknown.
    """
    waited = 0.0
    while (status := api.status(database)).state in _PASSING and waited < _PATIENCE_SECONDS:
        sleep(_ASK_AGAIN_SECONDS)
        waited += _ASK_AGAIN_SECONDS
    if status.state in (DatabaseState.STOPPED, DatabaseState.STOPPING):
        raise TerminalError(
            "TARGET_FAILED",
            "mirroring of the database is stopped; a start would begin from scratch with every table",
            where=f"database {database.name}",
            next_step="find out who stopped mirroring and why: a start in Fabric rebuilds every table",
        )
    if status.state not in (DatabaseState.INITIALIZED, DatabaseState.RUNNING, DatabaseState.PAUSED):
        raise TransientError(
            "TARGET_BUSY",
            f"the database is {status.said!r}{': ' + status.error if status.error else ''}",
            where=f"database {database.name}",
            next_step="call again; if it stays so, look at the item in Fabric",
        )
    return status


def start_if_new(api: FabricApi, database: MirroredDatabase) -> str:
    """Start a database that was never started. Return the database's state afterwards, in Fabric's own word."""
    status = settled(api, database)
    if status.state is not DatabaseState.INITIALIZED:
        return status.said
    api.start(database)
    return settled(api, database).said
