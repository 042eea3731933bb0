"""Several extractors of one mirror, a source that grows, and a log that is compacted and vacuumed meanwhile.

Requests are delivered, unheard, lost, late or skipped, and writers crash, as in :mod:`.publish_world`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from open_mirroring.protocols import extracting as x

from .canonical import CURRENT, STALE, Interned, aged
from .extract_ports import ChangeLog, Ledger, LogFile, Maintenance, files_of
from .extract_state import (
    BINDING,
    COMPLETED_IN_LOG,
    FILES_THERE,
    IN_ORDER,
    RANGES_ONCE,
    ROWS_ONCE,
    SEALED_ONLY,
    STOP_CAUSE,
    Bounds,
    Run,
    State,
)
from .machines import ExtractMachine
from .search import Move, Violation

COMPARED = (x.Bind, x.Seal, x.Complete, x.Stop)


class ExtractWorld:
    """The transition system; see the module."""

    def __init__(
        self,
        bounds: Bounds,
        *,
        machine: ExtractMachine | None = None,
        ledger: Ledger | None = None,
        log: ChangeLog | None = None,
        maintenance: Maintenance | None = None,
        unchecked: frozenset[str] = frozenset(),
    ) -> None:
        self.bounds = bounds
        self.machine = machine or ExtractMachine()
        self._ledger = ledger or Ledger()
        self._log = log or ChangeLog()
        self._maintenance = maintenance or Maintenance()
        self._unchecked = unchecked
        self.rows: Interned[x.MirrorRow] = Interned()
        self.writers: Interned[x.State] = Interned()
        self.requests: Interned[Any] = Interned()
        self._steps: dict[tuple[int, x.Reply], int] = {}
        self._aged: dict[tuple[int, str], int] = {}
        self._stale_can_only_lose = not any(issubclass(kind, self._ledger.unconditional) for kind in COMPARED)
        self._begin = self.writers.number(self.machine.start())

    def initial(self) -> State:
        """Writers that know nothing, an empty log, one range to read."""
        row = self.rows.number(x.MirrorRow(CURRENT, 0))
        left = (self.bounds.late, self.bounds.maintenance)
        return State(row, (self._begin,) * self.bounds.writers, (), (), (), (), 0, 1, None, left)

    def is_goal(self, state: State) -> bool:
        """All that the source has is committed."""
        row = self.rows[state.row]
        return row.stop is not None or (row.batch is None and state.bound == state.available)

    def moves(self, state: State) -> Iterator[Move]:
        """Every transition; what the rules forbid is a move to its violation."""
        for label, own, after in self.raw_moves(state):
            yield Move(label, own, after if isinstance(after, Violation) else self._canonical(after))

    def tell(self, path: Sequence[tuple[Any, tuple[Any, ...]]]) -> list[str]:
        """The path in words."""
        from .extract_story import tell

        return tell(self, path)

    # --- moves ----------------------------------------------------------------------------------------------

    def raw_moves(self, state: State) -> Iterator[tuple[tuple[Any, ...], bool, State | Violation]]:
        """Every transition as (label, own, state before it is made canonical)."""
        for i, writer in enumerate(state.writers):
            if writer in state.writers[:i]:
                continue  # the same state twice: one of them is enough
            request = self.writers[writer].request
            yield from self._delivered(state, i, request)
            if writer != self._begin:
                yield ("crash", i), False, self._with_writer(state, i, self._begin)
            if isinstance(request, self.bounds.late_kinds) and state.left[0]:
                late = (*state.late, self.requests.number(request))
                yield ("copied", i), False, state._replace(late=late, left=(state.left[0] - 1, state.left[1]))
        for n in sorted(set(state.late)):
            rest = list(state.late)
            rest.remove(n)
            try:
                after, _ = self._effect(state._replace(late=tuple(rest)), self.requests[n])
                yield ("late", n), False, after
            except Violation as violation:
                yield ("late", n), False, violation
        if state.available < self.bounds.ranges:
            yield ("grown",), False, state._replace(available=state.available + 1)
        yield from self._maintained(state)

    def _delivered(
        self, state: State, i: int, request: x.Request
    ) -> Iterator[tuple[tuple[Any, ...], bool, State | Violation]]:
        writer = state.writers[i]
        try:
            after, reply = self._effect(state, request)
        except Violation as violation:
            yield ("done", i), True, violation
            return
        yield ("done", i), True, self._with_writer(after, i, self._step(writer, reply))
        if isinstance(request, (x.Acquire, *COMPARED, x.CommitLog)):
            yield ("unheard", i), False, self._with_writer(after, i, self._step(writer, x.Unknown()))
            yield ("never", i), False, self._with_writer(state, i, self._step(writer, x.Unknown()))
        if isinstance(request, x.CommitLog):
            yield ("skipped", i), False, self._with_writer(state, i, self._step(writer, x.Committed()))

    def _effect(self, state: State, request: Any) -> tuple[State, x.Reply]:
        """What a request does to ledger and log, and what it is answered."""
        match request:
            case x.FindRanges():
                new = f"{state.bound + 1}-{state.available}" if state.bound < state.available else None
                return state, x.RangesFound(new)
            case x.Write(batch):
                return state, x.Written(f"{batch.number}.{self._unused(state, batch.number)}")
            case x.OpenLog(batch):
                return state, x.LogOpened(CURRENT, self._log.manifest(state.live, batch))
            case x.CommitLog(batch, snapshot):
                if snapshot != CURRENT and self._log.conditional:
                    return state, x.CommitRefused()
                return self._committed(state, batch), x.Committed()
        row = self.rows[state.row]
        written = self._ledger.write(row, request)
        if written is None:
            return state, x.Lost()
        state = self._checked(state, request, row)
        late = state.late
        if self._stale_can_only_lose:
            late = tuple(n for n in late if not isinstance(self.requests[n], COMPARED))
        writers = tuple(self._age(writer, "version") for writer in state.writers)
        return state._replace(row=self.rows.number(written), writers=writers, late=late), x.Owned(written)

    def _checked(self, state: State, request: Any, row: x.MirrorRow) -> State:
        """The ghosts after a ledger write, unless a rule forbids it."""
        match request:
            case x.Bind(_, batch):
                first, last = map(int, batch.ranges.split("-"))
                follows = first == state.bound + 1 and batch.number == row.committed + 1 and row.batch is None
                self._hold(RANGES_ONCE, follows, f"batch {batch.number} is bound to ranges {first} to {last}")
                return state._replace(bound=max(last, state.bound))
            case x.Seal(_, manifest) if row.batch is not None:
                sealed = state.sealed[row.batch.number - 1] if row.batch.number <= len(state.sealed) else manifest
                self._hold(BINDING, sealed == manifest, f"{manifest} replaces {sealed}")
                return state._replace(sealed=(*state.sealed[: row.batch.number - 1], manifest))
            case x.Complete() if row.batch is not None:
                there = sum(file.batch == row.batch.number for file in state.live)
                self._hold(COMPLETED_IN_LOG, there == 1, f"the log has the rows of the batch {there} times")
            case x.Stop(_, code, _):
                self._hold(STOP_CAUSE, False, f"{code}, and nobody disturbed the log")
        return state

    def _committed(self, state: State, batch: x.Batch) -> State:
        """The log with the batch's files added."""
        files = files_of(batch.manifest or "")
        sealed = state.sealed[batch.number - 1] if batch.number <= len(state.sealed) else None
        before = {file.batch for file in state.live}
        self._hold(SEALED_ONLY, sealed == batch.manifest, f"{batch.manifest} is committed, sealed is {sealed}")
        self._hold(FILES_THERE, files not in state.deleted, f"{batch.manifest} is committed, its files are deleted")
        self._hold(ROWS_ONCE, batch.number not in before, f"batch {batch.number} is committed a second time")
        self._hold(IN_ORDER, batch.number == 1 or batch.number - 1 in before, f"batch {batch.number} comes too early")
        return self._log_moved(state, tuple(sorted({*state.live, files})))

    def _log_moved(self, state: State, live: tuple[LogFile, ...]) -> State:
        late = state.late
        if self._log.conditional:
            late = tuple(n for n in late if not isinstance(self.requests[n], x.CommitLog))
        writers = tuple(self._age(writer, "snapshot") for writer in state.writers)
        run = None if state.run is None else state.run._replace(newest=False)
        return state._replace(live=live, late=late, writers=writers, run=run)

    # --- maintenance ----------------------------------------------------------------------------------------

    def _maintained(self, state: State) -> Iterator[tuple[tuple[Any, ...], bool, State | Violation]]:
        run = state.run
        if run is None:
            if state.left[1]:
                yield ("maintenance",), False, state._replace(run=Run(), left=(state.left[0], state.left[1] - 1))
            return
        if run.completed is None and (self._maintenance.ledger_first or run.live is not None):
            completed = self.rows[state.row].committed
            yield ("reads ledger",), False, state._replace(run=run._replace(completed=completed))
        elif run.live is None:
            yield ("reads log",), False, state._replace(run=run._replace(live=state.live, newest=True))
        else:
            yield ("ends",), False, state._replace(run=None)
            yield from self._vacuumed(state, run)
            young = [f for f in run.live if not f.compacted and self._touches(f.batch, run)]
            if young and run.newest:
                live = tuple(sorted(f._replace(compacted=True) if f in young else f for f in run.live))
                after = self._log_moved(state, live)
                yield ("compacted",), False, after._replace(run=run._replace(live=live, newest=True))

    def _vacuumed(self, state: State, run: Run) -> Iterator[tuple[tuple[Any, ...], bool, State | Violation]]:
        known = {files_of(manifest) for manifest in self._manifests(state)} | set(state.live)
        doomed = {f for f in known - set(run.live or ()) if self._touches(f.batch, run)}
        lost = doomed & set(state.live)
        if lost and FILES_THERE not in self._unchecked:
            yield ("vacuumed",), False, Violation(FILES_THERE, f"the log refers to {min(lost).manifest}, now deleted")
        elif doomed - set(state.deleted):
            yield ("vacuumed",), False, state._replace(deleted=tuple(sorted({*state.deleted, *doomed})))

    def _touches(self, batch: int, run: Run) -> bool:
        return self._maintenance.may_touch(batch, run.completed or 0)

    # --- writers and canonical form -------------------------------------------------------------------------

    def _with_writer(self, state: State, i: int, writer: int) -> State:
        return state._replace(writers=(*state.writers[:i], writer, *state.writers[i + 1 :]))

    def _step(self, writer: int, reply: x.Reply) -> int:
        known = self._steps.get((writer, reply))
        if known is None:
            after = self._settled(self.machine.step(self.writers[writer], reply))
            known = self._steps[writer, reply] = self.writers.number(after)
        return known

    def _age(self, writer: int, name: str) -> int:
        """The writer once somebody else has moved the row's version, or the log's."""
        known = self._aged.get((writer, name))
        if known is None:
            after = self._settled(aged(self.writers[writer], name))
            known = self._aged[writer, name] = self.writers.number(after)
        return known

    def _settled(self, state: x.State) -> x.State:
        """The state after steps that nobody can see; a stale writer that can only lose begins again."""
        if isinstance(state.request, x.Finished):
            return self.machine.start()
        stale = state.row is not None and state.row.version == STALE and self._stale_can_only_lose
        return (
            self.machine.start() if stale and isinstance(state.request, (*COMPARED, x.FindRanges, x.Write)) else state
        )

    def _unused(self, state: State, batch: int) -> str:
        used = {m for m in self._manifests(state)} | {file.manifest for file in (*state.live, *state.deleted)}
        return next(name for name in "abcdefgh" if f"{batch}.{name}" not in used)

    def _manifests(self, state: State) -> set[str]:
        """The manifests that somebody refers to."""
        batch = self.rows[state.row].batch
        found = {batch.manifest} if batch is not None and batch.manifest else set()
        for writer in state.writers:
            row, request = self.writers[writer].row, self.writers[writer].request
            found |= {row.batch.manifest} if row is not None and row.batch is not None else set()
            found |= {request.manifest} if isinstance(request, x.Seal) else set()
        for n in state.late:
            request = self.requests[n]
            found |= {request.manifest} if isinstance(request, x.Seal) else set()
            found |= {request.batch.manifest} if isinstance(request, x.CommitLog) else set()
        return {manifest for manifest in found if manifest}

    def _canonical(self, state: State) -> State:
        deleted = state.deleted
        if deleted:
            named = {files_of(manifest) for manifest in self._manifests(state)}
            deleted = tuple(file for file in deleted if file in named)
        late = tuple(sorted(n for n in state.late if self._can_act(self.requests[n])))
        return state._replace(writers=tuple(sorted(state.writers)), late=late, deleted=deleted)

    def _can_act(self, request: Any) -> bool:
        if isinstance(request, x.CommitLog):
            return request.snapshot == CURRENT or not self._log.conditional
        if isinstance(request, COMPARED):
            return request.version == CURRENT or not self._stale_can_only_lose
        return True

    def _hold(self, rule: str, holds: bool, what: str) -> None:
        if not holds and rule not in self._unchecked:
            raise Violation(rule, what)
