"""Finds what a mirror may lack although no table is stopped for it, such as dead letters and changes that were ignored.

A loss stops no table, but reports and exit codes show the loss until an operator has dealt with it. If it is uncertain
whether something is lost, a note is shown instead. Tick, status, metrics and Airflow all use this module.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import Engine

from open_mirroring.changes.column_choice import lacking
from open_mirroring.changes.manifest import OLD_KEYS_MISSING
from open_mirroring.config import Mirror
from open_mirroring.config.names import split_source_name
from open_mirroring.config.source import ChangeEvents, InCapture, InLines
from open_mirroring.config.tables import ExportLoad
from open_mirroring.facts.foreign_tables import ForeignTable
from open_mirroring.facts.read_places import Run, gaps
from open_mirroring.ledger.columns import column_texts, columns_of_complete_rows
from open_mirroring.ledger.dead_letters import LetterCounts, OpenLetters, letter_counts
from open_mirroring.ledger.documents import FOREIGN_TABLES, PLACES, STRUCTURES
from open_mirroring.ledger.reading import LedgerReader, TableState
from open_mirroring.protocols.table_losses import (
    ANY_TABLE,
    BEGUN_LATE,
    CHANGES_IGNORED,
    CONTROL_TABLE_UNREAD,
    DEAD_LETTERS_OPEN,
    DEAD_LETTERS_UNCOUNTED,
    DEAD_LETTERS_UNNAMED,
    FILE_UNKNOWN,
    LOAD_NOT_MADE,
    NOT_SEEN,
    OFFSETS_MISSING,
    SETUP_INCOMPLETE,
    TABLE_EMPTIED,
    TABLE_RENAMED,
    TABLE_SUSPENDED,
    TASK_ERRORS,
    TASK_UNKNOWN,
    Loss,
)
from open_mirroring.protocols.table_stops import HASH_UNMATCHED, unhashed_text
from open_mirroring.reconciliation.evidence_text import shown
from open_mirroring.reconciliation.joined_tables import declare_joined
from open_mirroring.reconciliation.source_reports import signals_of

_NAMES_SHOWN = 3
_ALIKE = 0.9
_REPORTED_LOSSES = (TABLE_SUSPENDED, TABLE_EMPTIED, TABLE_RENAMED)
_REPORTED_NOTES = (CONTROL_TABLE_UNREAD, TASK_UNKNOWN)
_VERSION = re.compile(r"[\W_]*v?[0-9]+$")


@dataclass(frozen=True)
class LossReport:
    """The losses and notes of a mirror, by source table.

    Losses that belong to no single table are under :data:`ANY_TABLE`. *letters* count all open dead letters, including
    tolerated ones. *ignored* are tables whose messages were ignored and that are not mirrored now. *acknowledged* are
    the names listed under `ignore` in the mirror file.
    """

    letters: LetterCounts
    losses: Mapping[str, tuple[Loss, ...]] = field(default_factory=dict)
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignored: Sequence[ForeignTable] = ()
    acknowledged: frozenset[str] = frozenset()

    @property
    def lost(self) -> dict[str, str]:
        """The losses in the form of a report: one string for each table."""
        return {source: "; ".join(map(str, losses)) for source, losses in sorted(self.losses.items())}

    @property
    def unread(self) -> dict[str, str]:
        """Source data that never arrived or was not read, as a string by code (offsets or files)."""
        codes = (OFFSETS_MISSING, FILE_UNKNOWN)
        return {loss.code: loss.what for loss in self.losses.get(ANY_TABLE, ()) if loss.code in codes}

    def document(self) -> dict[str, Any]:
        return {
            "losses": self.lost,
            "dead_letters": self.letters.document(),
            "ignored": {
                table.name or "(others)": {
                    "messages": table.messages,
                    "since": table.first_seen.isoformat(),
                    "last": table.last_seen.isoformat(),
                    "acknowledged": table.name in self.acknowledged,
                }
                for table in self.ignored
            },
            "notes": {source: list(notes) for source, notes in sorted(self.notes.items())},
        }


class SeenTable(NamedTuple):
    """What the ledger knows about one table, as far as its losses depend on it.

    *last_batch* is the newest batch with rows of the table, or 0. *tolerated* is the number of open dead letters that
    count as no loss. *unseen* are names under `columns` and `types` in the mirror file that no row has. *signals* are
    events of the source by code (T-81). *exported* is the position above which changes are published over an initial
    load from an export. *lacks_load* means that the table began without its initial load (G-130). *old_keys_missing*
    means that updates contained no old key (C-73).
    """

    source: str
    last_batch: int = 0
    loaded: bool = False
    has_files: bool = False
    tolerated: int = 0
    unseen: Mapping[str, Sequence[str]] = MappingProxyType({})
    signals: Mapping[str, str] = MappingProxyType({})
    lacks_load: bool = False
    old_keys_missing: bool = False
    exported: str | None = None
    columns: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The table's name at the source, ``schema.table``."""
        return _name(self.source)


