"""Describes what a log batch binds and what an attempt at it wrote, as values that the ledger keeps as JSON."""

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
    """A chunk of a load that goes through the change log: a range that batches bind, of one generation of its table."""

    source: str
    generation: int
    number: int

    @property
    def name(self) -> str:
        """The name of the range."""
        return f"{_LOAD}{self.source}/{self.generation}/{self.number}"

    @classmethod
    def of(cls, name: str) -> LoadChunk | None:
        """The chunk that a bound range is; None for a range of the source."""
        if not name.startswith(_LOAD):
            return None
        source, generation, number = name.removeprefix(_LOAD).rsplit("/", 2)
        return cls(source, int(generation), int(number))


class CorrectionRange(NamedTuple):
    """What a batch binds for a correction: the keys that a recorded proof named, of one generation of a table."""

    source: str
    generation: int
    proof: str

    @property
    def name(self) -> str:
        """The name of the range."""
        return f"{_CORRECTION}{self.source}/{self.generation}/{self.proof}"

    @classmethod
    def of(cls, name: str) -> CorrectionRange | None:
        """The correction that a bound range is; None for any other."""
        if not name.startswith(_CORRECTION):
            return None
        source, generation, proof = name.removeprefix(_CORRECTION).rsplit("/", 2)
        return cls(source, int(generation), proof)


def is_of_source(name: str) -> bool:
    """Whether a bound range is one of the source; else it is a chunk of a load, or a correction."""
    return LoadChunk.of(name) is None and CorrectionRange.of(name) is None


LETTERS_SHOWN = 1_000
"""Of a task, and of a batch."""
REASON = 300
"""Characters of a letter's reason; the log has all of it."""


class BoundRange(NamedTuple):
    """What a batch reads of one source: from *start* (inclusive) to *end* (exclusive).

    *name* is a file, a topic partition or a change table; the numbers are bytes, offsets or change sequences.
    """

    name: str
    start: int
    end: int


class FileVersion(NamedTuple):
    """What is remembered of a source file, so that one that was written again is noticed (G-32).

    *version* changes whenever the file may have been written to; *digest* is of what was bound of it.
    """

    version: str
    digest: str


class BoundFile(NamedTuple):
    """A bound file: up to which byte, and how it was when it was seen last."""

    bound_to: int
    seen: FileVersion


class LetterPlace(NamedTuple):
    """A dead letter of the log: the batch that holds it, and the coordinates of its message."""

    batch: int
    origin: str
    place: int


class SeenLetter(NamedTuple):
    """A dead letter of a batch: the coordinates of its message, and what is known of the change in it.

    With *place* -1 it stands for the *letters* dead letters beyond those that are kept one by one.
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
    """A dead letter that a batch settles, *replayed* or *reread*; *without_table* of its rows named no table."""

    batch: int
    origin: str
    place: int
    outcome: Literal["replayed", "reread"]
    without_table: int


Purpose = Literal["new", "reread", "replay", "overdue"]


@dataclass(frozen=True)
class Scope:
    """What a batch is of: source ranges never bound before, ranges bound before, or dead letters of the log.

    Only new ranges move the mark of a source. One that is *overdue* gives up messages that waited too long.
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
        """Whether there is nothing to do for a batch."""
        return not (self.ranges or self.letters or self.purpose == "overdue")

    def to_json(self) -> str:
        """The scope as the ledger stores it; new ranges without file versions are a plain list, as ever."""
        if self.purpose == "new" and not self.versions:
            return json.dumps(self.ranges)
        versions = {"versions": self.versions} if self.versions else {}
        return json.dumps({"purpose": self.purpose, "ranges": self.ranges, "letters": self.letters, **versions})

    @classmethod
    def from_json(cls, text: str) -> Scope:
        """Read back what :meth:`to_json` wrote."""
        document = json.loads(text)
        if isinstance(document, list):
            document = {"purpose": "new", "ranges": document, "letters": []}
        ranges = [BoundRange(*entry) for entry in document["ranges"]]
        versions = {name: FileVersion(*entry) for name, entry in document.get("versions", {}).items()}
        return cls(document["purpose"], ranges, [LetterPlace(*entry) for entry in document["letters"]], versions)


class OpenFragment(NamedTuple):
    """A split message that lacks pieces: the log files that hold its other pieces, and since when it waits."""

    identity: str
    epoch: str
    pos: str
    since_batch: int
    since: datetime
    files: tuple[str, ...]


class AnnouncedSchema(NamedTuple):
    """A structure that the source announced in *topic*; *document* is its decoder's own."""

    topic: str
    schema_id: str
    source: str
    version: int
    document: str


SENT_BY = "(sent by)"
"""Stands for the topic where what is kept is no structure, but who sends the changes of a table."""

KEYS_UNTOLD = "(keys untold)"
"""The same where it is that updates of a table came of which nothing tells the key that their row had before."""


class LoggedFile(TypedDict):
    """A log file as the ledger's document has it; *path* is relative to the log, *etag* is in object storage alone.

    *tables* has per table and stream incarnation how many changes, and their lowest and highest position.
    """

    path: str
    rows: int
    size: int
    etag: NotRequired[str]
    tables: Mapping[str, Mapping[str, tuple[int, str, str]]]


class OpenedFragment(TypedDict):
    """A message that waits for others after a batch: where it belongs, and the log files that hold its pieces."""

    identity: str
    epoch: str
    pos: str
    files: Sequence[str]


Facts = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""What tasks saw beside the rows (:mod:`open_mirroring.facts`): values by kind, table (empty: the mirror) and name.

The values are of JSON's types, or named tuples of them."""


@dataclass(frozen=True)
class Manifest:
    """What one attempt at a batch wrote; sealed into the ledger before the log is committed.

    *counts* are messages by disposition (``messages`` is their sum), and what became of fragments. *lists_of_reading*:
    column lists are of the time of reading, not of the change. *partitions* is 0 where no complete position is kept.
    *given_back* ranges were not read, each with the reason; a later batch binds them. *loads_whole* are tables whose
    full load came again with every row. *schemas*, *settled* and *letters* hold named tuples as lists.
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
        """Read back what :meth:`to_json` wrote."""
        return cls(**json.loads(text))


class _Counted(msgspec.Struct):
    counts: dict[str, int]


_counted = msgspec.json.Decoder(_Counted).decode


def counts_of(manifest: str) -> dict[str, int]:
    """The counts of a manifest's text; the rest, which may be large, is not decoded."""
    return _counted(manifest).counts


def bounded_letters(letters: Iterable[SeenLetter], at_most: int) -> list[SeenLetter]:
    """At most so many dead letters one by one; one entry for each table and code stands for the others."""
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
