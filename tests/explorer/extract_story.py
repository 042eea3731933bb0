"""A path through the extract world in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from open_mirroring.protocols import extracting as x

from .search import Violation

if TYPE_CHECKING:
    from .extract_world import ExtractWorld

OUTCOMES = {
    "done": "",
    "unheard": " - done, but the reply is lost",
    "never": " - the request is lost",
    "skipped": " - skipped, and answered as done",
}
EVENTS = {
    "grown": "the source has more to read",
    "maintenance": "maintenance begins",
    "reads ledger": "maintenance reads the ledger",
    "reads log": "maintenance reads the log",
    "vacuumed": "maintenance deletes unreferenced files",
    "compacted": "maintenance compacts",
    "ends": "maintenance ends",
}


def tell(world: ExtractWorld, path: Sequence[tuple[Any, tuple[Any, ...]]]) -> list[str]:
    """One line per move; a writer keeps its letter although canonical states sort the writers."""
    names = [chr(ord("A") + i) for i in range(world.bounds.writers)]
    lines = []
    for state, label in path:
        kind = label[0]
        if kind in EVENTS:
            lines.append(EVENTS[kind])
        elif kind == "late":
            lines.append(f"a late request executes: {said(world.requests[label[1]])}")
        else:
            deed = said(world.writers[state.writers[label[1]]].request)
            before = {"crash": "crashes before: ", "copied": "has a copy of this request under way: "}.get(kind, "")
            lines.append(f"{names[label[1]]} {before}{deed}{OUTCOMES.get(kind, '')}")
        after = next(a for story, _, a in world.raw_moves(state) if story == label)
        if not isinstance(after, Violation):
            order = sorted(range(len(names)), key=after.writers.__getitem__)
            names = [names[i] for i in order]
    return lines


def said(request: Any) -> str:
    """A request in a few words."""
    match request:
        case x.Bind(_, batch):
            return f"binds batch {batch.number} to ranges {batch.ranges}"
        case x.Write(batch):
            return f"writes the files of batch {batch.number}"
        case x.Seal(_, manifest):
            return f"seals {manifest}"
        case x.OpenLog(batch):
            return f"opens the log and looks for batch {batch.number}"
        case x.CommitLog(batch, _):
            return f"commits {batch.manifest}"
        case x.Stop(_, code, _):
            return f"stops the mirror: {code}"
    return {
        x.Acquire: "acquires the row",
        x.FindRanges: "lists the source",
        x.Complete: "records the batch as committed",
    }[type(request)]