def look(
    mirror: Mirror, ledger: Engine, *, has_read: bool = False, tables: Mapping[str, TableState] | None = None
) -> LossReport:
    """Return the mirror's losses, read from the ledger; *has_read* means that the source was read just before."""
    declare_joined(mirror, ledger)
    reader = LedgerReader(ledger, mirror.name)
    states = reader.tables() if tables is None else tables
    declared = {table.source: table for table in mirror.tables}
    hashed = mirror.hashed_anywhere()
    naming = {source for source, table in declared.items() if table.unseen(())}
    known = columns_of_complete_rows(ledger, mirror.name, naming | {one.source for _, among in hashed for one in among})
    of_columns = column_texts(ledger, {state.id: state.row.generation for state in states.values()})
    newest = reader.newest_batches()
    with ledger.connect() as db:
        structures = (one.schema for one in STRUCTURES.of(db, mirror.name).values())
        old_keys_missing = {one.source for one in structures if one.topic == OLD_KEYS_MISSING}
        foreign = FOREIGN_TABLES.of(db, mirror.name)
        signals = signals_of(db, mirror.name)
        places = PLACES.of(db, mirror.name)
    seen = []
    for source, state in states.items():
        table = declared.get(source)
        load = None if table is None else table.initial_load
        # A table in a reset, or one that begins with its source's own full load, lacks no initial load.
        begun_otherwise = (state.reset, state.start.newest_load, state.start.stream_from) != (None, None, None)
        is_exported = isinstance(load, ExportLoad) and state.start.load_state == "loaded"
        seen.append(
            SeenTable(
                source,
                newest.get(source, 0),
                state.start.load_state != "none",
                bool(state.row.confirmed or state.row.published_batch),
                ((table and table.dead_letters) or mirror.dead_letters).tolerate,
                table.unseen(known[source]) if table is not None and source in naming & known.keys() else {},
                signals=signals.get(source, {}),
                lacks_load=load is not None and state.start.load_state == "none" and not begun_otherwise,
                old_keys_missing=source in old_keys_missing and not (table and table.keys_never_change),
                exported=(state.start.stream_from or "") if is_exported else None,
                columns=of_columns.get(state.id, ()),
            )
        )
    return judge(
        seen,
        letter_counts(ledger, mirror.name),
        [*foreign.values()],
        mirror.ignore,
        mirror.tolerated_letters(None),
        has_read=has_read or reader.mirror().committed > 0,
        places=places,
        # Capture files after a gap are not read until the gap is closed (C-93); a damaged file hides its messages.
        gaps_are_losses=not isinstance(mirror.source, InCapture)
        and not (isinstance(mirror.source, InLines) and mirror.source.offset_gaps == "expected"),
        databases=[mirror.source.database] if isinstance(mirror.source, ChangeEvents) else (),
        signals=signals.get(ANY_TABLE, {}),
        unhashed=[
            name
            for columns, among in hashed
            if all(table.source in known for table in among)
            for name in lacking(columns, {one for table in among for one in known[table.source]})
        ],
    )


def judge(
    tables: Sequence[SeenTable],
    letters: LetterCounts,
    foreign: Sequence[ForeignTable],
    ignore: Sequence[str] = (),
    tolerated: int = 0,
    *,
    has_read: bool = True,
    places: Mapping[str, Sequence[Run]] = MappingProxyType({}),
    gaps_are_losses: bool = True,
    signals: Mapping[str, str] = MappingProxyType({}),
    unhashed: Sequence[str] = (),
    databases: Collection[str | None] = (),
) -> LossReport:
    """Sort what the ledger knows into losses and notes; a pure function.

    *ignore* names tables that are left out on purpose. *signals* are source events that belong to no single table.
    *unhashed* are columns that are to be hashed, but that no table has. *databases* are the databases whose events are
    read now; if it contains None, events of any database are read.
    """
    acknowledged = frozenset(_name(name) for name in ignore)
    mirrored = {table.name for table in tables}
    unknown = [other for other in foreign if other.name not in mirrored and other.name not in acknowledged]
    ignored_before = _ignored_of(foreign, mirrored - acknowledged, databases)
    losses, notes = dict[str, tuple[Loss, ...]](), dict[str, tuple[str, ...]]()
    unread = signals.get(FILE_UNKNOWN, "")
    for table in tables:
        ignored = ignored_before.get(table.name)
        renamed = _likely_name(table, unknown) if has_read and TABLE_RENAMED not in table.signals else None
        quiet = _quiet(table, letters, unknown, unread) if has_read and renamed is None else ""
        losses[table.source] = tuple(_losses_of(table, letters, ignored, renamed))
        notes[table.source] = tuple(filter(None, (quiet, *_notes_of(table, ignored, places))))
    unnamed, uncounted = letters.without_table, "the open dead letters of the change log have to be counted again"
    at_risk = f"AT RISK: {_said(unnamed)}: their table is unknown, so any table may lack a change"
    losses[ANY_TABLE] = (
        *([] if letters.known else [Loss(DEAD_LETTERS_UNCOUNTED, f"{uncounted}: there may be more than are shown")]),
        *([Loss(DEAD_LETTERS_UNNAMED, at_risk)] if unnamed.count > tolerated else ()),
        *(_missing_places(places) if gaps_are_losses else ()),
        *([Loss(FILE_UNKNOWN, f"{unread}; any table may lack a change")] if unread else ()),
        *([Loss(HASH_UNMATCHED, unhashed_text(unhashed, "any table"))] if unhashed else ()),
    )
    notes[ANY_TABLE] = tuple(f"{code}: {signals[code]}" for code in _REPORTED_NOTES if code in signals)
    return LossReport(
        letters,
        {source: found for source, found in losses.items() if found},
        {source: noted for source, noted in notes.items() if noted},
        [other for other in foreign if other.name not in mirrored],
        acknowledged,
    )


