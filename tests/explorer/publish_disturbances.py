"""Everybody but the writers: the mirror, and those who disturb a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from open_mirroring.protocols import publishing as p

from .canonical import CURRENT
from .publish_ports import FINAL, FOREIGN, OTHER_ETAG, PURGED, Store
from .publish_state import Bounds, State, incarnation

RESETTING = "RESETTING"
"""An approved reset is under way: the row belongs to it until the folder is deleted and the next generation opened."""

Label = tuple[object, ...]


def mirrored(state: State, bounds: Bounds) -> Iterator[tuple[Label, State]]:
    """The mirror moves and purges in the order of the numbers; a file that is not ours holds it up (A5, F-36)."""
    files = state.zone.files
    ahead = PURGED
    for number, there in enumerate(files, 1):
        if there is None or there[0] is FOREIGN:
            return
        place = there[1]
        last = number == len(files) or files[number] is None
        onward = place + 1 if bounds.two_processed_folders or place == FINAL else PURGED
        if place < PURGED and onward <= ahead and not (last and bounds.keeps_last):
            yield ("moved", number, onward), state._replace(zone=state.zone.with_file(number, (there[0], onward)))
        if place == FINAL:
            return
        ahead = place


def disturbed(
    state: State, row: p.TableRow, bounds: Bounds, store: Store, named: Iterable[p.StagedFile]
) -> Iterator[tuple[Label, State]]:
    """What happens to staged objects, to the folder and under the numbers without our doing."""
    left, zone = state.left, state.zone
    for file in named:
        if left.duplicated_uploads and zone.etag_of(file) is not OTHER_ETAG:
            fewer = left._replace(duplicated_uploads=left.duplicated_uploads - 1)
            yield ("uploaded again", file), state._replace(zone=zone.with_staged(file, OTHER_ETAG), left=fewer)
        if left.deleted_objects and zone.etag_of(file) is not None:
            fewer = left._replace(deleted_objects=left.deleted_objects - 1)
            yield ("object deleted", file), state._replace(zone=zone.without_staged(file), left=fewer)
    if left.foreign_folders:
        # Before the table is established nothing was published: a new folder is as good as the old one.
        life = 0 if row.established else zone.life
        fewer = left._replace(foreign_folders=left.foreign_folders - 1)
        yield ("folder recreated",), state._replace(zone=store.folder_deleted(life, zone), left=fewer)
    if left.foreign_files:
        fewer = left._replace(foreign_files=left.foreign_files - 1)
        for number in range(1, sum(map(max, bounds.cuts)) + 1):
            if zone.file(number) is None:
                taken = zone.with_file(number, (FOREIGN, FINAL))
                yield ("foreign file", number), state._replace(zone=taken, left=fewer)
    if row.stop == RESETTING and zone.life == row.generation:
        yield ("reset folder",), state._replace(zone=store.folder_deleted(row.generation + 1, zone))


def reset(row: p.TableRow, state: State) -> tuple[Label, p.TableRow] | None:
    """The row that an approved reset writes next, if one may."""
    if row.stop != RESETTING:
        return (("reset",), replace(row, stop=RESETTING, intent=None)) if state.left.resets else None
    if state.zone.life == row.generation:
        return None
    generation = row.generation + 1
    return ("reset done",), p.TableRow(CURRENT, generation, incarnation(generation), False, 0, 0)
