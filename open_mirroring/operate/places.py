"""The places where a mirror reads and writes, as its settings resolve on this machine."""

from __future__ import annotations

import os

from sqlalchemy.engine import make_url

from open_mirroring.config import Mirror
from open_mirroring.config.section import StoredPlace
from open_mirroring.config.source import InFolder
from open_mirroring.errors import TerminalError
from open_mirroring.storage.address import is_address


def places(mirror: Mirror) -> dict[str, str]:
    """Each place of a mirror by what is there, for people: no secret is in it."""
    source, zone = mirror.source, mirror.landing_zone
    found = {
        "mirror file": str(mirror.file),
        "home": f"{mirror.home}, where relative paths start",
        "source": _resolved(mirror, source.path) if isinstance(source, InFolder) else source.place,
        "landing zone": _resolved(mirror, zone.path) if zone.store == "local" else zone.place,
    }
    if zone.tables is not None:
        found["tables"] = _resolved(mirror, zone.tables)
    return {**found, "ledger": ledger_shown(mirror), "change log": _resolved(mirror, mirror.change_log)}


def ledger_shown(mirror: Mirror) -> str:
    """The ledger's URL without its password; the connection where that is not set here."""
    try:
        return make_url(mirror.ledger_url()).render_as_string(hide_password=True)
    except TerminalError as error:
        return f"{error.code}: {error.what}"


def _resolved(mirror: Mirror, place: str | StoredPlace) -> str:
    text = str(place)
    return text if is_address(text) else os.path.normpath(mirror.resolve(text))
