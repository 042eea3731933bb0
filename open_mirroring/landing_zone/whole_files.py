"""Creates small files that no reader ever sees half written, even on a store that shows unfinished objects (F-10)."""

from __future__ import annotations

from open_mirroring.errors import TransientError
from open_mirroring.landing_zone.store import LandingZoneStore, RenameOutcome


def create_whole(store: LandingZoneStore, path: str, content: bytes, *, staged: str) -> bool:
    """Create a file if its name is free, by way of a staging name used once; False when the name was taken.

    What a crash leaves behind lies under the staging name and is never taken for the file.

    Raises:
        TransientError: ``NAME_TAKEN`` when the staging name is not new; what the store raises.
    """
    info = store.create(staged, content)
    if info is None:
        raise TransientError("NAME_TAKEN", f"{staged!r} is there already", way_out="another name is tried")
    if store.rename(staged, path, source_etag=info.etag) is RenameOutcome.DONE:
        return True
    store.delete(staged)
    return False
