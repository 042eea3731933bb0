"""Defines what a batch of the change log reads, and the manifest of what it wrote, as JSON for the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec

from open_mirroring.changes.places_left import Reads

_LOAD = "(initial load) "
_CORRECTION = "(correction) "


class LoadChunk(NamedTuple):
    """A part of an initial load whose rows go through the change log; a batch binds it like a range of the source.

    *generation* counts the resets of the table.
    """

    source: str
    generation: int
    number: int

    @property
    def name(self) -> str:
        return f"{_LOAD}{self.source}/{self.generation}/{self.number}"

    @classmethod
    def of(cls, name: str) -> LoadChunk | None:
        """Parse the name of a bound range; None if it is not a chunk of an initial load."""
        if not name.startswith(_LOAD):
            return None
        source, generation, number = name.removeprefix(_LOAD).rsplit("/", 2)
        return cls(source, int(generation), int(number))


class CorrectionRange(NamedTuple):
    """The keys that a proof found to differ and that a batch reads from the source again, of one generation of a table.

    *proof* is the id of the recorded proof.
    """

    source: str
    generation: int
    proof: str

    @property
    def name(self) -> str:
        return f"{_CORRECTION}{self.source}/{self.generation}/{self.proof}"

    @classmethod
    def of(cls, name: str) -> CorrectionRange | None:
        """Parse the name of a bound range; None if it is not a correction."""
        if not name.startswith(_CORRECTION):
            return None
        source, generation, proof = name.removeprefix(_CORRECTION).rsplit("/", 2)
        return cls(source, int(generation), proof)


def is_of_source(name: str) -> bool:
    """Whether a bound range is read from the source's stream, not a chunk of an initial load or a correction."""
    return LoadChunk.of(name) is None and CorrectionRange.of(name) is None


LETTERS_SHOWN = 1_000
"""Dead letters of one task, and of one batch, that are listed one by one; the others are only counted."""
REASON = 300
"""Characters of a dead letter's reason in the ledger; the log has all of it."""


class BoundRange(NamedTuple):
    """What a batch reads of one source: from *start* (inclusive) to *end* (exclusive).

    *name* is a file, a topic partition or a change table; the numbers are bytes, offsets or change sequences.
    """

    name: str
    start: int
    end: int


class FileVersion(NamedTuple):
    """Identifies the content of a source file, to notice one that was overwritten (G-32).

    *version* changes whenever the file may have been written to; *digest* is the hash of the part that was bound.
    """

    version: str
    digest: str


class BoundFile(NamedTuple):
    """How far a source file belongs to batches, in bytes, and its version when it was last seen."""

    bound_to: int
    seen: FileVersion


class LetterPlace(NamedTuple):
    """Identifies a dead letter of the log: its batch, and origin (file or topic partition) and place of its message."""

    batch: int
    origin: str
    place: int


class SeenLetter(NamedTuple):
    """A dead letter of a batch: where its message is, and what is known of the change in it.

    With *place* -1 it stands for *letters* dead letters that are not listed one by one.
    """

    origin: str
    place: int
    source: str | None
    code: str
    reason: str
    key: str | None = None
    epoch: str | None = None
    pos: str | None = None
    letters: int = 1


class SettledLetter(NamedTuple):
    """A dead letter that a batch settles: the message was *replayed* (decoded again from the log) or *reread*.

    *without_table* is the number of its rows for which no table is known.
    """

    batch: int
    origin: str
    place: int
    outcome: Literal["replayed", "reread"]
    without_table: int


Purpose = Literal["new", "reread", "replay", "overdue"]


@dataclass(frozen=True)
class Scope:
    """The work of a batch: ranges of the source never read before, ranges read before, or dead letters of the log.

    Only *new* ranges advance how far the source has been read. A batch that is *overdue* turns messages that waited too
    long for their other parts into dead letters.
    """

    purpose: Purpose = "new"
    ranges: Sequence[BoundRange] = ()
    letters: Sequence[LetterPlace] = ()
    versions: Mapping[str, FileVersion] = field(default_factory=dict)

    @property
    def new(self) -> Sequence[BoundRange]:
        """The ranges that are bound for the first time."""
        return self.ranges if self.purpose == "new" else ()

    @property
    def is_empty(self) -> bool:
        return not (self.ranges or self.letters or self.purpose == "overdue")

    def to_json(self) -> str:
        """The scope as JSON for the ledger; new ranges without file versions are a plain list."""
        if self.purpose == "new" and not self.versions:
            return json.dumps(self.ranges)
        versions = {"versions": self.versions} if self.versions else {}
        return json.dumps({"purpose": self.purpose, "ranges": self.ranges, "letters": self.letters, **versions})

    @classmethod
    def from_json(cls, text: str) -> Scope:
        document = json.loads(text)
        if isinstance(document, list):
            document = {"purpose": "new", "ranges": document, "letters": []}
        ranges = [BoundRange(*entry) for entry in document["ranges"]]
        versions = {name: FileVersion(*entry) for name, entry in document.get("versions", {}).items()}
        return cls(document["purpose"], ranges, [LetterPlace(*entry) for entry in document["letters"]], versions)


