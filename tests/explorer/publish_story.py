"""A path through the publish world in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from open_mirroring.protocols import publishing as p

from .publish_ports import PROCESSED, PURGED, READY
from .search import Violation

if TYPE_CHECKING:
    from .publish_world import PublishWorld

PLACE_NAMES = {PROCESSED: "to _ProcessedFiles", READY: "to _FilesReadyToDelete", PURGED: "away: purged"}
OUTCOMES = {
    "done": "",
    "unheard": " - done, but the reply is lost",
    "never": " - the request is lost",
    "torn": " - crashes in the middle",
}


def tell(world: PublishWorld, path: Sequence[tuple[Any, tuple[Any, ...]]]) -> list[str]:
    """One line per move; a writer keeps its letter although canonical states sort the writers."""
    names = [chr(ord("A") + i) for i in range(world.bounds.writers)]
    lines = []
    for state, label in path:
        kind = label[0]
        if kind in OUTCOMES or kind in ("crash", "copied"):
            lines.append(f"{names[label[1]]} {_deed(world, state, label)}")
        else:
            lines.append(_event(world, label))
        after = next(a for story, _, a in world.raw_moves(state) if story == label)
        if not isinstance(after, Violation):
            order = sorted(range(len(names)), key=after.writers.__getitem__)
            names = [names[i] for i in order]
    return lines


def _deed(world: PublishWorld, state: Any, label: tuple[Any, ...]) -> str:
    request = world.machine.request(world.writers[state.writers[label[1]]])
    if label[0] == "crash":
        return f"crashes before: {said(request)}"
    if label[0] == "copied":
        return f"has a copy of this request under way: {said(request)}"
    cut = f" (cut {label[2]})" if len(label) > 2 else ""
    return said(request) + cut + OUTCOMES[label[0]]


def _event(world: PublishWorld, label: tuple[Any, ...]) -> str:
    match label:
        case ("late", n):
            return f"a late request executes: {said(world.requests[n])}"
        case ("moved", number, place):
            return f"the mirror moves number {number} {PLACE_NAMES[place]}"
        case ("uploaded again", file):
            return f"a repeated upload creates {file.object_name} with another ETag"
        case ("object deleted", file):
            return f"somebody deletes the staged object {file.object_name}"
        case ("folder recreated",):
            return "somebody deletes the table's folder and creates it anew"
        case ("foreign file", number):
            return f"somebody puts a file under number {number}"
        case ("reset",):
            return "a reset is approved"
        case ("reset folder",):
            return "the reset deletes the folder"
        case ("reset done",):
            return "the reset opens the next generation"
    return str(label)


def said(request: Any) -> str:
    """A request in a few words."""
    match request:
        case p.Acquire():
            return "acquires the row"
        case p.Intend(_, intent):
            return f"intends batch {intent.work.batch_to} from number {intent.first_number}"
        case p.Stage():
            return "stages"
        case p.Seal(_, manifest):
            return "seals " + ", ".join(file.object_name for file in manifest)
        case p.Rename(number, file):
            return f"renames {file.object_name} to number {number}"
        case p.Probe(place, number, file):
            return f"looks for {file.object_name if place is p.FilePlace.SOURCE else number} in {place.value}"
        case p.Stop(_, code, _):
            return f"stops the table: {code}"
    return {
        p.CreateMarker: "creates the marker",
        p.ReadMarker: "reads the marker",
        p.CreateMetadata: "creates the metadata",
        p.ReadMetadata: "reads the metadata",
        p.Establish: "records that the table is established",
        p.FindWork: "looks for work",
        p.Confirm: "confirms",
        p.Sweep: "sweeps staging",
    }[type(request)]
