"""Finds dead letters that no longer matter, because a later row of the same key is published.

A dead letter is *healed* when the change log has a later published change of the same row that is readable and
complete. A dead letter is *reloaded* when a complete initial load contains its change. A dead letter stays open if
neither can be proved. DuckDB opens only files of the change log that may contain a later row.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Engine

from open_mirroring.changes.history_names import is_history
from open_mirroring.changes.log_position import BEGINS_EMPTY, is_of_generation, not_above, not_below, position_order
from open_mirroring.changes.manifest import LetterPlace
from open_mirroring.config import Mirror
from open_mirroring.config.storage import log_place
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.dead_letters import Outdated, settle_outdated
from open_mirroring.ledger.reading import LedgerReader, TableState
from spark_jobs.changelog.origins import partition_of
from spark_jobs.changelog.schema import CHANGE, DELETE, INSERT, KEY_LEFT, LOAD_MAJOR, UPDATE

log = logging.getLogger(__name__)


class _Stale(NamedTuple):
    """A row at the target that may be outdated because of an open dead letter; a key change has two such rows."""

    at: LetterPlace
    key: str | None
    epoch: str | None
    pos: str | None
    looked_to: int
    is_typed: bool


_Rows = tuple[list[_Stale], set[tuple[str, str, str | None]]]
"""A table's open dead letters, and those of its changes that do not fit, which therefore heal no other one."""


def settle_outdated_letters(mirror: Mirror, ledger: Engine) -> int:
    """Settle the open dead letters that are healed or reloaded; returns the number of settled dead letters."""
    reader = LedgerReader(ledger, mirror.name)
    states = reader.tables()
    found = _open_rows(ledger, mirror.name, states)
    if not found:
        return 0
    declared = {table.source: table for table in mirror.tables}
    outcomes: dict[LetterPlace, Outdated] = {}
    looked: dict[str, int] = {}
    for source, (stale, untyped) in found.items():
        state = states[source]
        epochs, before = reader.epochs([state.id]), _first_of_stream(reader, state)
        reloaded = {row.at for row in stale if _is_in_load(state, row, epochs, before)}
        outcomes |= dict.fromkeys(reloaded, "reloaded")
        table = declared.get(source)
        if table is None or not state.keys or state.reset is not None:
            continue
        starts = reader.starts(state.id)
        left = [row for row in stale if row.at not in reloaded and not _is_of_reload(row, starts)]
        search = _Search(mirror, reader, state, completes=bool(table.complete_rows))
        healed, looked[source] = search.healed(left, untyped)
        outcomes |= dict.fromkeys(healed, "healed")
    # A history lacks the change for ever: no later row of its key shows what it was (G-194).
    lacking = {row.at for source, (stale, _) in found.items() if is_history(source) for row in stale}
    settled = settle_outdated(ledger, mirror.name, {at: one for at, one in outcomes.items() if at not in lacking})
    _remember(ledger, mirror.name, {states[source].id: (source, batch) for source, batch in looked.items()})
    if settled:
        log.info("%d dead letters are settled: later rows of their keys, or a load, are published", settled)
    return settled


def _open_rows(ledger: Engine, mirror: str, states: Mapping[str, TableState]) -> dict[str, _Rows]:
    o, r, s = t.open_letter.c, t.rejected_change.c, t.settled_letter.c
    unreadable = sa.select(o.source, o.batch, o.origin, o.place, o.key, o.epoch, o.pos, o.looked_to)
    unreadable = unreadable.where(o.mirror == mirror, o.source.is_not(None), o.place >= 0)
    settled = sa.exists().where(s.mirror == mirror, s.batch == r.batch, s.origin == r.origin, s.place == r.place)
    untyped = sa.select(r.table_id, r.batch, r.origin, r.place, r.key, r.epoch, r.pos, r.looked_to, settled)
    sources = {state.id: source for source, state in states.items()}
    found = defaultdict[str, _Rows](lambda: ([], set()))
    with ledger.connect() as db:
        for source, batch, origin, place, key, epoch, pos, looked_to in db.execute(unreadable).tuples():
            if source in states:
                found[source][0].append(_Stale(LetterPlace(batch, origin, place), key, epoch, pos, looked_to, False))
        for line in db.execute(untyped.where(r.table_id.in_(list(sources)))).tuples():
            table_id, batch, origin, place, key, epoch, pos, looked_to, is_settled = line
            stale, keys = found[sources[table_id]]
            keys.add((epoch, pos, key))
            if not is_settled:
                at = LetterPlace(batch, origin, place)
                stale.append(_Stale(at, key, epoch, pos, looked_to or 0, True))
    return {source: rows for source, rows in found.items() if rows[0]}