class OpenFragment(NamedTuple):
    """A split message of which some pieces are missing: the log files with the others, and since when it waits."""

    identity: str
    epoch: str
    pos: str
    since_batch: int
    since: datetime
    files: tuple[str, ...]


class AnnouncedSchema(NamedTuple):
    """The structure of a table that the source announced in *topic*; only its decoder can read *document*."""

    topic: str
    schema_id: str
    source: str
    version: int
    document: str


SENT_BY = "(sent by)"
"""Replaces the topic of an :class:`AnnouncedSchema` that records the sender of a table's changes instead of a
structure."""

OLD_KEYS_MISSING = "(old keys missing)"
"""Replaces the topic of an :class:`AnnouncedSchema` that records updates of a table without the former key of their
row."""


class LoggedFile(TypedDict):
    """An entry of the manifest for one log file; *path* is relative to the log, *etag* exists only in object storage.

    *tables* maps table and stream to the number of changes and their lowest and highest position.
    """

    path: str
    rows: int
    size: int
    etag: NotRequired[str]
    tables: Mapping[str, Mapping[str, tuple[int, str, str]]]


class OpenedFragment(TypedDict):
    """A split message that still lacks pieces after a batch: its position, and the log files with the others."""

    identity: str
    epoch: str
    pos: str
    files: Sequence[str]


Facts = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""What tasks observed in addition to the rows: values by kind (:mod:`open_mirroring.facts`), table and name.

An empty table name stands for the mirror. Values are of JSON's types, or named tuples of them."""


@dataclass(frozen=True)
class Manifest:
    """What one attempt at a batch wrote. The ledger seals it (fixes it for ever) before the log is committed.

    *counts* are messages by outcome (``messages`` is their sum), and split messages completed or given up. *opened* and
    *closed* are split messages that begin or end to wait. *given_back* are ranges that were not read, each with the
    reason; a later batch binds them. *partitions* is 0 if no complete position is kept. *lists_of_reading*: rows
    have the columns that the table had when it was read, not when it changed. *loads_whole* are tables whose full load
    came again with every row. *healed* are tables of which dead letters hid changes that have now been read. *schemas*,
    *settled* and *letters* contain named tuples as lists.
    """

    files: Sequence[LoggedFile]
    counts: Mapping[str, int]
    facts: Facts = field(default_factory=dict)
    opened: Sequence[OpenedFragment] = ()
    closed: Sequence[str] = ()
    schemas: Sequence[Sequence[Any]] = ()
    given_back: Mapping[str, str] = field(default_factory=dict)
    partitions: int = 0
    settled: Sequence[Sequence[Any]] = ()
    healed: Sequence[str] = ()
    letters: Sequence[Sequence[Any]] = ()
    lists_of_reading: bool = False
    loads_whole: Sequence[str] = ()
    reads: Reads = field(default_factory=dict)

    def to_json(self) -> str:
        """The manifest as the ledger stores it; equal manifests give equal texts."""
        return json.dumps(self.__dict__, ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        return cls(**json.loads(text))


class _Counted(msgspec.Struct):
    counts: dict[str, int]


_counted = msgspec.json.Decoder(_Counted).decode


def counts_of(manifest: str) -> dict[str, int]:
    """The counts in a manifest's JSON, without decoding the rest, which may be large."""
    return _counted(manifest).counts


def bounded_letters(letters: Iterable[SeenLetter], at_most: int) -> list[SeenLetter]:
    """List at most *at_most* dead letters one by one; one entry per table and code counts the others."""
    single, more = list[SeenLetter](), dict[tuple[str | None, str], int]()
    for letter in letters:
        if letter.place >= 0 and len(single) < at_most:
            single.append(letter)
        else:
            at = (letter.source, letter.code)
            more[at] = more.get(at, 0) + letter.letters
    rest = [
        SeenLetter(f"({code} of {source or 'no table'})", -1, source, code, "", letters=count)
        for (source, code), count in more.items()
    ]
    # Those that stand for many come first: the last one is compared with the next row of a message.
    return [*rest, *single]
