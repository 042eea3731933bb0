"""Finds the certain keys of a table: those whose newest change the plan rule certainly publishes.

:func:`open_mirroring.changes.plan_rule.plan_key` is the definition; asking it for every key would be slow. A key is
certain if one expression over columns proves five things. All its changes lie above everything published. None is the
DELETE half of a key change. No two share a position, unless they are equal and of one batch. At no position its row is
both set and removed. No change that removes the row is of a transaction that may have set another one at the key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.changelog.schema import DELETE, KEY_LEFT

_CONTENT = ("batch", "op", "cols", "row", "before")

_PLACE = ":[^:]+:[01]$"
"""What of an order follows the transaction."""

_Integers = npt.NDArray[np.int64]
_Truths = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CertainKeys:
    """The keys whose newest change is certainly published, and the keys that the definition has to decide.

    Attributes:
        index: where the newest change of each certain key stands, ascending.
        logged: number of changes of that key.
        repeated: how many of them repeat another one.
        doubtful: all other keys.
    """

    index: _Integers
    logged: _Integers
    repeated: _Integers
    doubtful: set[str]


def certain_keys(changes: pa.Table, floor: str, rejected: Collection[str]) -> CertainKeys:
    """Separate the keys whose newest change is certainly published from all others.

    Args:
        changes: changes of one table with their ``order``.
        floor: highest order up to which anything is published, empty if nothing is.
        rejected: keys of which a change is a dead letter.
    """
    if not changes.num_rows:
        nothing = np.zeros(0, np.int64)
        return CertainKeys(nothing, nothing, nothing, set())
    keys = changes["key"].combine_chunks().dictionary_encode()
    codes = keys.indices.to_numpy().astype(np.int64)
    order = changes["order"].combine_chunks()
    numbers = ordinals(order)
    doubtful = np.zeros(len(keys.dictionary), np.bool_)
    doubtful[codes[_truths(pc.equal(changes["op"], KEY_LEFT))]] = True
    if floor:
        # What sets a row at the very place where another change removed it is above the floor, and has to be compared.
        floor = floor[:-1] + "1" if floor.endswith(":0") else floor
        doubtful[codes[_truths(pc.less_equal(order, floor))]] = True
    if rejected:
        doubtful |= _truths(pc.is_in(keys.dictionary, pa.array(sorted(rejected), pa.string())))
    repeated = np.zeros(len(doubtful), np.int64)
    one, other = _repetitions(codes, numbers)
    if len(one):
        np.add.at(repeated, codes[one], 1)
        doubtful[codes[one[~_alike(changes, one, other)]]] = True
    removing = _truths(pc.equal(changes["op"], DELETE))
    if floor:
        doubtful[codes[removing & _truths(pc.starts_with(order, re.sub(_PLACE, ":", floor)))]] = True
    doubtful[_set_and_removed(codes, order, removing, len(doubtful))] = True
    newest = np.full(len(doubtful), np.iinfo(np.int64).min)
    np.maximum.at(newest, codes, numbers)
    deciding = np.flatnonzero(numbers == newest[codes])
    place = np.zeros(len(doubtful), np.int64)
    place[codes[deciding]] = deciding  # of repetitions that are alike the last one: whichever counts
    doubtful[_set_before(codes, order, removing, place)] = True
    certain = np.flatnonzero(~doubtful)
    certain = certain[np.argsort(place[certain])]
    logged = np.bincount(codes, minlength=len(doubtful))
    undecided = set(keys.dictionary.filter(pa.array(doubtful)).to_pylist())
    return CertainKeys(place[certain], logged[certain], repeated[certain], undecided)


def ordinals(texts: pa.Array) -> _Integers:
    """Numbers that compare like the texts, byte by byte: equal for equal ones, greater for greater ones."""
    bounds = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :][: len(texts) + 1]
    lengths = np.diff(bounds)
    if lengths[0] and np.all(lengths == lengths[0]):
        letters = np.frombuffer(texts.buffers()[2], np.uint8)[bounds[0] : bounds[-1]].reshape(len(texts), -1)
        low, high = letters.min(axis=0), letters.max(axis=0)
        places = np.flatnonzero(low != high)
        spans = (high - low)[places].astype(np.int64) + 1
        # Only the places that differ count; each is a digit of a number of mixed radix, as long as 63 bits hold it.
        if math.prod(spans.tolist()) < 1 << 63:
            numbers = np.zeros(len(texts), np.int64)
            for place, span in zip(places, spans, strict=True):
                numbers *= span
                numbers += letters[:, place] - low[place]
            return numbers
    return np.asarray(pc.rank(texts, tiebreaker="dense")).astype(np.int64)


def _repetitions(codes: _Integers, numbers: _Integers) -> tuple[_Integers, _Integers]:
    """Neighbouring pairs of changes that share key and position."""
    by_number = np.argsort(numbers)
    in_order = numbers[by_number]
    same = np.flatnonzero(in_order[1:] == in_order[:-1])
    suspects = np.unique(by_number[np.concatenate([same, same + 1])])
    suspects = suspects[np.lexsort((codes[suspects], numbers[suspects]))]
    one, other = suspects[:-1], suspects[1:]
    pairs = (codes[one] == codes[other]) & (numbers[one] == numbers[other])
    return one[pairs], other[pairs]


def _set_and_removed(codes: _Integers, order: pa.Array, removing: _Truths, keys: int) -> _Integers:
    """The keys of which changes at one place both set the row and remove it."""
    gone, there = np.zeros(keys, np.bool_), np.zeros(keys, np.bool_)
    gone[codes[removing]] = there[codes[~removing]] = True
    both = np.flatnonzero((gone & there)[codes])
    if not len(both):
        return both
    places = ordinals(pc.utf8_slice_codeunits(order.take(pa.array(both)), 0, stop=-2))
    in_order = np.lexsort((removing[both], places, codes[both]))
    both, places = both[in_order], places[in_order]
    same = (codes[both][1:] == codes[both][:-1]) & (places[1:] == places[:-1])
    found: _Integers = codes[both][1:][same & (removing[both][1:] != removing[both][:-1])]
    return found


def _set_before(codes: _Integers, order: pa.Array, removing: _Truths, newest: _Integers) -> _Integers:
    """The keys whose newest change removes a row and whose transaction set one: that may be another row (G-03)."""
    setting = np.flatnonzero(removing[newest][codes] & ~removing)
    if not len(setting):
        return setting
    last = newest[codes[setting]]
    of_place = order.take(pa.array(np.concatenate([setting, last])))
    transaction = pc.replace_substring_regex(of_place, _PLACE, "").dictionary_encode().indices.to_numpy()
    found: _Integers = codes[setting][transaction[: len(setting)] == transaction[len(setting) :]]
    return found


def _alike(changes: pa.Table, one: _Integers, other: _Integers) -> _Truths:
    """Which pairs of changes are equal in every column and came in one batch."""
    mask = np.zeros(changes.num_rows, np.bool_)
    mask[one] = mask[other] = True
    rows = changes.select(_CONTENT).filter(pa.array(mask)).combine_chunks()
    at = np.cumsum(mask) - 1
    alike = np.ones(len(one), np.bool_)
    for name in _CONTENT:
        left, right = (_plain(rows[name]).take(pa.array(at[places])) for places in (one, other))
        both_absent = pc.and_(left.is_null(), right.is_null())
        alike &= _truths(pc.if_else(both_absent, True, pc.fill_null(pc.equal(left, right), False)))
    return alike


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _truths(values: pa.Array | pa.ChunkedArray) -> _Truths:
    return np.asarray(values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy())
