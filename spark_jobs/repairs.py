"""Job: publishes a lost file of a table again, approved by a named person. Starts no JVM.

``python spark_jobs/repairs.py MIRROR.yaml --table S.T --number N --reason TEXT --approved-by NAME``, or
``open-mirroring repair``. A second call continues an interrupted repair. The job computes the file's content again from
the change log, and uses the content only if its digest equals the digest that the ledger recorded when the file was
first published.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Engine

from open_mirroring.config import Mirror
from open_mirroring.config.storage import log_place
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fault_points import reach
from open_mirroring.landing_zone.data_file import Footer
from open_mirroring.landing_zone.opening import open_store
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.reading import LedgerReader, Publication, PublishedFile, TableState
from open_mirroring.ledger.repair_ledger import RepairLedger, check_permitted
from open_mirroring.ledger.requests import REPAIR, Asked, table_unknown
from open_mirroring.operate.operations import REPAIR as OPERATION
from open_mirroring.protocols import publishing as protocol
from open_mirroring.protocols.publishing import CannotStage, FilePlace, Intent, StagedFile, Work
from open_mirroring.reconciliation.inspection import inspect_mirror, zone_address
from spark_jobs.plan.table_plan import PlanStop
from spark_jobs.publish.changes import stage_here
from spark_jobs.publish.publication import Preparation
from spark_jobs.publish.staging import StageTarget, stage_no_rows
from spark_jobs.publish.zone_ports import ZonePorts
from spark_jobs.runtime.job import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logging.getLogger(__name__)

_AGAIN = "run the command again: it goes on from its last record"
_FINAL_PLACES = (FilePlace.FINAL, FilePlace.PROCESSED, FilePlace.READY_TO_DELETE)


class Repaired(NamedTuple):
    """The result: number and rows of the file that is published again, and the ETag of the new object."""

    number: int
    rows: int
    etag: str


def stage_again(mirror: Mirror, reader: LedgerReader, state: TableState, lost: PublishedFile) -> StagedFile:
    """Stage the content of a lost file again; raises ``REPAIR_REFUSED`` if its digest differs from the ledger's."""
    if lost.rows == 0:
        return _without_rows(mirror, reader, state, lost)
    if lost.kind != "changes":
        raise _impossible(state, lost, "it is part of an initial load, which the change log does not hold")
    staged = _from_log(mirror, reader, state, lost)
    store = open_store(zone_address(mirror))
    chosen = next((file for file in staged if file.digest == lost.digest and file.rows == lost.rows), None)
    for file in staged:
        if file is not chosen:
            store.delete(file.object_name)
    if chosen is None:
        what = "the change log now gives other rows: settings, columns or dead letters have changed since"
        raise _impossible(state, lost, what)
    return chosen


def _without_rows(mirror: Mirror, reader: LedgerReader, state: TableState, lost: PublishedFile) -> StagedFile:
    life = (mirror.name, state.id, state.row.generation, _first_number(reader, state, lost))
    footer = Footer(*life, lost.batch_from, lost.batch_to, "load" if lost.kind == "load" else "changes")
    append_only = any(table.append_only for table in mirror.targets if table.source == state.source)
    target = StageTarget(state.folder, 1, footer, mirror.publish.compression, state.text, append_only)
    positions = lost.first_position, lost.last_position
    return stage_no_rows(zone_address(mirror), target, state.columns.columns, state.keys, positions)


def _from_log(mirror: Mirror, reader: LedgerReader, state: TableState, lost: PublishedFile) -> Sequence[StagedFile]:
    """Stage all files of the publication to which the lost file belonged."""
    before, publication = _publications(reader, state, lost)
    start = None if before is None else before.position_to
    if publication.position_to is not None:
        start = start or ""
    row = replace(state.row, published_batch=lost.batch_from, published_position=start)
    work = Work("changes", lost.batch_to, position_from=start, position_to=publication.position_to)
    intent = Intent(_first_number(reader, state, lost), lost.batch_from, work)
    prepared = Preparation(mirror, reader).prepare([(state._replace(row=row), intent)])[state.id]
    if isinstance(prepared, PlanStop):
        raise _impossible(state, lost, f"{prepared.code}: {prepared.what}")
    files = {file for plan, _ in prepared.plans for file in (*plan.new_files, *plan.history_files)}
    if gone := [file for file in files if not (log_place(mirror) / file).exists()]:
        raise _impossible(state, lost, f"{len(gone)} of its files are no longer in the change log")
    staged = stage_here(mirror, prepared, zone_address(mirror))
    if isinstance(staged, CannotStage):
        raise _impossible(state, lost, f"{staged.code}: {staged.what}")
    return staged.staged.files


