"""Publishes one lost number of a table once more, after somebody approved it by name (F-40, F-41); never by itself.

A kill between any two steps is safe: requested → staged → sealed → renamed → confirmed. Each record is in the ledger
before its effect. From *sealed* on only that one object can become the number, however often and late it is renamed.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from sqlalchemy import Engine

from open_mirroring.config import Mirror
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fault_points import reach
from open_mirroring.landing_zone.opening import open_store
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.reading import LedgerReader, PublishedFile, TableState
from open_mirroring.ledger.repair_ledger import RepairLedger
from open_mirroring.ledger.requests import REPAIR, Asked, table_unknown
from open_mirroring.protocols import publishing as protocol
from open_mirroring.protocols.publishing import FilePlace, StagedFile
from open_mirroring.reconciliation.inspection import inspect_mirror, zone_address
from open_mirroring.reconciliation.repairing import check_permitted
from spark_jobs.publish.lost_content import stage_again
from spark_jobs.publish.zone_ports import ZonePorts

log = logging.getLogger(__name__)

_FINAL_PLACES = (FilePlace.FINAL, FilePlace.PROCESSED, FilePlace.READY_TO_DELETE)


class Repaired(NamedTuple):
    """A number that is published again: its rows, and the ETag of its new object."""

    number: int
    rows: int
    etag: str


def repair_number(
    mirror: Mirror,
    ledger: Engine,
    source: str,
    number: int,
    reason: Reason,
    *,
    not_applied: str = "",
    request: str = "",
) -> Repaired:
    """Publish a number again with the content that was sealed; goes on where an earlier call was interrupted.

    Args:
        mirror: the mirror.
        ledger: its ledger.
        source: the table.
        number: the number.
        reason: who approved it, and why.
        not_applied: how somebody knows that the target has not applied it, where no trusted counter proves it.
        request: its id; repeated after its repair is done, it does nothing, even if the number is lost again (G-30).

    Raises:
        TerminalError: ``REPAIR_REFUSED``, ``ARGUMENT_INVALID``; ``CONFLICT``
            when somebody else made the number meanwhile.
        TransientError: ``CHANGED_MEANWHILE``; what ledger and store raise. Call again.
    """
    findings = inspect_mirror(mirror, ledger)
    if source not in findings:
        raise table_unknown(mirror.name, [source], findings)
    reader, repairs = LedgerReader(ledger, mirror.name), RepairLedger(ledger, mirror.name)
    done = repairs.join(source, Asked(request, REPAIR, source, str(number)))
    if done is not None and "refused" in done:
        raise TerminalError("REPAIR_REFUSED", str(done["refused"]), way_out="look at `status` again")
    if done is not None:
        return Repaired(done["number"], done["rows"], done["etag"])
    state = reader.tables()[source]
    generation = state.row.generation
    published = {file.number: file for file in reader.published(state.id, generation)}
    store = _Store(mirror, state)
    sealed = repairs.open_repair(source, generation, number)
    if sealed is None or not (store.holds(sealed) or store.seen(number, sealed)):
        # Without its object the number cannot be made any more by whatever was sent before: a new one is safe.
        proof = check_permitted(source, number, findings[source], published, not_applied=not_applied)
        repairs.request(source, generation, number, published[number].digest, proof, reason)
        reach("repair.requested")
        sealed = stage_again(mirror, reader, state, published[number])
        reach("repair.staged")
        store.check_life()
        repairs.seal(source, generation, number, sealed)
        reach("repair.sealed")
    seen = store.publish(number, sealed)
    reach("repair.renamed")
    lost: PublishedFile = published[number]
    repairs.confirm(source, generation, number, lost.digest, str(seen.etag), sealed.size)
    log.info("%s: number %d is published again", source, number)
    return Repaired(number, lost.rows, str(seen.etag))


class _Store:
    """The landing zone as the repair of one table needs it."""

    def __init__(self, mirror: Mirror, state: TableState) -> None:
        self._ports = ZonePorts(open_store(zone_address(mirror)))
        self._state = state

    def check_life(self) -> None:
        """Refuse a folder other than the one that the table was established with (I12)."""
        marker = self._ask(protocol.ReadMarker())
        row = self._state.row
        if marker != protocol.Marker(row.incarnation, row.marker_etag):
            raise TerminalError(
                "REPAIR_REFUSED",
                f"the folder of table {self._state.source!r} is not the one that the number belongs to",
                way_out="see to INCARNATION_CHANGED first",
            )

    def holds(self, sealed: StagedFile) -> bool:
        """Whether the sealed object is still staged."""
        return self._probe(FilePlace.SOURCE, 0, sealed).etag == sealed.etag

    def seen(self, number: int, sealed: StagedFile) -> protocol.Seen | None:
        """The number where it is, in the order in which a file travels; None when it is nowhere.

        Raises:
            TerminalError: ``CONFLICT`` when it has other content than was sealed.
        """
        for place in _FINAL_PLACES:
            found = self._probe(place, number, sealed)
            if not found.there:
                continue
            if found.digest != sealed.digest:
                raise TerminalError(
                    "CONFLICT",
                    f"number {number} of table {self._state.source!r} is there with other content than was sealed",
                    way_out="find out who wrote it; if the target may have applied it, reset the table: "
                    "`open-mirroring reload-table`",
                )
            return found
        return None

    def publish(self, number: int, sealed: StagedFile) -> protocol.Seen:
        """Rename the sealed object to its number, if that was not done yet, and see it there."""
        if self.holds(sealed):
            self.check_life()
            self._ports.answer(self._state, protocol.Rename(number, sealed))
        found = self.seen(number, sealed)
        if found is None:
            raise TransientError(
                "CHANGED_MEANWHILE",
                f"number {number} of table {self._state.source!r} is not there yet",
                way_out="run the command again: it goes on from its last record",
            )
        return found

    def _probe(self, place: FilePlace, number: int, sealed: StagedFile) -> protocol.Seen:
        reply = self._ask(protocol.Probe(place, number, sealed))
        assert isinstance(reply, protocol.Seen)
        return reply

    def _ask(self, request: protocol.Request) -> protocol.Reply:
        reply = self._ports.answer(self._state, request)
        if isinstance(reply, protocol.Unknown):
            raise TransientError(
                "CHANGED_MEANWHILE",
                f"the store did not answer for table {self._state.source!r}",
                way_out="run the command again: it goes on from its last record",
            )
        return reply
