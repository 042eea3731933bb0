"""Makes the content of a lost file number again: nothing if it had no rows, else from the change log.

It reads and divides the log as the publication did. The result counts only when a file has exactly the digest that the
ledger sealed; where settings, columns or dead letters have changed since, no digest matches and nothing is made. It
needs no Spark: one worker's piece is read at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from open_mirroring.config import Mirror
from open_mirroring.config.storage import log_place
from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.data_file import Footer
from open_mirroring.landing_zone.opening import open_store
from open_mirroring.ledger.reading import LedgerReader, Publication, PublishedFile, TableState
from open_mirroring.protocols.publishing import CannotStage, Intent, StagedFile, Work
from open_mirroring.reconciliation.inspection import zone_address
from spark_jobs.plan.table_plan import PlanStop
from spark_jobs.publish.changes import stage_here
from spark_jobs.publish.publication import Preparation
from spark_jobs.publish.staging import StageTarget, stage_no_rows


def stage_again(mirror: Mirror, reader: LedgerReader, state: TableState, lost: PublishedFile) -> StagedFile:
    """A new staged object with the content of a published number.

    Raises:
        TerminalError: ``REPAIR_REFUSED`` when the content cannot be made again with its digest.
        TransientError: what the store raises; what was staged until then is garbage that nothing refers to.
    """
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
        what = "the change log gives other rows today: settings, columns or dead letters have changed since"
        raise _impossible(state, lost, what)
    return chosen


def _without_rows(mirror: Mirror, reader: LedgerReader, state: TableState, lost: PublishedFile) -> StagedFile:
    """A valid file without rows (F-41)."""
    footer = Footer(
        mirror.name,
        state.id,
        state.row.generation,
        _first_number(reader, state, lost),
        lost.batch_from,
        lost.batch_to,
        "load" if lost.kind == "load" else "changes",
    )
    target = StageTarget(state.folder, 1, footer, mirror.publish.compression, state.text)
    positions = lost.first_position, lost.last_position
    return stage_no_rows(zone_address(mirror), target, state.columns.columns, state.keys, positions)


def _from_log(mirror: Mirror, reader: LedgerReader, state: TableState, lost: PublishedFile) -> Sequence[StagedFile]:
    """Every file of the publication that the number was part of, staged again."""
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
    """The publication of changes before the one that a number was part of, and that one."""
    before: Publication | None = None
    for publication in reader.publications({state.id: state.row.generation}).get(state.id, ()):
        if publication.kind != "changes":
            continue
        if (publication.batch_to, publication.confirmed_at) == (lost.batch_to, lost.confirmed_at):
            return before, publication
        before = publication
    raise _impossible(state, lost, "the ledger has no publication that it was part of")


def _first_number(reader: LedgerReader, state: TableState, lost: PublishedFile) -> int:
    """The first number of the publication that a number was part of; its footer names it."""
    same = (lost.kind, lost.batch_from, lost.batch_to, lost.confirmed_at)
    published = reader.published(state.id, state.row.generation)
    return min(f.number for f in published if (f.kind, f.batch_from, f.batch_to, f.confirmed_at) == same)


def _impossible(state: TableState, lost: PublishedFile, why: str) -> TerminalError:
    return TerminalError(
        "REPAIR_REFUSED",
        f"the content of number {lost.number} of table {state.source!r} cannot be made again: {why}",
        way_out="move that very file back under its name, if anybody has it; else reset the table: "
        "`open-mirroring reload-table`",
    )
