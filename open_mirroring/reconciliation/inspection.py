"""Inspects a mirror without Spark: compares ledger, landing zone and target, and gives each table a verdict.

The gate, the publish job, the reconcile task and the command line all use this inspection, so they see the same
verdict.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine

from open_mirroring.changes.log_position import is_load_epoch
from open_mirroring.config import Mirror, Table
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fabric.target import open_target
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.listing import FileStage, ListedItem, list_tables, split_listing
from open_mirroring.landing_zone.onelake_address import OneLakeZone
from open_mirroring.landing_zone.opening import ZoneAddress, open_store
from open_mirroring.landing_zone.schema import extra_columns
from open_mirroring.landing_zone.store import FoundMarker, ObjectInfo, read_marker
from open_mirroring.ledger.declaring import TableDeclaration, declare
from open_mirroring.ledger.reading import LedgerReader, PublishedFile, TableState
from open_mirroring.ledger.requests import table_unknown
from open_mirroring.ledger.verdict_ledger import Remembered, record_verdicts, remembered
from open_mirroring.protocols.verdicts import Finding, Verdict
from open_mirroring.reconciliation.joined_tables import declare_joined
from open_mirroring.reconciliation.losses import LossReport, look
from open_mirroring.reconciliation.owning import owner_of, refuse_foreign_zone, refuse_other_zone
from open_mirroring.reconciliation.owning import zone_address as zone_address
from open_mirroring.reconciliation.verdict_table import PURGED_AFTER, Folder, Limits, TableFacts, reconcile

_LOOKS = 5
_POINT_READS = 20
"""If a listing lacks more files of a table than this, it is not just out of date."""
_READS_AT_ONCE = 32
_MOVED = (FileStage.PROCESSED, FileStage.READY_TO_DELETE)


def declare_tables(
    mirror: Mirror,
    ledger: Engine,
    only: Iterable[str] | None = None,
    zone: ZoneAddress | None = None,
    *,
    keep: bool = True,
) -> dict[str, str]:
    """Register the mirror's tables in the ledger, including tables that joined by a pattern (G-70).

    Returns the tables' ids by source name. With *keep* False the transaction is rolled back. Raises ``MIRROR_CLASH`` if
    the mirror file names another landing zone than the ledger, and none of the mirror's tables is there (G-175). Raises
    ``ARGUMENT_INVALID`` if a name in *only* is unknown, and the errors of :func:`declare`.
    """
    refuse_other_zone(mirror, ledger, zone)
    declare_joined(mirror, ledger)
    declared = [declaration(table) for table in mirror.targets]
    ids = declare(ledger, mirror.name, declared, mirror.reads, mirror.writes, keep=keep)
    if unknown := sorted(set(only or ()) - ids.keys()):
        raise table_unknown(mirror.name, unknown, ids)
    return ids


def declaration(table: Table) -> TableDeclaration:
    """Return the settings of a table that must not change later without a check, in the form of the ledger."""
    text = None if table.text_format is None else table.text_format.to_json()
    chosen = table.chosen
    types = tuple((name, landing) for name in table.key if (landing := chosen.type_of(name)) is not None)
    extra = {column.name: column.landed_name for column in extra_columns(chosen.extra)}
    new_names = ((name, extra.get(name) or chosen.new_name_of(name)) for name in table.key)
    renamed = tuple((name, new_name) for name, new_name in new_names if new_name is not None)
    loads = table.initial_load is not None
    return TableDeclaration(table.source, table.folder, tuple(table.key), loads, text, types, renamed, chosen)


def inspect_mirror(
    mirror: Mirror,
    ledger: Engine,
    zone: ZoneAddress | None = None,
    *,
    record: bool = True,
    losses: LossReport | None = None,
    everything: bool = True,
    besides: Collection[str] = (),
) -> dict[str, Finding]:
    """Inspect every table of a mirror except those in *besides*, and return the findings by source name.

    With *record*, the findings are recorded in the ledger. One listing of the landing zone and one status request serve
    all tables (R-04). Both are repeated for tables that seem to stop, or that a run changed meanwhile. Marker and
    metadata files with a known ETag are not read again. *losses* are read from the ledger unless given. Without
    *everything*, files that an earlier inspection saw applied are not looked at again. So the cost of a run does not
    grow with the days for which Fabric keeps files. Raises ``MIRROR_CLASH`` if this mirror has published nothing to the
    landing zone and another mirror has (G-175). Raises ``CHANGED_MEANWHILE`` if other runs kept changing a table, and
    the errors of :func:`declare_tables`, ledger, store and mirror file.
    """
    declare_tables(mirror, ledger, zone=zone)
    address = zone or zone_address(mirror)
    reader = LedgerReader(ledger, mirror.name)
    findings: dict[str, Finding] = {}
    tables = reader.tables()
    waiting = {source: state for source, state in tables.items() if source not in besides}
    report = losses or look(mirror, ledger, tables=waiting)
    looking = _Looking(mirror, ledger, reader, address, report, everything=everything)
    is_new_there = not any(state.row.established or state.row.resetting for state in tables.values())
    for _ in range(_LOOKS):
        looked = looking.findings(waiting)
        now = reader.tables()
        # If a table's ledger row changed, ledger and listing may be of different moments, so both are read again.
        moved = {source for source in looked if now[source].row != waiting[source].row}
        findings |= {source: finding for source, finding in looked.items() if source not in moved}
        waiting = {source: now[source] for source in moved}
        if not waiting:
            break
    else:
        what = f"the tables {sorted(waiting)} kept changing while they were inspected"
        raise TransientError("CHANGED_MEANWHILE", what, next_step="try again")
    if is_new_there:
        refuse_foreign_zone(mirror, looking.owners)
    if record:
        record_verdicts(ledger, {now[source].id: (finding, now[source].row) for source, finding in findings.items()})
    return findings


class _Looking:
    """Inspects tables with few calls to the store and the target for all tables together."""

    def __init__(
        self,
        mirror: Mirror,
        ledger: Engine,
        reader: LedgerReader,
        zone: ZoneAddress,
        losses: LossReport,
        *,
        everything: bool,
    ) -> None:
        self._reader, self._store = reader, open_store(zone)
        self._mirror = mirror.name
        gate = mirror.gate
        self._target = open_target(zone) if isinstance(zone, OneLakeZone) and mirror.asks_status else None
        self._limits = Limits(gate.max_files, gate.max_bytes, timedelta(minutes=gate.max_age_minutes))
        # Read before the target is asked, so that remembered counts are older than the target's present counts.
        self._remembered = remembered(ledger, mirror.name)
        self._losses, self._everything = losses, everything
        self.owners: set[str] = set()
        """Other mirrors that the markers and newest files of the folders name."""

    def findings(self, tables: Mapping[str, TableState]) -> dict[str, Finding]:
        """The findings by source name. If the first look at a table finds a stop, a second look decides."""
        findings = self._once(tables)
        # One listing is no snapshot: a file may move while folders are listed. A stop counts only if a second look
        # agrees. The second look requests absent files one by one, because two listings may be equally stale (I22).
        doubted = {
            source: tables[source]
            for source, finding in findings.items()
            if finding.verdict is Verdict.STOP and tables[source].row.stop is None
        }
        return findings | (self._once(doubted, closely=True) if doubted else {})

    def _once(self, tables: Mapping[str, TableState], *, closely: bool = False) -> dict[str, Finding]:
        now, folders = datetime.now(UTC), [state.folder for state in tables.values()]
        targets = {} if self._target is None else self._target.statuses(folders)
        if closely or self._everything:
            seen, objects = dict[str, int](), list_tables(self._store, folders)
            old: Mapping[str, int] = self._reader.newest_numbers(confirmed_before=now - PURGED_AFTER)
        else:
            seen = old = {state.id: self._seen_applied(state) for state in tables.values()}
            objects = self._recent(tables, seen)
        items = {s: _items(state, objects[state.folder], seen.get(state.id, 0)) for s, state in tables.items()}
        settled = {source: _settled(items[source], old.get(state.id, 0)) for source, state in tables.items()}
        above = {state.id: (state.row.generation, settled[source]) for source, state in tables.items()}
        published = self._reader.published_above(above)
        if closely:
            for source, state in tables.items():
                items[source] += self._unlisted(state, items[source], published.get(state.id, []))
        with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            looked_into = pool.map(
                lambda source: self._folder(tables[source], items[source], objects[tables[source].folder]), tables
            )
            found_folders = dict(zip(tables, looked_into, strict=True))
        findings: dict[str, Finding] = {}
        ahead = loads_ahead(self._reader, tables.values())
        for source, state in tables.items():
            folder, before = found_folders[source], self._remembered.get(state.id, Remembered())
            marker, (lost, foreign) = folder.marker, self._who_wrote(state, objects[state.folder])
            if marker.incarnation not in (None, state.row.incarnation):
                self.owners.add(marker.mirror or owner_of(self._reader.engine, marker.incarnation or ""))
            facts = TableFacts(
                state,
                {file.number: file for file in published.get(state.id, [])},
                folder._replace(lost=lost, foreign=foreign),
                now,
                settled=settled[source],
                load_ahead=ahead.get(source, ""),
                target=targets.get(state.folder),
                counted_before=before.counted(state.row.generation),
                limits=self._limits,
                losses=self._losses.losses.get(source, ()),
                remarks=self._losses.notes.get(source, ()),
            )
            found = reconcile(facts)
            # During a reset no count is remembered: the target may still count rows from before the reset.
            counted = 0 if state.reset or facts.target is None else facts.target.counted_rows or 0
            most = max(facts.counted_before, counted)
            kept = Remembered(facts.folder.metadata_etag, state.row.generation, most)
            findings[source] = replace(found, evidence={**found.evidence, **kept.evidence()})
        return findings

    def _seen_applied(self, state: TableState) -> int:
        """The number up to which an earlier inspection saw a table's files applied; always below the last one."""
        before = self._remembered.get(state.id, Remembered())
        seen = before.applied if before.generation == state.row.generation else 0
        return max(0, min(seen, state.row.confirmed - 1))

    def _recent(self, tables: Mapping[str, TableState], seen: Mapping[str, int]) -> dict[str, dict[str, ObjectInfo]]:
        """The objects by table folder and path; files may be left out that were *seen* applied, up to a number.

        Files that the service has moved since are asked for one by one. If the folder lacks the last file, which the
        service leaves there (F-35), or many files, the processed folders are listed.
        """
        folders = [state.folder for state in tables.values()]
        objects = list_tables(self._store, folders, processed=False)
        absent: list[tuple[TableState, list[int]]] = []
        for state in tables.values():
            listed, numbers = objects[state.folder].keys(), range(seen[state.id] + 1, state.row.confirmed + 1)
            names = {number: layout.file_name(number, state.extension) for number in numbers}
            lacking = [n for n, name in names.items() if listed.isdisjoint(layout.places_of(state.folder, name))]
            if state.row.confirmed in lacking or len(lacking) > _POINT_READS:
                objects = list_tables(self._store, folders)
                break
            if lacking:
                absent.append((state, lacking))
        else:
            with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
                for (state, _), found in zip(absent, pool.map(lambda one: self._stats(*one), absent), strict=True):
                    objects[state.folder] |= {info.path: info for info in found}
        return objects

    def _unlisted(
        self, state: TableState, items: Sequence[ListedItem], published: Sequence[PublishedFile]
    ) -> tuple[ListedItem, ...]:
        """The newest published files that the listing lacks although they exist."""
        listed = {item.number for item in items}
        absent = [file.number for file in published if file.number not in listed][-_POINT_READS:]
        return split_listing(state.folder, self._stats(state, absent), state.row.generation, state.extension)

    def _stats(self, state: TableState, numbers: Iterable[int]) -> list[ObjectInfo]:
        """The data files with these numbers, wherever the service has moved them."""
        names = [layout.file_name(number, state.extension) for number in numbers]
        found = (self._store.stat(path) for name in names for path in layout.places_of(state.folder, name))
        return [info for info in found if info is not None]

    def _who_wrote(self, state: TableState, objects: Mapping[str, ObjectInfo]) -> tuple[str, str]:
        """Who wrote a newest file unknown to the ledger: evidence of our own lost ledger, or of another writer."""
        if state.row.resetting:
            return "", ""
        numbers = ((layout.file_number(path.rpartition("/")[2], state.extension), path) for path in objects)
        unknown = [(number, path) for number, path in numbers if number is not None and number > state.row.intended]
        if not unknown:
            return "", ""
        from open_mirroring.landing_zone.data_file import read_footer  # loads Arrow, which is slow and rarely needed

        number, path = max(unknown)
        with self._store.fetch(path) as local:
            try:
                footer = None if local is None else read_footer(local)
            except TerminalError:
                footer = None  # no Parquet of ours
        if footer is not None:
            self.owners.add(footer.mirror)
        named = f"number {number} in the folder"
        if footer is not None and footer.mirror == self._mirror:
            if state.row.established or footer.table_id == state.id:
                return "", ""
            what = f"{named} was published by this mirror from batch {footer.batch_to} of its change log"
            return f"{what}, and the ledger has no record of this file", ""
        if state.row.established and state.text is not None:
            return "", ""
        return "", f"a second writer publishes into this folder: {named} was not written by this mirror"

    def _folder(self, state: TableState, items: tuple[ListedItem, ...], objects: Mapping[str, ObjectInfo]) -> Folder:
        """Read marker and metadata of a folder; objects with a known ETag are not read again."""
        listed = objects.get(f"{state.folder}/{layout.INCARNATION_FILE}")
        if state.row.established and listed is not None and listed.etag == state.row.marker_etag:
            marker = FoundMarker(state.row.incarnation, listed.etag)
        else:
            marker = read_marker(self._store, state.folder)
        path = f"{state.folder}/{layout.METADATA_FILE}"
        listed = objects.get(path)
        if listed is not None and listed.etag == self._remembered.get(state.id, Remembered()).metadata_etag:
            return Folder(items, marker, True, listed.etag)
        content = self._store.read(path)
        if content is None:
            return Folder(items, marker, None)
        matches = layout.describes(content.data, state.landed_keys, state.metadata_properties)
        return Folder(items, marker, matches, content.etag if matches else "")


