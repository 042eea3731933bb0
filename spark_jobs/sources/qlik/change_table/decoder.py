"""Decodes rows of Qlik change tables into rows of the change log.

A before image and its UPDATE have the same ``change_seq`` (T-11). If only one of the two has been read, it waits in the
change log for the other. Public source: Qlik help, *Change tables*, *Using change tables*, *Store changes settings*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from open_mirroring.changes.row_key import NO_BUCKET, key_bucket
from open_mirroring.facts.foreign_tables import note_foreign
from open_mirroring.facts.kind import NewFacts
from open_mirroring.facts.senders import Sender, note_senders
from spark_jobs.changelog.schema import CHANGE, DELETE, FRAGMENT, INSERT, KEY_LEFT, REJECTED, UPDATE, LogRow
from spark_jobs.sources.contract.decoded import (
    Damage,
    Decoded,
    Decoder,
    Dispositions,
    LoggedHalf,
    MirroredTable,
    Refusal,
    TableDamage,
    TableNames,
    Unjoinable,
    Waiting,
    damaged_row,
)
from spark_jobs.sources.qlik.change_table.rows import (
    MASK,
    OPERATION,
    TRANSACTION,
    ChangeRow,
    RowLayout,
    Structure,
    Values,
    content,
    read_row,
    row_bytes,
)
from spark_jobs.sources.qlik.change_table.updates import (
    BEFORE,
    MaskReadings,
    ReadRow,
    Together,
    absent_columns,
    read_header,
    read_mask,
    refuse_denied_change,
    refuse_mask_without_bits,
    shows_nothing,
)
from spark_jobs.sources.qlik.masks import MaskOrder
from spark_jobs.sources.qlik.positions import qlik_position

_Message = ChangeRow | TableDamage | Damage
_LAYOUTS_KEPT = 1000
_OF_OTHER_ROWS = ("OLD_KEY_MISSING", "TABLE_EMPTIED")
"""Codes of dead letters that may make other rows outdated than the one with their key."""
_IMAGES = (
    "set `On update: Store before and after image` in the Store Changes settings of the task, then reload the table"
)
_KEEP = (
    "look for rows or files missing at the source, let only the task's own retention remove any, and reload the table"
)


class ChangeTableSettings(NamedTuple):
    """Settings for reading change tables that the tables themselves do not show.

    Args:
        load: the setting ``source.load``, which names the Qlik full load to which the changes belong; the epoch of log
            positions (G-01).
        prefix: the prefix of header columns (T-02).
        mask_order: how change masks are read; ``auto`` excludes readings that are impossible (T-24).
        sparse_updates: whether a NULL in an UPDATE row may be an unchanged column (T-32).
        before_images: whether every UPDATE has a before image row; None: the rows that are decoded together show it
            (T-19).
    """

    load: str = "1"
    prefix: str = "header__"
    mask_order: MaskOrder = "auto"
    sparse_updates: bool = False
    before_images: bool | None = None


DEFAULT_SETTINGS = ChangeTableSettings()


class QlikChangeTableDecoder(Decoder):
    """Decodes rows of Qlik change tables into rows of the change log."""

    def __init__(self, tables: Mapping[str, MirroredTable], settings: ChangeTableSettings = DEFAULT_SETTINGS) -> None:
        self.settings = settings
        self.tables = dict(tables)
        self._names = TableNames(self.tables)
        self._layout_of = lru_cache(_LAYOUTS_KEPT)(self._new_layout)
        self._latest: tuple[Structure, RowLayout | Refusal] | None = None

    def again(self, origin: str, place: int, body: bytes, source: str | None) -> ChangeRow:
        return read_row(origin, place, body)

    def decode(self, messages: Iterable[_Message]) -> Decoded:
        entries = [self._read(message) for message in messages]
        together = Together((e for e in entries if isinstance(e, ReadRow)), self.settings.mask_order)
        rows: list[LogRow] = []
        foreign, kinds = Counter[str](), Counter[str]()
        for entry in entries:
            if isinstance(entry, str):
                foreign[entry] += 1
                continue
            found = (entry,) if isinstance(entry, LogRow) else self._rows(entry, together)
            rows += found
            kinds[found[0].kind if found else ""] += 1
        by_kind = kinds[CHANGE], kinds[FRAGMENT], kinds[""], foreign.total(), kinds[REJECTED]
        counts = Dispositions(len(entries), *by_kind)
        facts: NewFacts = {}
        note_foreign(facts, foreign)
        for entry in entries:
            if isinstance(entry, ReadRow):
                note_senders(facts, senders_of(entry.layout))
        return Decoded(rows, counts, facts=facts)

    def cut(self, messages: Iterable[_Message], size: int) -> Iterator[list[_Message]]:
        """Splits rows into lists of about *size* rows, never between a before image and its UPDATE."""
        rest = iter(messages)
        while chunk := list(islice(rest, size)):
            while isinstance(chunk[-1], ChangeRow) and self._is_before(chunk[-1]) and (more := next(rest, None)):
                chunk.append(more)
            yield chunk

    def join(self, pieces: Sequence[LogRow]) -> Decoded | Waiting | Unjoinable:
        """Joins a before image and its UPDATE; *pieces* may contain several copies of each.

        Returns Waiting if the before image or the UPDATE is missing.
        """
        rows = {content(row): row for row in map(restored, in_order(pieces))}
        read = [entry for entry in map(self._read, rows.values()) if isinstance(entry, ReadRow)]
        befores = [entry for entry in read if entry.operation == BEFORE]
        updates = [entry for entry in read if entry.operation == UPDATE]
        if len(befores) > 1 or len(updates) > 1:
            what = f"{len(befores)} different before images and {len(updates)} different updates share a change_seq"
            return Unjoinable(letter_of_pieces(pieces, Refusal("FRAGMENTS_INCOMPLETE", what)))
        if not befores or not updates:
            return Waiting()
        decoded = self.decode([befores[0].row, updates[0].row])
        refused = any(row.kind == REJECTED for row in decoded.rows)
        identity = pieces[0].fragment_of
        joined = [row._replace(fragment_of=identity) for row in decoded.rows] if refused else decoded.rows
        images = sum(piece.piece == 0 for piece in pieces)
        others = len(pieces) - images
        counts = Dispositions(len(pieces), 0 if refused else others, 0, images, 0, others if refused else 0)
        return Decoded(joined, counts)

    def late_rows(self, pieces: Sequence[LogRow], logged: Collection[LoggedHalf]) -> list[LogRow]:
        """The row that removes the old key, if a late before image shows that its UPDATE changed the key (T-19).

        *logged* are the rows that the change log has for the UPDATE. If the key in the before image is unreadable, the
        old key is unknown, so the result is a dead letter that stops the table.
        """
        for row in map(restored, in_order(pieces)):
            entry = self._read(row)
            if not isinstance(entry, ReadRow) or entry.operation != BEFORE:
                continue
            layout, values = entry.layout, entry.row.values
            try:
                key = layout.key(values)
            except Refusal as refusal:
                return [letter_of_pieces(pieces, refusal)]
            kept = {one for operation, one in logged if operation in (UPDATE, KEY_LEFT)}
            if kept and key not in kept:
                cols, image = layout.left(values)
                return [self._change(entry, 0, KEY_LEFT, key, cols, before=image)]
        return []

    def incomplete(self, pieces: Sequence[LogRow], reason: str) -> list[LogRow]:
        """The dead letter of a before image without its UPDATE, or of an UPDATE without its before image.

        The dead letter has no key, so it stops the table.
        """
        what = f"{reason}: the UPDATE of a before image did not come; {_KEEP}"
        if any(piece.piece == 1 for piece in pieces):
            what = f"{reason}: the key may have changed, and the before image of the UPDATE did not come; {_IMAGES}"
        return [letter_of_pieces(pieces, Refusal("ROWS_MISSING", what))]

    def _read(self, message: _Message) -> ReadRow | LogRow | str:
        if isinstance(message, Damage):
            return damaged_row(message)
        if isinstance(message, TableDamage):
            name = message.table
            meant = name if name in self.tables else self._names.meant_by(name)
            if meant is None and message.is_sure:
                return name
            return damaged_row(message.damage)._replace(tbl=None if meant is None else self.tables[meant].source)
        layout = self.layout(message.structure)
        if layout is None:
            return self._foreign(message)
        if isinstance(layout, Refusal):
            table = self.tables[message.structure.table]
            return rejected_row(message, layout)._replace(tbl=table.source)
        try:
            operation, sequence = read_header(layout, message.values)
        except Refusal as refusal:
            return refused_row(message, layout, refusal)
        mask: MaskReadings | Refusal | None = None
        if operation != BEFORE:
            try:
                mask = read_mask(layout, layout.header(MASK, message.values), self.settings.mask_order)
            except Refusal as refusal:
                mask = refusal
        return ReadRow(message, layout, operation, sequence, mask)

    def _foreign(self, row: ChangeRow) -> LogRow | str:
        """The name of a table that is not mirrored, or a dead letter if only its spelling differs (G-13)."""
        name = row.structure.table
        try:
            self._names.refuse_other_case(name)
        except Refusal as refusal:
            return rejected_row(row, refusal)._replace(tbl=self.tables[self._names.meant_by(name) or name].source)
        return name

    def _is_before(self, row: ChangeRow) -> bool:
        layout = self.layout(row.structure)
        return isinstance(layout, RowLayout) and layout.header(OPERATION, row.values) == BEFORE

    def layout(self, structure: Structure) -> RowLayout | Refusal | None:
        """The layout of a structure's rows, or why they are unreadable; None if the table is not mirrored."""
        # Rows of one file share their structure: comparing it by identity avoids hashing all its columns.
        if self._latest is not None and self._latest[0] is structure:
            return self._latest[1]
        if structure.table not in self.tables:
            return None
        self._latest = (structure, self._layout_of(structure))
        return self._latest[1]

    def _new_layout(self, structure: Structure) -> RowLayout | Refusal:
        try:
            return RowLayout(structure, self.tables[structure.table], self.settings.prefix)
        except Refusal as refusal:
            return refusal

    def _rows(self, entry: ReadRow, together: Together) -> tuple[LogRow, ...]:
        layout, values = entry.layout, entry.row.values
        try:
            if entry.operation == BEFORE:
                return () if entry.identity in together.updated else (self._fragment(entry, 0),)
            if isinstance(entry.mask, Refusal):
                raise entry.mask
            if entry.operation == UPDATE:
                return self._update(entry, together)
            key = layout.key(values)
            if entry.mask is not None:
                refuse_mask_without_bits(layout, entry.operation, values, entry.mask)
            if entry.operation == INSERT:
                return (self._change(entry, 1, INSERT, key, layout.cols, row=layout.image(values)),)
            before = layout.image(values) if layout.says_more_than_key(values) else None
            return (self._change(entry, 0, DELETE, key, layout.cols, before=before),)
        except Refusal as refusal:
            pos = qlik_position(entry.sequence, 0 if entry.operation in (BEFORE, DELETE) else 1)
            letter = refused_row(entry.row, layout, refusal)._replace(epoch=self.settings.load, pos=pos)
            if together.show_another_key(entry, letter.key):
                letter = letter._replace(key=None, bucket=NO_BUCKET)
            return (letter,)

    def _update(self, entry: ReadRow, together: Together) -> tuple[LogRow, ...]:
        layout, values = entry.layout, entry.row.values
        masks = entry.mask if isinstance(entry.mask, Mapping) else None
        changed = None if masks is None else masks.get(together.reading(layout))
        befores = together.befores(entry)
        if len(befores) > 1:
            raise Refusal("ROWS_MISSING", f"{len(befores)} different before images share its change_seq")
        key = layout.key(values)
        if not befores:
            is_known = masks is not None and not shows_nothing(layout, masks)
            if self._may_change_key(entry, changed if is_known else None, together):
                return (self._fragment(entry, 1),)
            return (self._row_set(entry, key, None, changed),)
        before = befores[0]
        if masks is not None:
            sparse = self.settings.sparse_updates
            refuse_denied_change(layout, values, before.layout, before.row.values, masks, sparse=sparse)
        old_values = before.row.values if before.layout is layout else None
        if old_values is not None and layout.same_key(values, old_values):
            had = None if self.settings.sparse_updates else layout.mark(old_values, values)
            return (self._row_set(entry, key, old_values, changed)._replace(had=had),)
        left = before.layout.key(before.row.values)
        row_set = self._row_set(entry, key, old_values, changed)
        if left == key:
            return (row_set,)
        cols, image = before.layout.left(before.row.values)
        return (self._change(entry, 0, KEY_LEFT, left, cols, before=image), row_set)

    def _may_change_key(self, entry: ReadRow, changed: frozenset[int] | None, together: Together) -> bool:
        keys = entry.layout.key_places
        stored = self.settings.before_images
        has_images = together.has_images(entry.layout.source) if stored is None else stored
        if changed is None:
            if not keys or has_images:
                return bool(keys)
            if entry.layout.keys_never_change:
                return False
            raise Refusal("OLD_KEY_MISSING", "neither a change mask nor a before image shows whether the key changed")
        if has_images and isinstance(entry.mask, Mapping):
            # It will come: waiting is better than trusting one of two readings.
            return any(keys & places for places in entry.mask.values())
        return bool(keys & changed)

    def _row_set(
        self, entry: ReadRow, key: str | None, before: Values | None, changed: frozenset[int] | None
    ) -> LogRow:
        layout, values = entry.layout, entry.row.values
        if self.settings.sparse_updates:
            values, absent = absent_columns(layout, values, before, changed)
            if absent and layout.full_rows:
                raise Refusal("ROW_INVALID", "an UPDATE without all columns, and `full_rows` promises them", key)
            if absent:
                cols, row = layout.partial(values, absent)
                return self._change(entry, 1, UPDATE, key, cols, row=row)._replace(whole=False)
        return self._change(entry, 1, UPDATE, key, layout.cols, row=layout.image(values))

    def _change(
        self,
        entry: ReadRow,
        sub: int,
        operation: str,
        key: str | None,
        cols: str,
        row: str | None = None,
        before: str | None = None,
    ) -> LogRow:
        origin, place, _, _ = entry.row
        pos = qlik_position(entry.sequence, sub)
        at = (origin, place, entry.layout.source, key_bucket(key), self.settings.load, pos)
        change = LogRow(CHANGE, *at, operation, key, cols, True, row, before)
        if not entry.layout.logs_transactions:
            return change
        committed, transaction = (entry.layout.header(name, entry.row.values) or None for name in TRANSACTION)
        return change._replace(committed=committed, transaction=transaction)

    def _fragment(self, entry: ReadRow, piece: int) -> LogRow:
        """Half of a pair. Both halves have the position of the pair's first half, so they wait under one name."""
        return LogRow(
            FRAGMENT,
            entry.row.origin,
            entry.row.place,
            tbl=entry.layout.source,
            epoch=self.settings.load,
            pos=qlik_position(entry.sequence, 0),
            fragment_of=f"{entry.layout.source}:{entry.sequence}",
            piece=piece,
            raw=row_bytes(entry.row),
        )


