"""Writes the file at the root of a landing zone that names who publishes, and from which source (F-06)."""

from __future__ import annotations

from uuid import uuid4

from open_mirroring.config import Mirror
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.store import LandingZoneStore, create_whole


def write_partner_events(mirror: Mirror, store: LandingZoneStore) -> bool:
    """Create the zone's ``_partnerEvents.json`` whole; False when the file exists already, no matter who wrote it."""
    information = {"mirror": mirror.name, "transport": mirror.source.transport}
    document = layout.partner_events_document(mirror.source.format, information)
    staged = f"{layout.SCRATCH_FOLDER}/{uuid4().hex}{layout.PARTNER_EVENTS_FILE}"
    return create_whole(store, layout.PARTNER_EVENTS_FILE, document, staged=staged)