def _publications(
    reader: LedgerReader, state: TableState, lost: PublishedFile
) -> tuple[Publication | None, Publication]:
    """The publication of changes before that to which the lost file belonged (None: none), and that one."""
    before: Publication | None = None
    for publication in reader.publications({state.id: state.row.generation}).get(state.id, ()):
        if publication.kind != "changes":
            continue
        if (publication.batch_to, publication.confirmed_at) == (lost.batch_to, lost.confirmed_at):
            return before, publication
        before = publication
    raise _impossible(state, lost, "the ledger has no publication that it was part of")


def _first_number(reader: LedgerReader, state: TableState, lost: PublishedFile) -> int:
    """The first number of the publication to which the lost file belonged; its footer contains it."""
    same = (lost.kind, lost.batch_from, lost.batch_to, lost.confirmed_at)
    published = reader.published(state.id, state.row.generation)
    return min(f.number for f in published if (f.kind, f.batch_from, f.batch_to, f.confirmed_at) == same)


def _impossible(state: TableState, lost: PublishedFile, why: str) -> TerminalError:
    what = f"the content of number {lost.number} of table {state.source!r} cannot be made again: {why}"
    next_step = "move that very file back under its name, if there is a copy; else reset the table: "
    return TerminalError("REPAIR_REFUSED", what, next_step=f"{next_step}`open-mirroring reload-table`")


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
    """Publish a lost file again with the sealed content; continues an earlier call that was interrupted.

    A second call with the same id *request* has no effect once the first is done, even if the file is lost again
    (G-30). Raises ``REPAIR_REFUSED`` if the content cannot be computed exactly; ``CONFLICT`` if another writer created
    a file with this number; ``CHANGED_MEANWHILE`` if another run interfered: then call the function again.
    """
    findings = inspect_mirror(mirror, ledger)
    if source not in findings:
        raise table_unknown(mirror.name, [source], findings)
    reader, repairs = LedgerReader(ledger, mirror.name), RepairLedger(ledger, mirror.name)
    done = repairs.join(source, Asked(request, REPAIR, source, str(number)))
    if done is not None and "refused" in done:
        raise TerminalError("REPAIR_REFUSED", str(done["refused"]), next_step="run `open-mirroring status` again")
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
    def __init__(self, mirror: Mirror, state: TableState) -> None:
        self._ports = ZonePorts(open_store(zone_address(mirror)))
        self._state = state

    def check_life(self) -> None:
        """Raise an error if the folder in the landing zone is not the folder in which the table was created (I12)."""
        marker = self._ask(protocol.ReadMarker())
        row = self._state.row
        if marker != protocol.Marker(row.incarnation, row.marker_etag):
            what = f"the folder of table {self._state.source!r} is not the one that the number belongs to"
            raise TerminalError("REPAIR_REFUSED", what, next_step="follow the next step of INCARNATION_CHANGED first")

    def holds(self, sealed: StagedFile) -> bool:
        """Whether the sealed object is still staged."""
        return self._probe(FilePlace.SOURCE, 0, sealed).etag == sealed.etag

    def seen(self, number: int, sealed: StagedFile) -> protocol.Seen | None:
        """Look for the published file; None if it is found nowhere. Raises ``CONFLICT`` if a file has other content."""
        for place in _FINAL_PLACES:
            found = self._probe(place, number, sealed)
            if found.there and found.digest != sealed.digest:
                what = f"number {number} of table {self._state.source!r} exists with other content than was staged"
                next_step = "find out who wrote it; if the target may have applied it, reset the table: "
                raise TerminalError("CONFLICT", what, next_step=f"{next_step}`open-mirroring reload-table`")
            if found.there:
                return found
        return None

    def publish(self, number: int, sealed: StagedFile) -> protocol.Seen:
        """Rename the sealed object to its number, unless it was renamed before, and check that the file exists."""
        if self.holds(sealed):
            self.check_life()
            self._ports.answer(self._state, protocol.Rename(number, sealed))
        if (found := self.seen(number, sealed)) is None:
            what = f"number {number} of table {self._state.source!r} is not there yet"
            raise TransientError("CHANGED_MEANWHILE", what, next_step=_AGAIN)
        return found

    def _probe(self, place: FilePlace, number: int, sealed: StagedFile) -> protocol.Seen:
        reply = self._ask(protocol.Probe(place, number, sealed))
        assert isinstance(reply, protocol.Seen)
        return reply

    def _ask(self, request: protocol.Request) -> protocol.Reply:
        reply = self._ports.answer(self._state, request)
        if isinstance(reply, protocol.Unknown):
            what = f"the store did not answer for table {self._state.source!r}"
            raise TransientError("CHANGED_MEANWHILE", what, next_step=_AGAIN)
        return reply


def _repair(mirror: Mirror, ledger: Engine, spark: SparkSession, arguments: argparse.Namespace) -> Repaired:
    reason = Reason(arguments.approved_by, arguments.reason)
    not_applied, request = arguments.not_applied or "", arguments.request or ""
    wanted = arguments.table, arguments.number
    return repair_number(mirror, ledger, *wanted, reason, not_applied=not_applied, request=request)


main = Job("repairs", _repair, OPERATION.arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
