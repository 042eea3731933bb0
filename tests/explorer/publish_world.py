"""Several publishers of one table, a mirror, and everybody who may disturb them.

The writers run the real machine. A request is delivered, executes without its reply, never executes, or leaves a
copy that executes at any later time; a writer crashes anywhere and begins again. Replies need no step of their own:
what others do between an effect and its reply, they can as well do before the next effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from open_mirroring.protocols import publishing as p

from .canonical import CURRENT, STALE, Interned, aged, parts
from .machines import PublishMachine
from .publish_disturbances import disturbed, mirrored, reset
from .publish_ports import FINAL, PROCESSED, READY, SEALED_ETAG, Content, Ledger, Store, Zone
from .publish_rules import PublishRules
from .publish_state import Bounds, Left, State, incarnation, with_item
from .search import Move, Violation

COMPARED = (p.Establish, p.Intend, p.Seal, p.Confirm, p.Stop)
LEDGER_WRITES = (p.Acquire, *COMPARED)
CREATES = (p.CreateMarker, p.CreateMetadata)
PLACES = {p.FilePlace.FINAL: FINAL, p.FilePlace.PROCESSED: PROCESSED, p.FilePlace.READY_TO_DELETE: READY}


class PublishWorld:
    """The transition system; see the module."""

    def __init__(
        self,
        bounds: Bounds,
        *,
        machine: PublishMachine | None = None,
        store: Store | None = None,
        ledger: Ledger | None = None,
        unchecked: frozenset[str] = frozenset(),
    ) -> None:
        self.bounds = bounds
        self.machine = machine or PublishMachine()
        self._store = store or Store()
        self._ledger = ledger or Ledger()
        self._rules = PublishRules(bounds, unchecked)
        self.rows: Interned[p.TableRow] = Interned()
        self.writers: Interned[Any] = Interned()
        self.requests: Interned[Any] = Interned()
        self._contents: dict[p.StagedFile, Content] = {}
        self._steps: dict[tuple[int, Any], int] = {}
        self._aged: dict[int, int] = {}
        self._files: tuple[dict[int, frozenset[p.StagedFile]], ...] = ({}, {}, {})
        self._stale_can_only_lose = not any(issubclass(kind, self._ledger.unconditional) for kind in COMPARED)
        self._begin = self.writers.number(self.machine.start())

    def initial(self) -> State:
        """Writers that know nothing, an empty table."""
        b = self.bounds
        zone = Zone(1, incarnation(1) if b.established else None, b.established)
        row = p.TableRow(CURRENT, 1, incarnation(1), b.established, 0, 0, marker_etag=zone.marker_etag)
        left = Left(b.late, b.duplicated_uploads, b.deleted_objects, b.foreign_folders, b.foreign_files, b.resets)
        return State(self.rows.number(row), (self._begin,) * b.writers, (), zone, (), (), left)

    def is_goal(self, state: State) -> bool:
        """Everything is published, or the table waits for somebody's decision."""
        row = self.rows[state.row]
        return row.stop is not None or (row.published_batch == len(self.bounds.cuts) and row.intent is None)

    def moves(self, state: State) -> Iterator[Move]:
        """Every transition; what the rules forbid is a move to its violation."""
        for label, own, after in self.raw_moves(state):
            yield Move(label, own, after if isinstance(after, Violation) else self.canonical(after))

    def tell(self, path: Sequence[tuple[Any, tuple[Any, ...]]]) -> list[str]:
        """The path in words."""
        from .publish_story import tell

        return tell(self, path)

    def canonical(self, state: State) -> State:
        """Writers sorted; garbage that nothing refers to and late requests that can do nothing any more left out."""
        zone = state.zone
        late = tuple(sorted(n for n in state.late if self._can_act(zone, self.requests[n])))
        writers = tuple(sorted(state.writers))
        if zone.staged:
            named = self._named(state.row, writers, late)
            zone = zone._replace(staged=tuple(item for item in zone.staged if item[0] in named))
        return state._replace(writers=writers, late=late, zone=zone)

    # --- moves ----------------------------------------------------------------------------------------------

    def raw_moves(self, state: State) -> Iterator[tuple[tuple[Any, ...], bool, State | Violation]]:
        """Every transition as (label, own, state before it is made canonical)."""
        for i, writer in enumerate(state.writers):
            if writer in state.writers[:i]:
                continue  # the same state twice: one of them is enough
            request = self.machine.request(self.writers[writer])
            yield from self._delivered(state, i, request)
            if writer != self._begin:
                yield ("crash", i), False, self._with_writer(state, i, self._begin)
            if isinstance(request, self.bounds.late_kinds) and state.left.late:
                copy = (*state.late, self.requests.number(request))
                left = state.left._replace(late=state.left.late - 1)
                yield ("copied", i), False, state._replace(late=copy, left=left)
        for n in sorted(set(state.late)):
            rest = list(state.late)
            rest.remove(n)
            yield from self._late(state._replace(late=tuple(rest)), n)
        for label, after in self._others(state):
            yield label, False, after

    def _delivered(
        self, state: State, i: int, request: p.Request
    ) -> Iterator[tuple[tuple[Any, ...], bool, State | Violation]]:
        writer = state.writers[i]
        if isinstance(request, p.Stage):
            for cut in self._cuts(state, request.row):
                files = self._staging(state, request.row, cut)
                zone = state.zone
                for file in files:
                    zone = zone.with_staged(file, SEALED_ETAG)
                after = self._with_writer(state, i, self._step(writer, p.Staged(files)))
                yield ("done", i, cut), True, after._replace(zone=zone)
            return
        try:
            after, reply = self._effect(state, request, writer)
        except Violation as violation:
            yield ("done", i), True, violation
            return  # every other way to deliver it does the same
        yield ("done", i), True, self._with_writer(after, i, self._step(writer, reply))
        if isinstance(request, (*LEDGER_WRITES, *CREATES, p.Rename, p.Sweep)):
            yield ("unheard", i), False, self._with_writer(after, i, self._step(writer, p.Unknown()))
            given_up = self._step(writer, p.Unknown())
            if given_up != self._begin:  # else it is the crash
                yield ("never", i), False, self._with_writer(state, i, given_up)
        if isinstance(request, p.CreateMarker):
            half = self._store.torn_marker(state.zone)
            if half is not None:
                yield ("torn", i), False, self._with_writer(state._replace(zone=half), i, self._begin)
        if isinstance(request, p.Rename):
            torn = self._store.torn_rename(state.zone, request.number, request.file, self._contents[request.file])
            if torn is not None:
                ever = with_item(state.ever, request.number, self._contents[request.file])
                yield ("torn", i), False, self._with_writer(state._replace(zone=torn, ever=ever), i, self._begin)

    def _late(self, state: State, n: int) -> Iterator[tuple[tuple[Any, ...], bool, State | Violation]]:
        try:
            yield ("late", n), False, self._effect(state, self.requests[n], None)[0]
        except Violation as violation:
            yield ("late", n), False, violation

    def _effect(self, state: State, request: Any, writer: int | None) -> tuple[State, p.Reply]:
        """What a request does to ledger and store, and what it is answered."""
        zone = state.zone
        match request:
            case p.Acquire() | p.Establish() | p.Intend() | p.Seal() | p.Confirm() | p.Stop():
                return self._written(state, request, writer)
            case p.CreateMarker(marker):
                zone = zone if zone.marker is not None else zone._replace(marker=marker)
                return state._replace(zone=zone), p.Answered()
            case p.ReadMarker():
                return state, p.Marker(zone.marker, zone.marker_etag)
            case p.CreateMetadata():
                return state._replace(zone=zone._replace(metadata=True)), p.Answered()
            case p.ReadMetadata():
                return state, p.Metadata(zone.metadata)
            case p.Rename(number, file):
                content = self._contents[file]
                renamed = self._store.rename(zone, number, file, content)
                if renamed is None:
                    return state, p.RenameRefused()
                self._rules.created(state, number, content)
                return state._replace(zone=renamed, ever=with_item(state.ever, number, content)), p.Renamed()
            case p.Probe(place, number, file):
                return state, self._seen(zone, place, number, file)
            case p.Sweep(_, confirmed):
                for file, _etag in zone.staged:
                    if int(file.object_name.split(".")[0]) <= confirmed:
                        zone = zone.without_staged(file)
                return state._replace(zone=zone), p.Answered()
        raise AssertionError(f"no port takes {request}")

    def _written(self, state: State, request: Any, writer: int | None) -> tuple[State, p.Reply]:
        row = self.rows[state.row]
        written = self._ledger.write(row, request)
        if written is None:
            return state, p.Lost()
        bound = state.bound
        if isinstance(request, p.Seal):
            self._rules.sealed(state, written)
            if written.intent is not None:
                for number, file in enumerate(written.intent.manifest or (), written.intent.first_number):
                    bound = with_item(bound, number, file.digest)
        elif isinstance(request, p.Confirm):
            self._rules.confirmed(state, row)
        elif isinstance(request, p.Stop) and writer is not None:
            self._rules.stopped(state, self.machine.real(self.writers[writer]), request.code)
        return self._row_moved(state, written)._replace(bound=bound), p.Owned(written)

    def _row_moved(self, state: State, row: p.TableRow) -> State:
        """The row written by somebody: whatever others asked of its old version can only be refused."""
        late = state.late
        if self._stale_can_only_lose:
            late = tuple(n for n in late if not isinstance(self.requests[n], COMPARED))
        writers = tuple(self._age(writer) for writer in state.writers)
        return state._replace(row=self.rows.number(row), writers=writers, late=late)

    def _seen(self, zone: Zone, place: p.FilePlace, number: int, file: p.StagedFile) -> p.Seen:
        if place is p.FilePlace.SOURCE:
            etag = zone.etag_of(file)
            if etag is None:
                return p.Seen()
            return p.Seen(file.etag if etag is SEALED_ETAG else "another etag", file.digest)
        there = zone.file(number)
        if there is None or there[1] != PLACES[place]:
            return p.Seen()
        return p.Seen("etag of the final file", there[0].digest)

    def _cuts(self, state: State, row: p.TableRow) -> range:
        """The cuts worth trying: while nothing of a batch exists, cuts of equal size differ in name only."""
        intent = row.intent
        assert intent is not None
        cuts = self.bounds.cuts[intent.work.batch_to - 1]
        named = self._named(state.row, state.writers, state.late)
        untouched = len(state.bound) < intent.first_number and not any(
            self._contents[file].batch == intent.work.batch_to for file in named
        )
        return range(1 if untouched and len(set(cuts)) == 1 else len(cuts))

    def _staging(self, state: State, row: p.TableRow, cut: int) -> tuple[p.StagedFile, ...]:
        intent = row.intent
        assert intent is not None
        count = self.bounds.cuts[intent.work.batch_to - 1][cut]
        named = self._named(state.row, state.writers, state.late)
        used = {file.object_name.split(".")[1] for file in named if self._contents[file].batch == intent.work.batch_to}
        attempt = next(name for name in "abcdefghijklmnop" if name not in used)
        files = []
        for index in range(count):
            content = Content(row.generation, intent.work.batch_to, cut, index, count)
            name = f"{intent.first_number + index}.{attempt}"
            file = p.StagedFile(f"{name}.g{row.generation}c{cut}", f"etag of {name}", content.digest)
            self._contents[file] = content
            files.append(file)
        return tuple(files)

    def _others(self, state: State) -> Iterator[tuple[tuple[Any, ...], State]]:
        row = self.rows[state.row]
        touched = state.left.duplicated_uploads or state.left.deleted_objects
        named = self._named(state.row, state.writers, state.late) if touched else ()
        yield from disturbed(state, row, self.bounds, self._store, named)
        yield from mirrored(state, self.bounds)
        resetting = reset(row, state)
        if resetting is not None:
            label, written = resetting
            after = self._row_moved(state, written)
            if written.generation > row.generation:
                yield label, after._replace(ever=(), bound=())
            else:
                yield label, after._replace(left=state.left._replace(resets=state.left.resets - 1))

    # --- writers --------------------------------------------------------------------------------------------

    def _with_writer(self, state: State, i: int, writer: int) -> State:
        return state._replace(writers=(*state.writers[:i], writer, *state.writers[i + 1 :]))

    def _step(self, writer: int, reply: p.Reply) -> int:
        known = self._steps.get((writer, reply))
        if known is None:
            after = self.machine.step(self.writers[writer], reply)
            known = self._steps[writer, reply] = self.writers.number(self._settled(after))
        return known

    def _work(self, row: p.TableRow) -> p.WorkFound:
        more = row.published_batch < len(self.bounds.cuts)
        return p.WorkFound(p.Work("changes", row.published_batch + 1) if more else None)

    def _age(self, writer: int) -> int:
        """The writer once somebody else has written the row."""
        known = self._aged.get(writer)
        if known is None:
            after = self._settled(aged(self.writers[writer], "version"))
            known = self._aged[writer] = self.writers.number(after)
        return known

    def _settled(self, state: Any) -> Any:
        """The state after steps that nobody can see.

        A finished writer begins again. So does one whose row is stale when all it can still do, before it touches
        anything that others read, is to lose its next ledger write; what it stages nobody will ever refer to.
        """
        request, row = self.machine.request(state), self.machine.real(state).row
        if isinstance(request, p.Finished):
            return self.machine.start()
        if isinstance(request, p.FindWork):
            return self._settled(self.machine.step(state, self._work(request.row)))
        if row is None or row.version != STALE or not self._stale_can_only_lose:
            return state
        if isinstance(request, COMPARED):
            return self.machine.step(state, p.Lost())
        if isinstance(request, p.Stage) or (isinstance(request, p.ReadMarker) and row.established):
            return self.machine.start()
        return state

    # --- canonical form -------------------------------------------------------------------------------------

    def _can_act(self, zone: Zone, request: Any) -> bool:
        if isinstance(request, COMPARED) and self._stale_can_only_lose:
            return request.version == CURRENT
        return not isinstance(request, p.Rename) or self._store.may_yet_rename(zone, request.file)

    def _named(self, row: int, writers: tuple[int, ...], late: tuple[int, ...]) -> list[p.StagedFile]:
        """The staged objects that somebody still refers to, by name."""
        named = set(self._files_of(0, row))
        for writer in set(writers):
            named |= self._files_of(1, writer)
        for request in late:
            named |= self._files_of(2, request)
        return sorted(named, key=lambda file: file.object_name)

    def _files_of(self, kind: int, number: int) -> frozenset[p.StagedFile]:
        known = self._files[kind].get(number)
        if known is None:
            value = (self.rows, self.writers, self.requests)[kind][number]
            known = self._files[kind][number] = frozenset(parts(value, p.StagedFile))
        return known
