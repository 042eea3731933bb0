"""Spark job: the deep check of a mirror, which compares file contents, ledger and change log.

``spark-submit spark_jobs/reconcile_sequence.py MIRROR.yaml [--tables a,b]``, or :func:`reconcile_deep` in a running
Spark session. The check changes only the ledger: it records the stop of each table that differs, and the evidence in
the ledger's audit.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Engine

from open_mirroring.changes.history_names import is_chosen, is_history
from open_mirroring.changes.log_position import LOAD_MAJOR, is_load_epoch
from open_mirroring.config import Mirror
from open_mirroring.config.storage import log_place
from open_mirroring.errors import TransientError
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.listing import split_listing
from open_mirroring.landing_zone.opening import open_store
from open_mirroring.landing_zone.schema import landed
from open_mirroring.landing_zone.store import LandingZoneStore
from open_mirroring.ledger.columns import contradicted_up_to, note_contradicted
from open_mirroring.ledger.extract_ledger import ExtractLedger
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.ledger.verdict_ledger import record_deep_findings, record_verdicts
from open_mirroring.protocols import verdicts as v
from open_mirroring.protocols.verdicts import DeepFinding, Finding, Verdict, gate
from open_mirroring.reconciliation.deep_check import FileContent, TableRecord, check_table
from open_mirroring.reconciliation.inspection import declare_tables, inspect_mirror, zone_address
from open_mirroring.reconciliation.log_check import LogRecord, check_log
from open_mirroring.reconciliation.losses import look
from spark_jobs.changelog.schema import REJECTED, ROW_BYTES, bucket_ranges
from spark_jobs.dead_letters.open_letters import ensure_counted
from spark_jobs.reconcile.before_images import ImagesTask, look_for_contradictions
from spark_jobs.reconcile.file_contents import CheckedTable, CheckTask, ListedFile, read_contents
from spark_jobs.reconcile.log_state import read_log_state
from spark_jobs.runtime.job import TABLES, Job
from spark_jobs.runtime.tasks import dealt_out, run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

CHANGE_LOG = "(change log)"
"""The name under which findings about the complete change log are reported; they stop no table."""

_LOOKS = 5
_SEARCHED_ROWS = 200_000


class Reconciled(NamedTuple):
    """The results of a check by source table; *files* is the number of published files that were read.

    *losses* describes what tables lack, by table, for all tables of the mirror.
    """

    verdicts: Mapping[str, str]
    files: Mapping[str, int]
    findings: Sequence[DeepFinding]
    held: Mapping[str, str]
    stopped: Mapping[str, str]
    losses: Mapping[str, str] = MappingProxyType({})


def reconcile_deep(
    mirror: Mirror, ledger: Engine, spark: SparkSession, only: Sequence[str] | None = None
) -> Reconciled:
    """Check every table (only those in *only*, if given) and the change log; stop the tables that differ.

    A table stopped by this check stays stopped until an operator clears the stop. Raises ``ARGUMENT_INVALID`` if *only*
    names a table that the mirror does not have; ``CHANGED_MEANWHILE`` if the ledger kept changing while it was read.
    Raises ``UNREACHABLE`` if some files could not be read; the findings in all other files are recorded first.
    """
    ids = declare_tables(mirror, ledger, only)
    ensure_counted(mirror, ledger)
    chosen = [source for source in sorted(ids) if is_chosen(source, only)]
    verdicts = {source: found for source, found in inspect_mirror(mirror, ledger).items() if source in chosen}
    reader = LedgerReader(ledger, mirror.name)
    known, records = _look(mirror, ledger, reader)
    contents = _read_files(mirror, spark, [records[source] for source in chosen])
    found = [finding for source in chosen for finding in check_table(records[source], contents[source])]
    state = read_log_state(log_place(mirror), spark, known.waiting.keys())
    # Read after the change log: a batch in the change log above this number is not from this ledger.
    now = reader.mirror()
    in_log = check_log(replace(known, newest=max(now.committed, now.open_batch or 0)), state)
    found += [finding for finding in in_log if finding.table in (None, *chosen)]
    verdicts |= _record(mirror, ledger, records, verdicts, found)
    for finding in found:
        level = logging.ERROR if finding.stops or finding.table is None else logging.WARNING
        log.log(level, "%s: %s: %s", finding.table or CHANGE_LOG, finding.code, finding.what)
    if unread := sorted({str(finding.table) for finding in found if finding.code == v.UNREACHABLE}):
        what = f"the store failed under files of {unread}"
        raise TransientError("UNREACHABLE", what, next_step="check the store, then run this again")
    if not (known.waiting or any(finding.table is None for finding in in_log)):
        doubtful = {finding.table for finding in found} | {one.table for one in state.counts if one.kind == REJECTED}
        if None not in doubtful:
            sound = [records[source] for source in chosen if source not in doubtful]
            _note_contradictions(mirror, ledger, reader, spark, known, sound)
    gated = gate(verdicts)
    of_log = [f"{finding.code}: {finding.what}" for finding in found if finding.table is None]
    return Reconciled(
        verdicts={source: finding.verdict.value for source, finding in verdicts.items()},
        files={source: len(contents[source]) for source in chosen},
        findings=found,
        held=gated.held,
        stopped={**gated.stopped, **({CHANGE_LOG: of_log[0]} if of_log else {})},
        losses=look(mirror, ledger).lost,
    )


def _look(mirror: Mirror, ledger: Engine, reader: LedgerReader) -> tuple[LogRecord, dict[str, TableRecord]]:
    """Read the ledger until nothing changed meanwhile, so that all of it is from one moment (I22)."""
    for _ in range(_LOOKS):
        committed, states = reader.mirror().committed, reader.tables()
        logged = reader.contents(dict.fromkeys(states, 0), committed)
        contents = {source: logged.get(source, []) for source in states}
        published = reader.published_above({state.id: (state.row.generation, 0) for state in states.values()})
        publications = reader.publications({state.id: state.row.generation for state in states.values()})
        logs = {state.id: (published.get(state.id, []), publications.get(state.id, [])) for state in states.values()}
        records = {s: TableRecord(mirror.name, one, *logs[one.id], contents[s]) for s, one in states.items()}
        fragments = ExtractLedger(ledger, mirror.name).open_fragments()
        waiting = {fragment.identity: fragment.since_batch for fragment in fragments}
        of_log = LogRecord(committed, committed, reader.manifests(), contents, waiting, reader.mirror().dropped)
        if (reader.mirror().committed, reader.tables()) == (committed, states):
            return of_log, records
    raise TransientError("CHANGED_MEANWHILE", "the ledger kept changing while it was read", next_step="try again")


def _note_contradictions(
    mirror: Mirror,
    ledger: Engine,
    reader: LedgerReader,
    spark: SparkSession,
    known: LogRecord,
    records: Sequence[TableRecord],
) -> None:
    """Record for each table whether changes in its log contradict earlier ones (G-190)."""
    tasks = [task for record in records for task in _searching(mirror, ledger, reader, record, known.dropped)]
    size = sum(part.rows for record in records for part in record.contents) * ROW_BYTES
    results = run_job(spark, "compare the images of changes", look_for_contradictions, tasks, size)
    for state in [record.state for record in records]:
        of_table = [found for task, found in zip(tasks, results, strict=True) if task.source == state.source]
        parts = [found for found in of_table if found]
        if not of_table or any(not part.batch for part in parts):
            continue
        why = None
        if parts:
            count = sum(part.changes for part in parts)
            why = f"{count} found, the first: {min(parts, key=lambda part: (part.batch, part.pos)).first}"
            log.warning("%s: changes contradict those before them: %s", state.source, why)
        note_contradicted(ledger, state.id, state.row.generation, why, known.committed)


def _searching(
    mirror: Mirror, ledger: Engine, reader: LedgerReader, record: TableRecord, dropped: int
) -> list[ImagesTask]:
    """The search tasks for one table, above all positions where changes may be missing or had another key."""
    state, parts = record.state, record.contents
    unusable = max(dropped, state.start.log_from, record.first_batch)
    above = dict.fromkeys((part.epoch for part in parts if not is_load_epoch(part.epoch)), "")
    for part in parts:
        if part.batch <= unusable and part.epoch in above:
            above[part.epoch] = max(above[part.epoch], part.highest)
    horizon = reader.horizons([state]).get(state.id)
    if horizon is not None:
        ordinals = reader.epochs([state.id]).get(state.id, {})
        above = {epoch: at for epoch, at in above.items() if ordinals.get(epoch, -1) >= horizon.ordinal}
        for epoch in above:
            if ordinals[epoch] == horizon.ordinal:
                above[epoch] = max(above[epoch], f"{horizon.major};")
    if not (state.keys and above) or is_history(state.source):
        return []
    is_loaded = state.start.load_plan is not None or any(part.lowest.startswith(f"{LOAD_MAJOR}:") for part in parts)
    begins = not (is_loaded or unusable) and horizon is None and len({part.epoch for part in parts}) == 1
    begins &= state.row.generation == 1 and state.start.stream_from is None
    files = tuple(sorted({file for part in parts if part.batch > dropped for file in part.files}))
    rows, behind = sum(part.rows for part in parts), contradicted_up_to(ledger, state.id, state.row.generation)
    return [
        ImagesTask(log_place(mirror), files, state.source, *buckets, above, behind, begins)
        for buckets in bucket_ranges(rows, _SEARCHED_ROWS)
    ]


def _read_files(mirror: Mirror, spark: SparkSession, records: Sequence[TableRecord]) -> dict[str, list[FileContent]]:
    zone = zone_address(mirror)
    store = open_store(zone)
    states = [record.state for record in records]
    files = [
        (CheckedTable(state.id, state.folder, keys, columns, state.text), listed)
        for record, state in zip(records, states, strict=True)
        for columns, keys in [landed(state.columns.columns, state.keys)]
        for listed in _listed(store, record)
    ]
    found: dict[str, list[FileContent]] = {state.id: [] for state in states}
    size = sum(listed.size for _, listed in files)
    tasks: list[CheckTask] = dealt_out(spark, files, size)
    for part in run_job(spark, f"read {len(files)} published files", partial(read_contents, zone), tasks, size):
        for table_id, content in part:
            found[table_id].append(content)
    return {state.source: found[state.id] for state in states}


def _listed(store: LandingZoneStore, record: TableRecord) -> Iterator[ListedFile]:
    """Every copy of a published file, in the folder and in the folders of processed files (F-36)."""
    state, kinds = record.state, {file.number: file.kind for file in record.published}
    for folder in layout.folders_of(state.folder):
        for info in store.list(folder):
            for item in split_listing(state.folder, (info,), state.row.generation, state.extension):
                if item.number in kinds:
                    yield ListedFile(item.number, info.path, info.size, kinds[item.number] == "load")


def _record(
    mirror: Mirror,
    ledger: Engine,
    records: Mapping[str, TableRecord],
    verdicts: Mapping[str, Finding],
    found: Sequence[DeepFinding],
) -> dict[str, Finding]:
    """Stop the tables that differ, and record their new verdicts."""
    states = {source: record.state for source, record in records.items()}
    entries = [(finding, None if finding.table is None else states[finding.table]) for finding in found]
    stopped = record_deep_findings(ledger, mirror.name, entries)
    decided: dict[str, Finding] = {}
    for finding in found:
        source = finding.table
        if source is None or not finding.stops or states[source].id not in stopped or source in decided:
            continue
        before = verdicts[source]
        if before.verdict is not Verdict.STOP:
            evidence = {**before.evidence, **finding.evidence}  # the next look remembers what this one saw
            stop = replace(before, verdict=Verdict.STOP, code=finding.code, what=finding.what, evidence=evidence)
            decided[source] = stop
    record_verdicts(ledger, {states[s].id: (finding, states[s].row) for s, finding in decided.items()})
    return decided


main = Job(
    "reconcile_sequence",
    lambda mirror, ledger, spark, named: reconcile_deep(mirror, ledger, spark, named.tables),
    (TABLES,),
)


if __name__ == "__main__":
    sys.exit(main())
