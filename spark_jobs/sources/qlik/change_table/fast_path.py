"""The fast path of change tables: decodes most rows as Arrow columns, with the same result as the decoder.

The fast path decodes all rows of one ``change_seq`` or none of them; rows with an unreadable header do not count. All
rows of a block together show whether the table has before images (T-19), and how its masks are read (T-24). So if the
fast path cannot decode an UPDATE without before image, it decodes no row of the block: the decoder then sees all of
them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.row_key import buckets_of_bytes
from open_mirroring.facts.kind import NewFacts
from open_mirroring.facts.senders import note_senders
from spark_jobs.changelog.schema import CHANGE, DELETE, INSERT, UPDATE, image_mark
from spark_jobs.sources.contract.decoded import Refusal, SourceSchema
from spark_jobs.sources.contract.fast_decoder import DATED_SCHEMA, SCHEMA, Taken
from spark_jobs.sources.contract.message_blocks import Places
from spark_jobs.sources.qlik.change_table.blocks import TextBlock
from spark_jobs.sources.qlik.change_table.decoder import QlikChangeTableDecoder, senders_of
from spark_jobs.sources.qlik.change_table.rows import (
    MASK,
    OPERATION,
    OPERATION_NAME,
    SEQUENCE,
    TRANSACTION,
    RowLayout,
)
from spark_jobs.sources.qlik.change_table.updates import (
    BEFORE,
    MaskReading,
    MaskReadings,
    choose_reading,
    has_no_bit,
    operation_of,
    read_mask,
    shows_nothing,
)
from spark_jobs.sources.qlik.positions import SEQUENCE_DIGITS, qlik_positions
from spark_jobs.sources.sql_server.json_columns import canonical_column, json_lists, json_objects

Booleans = npt.NDArray[np.bool_]

_OPERATIONS = ("", INSERT, UPDATE, DELETE, BEFORE)
"""The operation of a row by its code. Rows with code 0 are invalid and left to the exact decoder."""
_I, _U, _D, _B = range(1, 5)
_READINGS: tuple[MaskReading, ...] = ("msb_text", "le_bytes")


class FastChangeRows:
    """The fast path of change tables; decodes rows of blocks."""

    def __init__(self, decoder: QlikChangeTableDecoder) -> None:
        self._decoder = decoder

    def take(self, block: TextBlock) -> Taken:
        layout = self._decoder.layout(block.structure)
        found = None
        if isinstance(layout, RowLayout) and not self._decoder.settings.sparse_updates:
            found = _Look(block, layout, self._decoder).taken()
        if found is None or not isinstance(layout, RowLayout):
            return Taken(SCHEMA.empty_table(), np.array([], np.int64))
        rows, is_taken, images = found
        facts: NewFacts = {}
        note_senders(facts, senders_of(layout))
        return Taken(rows, np.flatnonzero(is_taken), images=images, facts=facts)

    def learn(self, schemas: Iterable[SourceSchema]) -> None:
        """Does nothing: rows of a change table come with the table's structure."""


