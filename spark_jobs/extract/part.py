"""The result of one task of a batch, and how the results of all tasks become the batch's manifest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from open_mirroring.changes.manifest import (
    LETTERS_SHOWN,
    AnnouncedSchema,
    Facts,
    LetterPlace,
    Manifest,
    OpenedFragment,
    SeenLetter,
    bounded_letters,
)
from open_mirroring.facts.kind import merged
from spark_jobs.changelog.writing import Written
from spark_jobs.sources.contract.decoded import SourceSchema


@dataclass(frozen=True)
class Part:
    """What one task returns to the driver: file names, counts and facts, never rows.

    *met* are the coordinates of messages that were open dead letters and that the task read again. *replayed* are dead
    letters that could be decoded now. *waiting* are split messages that could not be joined, *opened* are messages that
    begin to wait for others, *closed* are messages that no longer wait. *given_back* are ranges that were not read,
    each with the reason.
    """

    written: Written = field(default_factory=Written)
    facts: Facts = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    letters: Sequence[SeenLetter] = ()
    schemas: Sequence[SourceSchema] = ()
    met: frozenset[tuple[str, int]] = frozenset()
    replayed: Sequence[LetterPlace] = ()
    waiting: frozenset[str] = frozenset()
    opened: Sequence[OpenedFragment] = ()
    closed: Sequence[str] = ()
    given_back: Mapping[str, str] = field(default_factory=dict)


def merge(parts: Sequence[Part], announced: Sequence[SourceSchema] = (), partitions: int = 0) -> Manifest:
    """Merge the results of all tasks into one manifest; *partitions* is the number of partitions with changes."""
    counts = Counter[str]()
    for part in parts:
        counts.update(part.counts)
    return Manifest(
        files=[file for part in parts for file in part.written.files],
        counts=dict(counts),
        facts=facts_of(parts),
        opened=[fragment for part in parts for fragment in part.opened],
        closed=[identity for part in parts for identity in part.closed],
        schemas=[AnnouncedSchema(*schema) for schema in announced],
        given_back={name: reason for part in parts for name, reason in part.given_back.items()},
        partitions=partitions,
        letters=bounded_letters((letter for part in parts for letter in part.letters), LETTERS_SHOWN),
    )


def facts_of(parts: Sequence[Part]) -> Facts:
    """The observations (facts) of all parts, merged."""
    return merged(facts for part in parts for facts in (part.facts, part.written.facts))