def _losses_of(
    table: SeenTable, letters: LetterCounts, ignored: ForeignTable | None, renamed: Loss | None
) -> Iterator[Loss]:
    found = letters.tables.get(table.source)
    if found is not None and found.count > table.tolerated:
        stale = f"; {_counted(found.keys, 'row is', 'rows are')} out of date" if found.keys else ""
        yield Loss(DEAD_LETTERS_OPEN, f"{_said(found)}{stale}")
    yield from _ignored_before(table, ignored)
    yield from (Loss(code, table.signals[code]) for code in _REPORTED_LOSSES if code in table.signals)
    if renamed is not None:
        yield renamed
    if table.lacks_load:
        what = "the mirror file names an initial load, and the table began without it: the first rows may be missing"
        yield Loss(LOAD_NOT_MADE, what)


def _notes_of(table: SeenTable, ignored: ForeignTable | None, places: Mapping[str, Sequence[Run]]) -> Iterator[str]:
    """Yield what a table may lack, but need not; empty texts are dropped by the caller."""
    for says, columns in table.unseen.items():
        yield f"{NOT_SEEN}: {says} {_some([shown(name) for name in columns])}, and no row has such a column"
    yield _ignored_before_export(table, ignored)
    if table.last_batch and not table.loaded:
        yield _begun_late(places)
    if table.old_keys_missing:
        what = "updates came without old values: one that changed the key was not seen, and its old row would stay"
        yield f"{SETUP_INCOMPLETE}: {what}"
    if TASK_ERRORS in table.signals:
        yield f"{TASK_ERRORS}: {table.signals[TASK_ERRORS]}"
    yield from table.columns


def _some(names: Sequence[object], others: str = "others") -> str:
    """The first three names, and how many there are more."""
    more = f" and {len(names) - _NAMES_SHOWN} {others}" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(map(str, names[:_NAMES_SHOWN])) + more


def _missing_places(places: Mapping[str, Sequence[Run]]) -> list[Loss]:
    missing = [(partition, gap) for partition, runs in places.items() for gap in gaps(runs)]
    if not missing:
        return []
    count = sum(gap.last - gap.first + 1 for _, gap in missing)
    named = _some([f"{shown(partition)}:{gap.first} to {gap.last}" for partition, gap in missing], "other gaps")
    what = f"{_counted(count, 'offset', 'offsets')} between messages that were read never came"
    return [Loss(OFFSETS_MISSING, f"{what}: {named}; any table may lack a change")]


def _begun_late(places: Mapping[str, Sequence[Run]]) -> str:
    late = [f"{shown(name)} from {runs[0].first} on" for name, runs in places.items() if runs and runs[0].first > 0]
    what = f"{BEGUN_LATE}: the table has no initial load, and earlier messages were not there to be read"
    return f"{what}: {_some(late)}" if late else ""


def _said(found: OpenLetters) -> str:
    codes = ", ".join(f"{count} {code}" for code, count in found.by_code.items())
    example = f", the first is {found.example}" if found.example else ""
    return f"{_counted(found.count, 'dead letter is', 'dead letters are')} open ({codes}{example})"


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _ignored_of(
    foreign: Sequence[ForeignTable], mirrored: Collection[str], databases: Collection[str | None]
) -> dict[str, ForeignTable]:
    """What was ignored of tables that are mirrored now, by name; also if another database was read then."""
    found: dict[str, ForeignTable] = {}
    for other in foreign:
        database, _, name = other.name.partition(".")
        name = name if {database, None} & {*databases} and name in mirrored else other.name
        if name in mirrored:
            known = found.get(name, other._replace(messages=0))
            found[name] = ForeignTable(
                name,
                known.messages + other.messages,
                min(known.first_batch, other.first_batch),
                min(known.first_seen, other.first_seen),
                max(known.last_batch, other.last_batch),
                max(known.last_seen, other.last_seen),
                max(known.highest, other.highest),
            )
    return found


