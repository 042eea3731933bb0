"""The places where a mirror reads and writes, as its settings resolve on this machine."""

from __future__ import annotations

from sqlalchemy.engine import make_url

from open_mirroring.config import Mirror
from open_mirroring.config.source import InFolder
from open_mirroring.errors import TerminalError


def places(mirror: Mirror) -> dict[str, str]:
    """Return the places of a mirror by label, as paths or addresses without logins, to be shown to people."""
    source, zone = mirror.source, mirror.landing_zone
    found = {
        "mirror file": str(mirror.file),
        "home": f"{mirror.home}, where relative paths start; OPEN_MIRRORING_HOME names another folder",
        "source": mirror.resolved(source.path) if isinstance(source, InFolder) else source.place,
        "landing zone": mirror.resolved(zone.path) if zone.store == "local" else zone.place,
    }
    if zone.tables is not None:
        found["tables"] = mirror.resolved(zone.tables)
    return {**found, "ledger": ledger_shown(mirror), "change log": mirror.resolved(mirror.change_log)}


def ledger_shown(mirror: Mirror) -> str:
    """Return the ledger's URL without login and options; if the URL cannot be built, the error of its connection."""
    try:
        return make_url(mirror.ledger_url()).set(username=None, password=None, query={}).render_as_string()
    except TerminalError as error:
        return f"{error.code}: {error.what}"