def senders_of(layout: RowLayout) -> tuple[Sender, ...]:
    """The mirrored table, with the Qlik task that wrote rows of this layout; empty if the task is unknown (T-95)."""
    sender = layout.structure.sender
    return ((layout.source, sender),) if sender else ()


def rejected_row(row: ChangeRow, refusal: Refusal) -> LogRow:
    """The dead letter of a row that raised *refusal*; the dead letter names no table."""
    return LogRow(REJECTED, row.origin, row.place, code=refusal.code, reason=refusal.reason, raw=row_bytes(row))


def refused_row(row: ChangeRow, layout: RowLayout, refusal: Refusal) -> LogRow:
    """The dead letter of a row that raised *refusal*, with the row's table.

    The dead letter has the row's key if the key is known and no other row may be affected.
    """
    if refusal.code in _OF_OTHER_ROWS:
        return rejected_row(row, refusal)._replace(tbl=layout.source, bucket=NO_BUCKET)
    key = refusal.key
    try:
        key = key or layout.key(row.values)
    except Refusal:
        key = None
    return rejected_row(row, refusal)._replace(tbl=layout.source, key=key, bucket=key_bucket(key))


def restored(piece: LogRow) -> ChangeRow:
    """The row of a change table that a fragment contains."""
    return read_row(piece.origin, piece.place, piece.raw or b"")


def in_order(pieces: Sequence[LogRow]) -> list[LogRow]:
    """Fragments in descending order of origin and place."""
    return sorted(pieces, key=lambda piece: (piece.origin, piece.place), reverse=True)


def letter_of_pieces(pieces: Sequence[LogRow], refusal: Refusal) -> LogRow:
    """One dead letter for all fragments, at origin and place of the first one.

    The change log keeps all of the fragments unchanged.
    """
    first = in_order(pieces)[-1]
    return first._replace(kind=REJECTED, piece=None, code=refusal.code, reason=refusal.reason)
