"""Defines what a batch of the change log reads, and the manifest of what the batch wrote, as JSON for the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec

Reads = Mapping[str, Sequence[str]]
"""Where messages are read from and how their bytes are decoded: values by setting of the mirror file."""

GAPS, EXPECTED = "offset_gaps", "expected"
"""The setting that gaps between offsets are expected, and its value; absent if they are not (G-113)."""


def places_left(former: Reads, now: Reads) -> list[tuple[str, str]]:
    """Pair each setting with each place that it named in *former* and no longer names in *now* (G-142).

    Unread changes in such a place are never seen, so tables may lack changes. A setting that *now* does not contain is
    ignored, because it belongs to another transport.
    """
    return [(name, one) for name, said in former.items() if name in now for one in said if one not in now[name]]


_LOAD = "(initial load) "
_CORRECTION = "(correction) "


class LoadChunk(NamedTuple):
    """A part of an initial load whose rows go through the change log.

    A batch binds the chunk as it binds a range of the source. *generation* counts the resets of the table.
    """

    source: str
    generation: int
    number: int

    @property
    def name(self) -> str:
        return f"{_LOAD}{self.source}/{self.generation}/{self.number}"

    @classmethod
    def of(cls, name: str) -> LoadChunk | None:
        """Parse the name of a bound range; None if the range is not a chunk of an initial load."""
        if not name.startswith(_LOAD):
            return None
        source, generation, number = name.removeprefix(_LOAD).rsplit("/", 2)
        return cls(source, int(generation), int(number))


class CorrectionRange(NamedTuple):
    """The keys of a table that a proof found to differ, and that a batch reads from the source again.

    *proof* is the id of the recorded proof. *generation* counts the resets of the table.
    """

    source: str
    generation: int
    proof: str

    @property
    def name(self) -> str:
        return f"{_CORRECTION}{self.source}/{self.generation}/{self.proof}"

    @classmethod
    def of(cls, name: str) -> CorrectionRange | None:
        """Parse the name of a bound range; None if the range is not a correction."""
        if not name.startswith(_CORRECTION):
            return None
        source, generation, proof = name.removeprefix(_CORRECTION).rsplit("/", 2)
        return cls(source, int(generation), proof)


def is_of_source(name: str) -> bool:
    """Whether a bound range is read from the source's stream; False for a chunk of an initial load or a correction."""
    return LoadChunk.of(name) is None and CorrectionRange.of(name) is None


LETTERS_SHOWN = 1_000
"""Dead letters of one task, and of one batch, that are listed one by one; the others are only counted."""
REASON = 300
"""Characters of a dead letter's reason in the ledger; the log has all of it."""


class BoundRange(NamedTuple):
    """What a batch reads of one file, topic partition or change table: from *start* (inclusive) to *end* (exclusive).

    *name* is the file, the topic partition or the change table. *start* and *end* are bytes of the file, offsets of the
    partition, or change sequences of the change table.
    """

    name: str
    start: int
    end: int


class FileVersion(NamedTuple):
    """Identifies the content of a source file, so that an overwritten file is noticed (G-32).

    *version* changes whenever the file may have been written to. *digest* is the hash of the part that batches have
    bound.
    """

    version: str
    digest: str


class BoundFile(NamedTuple):
    """How many bytes of a source file belong to batches, and the file's version when it was last seen."""

    bound_to: int
    seen: FileVersion


class LetterPlace(NamedTuple):
    """Identifies a dead letter of the change log: its batch, and the origin and place of its message.

    The origin is a file or a topic partition. The place is the number of the message in its origin, such as an offset.
    """

    batch: int
    origin: str
    place: int