def _first_of_stream(reader: LedgerReader, state: TableState) -> int:
    """The first batch of the stream that began with the table's load; earlier changes are in it (G-128). Else 0."""
    if state.start.load_state != "loaded" or state.start.stream_from != BEGINS_EMPTY:
        return 0
    ordinals = reader.epochs([state.id]).get(state.id, {})
    parts = reader.contents({state.source: 0}, reader.mirror().committed).get(state.source, [])
    newest = (part.batch for part in parts if ordinals.get(part.epoch, 0) >= state.start.stream_epoch)
    return min(newest, default=0)


def _is_of_reload(row: _Stale, starts: Mapping[str, int]) -> bool:
    """Whether a dead letter belongs to a full load sent after changes of its table (K-67), which no change heals."""
    is_loaded = row.pos is not None and row.pos.startswith(f"{LOAD_MAJOR}:")
    return is_loaded and row.at.place > starts.get(row.at.origin, row.at.place)


def _is_in_load(state: TableState, row: _Stale, epochs: Mapping[str, Mapping[str, int]], before: int) -> bool:
    """Whether the initial load contains the dead letter's change; *before* is the first batch of its stream."""
    if (load := state.start.newest_load) is not None and not row.is_typed and row.epoch == load.epoch:
        begin = load.begins.get(partition_of(row.at.origin))
        is_loaded = row.pos is not None and row.pos.startswith(f"{LOAD_MAJOR}:")
        if is_loaded or row.pos is None:
            return begin is not None and row.at.place < begin
        return row.pos < load.stream_from
    if state.start.load_state != "loaded" or state.start.load_plan is None or row.is_typed:
        return False
    if row.at.batch <= max(state.start.log_from, state.start.load_plan.hand_over_batch, before - 1):
        return True
    ordinal = epochs.get(state.id, {}).get(row.epoch or "")
    if ordinal is None or row.pos is None or state.start.stream_from is None:
        return False
    return position_order(ordinal, row.pos) < position_order(state.start.stream_epoch, state.start.stream_from)


