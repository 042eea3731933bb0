"""The command ``create``: creates the mirrored database of a mirror in Fabric."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Engine

from open_mirroring.config import Mirror, load_mirror
from open_mirroring.config.connections import resolve
from open_mirroring.config.onelake import onelake_connection
from open_mirroring.fabric.api import FabricApi
from open_mirroring.fabric.database_creation import find_or_create, settled, start_if_new
from open_mirroring.fabric.partner_events import write_partner_events
from open_mirroring.fabric.target_status import DatabaseState
from open_mirroring.landing_zone.onelake_address import OneLakeZone
from open_mirroring.landing_zone.onelake_store import OneLakeStore
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.operate.exit_codes import Exit, UsageError
from open_mirroring.operate.job_story import story
from open_mirroring.operate.zone_check import prove_conformance
from open_mirroring.protocols.verdicts import FOREIGN_WRITER, LEDGER_LOST, gate
from open_mirroring.reconciliation.inspection import inspect_mirror, zone_address
from open_mirroring.reconciliation.joined_tables import ledger_of
from spark_jobs.cli.reporting import json_text
from spark_jobs.reconcile.lost_ledger import log_ahead

log = logging.getLogger(__name__)


class Created(NamedTuple):
    """The result: GUIDs, state of the database, rows loaded by table; tables on hold or stopped, with the reason."""

    workspace: str
    database: str
    state: str
    rows: Mapping[str, int]
    held: Mapping[str, str]
    stopped: Mapping[str, str]


def create(arguments: argparse.Namespace) -> Exit:
    """Create the mirrored database, load the first rows of its tables, then start Fabric's mirroring."""
    mirror = load_mirror(arguments.file)
    zone = mirror.landing_zone
    if zone.store != "onelake":
        raise UsageError("a local landing zone belongs to no mirrored database", "set `store: onelake`")
    connection = onelake_connection(resolve(zone.connection or ""))
    api = FabricApi(connection.fabric_endpoint, connection.login, connection.timeout_seconds)
    made = create_database(mirror, ledger_of(mirror), api)
    print(json_text(made._asdict()) if arguments.json else "\n".join(story("create", made._asdict())))
    return Exit.TABLES_STOPPED if made.stopped else Exit.ON_HOLD if made.held else Exit.DONE


def create_database(mirror: Mirror, ledger: Engine, api: FabricApi) -> Created:
    """Do every step of ``create`` that is not done yet; the last step starts Fabric's mirroring (F-42).

    Mirroring is not started while a table is on hold or stopped. Nothing is written to a landing zone that belongs to
    another deployment.
    """
    database = find_or_create(mirror, api)
    status = settled(api, database)
    log.info("the mirrored database %s is there", database.name)
    address = zone_address(mirror)
    assert isinstance(address, OneLakeZone)
    # Inspected before anything is written: the tables there may belong to another deployment.
    found = inspect_mirror(mirror, ledger, address)
    if any(finding.code in (FOREIGN_WRITER, LEDGER_LOST) for finding in found.values()):
        return Created(database.workspace, database.id, settled(api, database).said, {}, {}, gate(found).stopped)
    if lost := log_ahead(mirror, ledger):
        raise lost
    store = OneLakeStore(address)
    prove_conformance(store)
    write_partner_events(mirror, store)
    # A table gets its folder with its first file: one without would fail at the target (F-92).
    reader = LedgerReader(ledger, mirror.name)
    rows, held, stopped = dict[str, int](), dict[str, str](), dict[str, str]()
    if any(table.initial_load for table in mirror.tables):
        from spark_jobs.initial_load import load
        from spark_jobs.runtime.tasks import session_on_demand

        is_mirroring = status.state is not DatabaseState.INITIALIZED
        loaded = load(mirror, ledger, session_on_demand(mirror, "create"), mirroring=is_mirroring)
        rows, held, stopped = dict(loaded.rows), dict(loaded.held), dict(loaded.stopped)
    after = reader.tables()
    stopped |= {s: f"{state.stop_code}: {state.stop_what}" for s, state in after.items() if state.stop_code}
    state = settled(api, database).said if stopped or held else start_if_new(api, database)
    return Created(database.workspace, database.id, state, rows, held, stopped)
