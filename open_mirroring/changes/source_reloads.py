"""Finds where the newest full load of a Qlik task begins in its stream, and which changes come after it (G-125).

Rows of a full load have no positions, and nothing marks the rows that were deleted. So after a reload by the Qlik task
the table is rebuilt from the newest full load on. In each partition, the order of messages shows which changes came
before and after the full load. A change that cannot be ordered this way is refused. If it were considered newer, it
could overwrite a row of the full load; if it were considered older, it could be lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from open_mirroring.changes.log_position import LOAD_MAJOR
from open_mirroring.changes.places_seen import Places, PlacesSeen
from open_mirroring.errors import TerminalError

RELOAD_UNCLEAR = "RELOAD_UNCLEAR"
_WITH_A_LOAD = "give the table an `initial_load` made after that full load ended, and run `open-mirroring reload-table`"


@dataclass(frozen=True)
class NewestLoad:
    """The full load by a Qlik task with which a table is rebuilt.

    *begins* is, by partition, the place (offset or line) of the full load's first row. Changes below the position
    *stream_from* are older than the full load. *new_from* is the lowest change known to be newer. *is_closed* is True
    if every partition was read to an end that it had after the full load began: no older change can follow.
    *first_batch* is the first batch with a row of the full load or a later change. *last_batch* is the newest batch
    with a row of the full load.
    """

    epoch: str
    begins: Mapping[str, int]
    stream_from: str
    new_from: str | None
    is_closed: bool = False
    first_batch: int = 0
    last_batch: int = 0

    def behind(self, highest: str | None) -> NewestLoad:
        """The same full load, with all changes up to *highest* counted as older than the full load.

        Raises ``RELOAD_UNCLEAR`` if a change known to be newer than the full load is not above *highest*.
        """
        stream_from = "" if highest is None else f"{highest}~"
        if self.new_from is not None and self.new_from < stream_from:
            what = f"what is older: changes behind the load begin at {self.new_from}, those before it end at {highest}"
            raise _unclear(what)
        return replace(self, stream_from=max(self.stream_from, stream_from))

    def is_older(self, epoch: str, position: str) -> bool:
        """Whether a change is older than the full load; False for rows of a full load, which have no position."""
        return epoch == self.epoch and f"{LOAD_MAJOR};" < position < self.stream_from

    def lists_behind(self, lists: Mapping[str, Places]) -> dict[str, Places]:
        """The column lists without the positions of changes that are older than the full load."""
        found = dict[str, Places]()
        for cols, seen in lists.items():
            places = ((epoch, self._behind(epoch, at)) for epoch, at in seen.items())
            if counting := {epoch: at for epoch, at in places if at is not None}:
                found[cols] = counting
        return found

    def _behind(self, epoch: str, seen: PlacesSeen) -> PlacesSeen | None:
        counting = [at for at in seen[:2] if not self.is_older(epoch, at)]
        whole = [at for at in seen[2:] if at and not self.is_older(epoch, at)]
        if not counting:
            return None
        ends = min(counting + whole), max(counting + whole)
        return PlacesSeen(*ends, min(whole, default=""), max(whole, default=""))

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def of(cls, text: str | None) -> NewestLoad | None:
        """Parse JSON that :meth:`to_json` returned; None if *text* is None."""
        return None if text is None else cls(**json.loads(text))


@dataclass(frozen=True)
class ReloadedRows:
    """The newest full load of a table in the change log up to batch *up_to*, and the column lists since its begin.

    *starts* is, by partition, the place of the first change after the full load.
    """

    load: NewestLoad
    starts: Mapping[str, int]
    lists: Mapping[str, Places]
    up_to: int = 0


class Run(NamedTuple):
    """A sequence of neighbouring messages of one table in a partition: either rows of a full load, or changes.

    *first* and *last* are places in the partition. *lowest* and *highest* are positions of changes, if they are known.
    In a run of rows of a full load, *keys* is the number of distinct keys, and *new* the number of rows that were not
    sent before with the same content.
    """

    is_load: bool
    first: int
    last: int
    keys: int = 0
    new: int = 0
    lowest: str | None = None
    highest: str | None = None


class CameAgain(NamedTuple):
    """The rows of full loads in a partition where some keys came more than once.

    *earlier* is the highest place of a row whose key came again later. *newest* is the lowest place among the last rows
    of these keys, and *newest_of_most* among the last rows of those keys that came most often. *times* is how often
    these came. *keys* is the number of keys that came more than once. *single* has the places, in ascending order, of
    rows whose key came once. *differing* is True if rows of one key have different content.
    """

    earlier: int
    newest: int
    newest_of_most: int
    times: int
    keys: int
    single: Sequence[int]
    differing: bool

    @property
    def is_load(self) -> bool:
        """Whether these rows include a second full load, and are not only messages that were delivered again (G-85)."""
        return self.differing or self.keys >= len(self.single)

    @property
    def lacks_keys(self) -> bool:
        """Whether keys came before the newest rows of the others, and not again."""
        return self.newest != self.newest_of_most or any(one < self.newest for one in self.single)

    @property
    def begin(self) -> int | None:
        """The place where the newest full load begins; None if that is unclear.

        It is unclear if keys that came less often than others came last before the newest rows of the others. Either
        the newest full load lacks them, or rows of the others were delivered again.
        """
        is_clear = self.earlier < self.newest == self.newest_of_most
        return self.newest if is_clear and not any(self.earlier < one < self.newest for one in self.single) else None


LookAgain = Callable[[str, int, int], CameAgain | None]
"""Finds keys that came more than once among loaded rows between two places of a partition; None if there are none."""


def divide(epoch: str, partitions: Mapping[str, Sequence[Run]], look_again: LookAgain, moved: int) -> NewestLoad:
    """Find where the newest full load begins in each partition, and which changes come after the full load.

    *partitions* has the table's runs in order. *look_again* compares the keys of rows in a run. *moved* is how often
    the most frequent loaded key came, of the keys that came in more than one partition. Raises ``RELOAD_UNCLEAR`` if a
    row or change cannot be placed before or after this begin, or if a partition has rows of fewer full loads than
    another: the missing one may be the newest.
    """
    runs = {partition: _loads(found) for partition, found in partitions.items()}
    loads = {partition: [run for run in found if run.is_load] for partition, found in runs.items()}
    behind = {p: sum(run.is_load for run in found[1:]) for p, found in runs.items()}
    most = max(behind.values(), default=0)
    begins: dict[str, int] = {}
    agains: dict[str, list[CameAgain | None]] = {}
    for partition, found in loads.items():
        if found:
            came = [look_again(partition, run.first, run.last) for run in found]
            agains[partition] = [again if again is not None and again.is_load else None for again in came]
    # A partition that begins with a change had no row in the first load.
    sent = {p: 0 if runs[p][0].is_load else 1 for p in agains}
    for partition, seconds in agains.items():
        sent[partition] += sum(1 if again is None else again.times for again in seconds)
    most_sent = max([moved, *sent.values()])
    for partition in agains:
        if sent[partition] < most_sent:
            raise _unclear(f"whether partition {partition!r} has rows of the newest load: others have more loads")
        newest = loads[partition][-1]
        again = agains[partition][-1]
        if most and behind[partition] == most:
            begin = again.begin if again is not None and again.lacks_keys else newest.first
        elif not most and again is None:
            continue
        else:
            begin = None if again is None else again.begin
        if begin is None:
            raise _unclear(f"which rows of partition {partition!r} from {newest.first} on are of the newest load")
        begins[partition] = begin
    if not begins:
        raise unseen_reload()
    if not_placed := [p for p, found in loads.items() if found and p not in begins]:
        raise _unclear(f"of which load the rows of partition {not_placed[0]!r} are")
    changes = {p: [run for run in found if run.highest is not None] for p, found in runs.items() if p in begins}
    older = [run.highest for p, found in changes.items() for run in found if run.first < begins[p]]
    newer = [run.lowest for p, found in changes.items() for run in found if run.first >= begins[p]]
    highest, lowest = max(filter(None, older), default=None), min(filter(None, newer), default=None)
    return NewestLoad(epoch, begins, "", lowest).behind(highest)


def _loads(runs: Sequence[Run]) -> list[Run]:
    """The runs without messages of a load that were delivered again (K-40), and their neighbours joined.

    Raises ``RELOAD_UNCLEAR`` where such messages come last: they may be a load with less than half of the keys.
    """
    found: list[Run] = []
    last = max((at for at, run in enumerate(runs) if run.is_load), default=0)
    for at, run in enumerate(runs):
        before = next((one for one in reversed(found) if one.is_load), None)
        if run.is_load and before is not None and not run.new and 2 * run.keys < before.keys:
            if at == last:
                raise _unclear("whether its last loaded rows are a complete load, or were delivered again")
            continue
        if found and found[-1].is_load is run.is_load:
            found[-1] = _joined(found[-1], run)
        else:
            found.append(run)
    return found


def _joined(one: Run, other: Run) -> Run:
    lowest = min(filter(None, (one.lowest, other.lowest)), default=None)
    highest = max(filter(None, (one.highest, other.highest)), default=None)
    return Run(one.is_load, one.first, other.last, max(one.keys, other.keys), one.new + other.new, lowest, highest)


def unseen_reload() -> TerminalError:
    """Build the error for a table of which the change log has no second full load by the Qlik task."""
    return TerminalError(
        RELOAD_UNCLEAR,
        "the source has not loaded this table again: no new full load was found",
        next_step="there is nothing to accept; to rebuild the table, run `open-mirroring reload-table`",
    )


def _unclear(what: str) -> TerminalError:
    return TerminalError(RELOAD_UNCLEAR, f"the change log does not show {what}", next_step=_WITH_A_LOAD)


def unclear_change(position: str, partition: str) -> TerminalError:
    """Build the error for a change that may be older or newer than the full load; its partition has no loaded rows."""
    return _unclear(f"whether the change at {position} of partition {partition!r} is older than the newest load")