class SeenLetter(NamedTuple):
    """A dead letter of a batch: where its message is, and what is known of the change in the message.

    With *place* -1, the entry stands for *letters* dead letters that are not listed one by one.
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
    """A dead letter that a batch settles, because the batch contains its message after all.

    The message was *replayed* (decoded again from the change log) or *reread* (read again from the source).
    *without_table* is the number of rows of the dead letter for which no table is known.
    """

    batch: int
    origin: str
    place: int
    outcome: Literal["replayed", "reread"]
    without_table: int


Purpose = Literal["new", "reread", "replay", "overdue"]


@dataclass(frozen=True)
class Scope:
    """The work of a batch: source ranges to read, or to read again, and dead letters of the change log to decode again.

    Only *new* ranges advance how far the source has been read. If the batch is *overdue*, it turns split messages that
    waited too long for their other parts into dead letters.
    """

    purpose: Purpose = "new"
    ranges: Sequence[BoundRange] = ()
    letters: Sequence[LetterPlace] = ()
    versions: Mapping[str, FileVersion] = field(default_factory=dict)

    @property
    def new(self) -> Sequence[BoundRange]:
        """The source ranges that are bound for the first time."""
        return self.ranges if self.purpose == "new" else ()

    @property
    def is_empty(self) -> bool:
        return not (self.ranges or self.letters or self.purpose == "overdue")

    def to_json(self) -> str:
        """The scope as JSON for the ledger; new ranges without file versions become a plain list."""
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
    """A split message of which some pieces are missing.

    *files* are the files of the change log with the pieces read so far. The message waits since the batch
    *since_batch*.
    """

    identity: str
    epoch: str
    pos: str
    since_batch: int
    since: datetime
    files: tuple[str, ...]


class AnnouncedSchema(NamedTuple):
    """The structure of a table that the source announced in the topic or folder *topic*.

    *document* has the structure in the form of the source's format; only the decoder of this format can read it.
    """

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
    """The manifest's entry for one file of the change log.

    *path* is relative to the folder of the change log. *etag* is set only in object storage. *tables* has, by table and
    stream, the number of changes and their lowest and highest position.
    """

    path: str
    rows: int
    size: int
    etag: NotRequired[str]
    tables: Mapping[str, Mapping[str, tuple[int, str, str]]]


class OpenedFragment(TypedDict):
    """A split message that still lacks pieces after a batch.

    It has the position of the message, and the log files with the pieces read so far.
    """

    identity: str
    epoch: str
    pos: str
    files: Sequence[str]


Facts = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""What tasks observed in addition to the rows: values by kind (:mod:`open_mirroring.facts`), table and name.

An empty table name stands for the mirror. Values are of JSON's types, or named tuples of them."""


@dataclass(frozen=True)
class Manifest:
    """What one attempt at a batch wrote; the ledger fixes (seals) it before the files become part of the change log.

    *counts* has messages by outcome (``messages`` is their sum), and split messages completed or given up. *opened* are
    split messages that begin to wait for pieces, *closed* those that no longer wait. *given_back* are source ranges
    that were not read, each with the reason; a later batch binds them. *partitions* is 0 if no complete position is
    kept. *lists_of_reading* is True if rows have the columns that the table had when it was read, not when it changed.
    *loads_whole* are tables whose full load by a Qlik task came again with every row. *healed* are tables whose
    changes, formerly hidden by dead letters, have now been read. *schemas*, *settled* and *letters* contain named
    tuples as lists.
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
        """The manifest as the ledger stores it; equal manifests give equal strings."""
        return json.dumps(self.__dict__, ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        return cls(**json.loads(text))


RECORDS = "_batches"
"""The folder of the change log that holds the records of batches."""


class BatchRecord(NamedTuple):
    """A batch as the ledger recorded it: its number, source ranges and manifest as JSON, and when it was written.

    The record is a JSON file next to the change log, from which a lost ledger can be re-created.
    """

    number: int
    at: datetime
    ranges: str
    manifest: str


def record_name(number: int) -> str:
    """Return the path of a batch's record, relative to the change log."""
    return f"{RECORDS}/{number // 10_000:08d}/{number:012d}.json"


class _Counted(msgspec.Struct):
    counts: dict[str, int]


_counted = msgspec.json.Decoder(_Counted).decode


def counts_of(manifest: str) -> dict[str, int]:
    """Extract the counts from a manifest's JSON without decoding the other members, which may be large."""
    return _counted(manifest).counts


def bounded_letters(letters: Iterable[SeenLetter], at_most: int) -> list[SeenLetter]:
    """List at most *at_most* dead letters one by one; one entry for each table and code counts the remaining ones."""
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
