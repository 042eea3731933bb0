"""Decides which mirror file owns a mirror's name, landing zone and change log if two files claim them (G-175).

A mirror file may name other places than the ledger recorded, for example after a move. This file is accepted only if
the mirror's data is found at the named places. If the data is not there, the file is a copy, and is refused: two
mirrors would overwrite each other's files. A place without an owner belongs to the first mirror that writes there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from open_mirroring.changes.manifest import record_name
from open_mirroring.config import Mirror
from open_mirroring.config.connections import Connection, resolve
from open_mirroring.config.onelake import onelake_connection
from open_mirroring.config.storage import log_place
from open_mirroring.errors import MirroringError, TerminalError
from open_mirroring.landing_zone.onelake_address import OneLakeZone
from open_mirroring.landing_zone.opening import LocalZone, ZoneAddress, open_store
from open_mirroring.landing_zone.store import read_marker
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.declaring import CHANGE_LOG, MIRROR_FILE, ZONE, noted_places
from open_mirroring.ledger.opening import ledger_to_look

MIRROR_CLASH = "MIRROR_CLASH"
"""Two mirror files claim one name or place, and this one is not the owner's."""
OWN_PLACE = (
    "if this file is a copy, give its mirror a name, a `landing_zone`, a `change_log` and a `ledger` of its own; "
    "else put the settings back; nothing was written"
)


def zone_address(mirror: Mirror, connection: Connection | None = None) -> ZoneAddress:
    """Return the address of a mirror's landing zone, with login; *connection* replaces the one in the environment."""
    zone = mirror.landing_zone
    if zone.store == "local":
        return LocalZone(mirror.resolve(zone.path))
    onelake = onelake_connection(connection or resolve(zone.connection or ""))
    return OneLakeZone(
        zone.workspace or "",
        zone.item or "",
        onelake.login,
        zone.path,
        onelake.dfs_endpoint,
        onelake.timeout_seconds,
        onelake.fabric_endpoint,
    )


def refuse_other_zone(mirror: Mirror, ledger: Engine, zone: ZoneAddress | None = None) -> None:
    """Raise ``MIRROR_CLASH`` if the mirror file names a new landing zone without the mirror's tables.

    A landing zone is new if the ledger recorded another one. One of the tables is enough; nothing is refused before the
    first table is created in a landing zone.
    """
    if (former := _moved_from(mirror, ledger, ZONE)) is None:
        return
    c = t.mirrored_table.c
    query = sa.select(c.folder, c.incarnation, c.marker_etag)
    begun = t.rows(ledger, query.where(c.mirror == mirror.name, c.established.is_(True)).order_by(c.folder))
    if not begun:
        return
    address = zone or zone_address(mirror)
    # Opening a local zone would create it.
    store = None if isinstance(address, LocalZone) and not address.path.exists() else open_store(address)
    if store is None or not any(read_marker(store, folder)[:2] == (*one,) for folder, *one in begun):
        raise _elsewhere(mirror, ZONE, former, "none of the mirror's tables is in the folder that this file names")


def refuse_other_log(mirror: Mirror, ledger: Engine) -> None:
    """Raise ``MIRROR_CLASH`` if the mirror file names a new change log without the ledger's newest batch.

    A change log is new if the ledger recorded another one. It is also refused while the mirror's first batch is being
    written to the former change log.
    """
    if (former := _moved_from(mirror, ledger, CHANGE_LOG)) is None:
        return
    m, b = t.mirror.c, t.log_batch.c
    first = sa.select(m.open_number).where(m.name == mirror.name, m.committed == 0)
    if (number := t.first(ledger, first)) is not None:
        raise _elsewhere(mirror, CHANGE_LOG, former, f"batch {number} is being written to the former")
    query = sa.select(b.number, b.ranges).join(t.mirror, (b.mirror == m.name) & (b.number == m.committed))
    for number, ranges in t.rows(ledger, query.where(m.name == mirror.name)):
        try:
            record = json.loads((log_place(mirror) / record_name(number)).read_bytes())
        except (FileNotFoundError, ValueError):
            record = {}
        # Of a batch that maintenance dropped, the ledger keeps no ranges.
        if not record or (record.get("ranges") != ranges != "[]"):
            raise _elsewhere(mirror, CHANGE_LOG, former, f"batch {number} is not in the log that this file names")


def refuse_foreign_zone(mirror: Mirror, owners: Iterable[str]) -> None:
    """Raise ``MIRROR_CLASH`` if other mirrors (*owners*) publish to a zone where *mirror* has published nothing."""
    for owner in sorted({*owners} - {mirror.name, ""}):
        what = f"the landing zone is that of mirror {owner!r}: folders of these tables have its marker"
        raise TerminalError(MIRROR_CLASH, what, where=mirror.landing_zone.place, next_step=OWN_PLACE)


def standing(mirror: Mirror, url: str | None = None) -> int:
    """Return how well the ledger proves that a mirror file is the owner's, as a rank from 0 to 2.

    2: this very file ran. 1: a file with the same mirror name ran, to the same places. 0: no run to these places is
    known, or the ledger does not answer.
    """
    try:
        ledger = ledger_to_look(url or mirror.ledger_url())
        if ledger is None or not _has_begun(ledger, mirror.name):
            return 0
        refuse_other_zone(mirror, ledger)
        refuse_other_log(mirror, ledger)
        return 2 if noted_places(ledger, mirror.name).get(MIRROR_FILE) == mirror.writes[MIRROR_FILE] else 1
    except (MirroringError, SQLAlchemyError, OSError):
        return 0


def owner_of(ledger: Engine, incarnation: str) -> str:
    """Return the mirror in this ledger that has a table whose folder has the id *incarnation*; empty if none has."""
    c = t.mirrored_table.c
    return t.first(ledger, sa.select(c.mirror).where(c.incarnation == incarnation)) or ""


def _has_begun(ledger: Engine, mirror: str) -> bool:
    m, c = t.mirror.c, t.mirrored_table.c
    bound = sa.select(m.name).where(m.name == mirror, (m.committed > 0) | m.open_number.is_not(None))
    there = sa.select(c.source).where(c.mirror == mirror, c.established.is_(True) | (c.generation > 1))
    return any(t.first(ledger, query.limit(1)) is not None for query in (bound, there))


def _moved_from(mirror: Mirror, ledger: Engine, setting: str) -> str | None:
    former = noted_places(ledger, mirror.name).get(setting)
    return None if former is None or former == mirror.writes[setting] else ", ".join(former)


def _elsewhere(mirror: Mirror, setting: str, former: str, why: str) -> TerminalError:
    return TerminalError(
        MIRROR_CLASH,
        f"mirror {mirror.name!r} writes to the `{setting}` {former}, and this file names another: {why}",
        where=str(mirror.file),
        next_step=OWN_PLACE,
    )
