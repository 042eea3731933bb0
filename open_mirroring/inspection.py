"""Looking at a mirror: ledger and landing zone gathered into the facts that reconciling judges.

The I/O around :func:`open_mirroring.reconciling.reconcile`, without a JVM: the gate, the publish job, the reconcile
task and the command line all look through here, so that they see the same thing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine

from open_mirroring.config import Mirror, Table
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.incarnation import read_marker
from open_mirroring.landing_zone.listing import ListedItem, split_listing
from open_mirroring.landing_zone.opening import ZoneAddress, open_store
from open_mirroring.landing_zone.store import LandingZoneStore
from open_mirroring.ledger.declaring import TableDeclaration, declare
from open_mirroring.ledger.reading import LedgerReader, TableState
from open_mirroring.ledger.verdict_ledger import record_verdicts
from open_mirroring.reconciling import PURGED_AFTER, Limits, TableFacts, reconcile
from open_mirroring.verdicts import Finding, Verdict

_LOOKS = 5


def zone_address(mirror: Mirror) -> ZoneAddress:
    """Where a mirror's landing zone is."""
    return ZoneAddress("local", mirror.resolve(mirror.landing_zone.path))


def declare_tables(mirror: Mirror, ledger: Engine) -> dict[str, str]:
    """Register the mirror file's tables in the ledger; their ids by source name.

    Raises:
        TerminalError: ``TABLE_REDECLARED``, ``TABLE_UNDECLARED``, ``TARGET_TAKEN``.
    """
    return declare(ledger, mirror.name, [declaration(table) for table in mirror.tables])


def declaration(table: Table) -> TableDeclaration:
    """What the ledger holds on to of a table of the mirror file."""
    return TableDeclaration(table.source, table.folder, tuple(table.key), table.initial_load is not None)


def inspect_mirror(
    mirror: Mirror, ledger: Engine, store: LandingZoneStore | None = None, *, record: bool = True
) -> dict[str, Finding]:
    """The finding on every table of a mirror, by source name; recorded in the ledger with its evidence.

    Raises:
        TransientError: ``TABLE_BUSY`` when a table's row kept moving while it was looked at; ledger or store do not
            answer.
    """
    declare_tables(mirror, ledger)
    zone = store or open_store(zone_address(mirror))
    reader = LedgerReader(ledger, mirror.name)
    findings: dict[str, Finding] = {}
    waiting = reader.tables()
    for _ in range(_LOOKS):
        looked = _look(mirror, reader, zone, waiting)
        now = reader.tables()
        # The row moved meanwhile: ledger and listing may be of different moments, so they are read again.
        moved = {source for source in looked if now[source].row != waiting[source].row}
        findings |= {source: finding for source, finding in looked.items() if source not in moved}
        waiting = {source: now[source] for source in moved}
        if not waiting:
            break
    else:
        raise TransientError(
            "TABLE_BUSY", f"the tables {sorted(waiting)} kept changing while they were inspected", way_out="try again"
        )
    if record:
        record_verdicts(ledger, {now[source].id: (finding, now[source].row) for source, finding in findings.items()})
    return findings


def _look(
    mirror: Mirror, reader: LedgerReader, store: LandingZoneStore, tables: Mapping[str, TableState]
) -> dict[str, Finding]:
    findings = {source: reconcile(facts) for source, facts in _facts(mirror, reader, store, tables).items()}
    # One listing is no snapshot: a file may move while it is walked. A stop counts when a second look agrees.
    doubted = {
        source: tables[source]
        for source, finding in findings.items()
        if finding.verdict is Verdict.STOP and tables[source].row.stop is None
    }
    again = _facts(mirror, reader, store, doubted) if doubted else {}
    return findings | {source: reconcile(facts) for source, facts in again.items()}


def _facts(
    mirror: Mirror, reader: LedgerReader, store: LandingZoneStore, tables: Mapping[str, TableState]
) -> dict[str, TableFacts]:
    """The facts of tables by source name, with a few queries for all of them together."""
    now = datetime.now(UTC)
    limits = Limits(mirror.gate.max_files, mirror.gate.max_bytes, timedelta(minutes=mirror.gate.max_age_minutes))
    listed = {source: _items(store, state) for source, state in tables.items()}
    old = reader.newest_numbers(confirmed_before=now - PURGED_AFTER)
    settled = {source: _settled(listed[source], old.get(state.id, 0)) for source, state in tables.items()}
    published = reader.published_above({s.id: (s.row.generation, settled[source]) for source, s in tables.items()})
    facts: dict[str, TableFacts] = {}
    for source, state in tables.items():
        marker = read_marker(store, state.folder)
        facts[source] = TableFacts(
            row=state.row,
            published={file.number: file for file in published.get(state.id, [])},
            marker=marker.incarnation,
            marker_etag=marker.etag,
            metadata_matches=_metadata_matches(store, state),
            items=listed[source],
            now=now,
            settled=settled[source],
            load_pending=state.load_state == "pending",
            first_files_pending=state.is_beginning,
            limits=limits,
            stop_what=state.stop_what or "",
            reset="" if state.reset is None else str(state.reset),
        )
    return facts


def _settled(items: Sequence[ListedItem], old: int) -> int:
    """The number up to which all files are *old* and gone from the folders."""
    numbers = (layout.file_number(item.name) for item in items)
    return min([old, *(number - 1 for number in numbers if number is not None)])


def _items(store: LandingZoneStore, state: TableState) -> tuple[ListedItem, ...]:
    infos = [*store.list(state.folder)]
    for folder in layout.PROCESSED_FOLDERS:
        infos.extend(store.list(f"{folder}/{state.folder}"))
    return tuple(split_listing(state.folder, infos, state.row.generation))


def _metadata_matches(store: LandingZoneStore, state: TableState) -> bool | None:
    document = store.read(f"{state.folder}/{layout.METADATA_FILE}")
    if document is None:
        return None
    try:
        return layout.key_columns_of(document) == state.keys
    except TerminalError:
        return False