def _ignored_before(table: SeenTable, other: ForeignTable | None) -> list[Loss]:
    """The loss of messages that were ignored before the table was mirrored and that no load contains (G-24, G-140)."""
    if other is None:
        return []
    is_below = table.exported is not None and other.highest < table.exported
    if table.loaded and (table.exported is None or is_below or not other.highest):
        return []
    batches = f"in batches {other.first_batch} to {other.last_batch}"
    what = f"{_counted(other.messages, 'message', 'messages')} of it, {batches}, came when it was not mirrored"
    return [Loss(CHANGES_IGNORED, f"{what}, and was ignored" if other.messages == 1 else f"{what}, and were ignored")]


def _ignored_before_export(table: SeenTable, other: ForeignTable | None) -> str:
    """The note on messages ignored before a load from an export: the export may be older than they are."""
    if other is None or table.exported is None or other.highest:
        return ""
    count = f"{_counted(other.messages, 'message', 'messages')} of it, up to {other.last_seen:%Y-%m-%d %H:%M} UTC"
    return f"{CHANGES_IGNORED}: {count}, came before it was mirrored: its export has to be made after that"


def _likely_name(table: SeenTable, unknown: Sequence[ForeignTable]) -> Loss | None:
    """A loss if a table stopped sending and a similar name appeared since: it was probably renamed."""
    was_seen = bool(table.last_batch) or table.loaded or table.has_files
    for other in unknown:
        if not other.name or other.first_batch <= table.last_batch:
            continue
        if _is_renamed(table.name, other.name) if was_seen else _is_misspelt(table.name, other.name):
            since = f"since batch {table.last_batch}" if table.last_batch else "at all"
            count = _counted(other.messages, "message", "messages")
            came = f"{count} of {shown(other.name)}, which is not mirrored, since {other.first_seen:%Y-%m-%d %H:%M} UTC"
            return Loss(TABLE_RENAMED, f"no change of the table came {since}, but {came}")
    return None


def _quiet(table: SeenTable, letters: LetterCounts, unknown: Sequence[ForeignTable], unread: str) -> str:
    if not (table.last_batch or table.loaded or table.has_files or table.source in letters.tables):
        near = [shown(other.name) for other in unknown if other.name and _is_renamed(table.name, other.name)]
        hint = f"; read and ignored was {_some(near)}" if near else ""
        hint += f"; {unread}" if unread else ""
        return f"{NOT_SEEN}: nothing was ever read of this table: it is empty, or has another name at the source{hint}"
    since = sorted((o for o in unknown if o.name and o.first_batch > table.last_batch), key=lambda o: o.first_seen)
    if not (since and table.last_batch):
        return ""
    others = f"from {since[0].first_seen:%Y-%m-%d %H:%M} UTC on {_some([shown(other.name) for other in since])} came up"
    what = f"{NOT_SEEN}: no change of the table came since batch {table.last_batch}"
    return f"{what}, while {others}, not mirrored: was it renamed?"


def _is_renamed(known: str, other: str) -> bool:
    """Whether the other name is probably this table's new one: in another schema, or with a word added."""
    (schema, table), (other_schema, other_table) = _parts(known), _parts(other)
    if table == other_table:
        return schema != other_schema
    if schema != other_schema:
        return False
    stem, other_stem = _VERSION.sub("", table), _VERSION.sub("", other_table)
    return _extends(table, other_table) or _extends(other_table, table) or bool(stem and stem == other_stem)


def _is_misspelt(known: str, other: str) -> bool:
    (schema, table), (other_schema, other_table) = _parts(known), _parts(other)
    if table == other_table or schema != other_schema:
        return table == other_table and schema != other_schema
    ratio = SequenceMatcher(None, table, other_table, autojunk=False).ratio()
    # Names that differ only in a number are mostly names of different tables, not misspellings.
    return ratio >= _ALIKE and re.sub("[0-9]", "", table) != re.sub("[0-9]", "", other_table)


def _extends(short: str, long: str) -> bool:
    """Whether the longer name is the shorter one with another word before or after it."""
    if len(short) < 2 or len(long) <= len(short):
        return False
    before, behind = long[: -len(short)], long[len(short) :]
    return (long.startswith(short) and not behind[0].isalpha()) or (long.endswith(short) and not before[-1].isalpha())


def _parts(name: str) -> tuple[str, str]:
    schema, _, table = name.casefold().rpartition(".")
    return schema, table


def _name(source: str) -> str:
    return ".".join(split_source_name(source))
