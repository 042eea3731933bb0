"""CES messages by columns instead of one by one: the rows of the exact decoder, for a part of its work.

Nothing is taken on trust. That a message is like one which the exact decoder took is proven byte by byte
(:mod:`spark_jobs.sources.ces_templates`); the rows are proven by the query that unescapes them
(:mod:`spark_jobs.sources.ces_row_query`): that they have the columns of their list in the one spelling of the log, that
the key is its own canonical text, and the same in row and announcement. What is not proven goes to
:class:`~spark_jobs.sources.ces.CesDecoder`, which is the definition: messages in pieces, key changes, other spellings,
damage, and whatever comes too seldom to be worth a query.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.errors import TerminalError
from spark_jobs.change_log_schema import CHANGE
from spark_jobs.sources.ces import CesDecoder
from spark_jobs.sources.ces_changes import NOTHING_NOTICED
from spark_jobs.sources.ces_envelope import Data, read_data
from spark_jobs.sources.ces_row_query import Match, RowForm, form_of, read_rows
from spark_jobs.sources.ces_templates import Template, template_of
from spark_jobs.sources.decoded import Decoded, Refusal
from spark_jobs.sources.message_block import MessageBlock
from spark_jobs.sources.text_buffer import Places, TextBuffer

WORTH_A_QUERY = 250
"""Fewer messages than this are decoded one by one: planning a query costs as much."""
WORTH_LEARNING = 50
"""Fewer messages alike than this are decoded one by one: learning and comparing costs as much."""

_PROBE = 160
"""By so many bytes at the beginning of their data, which name the table, messages find their templates."""
_MOST_TEMPLATES, _MOST_PLACES = 4096, 4


class Block(NamedTuple):
    """Messages decoded: *table* holds the changes that were proven, *rest* all other rows, and the counts of both.

    The table has columns of :data:`~spark_jobs.change_log_schema.LOG_SCHEMA`, those of few different values
    dictionary-encoded; what is NULL in every change is left out. None: nothing was proven.
    """

    table: pa.Table | None
    rest: Decoded


class VectorisedCesDecoder:
    """Decodes many messages together, with the rows and counts of an exact decoder.

    Args:
        exact: the decoder that defines the result.
        worth_a_query: see :data:`WORTH_A_QUERY`.
        worth_learning: see :data:`WORTH_LEARNING`.
    """

    def __init__(
        self, exact: CesDecoder, worth_a_query: int = WORTH_A_QUERY, worth_learning: int = WORTH_LEARNING
    ) -> None:
        self._exact = exact
        self._worth_a_query, self._worth_learning = worth_a_query, worth_learning
        self._known: dict[tuple[int, bytes], list[_Known]] = {}
        self._places: list[int] = []

    def decode(self, block: MessageBlock) -> Block:
        """Decode messages; *table* and *rest* together hold the rows that the exact decoder gives for them."""
        matches = self._matches(block.buffer)
        table, left = None, np.ones(len(block.places), dtype=bool)
        if sum(len(match.chosen) for match in matches) >= self._worth_a_query:
            table, proven = read_rows(block, matches)
            left[proven] = False
        rest = self._exact.decode(chain(block.messages(np.flatnonzero(left)), block.others))
        changes = rest.counts.changes + len(block.places) - int(left.sum())
        return Block(table, rest._replace(counts=rest.counts._replace(messages=len(block), changes=changes)))

    def _matches(self, buffer: TextBuffer) -> list[Match]:
        """The messages that are like a template; templates are learned where enough messages ask for one."""
        matches: list[Match] = []

        def left_by(known: _Known, rows: Places) -> Places:
            chosen, spans = known.template.match(buffer, rows)
            if len(chosen):
                matches.append(Match(known.form, known.template, chosen, spans))
            return np.setdiff1d(rows, chosen, assume_unique=True)

        sizes = buffer.ends - buffer.starts
        left = np.flatnonzero((sizes > 0) & (sizes <= self._exact.settings.max_message_bytes))
        if len(left) < self._worth_a_query:
            return matches
        if not self._places:
            self._learn(buffer.text(left[0]))
        for place in self._places:
            remaining = [left[:0]]
            for probe, rows in _by_probe(buffer, left, place).items():
                for known in self._known.get((place, probe), ()):
                    rows = left_by(known, rows)
                while len(rows) >= self._worth_learning and (learned := self._learn(buffer.text(rows[0]))):
                    waiting, rows = len(rows), left_by(learned, rows)
                    if len(rows) == waiting:
                        break
                remaining.append(rows)
            left = np.sort(np.concatenate(remaining))
        return matches

    def _learn(self, body: bytes) -> _Known | None:
        """The template of a message, if the exact decoder takes it as a change without a notice."""
        template = template_of(body)
        if template is None:
            return None
        try:
            event = self._exact.read(body)
            outcome = self._exact.decode_event(event, "", 0, body)
            data = read_data(event.data)
            table = self._exact.table_of(data)
            if table is None or [row.kind for row in outcome.rows] != [CHANGE] or outcome.notices != NOTHING_NOTICED:
                return None
            row = outcome.rows[0]
            form = form_of(table, table.columns(bytes(data.eventsource.cols)), _old(data), row.row)
        except (Refusal, TerminalError):
            return None
        if form is None or sorted(template.keys) != sorted(table.key):
            return None
        if len(self._known) >= _MOST_TEMPLATES:  # a hostile stream must not fill the memory
            self._known.clear()
        if template.data not in self._places:
            self._places = [*self._places, template.data][-_MOST_PLACES:]
        known = _Known(template, form)
        self._known.setdefault((template.data, body[template.data :][:_PROBE]), []).append(known)
        return known


class _Known(NamedTuple):
    template: Template
    form: RowForm


def _by_probe(buffer: TextBuffer, chosen: Places, place: int) -> dict[bytes, Places]:
    """The chosen messages by the bytes at this place."""
    starts = buffer.starts[chosen] + place
    ends = np.maximum(np.minimum(starts + _PROBE, buffer.ends[chosen]), starts)
    probes = pc.dictionary_encode(buffer.views(starts, ends, pa.binary_view()))
    codes = probes.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    groups = np.split(chosen[order], np.cumsum(np.bincount(codes))[:-1]) if len(codes) else []
    return dict(zip(probes.dictionary.to_pylist(), groups, strict=True))


def _old(data: Data) -> str | None:
    images = data.eventrow or data.eventdata
    return images.old if images else None
