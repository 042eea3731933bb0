"""Notes which places a task reads, for transports that number their messages, so that a missing one shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from open_mirroring.changes.manifest import BoundRange
from open_mirroring.changes.read_places import Numbering, Run, joined
from spark_jobs.changelog.origins import partition_of
from spark_jobs.sources.contract.decoded import Damage
from spark_jobs.sources.contract.message_blocks import Block, Message, MessageBlock, Places

_AT_ONCE = 20_000
_BY_MESSAGE = ("rising", "unbroken")


class PlacesRead:
    """Collects the runs of places that one task reads, by partition.

    A damaged message that still shows its place was there: it is a dead letter, and does not count as missing too.
    """

    def __init__(self) -> None:
        self._runs: dict[str, list[Run]] = {}

    def begin(self, bound: BoundRange, numbering: Numbering) -> None:
        """Note a range whose numbers are places."""
        if numbering == "bound" and bound.start < bound.end:
            self._runs.setdefault(bound.name, []).append(Run(bound.start, bound.end - 1))

    def noting(self, messages: Iterable[Message], numbering: Numbering) -> Iterable[Message]:
        """The same messages, each noted when it is taken."""
        return self._noting(messages, numbering) if numbering in _BY_MESSAGE else messages

    def _noting(self, messages: Iterable[Message], numbering: Numbering) -> Iterator[Message]:
        held = list[Message]()
        for message in messages:
            held.append(message)
            if len(held) >= _AT_ONCE:
                self._note(held, numbering)
                held = []
            yield message
        self._note(held, numbering)

    def note(self, block: Block, numbering: Numbering) -> None:
        """Note the messages of a block; a block of bare lines has no places."""
        if numbering in _BY_MESSAGE and isinstance(block, MessageBlock):
            self._note(block.each, numbering)

    def _note(self, messages: Sequence[Message], numbering: Numbering) -> None:
        places = dict[str, list[int]]()
        for message in messages:
            if not isinstance(message, Damage):
                places.setdefault(message.origin, []).append(message.place)
            elif message.claims is not None:
                places.setdefault(message.claims[0], []).append(message.claims[1])
        for origin, found in places.items():
            self._add(origin, np.array(found, np.int64), numbering)

    def _add(self, origin: str, places: Places, numbering: Numbering) -> None:
        known = self._runs.setdefault(partition_of(origin), [])
        if numbering == "unbroken":
            known += _runs(np.unique(places))
            if len(known) >= _AT_ONCE:
                known[:] = joined(known)
        else:
            known.append(Run(int(places.min()), int(places.max())))
            known[:] = [Run(min(run.first for run in known), max(run.last for run in known))]

    def runs(self) -> dict[str, list[Run]]:
        """What was noted."""
        return {partition: joined(runs) for partition, runs in self._runs.items()}


def _runs(places: Places) -> list[Run]:
    """Rising places as runs."""
    breaks = np.flatnonzero(np.diff(places) > 1)
    firsts = places[np.append(0, breaks + 1)]
    lasts = places[np.append(breaks, len(places) - 1)]
    return [Run(*run) for run in zip(firsts.tolist(), lasts.tolist(), strict=True)]
