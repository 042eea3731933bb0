"""Claims a landing zone for one ledger, before files get their numbers.

Two copies of one ledger would give the same number to different files. The landing zone's storage cannot refuse the
second file: once Fabric has moved the first file away, its number is free. So the landing zone has a fencing token, an
empty object. A claim renames the token in one step, from the name that the ledger knows to a new name. Of several
copies of the ledger, only one can do this; the others stop.

A claim is made after the ledger has sealed the files to be published. A copy of the ledger made before the claim knows
only the old name, and cannot claim. A copy made after the claim has the seals, so it publishes the same staged files.
"""

from __future__ import annotations

import re
from uuid import uuid4

from sqlalchemy import Connection, Engine

from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.landing_zone.layout import PUBLISHER_FOLDER
from open_mirroring.landing_zone.store import LandingZoneStore, ObjectInfo, RenameOutcome
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.declaring import newest_batch
from open_mirroring.ledger.documents import ZONE_TOKENS, ZoneToken
from open_mirroring.protocols.verdicts import LEDGER_BEHIND

_TRIES = 20
_TOKEN = re.compile("[0-9a-f]{32}")


class ZoneFence:
    """The fencing token of a mirror's landing zone."""

    def __init__(self, store: LandingZoneStore, ledger: Engine, mirror: str) -> None:
        self._store, self._ledger, self._mirror = store, ledger, mirror

    def claim(self) -> bool:
        """Claim the landing zone by renaming its token, the empty object in `_publisher/`.

        Returns whether files of an earlier ledger may have the next numbers, so that the caller looks for them. This is
        so if this ledger never recorded the landing zone's token, as after a rebuild. It is also so if the token is
        gone from the landing zone.

        Raises ``LEDGER_BEHIND``, which stops the mirror, if another ledger has claimed the landing zone since this
        ledger did.
        """
        was_unknown = False
        for _ in range(_TRIES):
            token, is_own = self._begin()
            etag, is_other = self._move(token)
            was_unknown |= is_other
            # A claim that an earlier run began may be older than our seals: it is finished, and ours follows.
            if self._settle(token, etag) and is_own:
                return was_unknown
        raise _changed("other runs of this mirror claim the landing zone at the same time")

    def _begin(self) -> tuple[ZoneToken, bool]:
        """The claim in progress, and whether it begins here; the ledger knows its name before the zone does."""
        with self._ledger.begin() as db:
            token = self._locked(db)
            if is_own := not token.next:
                token = token._replace(next=uuid4().hex)
                ZONE_TOKENS.put(db, self._mirror, {"": token})
            return token, is_own

    def _move(self, token: ZoneToken) -> tuple[str, bool]:
        """Give the token its next name. Returns its ETag, empty if another ledger has it, and whether it was unknown.

        If the zone has no token, one is created: nothing was published there yet, or the token was deleted.
        """
        name, store = _path(token.next), self._store
        if token.name and store.rename(_path(token.name), name, source_etag=token.etag) is RenameOutcome.DONE:
            return token.etag, False
        there, others = store.stat(name), self._others(name)
        was_unknown = bool(token.name or there or others)
        if token.name and (there or others):
            return there.etag if there else "", False
        for other in () if there else others:
            store.rename(other.path, name, source_etag=other.etag)
        there = store.create(name, b"") or store.stat(name)
        if there is None or self._others(name):
            store.delete(name)
            raise _changed("another ledger claims the landing zone at the same time")
        return there.etag, was_unknown

    def _others(self, name: str) -> list[ObjectInfo]:
        listed = [*self._store.list(PUBLISHER_FOLDER)]
        return [info for info in listed if info.path != name and _TOKEN.fullmatch(info.path.rpartition("/")[2])]

    def _settle(self, token: ZoneToken, etag: str) -> bool:
        """Record the end of a claim; False if another run of this ledger did so."""
        what = "another ledger has published to the landing zone since this one did: one of the two is a copy"
        with self._ledger.begin() as db:
            if self._locked(db) != token:
                return False
            if etag:
                ZONE_TOKENS.put(db, self._mirror, {"": ZoneToken(token.next, etag)})
                return True
            m = t.mirror.c
            stop = {"stop_code": LEDGER_BEHIND, "stop_what": what, "version": m.version + 1}
            db.execute(t.mirror.update().where(m.name == self._mirror, m.stop_code.is_(None)).values(stop))
        next_step = "end the other deployment, or name the newest ledger; then follow the runbook for this code"
        raise TerminalError(LEDGER_BEHIND, what, where=f"mirror {self._mirror}", next_step=next_step)

    def _locked(self, db: Connection) -> ZoneToken:
        newest_batch(db, self._mirror)
        return ZONE_TOKENS.one(db, self._mirror) or ZoneToken()


def _path(token: str) -> str:
    return f"{PUBLISHER_FOLDER}/{token}"


def _changed(what: str) -> TransientError:
    return TransientError("CHANGED_MEANWHILE", what, next_step="run again")
