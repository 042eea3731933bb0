"""Describes what one task of a batch wrote and saw, and merges the parts of all tasks into the batch's manifest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from open_mirroring.changes.manifest import (
    LETTERS_SHOWN,
    AnnouncedSchema,
    KeylessReject,
    LetterPlace,
    ListSeen,
    Manifest,
    OpenedFragment,
    PlacesSeen,
    SeenLetter,
    bounded_letters,
    highest_of,
    merged,
)
from open_mirroring.changes.read_places import Run, bounded, joined
from open_mirroring.codes import Trait, having
from spark_jobs.changelog.writing import Written
from spark_jobs.sources.contract.decoded import Sender, SourceSchema


class LoadPlaces(NamedTuple):
    """Of a table in one partition: the last row of a full load and the first change, None where there is none."""

    last_loaded: int | None = None
    first_change: int | None = None

    def with_others(self, other: LoadPlaces) -> LoadPlaces:
        """Those of both."""
        last = max((place for place in (self[0], other[0]) if place is not None), default=None)
        first = min((place for place in (self[1], other[1]) if place is not None), default=None)
        return LoadPlaces(last, first)


@dataclass(frozen=True)
class RowNotes:
    """What the driver must know of the rows of a part.

    Attributes:
        homeless_rejects: how many dead letters tell no table.
        keyless_rejects: per table a dead letter that tells no key.
        reloads: per table and partition where rows of full loads and changes stand.
        told: per partition and stream incarnation the highest commit, as ``major``; where changes are counted (K-80)
            the highest beginning of a transaction, as ``major:minor``, empty where there is none.
        letters: the dead letters.
        uncounted: where a change stands that lacks its place in its transaction, in a format that has one (K-80).
    """

    homeless_rejects: int = 0
    keyless_rejects: Mapping[str, KeylessReject] = field(default_factory=dict)
    reloads: Mapping[str, Mapping[str, LoadPlaces]] = field(default_factory=dict)
    told: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    letters: Sequence[SeenLetter] = ()
    uncounted: str = ""


@dataclass(frozen=True)
class Part:
    """What one task returns to the driver: paths and counts, never rows.

    Attributes:
        written: its log files.
        notes: what stands in them.
        counts: messages by disposition, and whatever else is counted.
        schemas: structures that its messages announced.
        foreign: messages of tables that are not mirrored, by the table's name; *foreign_up_to* the highest position.
        senders: who sends the changes of which table.
        met: coordinates of messages that the driver asked for, and that were read.
        replayed: dead letters that were decoded now.
        waiting: identities of messages that it could not join yet.
        opened: messages that still wait after it.
        closed: identities of messages that wait no more.
        given_back: ranges that were not read, each with the reason.
        stops: per table the code and the finding that ended its reading.
        shortest: per table the bytes of the shortest value of columns that their source may fill up.
        places: per partition the runs of places that were read.
    """

    written: Written = field(default_factory=Written)
    notes: RowNotes = field(default_factory=RowNotes)
    counts: Mapping[str, int] = field(default_factory=dict)
    schemas: Sequence[SourceSchema] = ()
    foreign: Mapping[str, int] = field(default_factory=dict)
    foreign_up_to: Mapping[str, str] = field(default_factory=dict)
    senders: Sequence[Sender] = ()
    met: frozenset[tuple[str, int]] = frozenset()
    replayed: Sequence[LetterPlace] = ()
    waiting: frozenset[str] = frozenset()
    opened: Sequence[OpenedFragment] = ()
    closed: Sequence[str] = ()
    given_back: Mapping[str, str] = field(default_factory=dict)
    stops: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    shortest: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    places: Mapping[str, Sequence[Run]] = field(default_factory=dict)


def merge(parts: Sequence[Part], announced: Sequence[SourceSchema] = (), partitions: int = 0) -> Manifest:
    """One manifest from the parts that the tasks returned; *partitions* of the source carry changes."""
    counts, foreign, foreign_up_to = Counter[str](), Counter[str](), dict[str, str]()
    columns: dict[str, dict[str, dict[str, PlacesSeen]]] = {}
    keyless: dict[str, KeylessReject] = {}
    reloads: dict[str, dict[str, LoadPlaces]] = {}
    majors: dict[str, dict[str, str]] = {}
    places: dict[str, list[Run]] = {}
    shortest: dict[str, dict[str, int]] = {}
    for part in parts:
        counts.update(part.counts)
        foreign.update(part.foreign)
        foreign_up_to = highest_of(foreign_up_to, part.foreign_up_to)
        for partition, runs in part.places.items():
            places.setdefault(partition, []).extend(runs)
        for table, lengths in part.shortest.items():
            of_table = shortest.setdefault(table, {})
            of_table |= {name: min(length, of_table.get(name, length)) for name, length in lengths.items()}
        for table, lists in part.written.columns.items():
            for cols, seen in lists:
                known = columns.setdefault(table, {}).setdefault(cols, {})
                for epoch, at in seen.items():
                    known[epoch] = merged(known.get(epoch, at), at)
        for table, reject in part.notes.keyless_rejects.items():
            keyless[table] = worse_reject(keyless.get(table), reject)
        for table, origins in part.notes.reloads.items():
            of_origin = reloads.setdefault(table, {})
            for origin, loads in origins.items():
                of_origin[origin] = loads.with_others(of_origin.get(origin, LoadPlaces()))
        for name, epochs in part.notes.told.items():
            shown = majors.setdefault(name, {})
            for epoch, major in epochs.items():
                shown[epoch] = max(major, shown.get(epoch, ""))
    return Manifest(
        files=[file for part in parts for file in part.written.files],
        counts=dict(counts),
        columns={table: [ListSeen(*entry) for entry in sorted(lists.items())] for table, lists in columns.items()},
        opened=[fragment for part in parts for fragment in part.opened],
        closed=[identity for part in parts for identity in part.closed],
        homeless_rejects=sum(part.notes.homeless_rejects for part in parts),
        keyless_rejects=keyless,
        schemas=[AnnouncedSchema(*schema) for schema in announced],
        reloads=reloads,
        given_back={name: reason for part in parts for name, reason in part.given_back.items()},
        stops={table: stop for part in parts for table, stop in part.stops.items()},
        partitions=partitions,
        told=majors,
        foreign=dict(foreign),
        foreign_up_to=foreign_up_to,
        shortest={table: found for table, found in shortest.items() if found},
        places={partition: bounded(joined(runs)) for partition, runs in sorted(places.items())},
        letters=bounded_letters((letter for part in parts for letter in part.notes.letters), LETTERS_SHOWN),
    )


def worse_reject(known: KeylessReject | None, other: KeylessReject) -> KeylessReject:
    """Of two dead letters that hide a key of one table the one that needs more to be settled.

    That is the one that no other copy of its message can settle; if both are alike, the first.
    """
    healed = having(Trait.HEALED_BY_COPY)
    if known is None or (known["code"] in healed and other["code"] not in healed):
        return other
    return known
