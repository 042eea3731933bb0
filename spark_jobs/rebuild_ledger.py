"""Re-creates a lost ledger, from the footers of files in the landing zone and the batch records next to the change log.

The job first writes a temporary ledger, plans the last publication of each table again with this ledger, and compares
the result with the landing zone. Only then the real ledger is written. A dry run does all of this except the last step,
so a dry run finds every problem and changes nothing.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
from sqlalchemy import Engine

from open_mirroring.changes.manifest import BatchRecord, Manifest
from open_mirroring.codes import DROP
from open_mirroring.config import Mirror, Table
from open_mirroring.config.names import split_source_name
from open_mirroring.config.storage import log_place
from open_mirroring.errors import MirroringError, TerminalError
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.arrow_schema import landing_columns
from open_mirroring.landing_zone.data_file import read_footer
from open_mirroring.landing_zone.listing import FileStage, list_tables, split_listing
from open_mirroring.landing_zone.opening import LocalZone, ZoneAddress, open_store
from open_mirroring.landing_zone.store import LandingZoneStore, ObjectInfo, read_marker
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.protocols.publishing import CannotStage, Intent
from open_mirroring.reconciliation.inspection import declaration, zone_address
from open_mirroring.reconciliation.rebuilding import (
    Decision,
    FoundFile,
    FoundLog,
    FoundTable,
    KnownTable,
    NewTable,
    UnknownTable,
    decide,
    judge_last,
    unknown_last,
)
from open_mirroring.reconciliation.rebuilt_ledger import adopt, refuse_known, seal_last, stop_unknown, write_tables
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.batch_records import read_records
from spark_jobs.changelog.delta_log import log_files
from spark_jobs.changelog.newest_batch import newest_in_log
from spark_jobs.plan.table_plan import PlanStop
from spark_jobs.publish.changes import stage_here
from spark_jobs.publish.driver import StagedWork
from spark_jobs.publish.publication import Preparation

log = logging.getLogger(__name__)

_READS_AT_ONCE = 16
_START_OVER = "start over (docs: *Start over*)"


class Rebuilt(NamedTuple):
    """The result: how many batches and source ranges are known again, what each table does next, which tables stop."""

    batches: int
    ranges: int
    tables: Mapping[str, str]
    stopped: Mapping[str, str]
    applied: bool


def rebuild(mirror: Mirror, ledger: Engine | None, reason: Reason | None) -> Rebuilt:
    """Re-create the ledger of a mirror, while no job of the mirror runs; without a *reason* it is a dry run.

    After a crash, the same call begins from scratch. Raises ``COMMAND_REFUSED`` if *ledger* already knows the mirror,
    or if change log and landing zone do not contain all that the new ledger needs.
    """
    if ledger is not None:
        with ledger.connect() as db:
            refuse_known(db, mirror.name)
    root, address = log_place(mirror), zone_address(mirror)
    records = _records(mirror, root)
    found_log = _found_log(mirror, root, records)
    _refuse_joined(mirror, found_log)
    declared = {table.source: declaration(table) for table in mirror.targets}
    store = open_store(address)
    objects = list_tables(store, [table.folder for table in mirror.targets])
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        tables = [_found_table(store, table, objects[table.folder], pool) for table in mirror.targets]
    if not any(table.files or table.incarnation for table in tables):
        next_step = (
            "name a new `ledger` and a new `change_log` in the mirror file: it starts from scratch, nothing is lost"
        )
        raise _not_reported(mirror, "nothing of this mirror is in the landing zone", next_step)
    _refuse_taken_out(mirror, store, found_log)
    decisions: dict[str, Decision] = {table.source: decide(mirror.name, table, found_log) for table in tables}
    with tempfile.TemporaryDirectory(prefix="open_mirroring-") as folder:
        scratch = open_ledger(f"sqlite:///{folder}/ledger.db")
        write_tables(scratch, mirror.name, declared, decisions, records)
        said, stopped = dict[str, str](), dict[str, str]()
        for source, decision in decisions.items():
            known = _settle(mirror, scratch, decision, found_log, Path(folder), address if reason else None)
            (stopped if isinstance(known, UnknownTable) else said)[source] = _said(known)
        if reason is not None:
            adopt(scratch, open_ledger(mirror.ledger_url()), mirror.name, reason, {**said, **stopped})
        ranges = len(LedgerReader(scratch, mirror.name).bound())
    return Rebuilt(len(records), ranges, said, stopped, reason is not None)


def _refuse_joined(mirror: Mirror, found_log: FoundLog) -> None:
    """Refuse if tables joined by a pattern: only the ledger knew their keys (G-70)."""
    named = {table.source for table in mirror.tables}
    others = [source for source in sorted(found_log.holding) if source not in named]
    if joined := [source for source in others if mirror.pattern_of(split_source_name(source)) is not None]:
        what = f"the tables {joined} joined by a pattern, and only the ledger knew their keys"
        next_step = "write them out under `tables`, each with the key that `_metadata.json` in its folder names"
        raise _not_reported(mirror, what, f"{next_step}, and try again")


def _refuse_taken_out(mirror: Mirror, store: LandingZoneStore, found_log: FoundLog) -> None:
    """Refuse a mirror file without a table that is at the target: no run would report that it is no longer updated."""
    if not found_log.holding.keys() - {table.source for table in mirror.tables}:
        return
    end = f"/{layout.INCARNATION_FILE}"
    marked = {info.path.removesuffix(end) for info in store.list("") if info.path.endswith(end)}
    unnamed = sorted(marked - {table.folder for table in mirror.targets})
    # A folder whose files do not say whose they are counts as ours: the other answer would be silent.
    if left := [folder for folder in unnamed if _owner(store, folder) in (None, mirror.name)]:
        what = f"the landing zone holds tables that the mirror file does not name: {left}"
        raise _not_reported(mirror, what, f"name them in the mirror file as they were, rebuild, then {DROP}")


def _owner(store: LandingZoneStore, folder: str) -> str | None:
    items = split_listing(folder, list_tables(store, [folder])[folder].values(), 0)
    newest = max((item.number for item in items if item.number is not None), default=None)
    if newest is None:
        return None
    path = f"{folder}/{layout.file_name(newest)}"
    footer = _found_file(store, folder, (newest, ObjectInfo(path, 0, ""))).footer
    return None if footer is None else footer.mirror


def _records(mirror: Mirror, root: Place) -> dict[int, BatchRecord]:
    newest = newest_in_log(root, mirror.name)
    if newest == 0:
        next_step = f"restore the change log first; without it, reset each table, or {_START_OVER}"
        raise _not_reported(mirror, "the change log holds no batch of this mirror", next_step)
    records = read_records(root, newest)
    if missing := [number for number in range(1, newest + 1) if number not in records]:
        what = f"of {len(missing)} batches, the first of them {missing[0]}, the log does not say what was read"
        raise _not_reported(mirror, what, f"restore the folder `_batches` of the log from a backup, or {_START_OVER}")
    return records


def _not_reported(mirror: Mirror, what: str, next_step: str) -> TerminalError:
    return TerminalError("COMMAND_REFUSED", what, where=f"mirror {mirror.name}", next_step=next_step)


def _found_log(mirror: Mirror, root: Place, records: Mapping[int, BatchRecord]) -> FoundLog:
    there, holding, dropped = {Path(file).name for file in log_files(root)}, dict[str, set[int]](), 0
    for number, record in records.items():
        try:
            manifest = Manifest.from_json(record.manifest)
        except TypeError as error:
            what = f"another version of open_mirroring wrote the record of batch {number}"
            next_step = f"install the version that wrote the change log, or {_START_OVER}"
            raise _not_reported(mirror, what, next_step) from error
        for file in manifest.files:
            if Path(file["path"]).name not in there:
                dropped = max(dropped, number)
            for source in file["tables"]:
                holding.setdefault(source, set()).add(number)
    return FoundLog(max(records), {source: frozenset(batches) for source, batches in holding.items()}, dropped)


def _found_table(
    store: LandingZoneStore, declared: Table, objects: Mapping[str, ObjectInfo], pool: ThreadPoolExecutor
) -> FoundTable:
    marker, is_text = read_marker(store, declared.folder), declared.text_format is not None
    extension = layout.PARQUET if declared.text_format is None else declared.text_format.extension
    numbered: dict[int, ObjectInfo] = {}
    for info in objects.values():
        for item in split_listing(declared.folder, [info], 0, extension):
            if item.number is not None and (item.number not in numbered or item.stage is FileStage.FINAL):
                numbered[item.number] = info
    # Nothing in files of text says what they are of.
    of_text = (FoundFile(number, info.size, info.etag, None) for number, info in sorted(numbered.items()))
    files = of_text if is_text else pool.map(partial(_found_file, store, declared.folder), sorted(numbered.items()))
    return FoundTable(declared.source, marker.incarnation, marker.etag, tuple(files), is_text)


def _found_file(store: LandingZoneStore, folder: str, numbered: tuple[int, ObjectInfo]) -> FoundFile:
    number, listed = numbered
    name = layout.file_name(number)
    for path in (listed.path, *layout.places_of(folder, name)):
        info = store.stat(path)
        with store.fetch(path) as local:
            if info is None or local is None:
                continue  # the service has moved it since
            try:
                footer = read_footer(local)
                columns = landing_columns(pq.read_schema(local)) if footer is not None else ()
            except TerminalError as error:
                log.warning("%s cannot be read: %s", path, error.what)
                footer, columns = None, ()
            return FoundFile(number, info.size, info.etag, footer, columns)
    return FoundFile(number, listed.size, listed.etag, None)


def _settle(
    mirror: Mirror, scratch: Engine, decision: Decision, found_log: FoundLog, folder: Path, zone: ZoneAddress | None
) -> Decision:
    """Compare a table's last publication with the change log, and write the table's state; *zone* is where to stage."""
    if not isinstance(decision, KnownTable):
        return decision
    planned = _planned(mirror, scratch, decision, found_log, LocalZone(folder / "zone"))
    if zone is not None and not isinstance(planned, UnknownTable) and planned[1] != len(planned[0].staged.files):
        planned = _planned(mirror, scratch, decision, found_log, zone)
    if isinstance(planned, UnknownTable):
        stop_unknown(scratch, decision, planned)
        return planned
    work, published = planned
    folders = {table.source: table.folder for table in mirror.targets}
    seal_last(
        scratch, mirror.name, folders[decision.found.source], decision, work.staged.files[published:], work.details
    )
    return decision


def _planned(
    mirror: Mirror, scratch: Engine, table: KnownTable, found_log: FoundLog, zone: ZoneAddress
) -> tuple[StagedWork, int] | UnknownTable:
    """The files of a table's last publication as the change log gives them now, and how many of them were published."""
    reader, footer = LedgerReader(scratch, mirror.name), table.footer
    state = reader.tables(table.found.source)[table.found.source]
    intent = Intent(footer.first_number, footer.batch_from, table.work)
    prepared = Preparation(mirror, reader).prepare([(state, intent)])[state.id]
    if isinstance(prepared, PlanStop):
        return unknown_last(table, f"{prepared.code}: {prepared.what}", found_log)
    try:
        work = stage_here(mirror, prepared, zone)
    except MirroringError as error:
        return unknown_last(table, f"its last publication cannot be planned again: {error}", found_log)
    if isinstance(work, CannotStage):
        return unknown_last(table, f"{work.code}: {work.what}", found_log)
    judged = judge_last(table, [(file.digest, file.rows) for file in work.staged.files], found_log)
    return judged if isinstance(judged, UnknownTable) else (work, judged)


def _said(known: Decision) -> str:
    if isinstance(known, UnknownTable):
        return known.why
    if isinstance(known, NewTable):
        return "nothing was published of it: it begins as a new table"
    footer = known.footer
    purged = f" (1 to {known.purged} were removed, as the service does with what it applied)" if known.purged else ""
    return f"life {footer.generation}, numbers up to {known.newest.number}{purged}, batches up to {footer.batch_to}"