def _items(state: TableState, objects: Mapping[str, ObjectInfo], seen: int) -> tuple[ListedItem, ...]:
    """What was listed of a table, except files moved away below the number *seen*."""
    items = split_listing(state.folder, objects.values(), state.row.generation, state.extension)
    recent = (item for item in items if item.stage not in _MOVED or (item.number or 0) >= seen)
    return tuple(recent) if seen else items


def _settled(items: Sequence[ListedItem], old: int) -> int:
    numbers = (layout.file_number(item.name, item.extension) for item in items)
    return min([old, *(number - 1 for number in numbers if number is not None)])


_COMMIT = re.compile("[0-9A-F]{20}")
"""A commit LSN as an export names it. A load from the database begins at a logged commit, so it is never ahead."""


def loads_ahead(reader: LedgerReader, tables: Iterable[TableState]) -> dict[str, str]:
    """Find initial loads that claim to contain more changes than the stream has reached; one message by source table.

    Changes below an initial load's `stream_from` are skipped, because the initial load contains them. If `stream_from`
    was set too high by mistake, every change would be skipped. So nothing is published over the initial load until the
    stream has reached `stream_from` (G-84).
    """
    fresh = {state.source: state for state in tables if _may_be_ahead(state)}
    logged = reader.contents({s: state.row.published_batch for s, state in fresh.items()}, reader.mirror().committed)
    known = reader.epochs([fresh[source].id for source in logged])
    found: dict[str, str] = {}
    for source, parts in logged.items():
        state = fresh[source]
        begin, ordinals = state.start.stream_from or "", known.get(state.id, {})
        stream = [part for part in parts if not is_load_epoch(part.epoch)]
        same = {part.epoch for part in stream if ordinals.get(part.epoch) == state.start.stream_epoch}
        rows = sum(part.rows for part in stream if part.highest < begin)
        if not rows or any(part.highest >= begin or part.epoch not in same for part in stream):
            continue
        if (reached := reader.highest_in(same)) < begin:
            said = f"the initial load claims to contain all changes below {begin}, but the stream has only reached"
            found[source] = f"{said} {reached.partition(':')[0]}: {rows} changes would be left out"
    return found


def _may_be_ahead(state: TableState) -> bool:
    start = state.start
    if start.load_state != "loaded" or start.load_plan is None or not _COMMIT.fullmatch(start.stream_from or ""):
        return False
    return state.row.published_batch == start.load_plan.hand_over_batch