class _Look:
    def __init__(self, block: TextBlock, layout: RowLayout, decoder: QlikChangeTableDecoder) -> None:
        self._block, self._layout, self._settings = block, layout, decoder.settings
        self._texts = block.texts
        self._size = block.texts.num_rows

    def taken(self) -> tuple[pa.Table, Booleans, int] | None:
        sequences = self._header(SEQUENCE)
        has_sequence = sequences.is_valid().to_numpy(zero_copy_only=False)
        if np.count_nonzero(np.diff(has_sequence)) > 1:
            return None  # rows of one change_seq might not be consecutive
        if not _are_ascending_sequences(sequences.filter(pa.array(has_sequence))):
            return None
        does = np.where(has_sequence, self._operations(), 0)
        is_first = np.ones(self._size, bool)
        is_first[1:] = ~pc.equal(sequences[1:], sequences[:-1]).fill_null(False).to_numpy(zero_copy_only=False)
        group = np.cumsum(is_first) - 1
        sets = np.flatnonzero((does != 0) & (does != _B))
        keys = canonical_texts(self._layout, self._texts, sets)
        if keys is None:
            return None
        texts, has_key = keys
        is_proven = does != 0
        is_proven[sets] &= has_key
        images = np.bincount(group[does == _B], minlength=group[-1] + 1)
        updates = np.bincount(group[does == _U], minlength=group[-1] + 1)
        is_proven &= self._have_masks(does)
        is_alone = (does == _U) & (images[group] == 0)
        is_proven &= ~is_alone | self._stay_in_place(does, is_alone)
        pairs = self._pairs(does, group, images)
        is_proven &= (does != _U) | is_alone | self._keep_their_key(*pairs)
        is_proven &= ~self._may_deny_changes(*pairs)
        # All rows that the exact decoder sees together; those it refuses by their header alone do not count.
        is_proven &= (images[group] == 0) | ((images[group] == 1) & (updates[group] > 0))
        is_broken = np.bincount(group[(does != 0) & ~is_proven], minlength=group[-1] + 1) > 0
        is_taken = is_proven & ~is_broken[group]
        if (is_alone & ~is_taken).any():
            return None
        chosen = is_taken[sets]
        before_of = np.full(self._size, -1)
        before_of[pairs[0]] = pairs[1]
        rows = self._rows(sets[chosen], texts.filter(pa.array(chosen)), does, sequences, before_of)
        return rows, is_taken, int(np.count_nonzero(is_taken & (does == _B)))

    def _header(self, name: str) -> pa.Array:
        at = self._layout.place(name)
        return pa.nulls(self._size, pa.string()) if at is None else self._texts.column(at)

    def _operations(self) -> npt.NDArray[np.int8]:
        said, named = self._header(OPERATION).dictionary_encode(), self._header(OPERATION_NAME).dictionary_encode()
        says, names = [*said.dictionary.to_pylist(), None], [*named.dictionary.to_pylist(), None]
        spelled = said.indices.fill_null(len(says) - 1).to_numpy().astype(np.int64) * len(names)
        spelled += named.indices.fill_null(len(names) - 1).to_numpy()
        spellings, of_row = np.unique(spelled, return_inverse=True)
        codes = [_code(says[one // len(names)], names[one % len(names)]) for one in spellings.tolist()]
        return np.array(codes, np.int8)[of_row]

    def _have_masks(self, does: npt.NDArray[np.int8]) -> Booleans:
        """Which rows have a readable mask, naming something for an INSERT or DELETE (T-21), or need none (T-13)."""
        masks_read, of_row = self._masks()
        sound: Booleans = np.array([not isinstance(one, Refusal) for one in masks_read])[of_row]
        names_any = np.array(
            [one is None or isinstance(one, Refusal) or not has_no_bit(self._layout, one) for one in masks_read]
        )[of_row]
        sound &= names_any | (does == _U)
        sound |= does == _B
        return sound

    def _masks(self) -> tuple[list[MaskReadings | Refusal | None], Places]:
        masks = self._header(MASK).dictionary_encode()
        masks_read = [*(self._readings(text) for text in masks.dictionary.to_pylist()), None]
        return masks_read, masks.indices.fill_null(len(masks_read) - 1).to_numpy()

    def _stay_in_place(self, does: npt.NDArray[np.int8], is_alone: Booleans) -> Booleans:
        """Which UPDATEs without before image provably keep their key, by their masks (T-19)."""
        keys, stay = self._layout.key_places, np.zeros(self._size, bool)
        if not is_alone.any():
            return stay
        keeps_key = not keys or self._layout.keys_never_change
        masks_read, of_row = self._masks()
        has_images = bool((does == _B).any())
        stored = self._settings.before_images
        if keys and (has_images if stored is None else stored):
            return stay  # it will come
        reading = None
        if not has_images:
            used = (masks_read[at] for at in np.unique(of_row[does == _U]).tolist())
            readings = [one for one in used if one is not None and not isinstance(one, Refusal)]
            reading = choose_reading(self._layout, self._settings.mask_order, readings, ())

        def stays(mask: MaskReadings | Refusal | None) -> bool:
            if mask is None or isinstance(mask, Refusal):
                return mask is None and keeps_key
            if shows_nothing(self._layout, mask):
                return keeps_key
            if reading is not None:
                return not keys & mask.get(reading, frozenset())
            return not any(keys & places for places in mask.values())

        kept: Booleans = np.array([stays(one) for one in masks_read])[of_row]
        return kept

    def _readings(self, text: str) -> MaskReadings | Refusal | None:
        try:
            return read_mask(self._layout, text, self._settings.mask_order)
        except Refusal as refusal:
            return refusal

    def _pairs(self, does: npt.NDArray[np.int8], group: Places, images: Places) -> tuple[Places, Places]:
        updates = np.flatnonzero((does == _U) & (images[group] > 0))
        of_group = np.zeros(group[-1] + 1, np.int64)
        befores = np.flatnonzero(does == _B)
        of_group[group[befores]] = befores
        return updates, of_group[group[updates]]

    def _keep_their_key(self, updates: Places, befores: Places) -> Booleans:
        same = np.ones(len(updates), bool)
        for at in self._layout.key_places:
            column = self._texts.column(at)
            equal = pc.equal(column.take(pa.array(updates)), column.take(pa.array(befores)))
            same &= equal.fill_null(False).to_numpy(zero_copy_only=False)
        kept = np.zeros(self._size, bool)
        kept[updates] = same
        return kept

    def _may_deny_changes(self, updates: Places, befores: Places) -> Booleans:
        """Which UPDATEs have a mask that lacks a column with another spelling than in their before image."""
        denying = np.zeros(self._size, bool)
        places = self._layout.judged_places
        if not len(updates) or not places:
            return denying
        masks_read, of_row = self._masks()
        used, which = np.unique(of_row[updates], return_inverse=True)
        possible = []
        for reading in _READINGS:
            agrees, named = np.zeros(len(used), bool), np.zeros((len(used), self._layout.width), bool)
            for number, mask in enumerate(masks_read[at] for at in used.tolist()):
                if mask is None or isinstance(mask, Refusal):
                    agrees[number], named[number] = True, True  # nothing to contradict, or left anyway
                elif reading in mask:
                    agrees[number], named[number, list(mask[reading])] = True, True
            possible.append((agrees[which], named))
        for at in places:
            asked = np.zeros(len(updates), bool)
            for agrees, named in possible:
                asked |= agrees & ~named[which, at]
            if not asked.any():
                continue
            column = self._texts.column(at)
            after, before = column.take(pa.array(updates)), column.take(pa.array(befores))
            same = pc.or_(pc.equal(after, before).fill_null(False), pc.and_(after.is_null(), before.is_null()))
            is_same = same.to_numpy(zero_copy_only=False)
            for agrees, named in possible:
                agrees &= named[which, at] | is_same
        denying[updates] = ~np.logical_or.reduce([agrees for agrees, _ in possible])
        return denying

    def _images(self, places: Places) -> tuple[pa.Array, Booleans]:
        columns = [self._texts.column(place).take(pa.array(places)) for place, _ in self._layout.kept]
        more = self._layout.value_places
        says_more = np.zeros(len(places), bool)
        for (place, _), column in zip(self._layout.kept, columns, strict=True):
            if place in more:
                says_more |= column.is_valid().to_numpy(zero_copy_only=False)
        return json_objects([name for _, name in self._layout.kept], columns), says_more

    def _marks(self, befores: Places, afters: Places) -> pa.Array:
        marks = np.zeros(len(befores), np.int16)
        is_marked: Booleans = befores >= 0
        if not (self._layout.is_marked and is_marked.any()):
            return pa.nulls(len(befores), pa.int16())
        images, is_known = self._images(befores[is_marked])
        for place, _ in self._layout.kept:
            is_null = self._texts.column(place).is_null().to_numpy(zero_copy_only=False)
            is_known &= ~is_null[befores[is_marked]] | is_null[afters[is_marked]]
        marks[is_marked] = [image_mark(image) for image in images.cast(pa.binary()).to_pylist()]
        is_marked[is_marked] = is_known
        return pa.array(marks, mask=~is_marked)

    def _rows(
        self,
        places: Places,
        keys: pa.Array,
        does: npt.NDArray[np.int8],
        sequences: pa.Array,
        before_of: Places,
    ) -> pa.Table:
        size, at = len(places), pa.array(places)
        operations = does[places]
        is_delete = operations == _D
        images, says_more = self._images(places)
        nothing = pa.scalar(None, pa.string())
        buckets = buckets_of_bytes(keys.cast(pa.binary()).to_pylist()) if self._layout.key_places else [-1] * size

        def constant(text: str) -> pa.Array:
            return pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, np.int32)), pa.array([text]))

        # fmt: off
        rows = pa.Table.from_arrays(
            [
                constant(CHANGE),
                constant(self._layout.source),
                pa.array(buckets, pa.int16()),
                constant(self._settings.load),
                qlik_positions(sequences.take(at), pc.if_else(pa.array(is_delete), "0", "1"), pa.array([0] * size)),
                pa.array(_OPERATIONS).take(pa.array(operations)).dictionary_encode(),
                keys,
                constant(self._layout.cols),
                pa.repeat(pa.scalar(True), size),
                pc.if_else(pa.array(~is_delete), images, nothing),
                pc.if_else(pa.array(is_delete & says_more), images, nothing),
                self._marks(before_of[places], places),
                constant(self._block.origin),
                pa.array(places + self._block.place),
            ],
            schema=SCHEMA,
        )
        # fmt: on
        if self._layout.logs_transactions:
            masks_read = [self._header(name).take(at) for name in TRANSACTION]
            masks_read = [pc.if_else(pc.equal(one, ""), nothing, one) for one in masks_read]
            return pa.Table.from_arrays([*rows.columns, *masks_read], schema=DATED_SCHEMA)
        return rows


