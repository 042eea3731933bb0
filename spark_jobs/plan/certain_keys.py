"""Finds the keys of a table whose newest change is certainly published, without calling the plan rule for each.

:func:`open_mirroring.changes.plan_rule.plan_key` is the rule that decides for each key; calling this function for every
key would be slow. The newest change of a key is certain if all of these hold: all changes of the key are above the
published position; no change is the DELETE half of a key change; two changes at the same position are equal and in the
same batch; no position has both a delete and another change of the key; and no delete belongs to a transaction that may
have set another row at the key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.changelog.schema import DELETE, KEY_LEFT

_CONTENT = ("batch", "op", "cols", "row", "before")

_PLACE = ":[^:]+:[01]$"
"""The part of a position after the transaction, as a regular expression."""

_Integers = npt.NDArray[np.int64]
_Truths = npt.NDArray[np.bool_]


class CertainKeys(NamedTuple):
    """The certain keys, and the *doubtful* keys, which the plan rule has to decide.

    For each certain key: the index of its newest change (ascending), the number of its logged changes, and the number
    of repetitions among these changes.
    """

    newest: _Integers
    logged: _Integers
    repeated: _Integers
    doubtful: set[str]


def certain_keys(changes: pa.Table, floor: str, uncertain: Collection[str]) -> CertainKeys:
    """Separate the keys whose newest change is certainly published from all others.

    *floor* is the highest position up to which a change may be published already, or empty. Keys in *uncertain* are
    treated as doubtful.
    """
    if not changes.num_rows:
        nothing = np.zeros(0, np.int64)
        return CertainKeys(nothing, nothing, nothing, set())
    keys = changes["key"].combine_chunks().dictionary_encode()
    order = changes["order"].combine_chunks()
    key, number = keys.indices.to_numpy().astype(np.int64), ordinals(order)
    removes = _truths(pc.equal(changes["op"], DELETE))
    doubtful = _truths(pc.is_in(keys.dictionary, pa.array(sorted(uncertain), pa.string()))).copy()
    doubtful[key[_truths(pc.equal(changes["op"], KEY_LEFT))]] = True
    if floor:
        # What sets a row at the very place where another change removed it is above the floor, and has to be compared.
        floor = floor[:-1] + "1" if floor.endswith(":0") else floor
        doubtful[key[_truths(pc.less_equal(order, floor))]] = True
        doubtful[key[removes & _truths(pc.starts_with(order, re.sub(_PLACE, ":", floor)))]] = True
    span = int(number.max()) + 1
    # One sort of single numbers takes half as long as one by two columns.
    fits = span * len(doubtful) < 1 << 63
    at = np.argsort(key * span + number, kind="stable") if fits else np.lexsort((number, key))
    # Changes of one key follow each other: the last one is its newest, and each is compared with the one before it.
    follows = key[at[1:]] == key[at[:-1]]
    before, after = at[:-1][follows], at[1:][follows]
    logged = np.bincount(key, minlength=len(doubtful))
    newest = at[np.cumsum(logged) - 1]
    repeats = number[before] == number[after]
    one, other = before[repeats], after[repeats]
    repeated = np.bincount(key[one], minlength=len(doubtful))
    doubtful[key[one[~_are_alike(changes, one, other)]]] = True
    last = newest[key[before]]
    # Two halves of one place follow each other in the order of all texts.
    turns = (removes[before] != removes[after]) & ((number[after] - number[before] == 1) | removes[last])
    one, other = before[turns], after[turns]
    doubtful[key[one[_are_in_doubt(order, removes, one, other, last[turns])]]] = True
    certain = np.flatnonzero(~doubtful)
    certain = certain[np.argsort(newest[certain])]
    undecided = set(keys.dictionary.filter(pa.array(doubtful)).to_pylist())
    return CertainKeys(newest[certain], logged[certain], repeated[certain], undecided)


def ordinals(texts: pa.Array) -> _Integers:
    """Integers that sort as the strings in *texts*: equal for equal strings, greater for greater strings.

    Sorting integers is faster than sorting strings.
    """
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


def _are_in_doubt(order: pa.Array, removes: _Truths, one: _Integers, other: _Integers, newest: _Integers) -> _Truths:
    """Whether two successive changes of a key, of which only one deletes its row, need the plan rule.

    They do if both are at one position, or if the *newest* change of the key deletes a row in the transaction of both:
    that may not be the row that was set (G-03).
    """
    first, second, last = (order.take(pa.array(at)) for at in (one, other, newest))
    at_one_place = pc.equal(*(pc.utf8_slice_codeunits(places, 0, stop=-2) for places in (first, second)))
    in_one_commit = pc.equal(*(pc.replace_substring_regex(places, _PLACE, "") for places in (first, last)))
    return _truths(at_one_place) | (removes[newest] & _truths(in_one_commit))


def _are_alike(changes: pa.Table, one: _Integers, other: _Integers) -> _Truths:
    """Whether two changes are equal in every column and came in one batch."""
    mask, alike = np.zeros(changes.num_rows, np.bool_), np.ones(len(one), np.bool_)
    mask[one] = mask[other] = True
    rows, at = changes.select(_CONTENT).filter(pa.array(mask)).combine_chunks(), np.cumsum(mask) - 1
    for name in _CONTENT:
        left, right = (_plain(rows[name]).take(pa.array(at[places])) for places in (one, other))
        both_absent = pc.and_(left.is_null(), right.is_null())
        alike &= _truths(pc.if_else(both_absent, True, pc.fill_null(pc.equal(left, right), False)))
    return alike


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _truths(values: pa.Array | pa.ChunkedArray) -> _Truths:
    return np.asarray(values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy())
