"""What must hold at every instant of publishing (I2, I7 to I12, I22), checked where an effect could break it."""

from __future__ import annotations

from open_mirroring.protocols import publishing as p

from .publish_ports import FINAL, FOREIGN, PURGED, SEALED_ETAG, Content, Zone
from .publish_state import Bounds, Left, State
from .search import Violation

WRITE_ONCE = "WRITE_ONCE"
"""The final name of an incarnation is created at most once, also after its file moved on or was purged (I8)."""
NO_GAP = "NO_GAP"
"""The numbers ever visible have no hole (I7)."""
SEALED_ONLY = "SEALED_ONLY"
"""What is visible under a number is what is sealed for it (I9)."""
BINDING = "BINDING"
"""The digest sealed for a number never changes (I9)."""
EXACT_CONTENT = "EXACT_CONTENT"
"""Numbers in order carry every batch, in one cut, exactly once (I2)."""
OLD_INCARNATION = "OLD_INCARNATION"
"""No file of an incarnation appears in a folder that was not made for it (I12)."""
CONFIRMED_VISIBLE = "CONFIRMED_VISIBLE"
"""What is confirmed was visible, with the sealed content (I22)."""
STOP_CAUSE = "STOP_CAUSE"
"""A table stops only when somebody disturbed what is ours."""


class PublishRules:
    """The invariants of a world; those named in *unchecked* are left out, to show what breaks after them."""

    def __init__(self, bounds: Bounds, unchecked: frozenset[str]) -> None:
        self._bounds = bounds
        self._unchecked = unchecked

    def created(self, state: State, number: int, content: Content) -> None:
        """A file of ours is about to become visible under a number."""
        zone = state.zone
        there = zone.file(number)
        self._hold(OLD_INCARNATION, zone.life == content.generation, f"number {number} holds a file of another life")
        fresh = there is None
        where = "overwritten" if there is not None and there[1] == FINAL else "created a second time"
        self._hold(WRITE_ONCE, fresh, f"number {number} is {where}")
        before = None if number == 1 else zone.file(number - 1)
        self._hold(NO_GAP, number == 1 or before is not None, f"number {number} is visible before {number - 1}")
        bound = state.bound[number - 1] if number <= len(state.bound) else None
        self._hold(SEALED_ONLY, bound == content.digest, f"number {number} shows {content.digest}, sealed: {bound}")
        if before is not None or number == 1:
            last = Content(content.generation, 0, 0, -1, 0) if before is None else before[0]
            self._hold(EXACT_CONTENT, self._follows(last, content), f"{content.digest} follows {last.digest}")

    def sealed(self, state: State, row: p.TableRow) -> None:
        """The open intent was bound to objects."""
        if row.intent is None or row.intent.manifest is None:
            return
        for number, file in enumerate(row.intent.manifest, row.intent.first_number):
            bound = state.bound[number - 1] if number <= len(state.bound) else None
            self._hold(BINDING, bound in (None, file.digest), f"number {number}: {file.digest} replaces {bound}")
            there = state.zone.file(number)
            if there is not None and there[0] is not FOREIGN and state.zone.life == row.generation:
                same = there[0].digest == file.digest
                self._hold(SEALED_ONLY, same, f"number {number} shows {there[0].digest}, sealed: {file.digest}")

    def confirmed(self, state: State, row: p.TableRow) -> None:
        """The open intent of *row* is about to be confirmed."""
        if row.intent is None:
            return
        for number, file in enumerate(row.intent.manifest or (), row.intent.first_number):
            seen = state.ever[number - 1] if number <= len(state.ever) else None
            good = seen is not None and seen.digest == file.digest
            self._hold(CONFIRMED_VISIBLE, good, f"number {number} is confirmed and was never visible")

    def stopped(self, state: State, machine: p.State, code: str) -> None:
        """The table is about to stop."""
        used = self._used(state.left)
        folder_lost = bool(used.foreign_folders or used.resets)
        if code == p.INCARNATION_CHANGED:
            self._hold(STOP_CAUSE, folder_lost, "nobody touched the table's folder")
        elif code == p.METADATA_CHANGED:
            self._hold(STOP_CAUSE, folder_lost, "nobody touched the table's metadata")
        elif code == p.CONFLICT:
            self._hold(STOP_CAUSE, bool(used.foreign_files), "nobody else put a file under a number")
        elif code == p.AMBIGUOUS:
            intent = machine.row.intent if machine.row else None
            assert intent is not None and intent.manifest is not None
            number, file = intent.first_number + machine.at, intent.manifest[machine.at]
            visible = self._visible(state.zone, number)
            self._hold(STOP_CAUSE, not visible, f"number {number} is visible")
            self._hold(STOP_CAUSE, state.zone.etag_of(file) is not SEALED_ETAG, "the sealed object is still there")
            touched = used.duplicated_uploads or used.deleted_objects or folder_lost or used.foreign_files
            touched = touched or not self._bounds.keeps_last
            self._hold(STOP_CAUSE, bool(touched), "nobody touched the sealed object, and the last file is kept")

    def _visible(self, zone: Zone, number: int) -> bool:
        there = zone.file(number)
        return there is not None and there[1] != PURGED

    def _used(self, left: Left) -> Left:
        b = self._bounds
        return type(left)(
            b.late - left.late,
            b.duplicated_uploads - left.duplicated_uploads,
            b.deleted_objects - left.deleted_objects,
            b.foreign_folders - left.foreign_folders,
            b.foreign_files - left.foreign_files,
            b.resets - left.resets,
        )

    def _follows(self, last: Content, content: Content) -> bool:
        if last.index + 1 < last.count:
            return content == last._replace(index=last.index + 1)
        skipped = range(last.batch + 1, content.batch)
        return (
            last is not FOREIGN
            and content.index == 0
            and content.batch > last.batch
            and all(0 in self._bounds.cuts[batch - 1] for batch in skipped)
        )

    def _hold(self, rule: str, holds: bool, what: str) -> None:
        if not holds and rule not in self._unchecked:
            raise Violation(rule, what)
