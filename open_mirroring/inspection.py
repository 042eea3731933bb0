"""Looking at a mirror: ledger and landing zone gathered into the facts that reconciling judges.

The I/O around :func:`open_mirroring.reconciling.reconcile`, without a JVM: the gate, the publish job, the reconcile
task and the command line all look through here, so that they see the same thing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine

from open_mirroring.config import Mirror
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.incarnation import read_marker
from open_mirroring.landing_zone.listing import ListedItem, split_listing
from open_mirroring.landing_zone.opening import ZoneAddress, open_store
from open_mirroring.landing_zone.store import LandingZoneStore
from open_mirroring.ledger.publish_ledger import PublishLedger, TableDeclaration
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
        TerminalError: ``TABLE_REDECLARED``, ``TABLE_UNDECLARED``.
    """
    declarations = [
        TableDeclaration(table.source, table.folder, tuple(table.key), table.initial_load is not None)
        for table in mirror.tables
    ]
    return PublishLedger(ledger, mirror.name).declare(declarations)


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
        looked = {source: _look(mirror, reader, zone, state) for source, state in waiting.items()}
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


def _look(mirror: Mirror, reader: LedgerReader, store: LandingZoneStore, state: TableState) -> Finding:
    first = reconcile(_facts(mirror, reader, store, state))
    if first.verdict is not Verdict.STOP or state.row.stop is not None:
        return first
    # One listing is no snapshot: a file may move while it is walked. A stop counts when a second look agrees.
    second = reconcile(_facts(mirror, reader, store, state))
    return second


def _facts(mirror: Mirror, reader: LedgerReader, store: LandingZoneStore, state: TableState) -> TableFacts:
    now = datetime.now(UTC)
    items = _items(store, state)
    listed = [number for number in (layout.file_number(item.name) for item in items) if number is not None]
    old = reader.newest_number(state.id, state.row.generation, confirmed_before=now - PURGED_AFTER)
    settled = min([old, *(number - 1 for number in listed)])
    published = reader.published(state.id, state.row.generation, above=settled)
    marker = read_marker(store, state.folder)
    return TableFacts(
        row=state.row,
        published={file.number: file for file in published},
        marker=marker.incarnation,
        marker_etag=marker.etag,
        metadata_matches=_metadata_matches(store, state),
        items=items,
        now=now,
        settled=settled,
        load_pending=state.load_state == "pending",
        limits=Limits(mirror.gate.max_files, mirror.gate.max_bytes, timedelta(minutes=mirror.gate.max_age_minutes)),
        stop_what=state.stop_what or "",
    )


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