def _code(oper: str | None, name: str | None) -> int:
    try:
        return _OPERATIONS.index(operation_of(oper, name))
    except Refusal:
        return 0


def _are_ascending_sequences(sequences: pa.Array) -> bool:
    are_digits = pc.and_(pc.equal(pc.binary_length(sequences), SEQUENCE_DIGITS), pc.ascii_is_decimal(sequences))
    if not len(sequences) or not pc.all(are_digits).as_py() or not sequences[0].as_py().strip("0"):
        return False
    return bool(pc.all(pc.greater_equal(sequences[1:], sequences[:-1])).as_py())


def canonical_texts(
    layout: RowLayout, texts: pa.RecordBatch, rows: npt.NDArray[np.int64]
) -> tuple[pa.Array, npt.NDArray[np.bool_]] | None:
    """The canonical keys of *rows*, and for each row whether the decoder certainly gives the same key.

    None if a key column is missing, or if its type loses digits as a key.
    """
    proven = np.ones(len(rows), bool)
    columns, converters = [], layout.key_converters
    for at in layout.key_in_order:
        if at is None or at not in converters:
            return None
        column = texts.column(at).take(pa.array(rows))
        spelled = canonical_column(layout.types[at], converters[at], column)
        proven &= spelled.is_valid().to_numpy(zero_copy_only=False)
        columns.append(spelled)
    return (json_lists(columns) if columns else pa.nulls(len(rows), pa.string())), proven