@dataclass(frozen=True)
class _Search:
    mirror: Mirror
    reader: LedgerReader
    state: TableState
    completes: bool

    def healed(
        self, rows: Sequence[_Stale], untyped: Iterable[tuple[str, str, str | None]]
    ) -> tuple[set[LetterPlace], int]:
        """The dead letters whose rows all have a later change; and the batch up to which later changes were sought."""
        state, published = self.state, self.state.row.published_batch
        generation = state.row.generation
        ordinals = self.reader.epochs([state.id]).get(state.id, {})
        ordinals = {e: at for e, at in ordinals.items() if is_of_generation(e, generation)}
        wanted = {
            row: position_order(ordinals[row.epoch], row.pos)
            for row in rows
            if row.key is not None and row.pos is not None and row.epoch in ordinals and row.looked_to < published
        }
        if not wanted:
            return set(), self._looked_to(ordinals)
        later: dict[_Stale, bool] = {}
        bad = [f"{epoch} {pos} {key}" for epoch, pos, key in untyped]
        for looked_to in sorted({row.looked_to for row in wanted}):
            group = {row: order for row, order in wanted.items() if row.looked_to == looked_to}
            newest = self._newest(group, looked_to, ordinals, bad)
            for row, order in group.items():
                whole, left = newest.get(row.key or "", ("", ""))
                # A row that leaves the key in the same transaction may not be the row that was written in it. A change
                # at the same position is the same one, read again without error; for an untypable change it is that
                # change itself.
                later[row] = whole > order or left > f"{order.rsplit(':', 2)[0]};"
                later[row] |= order in (whole, left) and not row.is_typed
        places: dict[LetterPlace, bool] = {}
        for row in rows:
            places[row.at] = places.get(row.at, True) and later.get(row, False)
        return {at for at, is_healed in places.items() if is_healed}, self._looked_to(ordinals)

    def _newest(
        self, rows: Mapping[_Stale, str], above: int, ordinals: Mapping[str, int], bad: Sequence[str]
    ) -> dict[str, tuple[str, str]]:
        """By key, two positions: of the newest complete change or delete, and of the newest that left the key."""
        from spark_jobs.changelog.reading import logged  # with DuckDB and Arrow, which most runs do not need

        state = self.state
        reaching = not_below(min(rows.values()), ordinals)
        parts = self.reader.history(state.source, state.row.published_batch, reaching)
        # Batches up to `log_from` are not part of this generation: their keys may differ.
        files = sorted({file for part in parts if part.batch > max(above, state.start.log_from) for file in part.files})
        if not files:
            return {}
        end = state.row.published_position
        load = state.start.newest_load
        limits = dict.fromkeys(ordinals) if end is None else not_above(end, ordinals)
        query = """SELECT key, op IN ($left, $delete), max(pos) FROM logged
                   WHERE kind = $kind AND tbl = $table AND epoch = $epoch AND batch <= $batch
                     AND ($limit IS NULL OR pos <= $limit) AND pos >= $since AND key IN (SELECT unnest($keys))
                     AND (op IN ($left, $insert, $delete)
                          OR (op = $update AND (NOT $completes OR cols IN (SELECT unnest($whole)))))
                     AND (epoch || ' ' || pos || ' ' || key) NOT IN (SELECT unnest($bad))
                   GROUP BY ALL"""
        found: dict[str, tuple[str, str]] = {}
        with logged(log_place(self.mirror), files) as db:
            for epoch, limit in limits.items():
                if epoch not in reaching or (load is not None and ordinals[epoch] < ordinals.get(load.epoch, 0)):
                    continue
                # Rows from before the newest load of the source are not in the target (G-125).
                is_of_load = load is not None and epoch == load.epoch
                parameters: dict[str, Any] = {
                    "kind": CHANGE,
                    "table": state.source,
                    "epoch": epoch,
                    "batch": state.row.published_batch,
                    "limit": limit,
                    "since": max(load.stream_from, f"{LOAD_MAJOR};") if load is not None and is_of_load else "",
                    "keys": sorted({row.key or "" for row in rows}),
                    "left": KEY_LEFT,
                    "insert": INSERT,
                    "delete": DELETE,
                    "update": UPDATE,
                    "completes": self.completes,
                    "whole": self._complete_lists(),
                    "bad": list(bad) or [""],
                }
                for key, is_left, pos in db.execute(query, parameters).fetchall():
                    order = position_order(ordinals[epoch], pos)
                    whole, left = found.get(key, ("", ""))
                    found[key] = (whole, max(left, order)) if is_left else (max(whole, order), left)
        return found

    def _complete_lists(self) -> list[str]:
        """The column lists with all columns that are not dropped; with others, a value may be missing (G-04)."""
        from spark_jobs.plan.logged_lines import carries_all, types_of

        lists = [found.cols for found in self.reader.column_lists([self.state.id]).get(self.state.id, [])]
        gone = {column.column for column in self.reader.gone_columns([self.state]).get(self.state.id, [])}
        types = {name: kind for cols in lists for name, kind in types_of(cols).items() if name not in gone}
        return [cols for cols in lists if carries_all(cols, types)] or [""]

    def _looked_to(self, ordinals: Mapping[str, int]) -> int:
        """The batch up to which everything is published; none of its changes waits for the end of a transaction."""
        state, end = self.state, self.state.row.published_position
        if end is None:
            return state.row.published_batch
        waiting = [
            part.batch
            for part in self.reader.history(state.source, state.row.published_batch, not_below(end, ordinals))
            if part.epoch in ordinals and position_order(ordinals[part.epoch], part.highest) > end
        ]
        return min(waiting, default=state.row.published_batch + 1) - 1


def _remember(ledger: Engine, mirror: str, looked: Mapping[str, tuple[str, int]]) -> None:
    o, r = t.open_letter.c, t.rejected_change.c
    with ledger.begin() as db:
        for table_id, (source, batch) in looked.items():
            mine = (o.mirror == mirror) & (o.source == source) & (o.batch <= batch)
            db.execute(t.open_letter.update().where(mine, o.looked_to < batch).values(looked_to=batch))
            rejected = (r.table_id == table_id) & (r.batch <= batch) & (sa.func.coalesce(r.looked_to, 0) < batch)
            db.execute(t.rejected_change.update().where(rejected).values(looked_to=batch))
