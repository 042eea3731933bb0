"""Writes ``_partnerEvents.json`` at the root of a landing zone, which names the publisher and its source (F-06)."""

from __future__ import annotations

import logging
from uuid import uuid4

from open_mirroring.config import Mirror
from open_mirroring.config.landing_zone import PartnerEvents
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.store import LandingZoneStore, create_complete

log = logging.getLogger(__name__)


def write_partner_events(mirror: Mirror, store: LandingZoneStore) -> bool:
    """Create ``_partnerEvents.json`` in one step. Return False if the file exists already.

    An existing file with other content is reported and kept: another mirror or a person may have written the file.
    """
    information = {"mirror": mirror.name, "transport": mirror.source.transport}
    given = mirror.landing_zone.partner_events
    said = given if isinstance(given, PartnerEvents) else PartnerEvents()
    document = layout.partner_events_document(
        said.partner_name, said.source_type or mirror.source.format, said.source_version, information
    )
    staged = f"{layout.SCRATCH_FOLDER}/{uuid4().hex}{layout.PARTNER_EVENTS_FILE}"
    if create_complete(store, layout.PARTNER_EVENTS_FILE, document, staged=staged):
        return True
    found = store.read(layout.PARTNER_EVENTS_FILE)
    if found is not None and found.data != document:
        next_step = "delete it to have the next `open-mirroring create` write it from the mirror file"
        log.warning("%s has other content and is left as it is; %s", layout.PARTNER_EVENTS_FILE, next_step)
    return False
