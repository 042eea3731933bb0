"""Resets a table: drops it at the target, then rebuilds it by :mod:`open_mirroring.protocols.resetting`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Literal, NamedTuple

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from open_mirroring.config import Mirror
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fabric.target import target_watch
from open_mirroring.fault_points import reach
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.opening import ZoneAddress, open_store
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.ledger.requests import TARGET_BACK, TARGET_GONE, Asked, answer
from open_mirroring.ledger.reset_ledger import ResetLedger
from open_mirroring.protocols import resetting as protocol
from open_mirroring.protocols.driving import drive_one
from open_mirroring.protocols.resetting import ResetStage, Sight
from open_mirroring.reconciliation.inspection import zone_address

log = logging.getLogger(__name__)

Word = Literal["gone", "back"]
"""What an operator confirms about the table at the target, if it cannot be asked: it is gone, or back."""

_PAUSE_SECONDS = 5.0


class ResetOutcome(NamedTuple):
    """How far a reset is.

    *stage* is the last recorded stage; None when the reset is over. *waits_for* is what the reset waits for.
    """

    stage: ResetStage | None
    waits_for: str

    @property
    def is_over(self) -> bool:
        """Whether the reset is over: the table is back at the target, or was to be dropped and is gone."""
        return self.stage is None and not self.waits_for


class ResetDriver:
    """Carries out the reset of one table: the reset that is under way, or a new one for the request *asked*.

    The function *rebuild* publishes the table's first rows from scratch. *rebuild* returns what rebuilding still waits
    for, or an empty string.
    """

    def __init__(
        self,
        mirror: Mirror,
        ledger: Engine,
        source: str,
        *,
        rebuild: Callable[[], str] = lambda: "the table to be rebuilt by a run",
        asked: Asked | None = None,
        zone: ZoneAddress | None = None,
    ) -> None:
        self._source = source
        self._asked = asked
        self._engine, self._mirror = ledger, mirror.name
        self._ledger = ResetLedger(ledger, mirror.name)
        self._reader = LedgerReader(ledger, mirror.name)
        zone = zone or zone_address(mirror)
        self._store = open_store(zone)
        self._watch = target_watch(mirror, zone)
        self._rebuild = rebuild

    def drive(self, wait: timedelta) -> ResetOutcome:
        """Continue the reset, waiting at most *wait* for the target. Raises errors of the store and of *rebuild*."""
        until = time.monotonic() + wait.total_seconds()
        state = protocol.start(self._asked.request if self._asked else "")
        while True:
            state = drive_one(state, protocol.step, self._answer, protocol.Finished)
            waits_for = state.request.waits_for if isinstance(state.request, protocol.Finished) else ""
            outcome = ResetOutcome(None if state.row is None else state.row.stage, waits_for)
            unfinished = state.rebuilt is not None and not (state.row is not None and state.row.rebuilt)
            left = until - time.monotonic()
            if outcome.is_over or unfinished or left <= 0:
                return outcome
            log.info("%s waits for %s", self._source, outcome.waits_for)
            time.sleep(min(_PAUSE_SECONDS, left))
            state = protocol.State(protocol.Acquire(), rebuilt=state.rebuilt)

    def may_go_on(self, seen: str) -> bool:
        """Whether another run could get further than the stage *seen*, so that no run starts only to wait again."""
        row = self._ledger.look(self._source)
        if row.stage is None or row.stage.value != seen:
            return True
        if row.stage is ResetStage.FOLDER_DELETED:
            return self._sight(row) in (Sight.ABSENT, Sight.FOLDER_BACK)
        # Only a run can rebuild a table that is not rebuilt yet.
        is_rebuilt = row.stage is ResetStage.REBUILDING and row.rebuilt and row.has_files
        return not is_rebuilt or self._sight(row) is Sight.THERE

    def say(self, word: Word, reason: Reason, request: str) -> str:
        """Record an operator's confirmation that the table is gone from the target, or is back (G-89).

        Returns a sentence about what comes next. Raises ``COMMAND_REFUSED`` if no reset waits for this confirmation,
        and ``CHANGED_MEANWHILE`` if a run changed the reset at the same time.
        """
        asked = Asked(request, TARGET_GONE if word == "gone" else TARGET_BACK, self._source)
        row = self._ledger.look(self._source)
        is_new = answer(self._engine, self._mirror, asked) is None
        if is_new and (why := self._why_not_waiting(row, word)):
            what = f"that table {self._source!r} is {word} decides nothing: {why}"
            next_step = "`open-mirroring status` shows what its reset waits for; confirm it then"
            raise TerminalError("COMMAND_REFUSED", what, where=f"mirror {self._mirror}", next_step=next_step)
        to = ResetStage.TABLE_GONE if word == "gone" else ResetStage.TABLE_BACK
        if is_new and not self._ledger.say(asked, row.version, to, reason):
            what = f"a run is at work on the reset of {self._source!r}"
            raise TransientError("CHANGED_MEANWHILE", what, next_step="run `open-mirroring status`, then confirm again")
        if word == "back":
            return f"{self._source}: the reset is over"
        return f"{self._source}: the run that waits for this goes on; without one, start it again"

    def _why_not_waiting(self, row: protocol.ResetRow, word: Word) -> str:
        if row.stage is None:
            return "it is in no reset"
        if word == "gone":
            waits = ResetStage.FOLDER_DELETED
            if row.stage is not waits:
                return f"its reset is at {row.stage.value}, and waits for that at {waits.value} only"
            back = [folder for folder in row.folders if self._holds_anything(folder)]
            return f"the deleted folder {back[0]!r} has files again; the next run deletes it again" if back else ""
        if row.stage is not ResetStage.REBUILDING or not (row.rebuilt and row.has_files):
            return f"its reset is at {row.stage.value}, and not all that it begins with is published"
        return ""

    def _answer(self, request: protocol.Request) -> protocol.Reply:
        try:
            match request:
                case protocol.Ask():
                    assert self._asked is not None
                    return self._ledger.asked(self._asked)
                case protocol.Acquire():
                    return self._ledger.acquire(self._source)
                case protocol.Advance(version, to, absent):
                    reply = self._ledger.advance(self._source, version, to, absent=absent)
                    if isinstance(reply, protocol.ResetRow):
                        log.info("%s: %s", self._source, to.value)
                        if to is not ResetStage.REQUESTED and not absent:
                            reach(f"reset.{to.value.lower()}")
                    return reply
                case protocol.DeleteFolders(version, folders):
                    return self._delete(version, folders)
                case protocol.LookForTable(row):
                    return self._sight(row)
                case protocol.Rebuild():
                    what = self._rebuild()
                    reach("reset.rebuilt")
                    return protocol.Rebuilt(what)
                case _:
                    raise ValueError(f"{request} is no request")
        except OperationalError as error:
            log.warning("the ledger did not answer: %s", type(error.orig).__name__)
            if isinstance(request, protocol.Rebuild):
                raise
            return protocol.Unknown()

    def _delete(self, version: int, folders: tuple[str, ...]) -> protocol.Reply:
        if self._ledger.look(self._source).version != version:
            return protocol.Lost()
        try:
            for folder in folders:
                for place in layout.folders_of(folder):
                    self._store.delete_folder(place)
        except TransientError as error:
            log.warning("%s: %s", self._source, error)
            return protocol.InUse(str(error))
        reach("reset.deleted")
        return protocol.Answer.DELETED

    def _sight(self, row: protocol.ResetRow) -> Sight:
        if row.stage is ResetStage.REBUILDING:
            folder = self._reader.tables()[self._source].folder
            # A file that the service moved was applied (F-36): the table is there.
            moved = (f"{folder}/{layout.PROCESSED_FOLDER}", f"{layout.PROCESSED_FOLDER}/{folder}")
            return Sight.THERE if self._watch.sees(folder) or any(map(self._holds_anything, moved)) else Sight.ABSENT
        if any(self._holds_anything(folder) for folder in row.folders):
            return Sight.FOLDER_BACK
        seen = [self._watch.sees(folder) for folder in row.folders]
        if any(seen):
            return Sight.THERE
        return Sight.UNSEEN if None in seen else Sight.ABSENT

    def _holds_anything(self, folder: str) -> bool:
        return next(iter(self._store.list(folder)), None) is not None
