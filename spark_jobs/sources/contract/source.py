"""Defines what a source is to everybody else: a format, which decodes, and a transport, which knows ranges and bytes.

Nothing outside of :mod:`spark_jobs.sources` asks which format or transport a mirror has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from open_mirroring.changes.column_history import Structure
from open_mirroring.changes.manifest import BoundFile, BoundRange, FileVersion
from open_mirroring.changes.told_statements import Told
from open_mirroring.errors import TerminalError
from open_mirroring.facts.read_places import Numbering
from open_mirroring.protocols.backfilling import Interval
from spark_jobs.changelog.origins import partition_of
from spark_jobs.sources.contract.decoded import Decoder, MirroredTable, SourceSchema

if TYPE_CHECKING:
    from spark_jobs.sources.contract.fast_decoder import FastDecoder
    from spark_jobs.sources.contract.message_blocks import RowBlock

_FEWEST = 100
"""A sample looks at so many messages of a range at least, and rather at fewer ranges."""

Seen = Callable[[Collection[str]], Mapping[str, FileVersion]]
"""Asks how the named files were when they were seen last; answers of all that were not bound to their end, too."""

_NAMES_SHOWN = 5


class Found(NamedTuple):
    """What a look at the source brought.

    Args:
        ranges: what was never bound before.
        waiting: what is not ready to be read.
        empty: those of them without a byte: nothing that is there is missing.
        versions: how files are now that will be bound by these ranges, or are bound and were seen otherwise (G-32).
        overdue: those of what waits whose writer seems to have left it: its rest may not come any more.
        refused: source tables of which nothing can be read as they are, each with the reason; nothing of them is lost.
        unread: what is there and is not read, by its kind or the name of its folder, each with the reason.
    """

    ranges: list[BoundRange]
    waiting: list[str]
    empty: Sequence[str] = ()
    versions: Mapping[str, FileVersion] = MappingProxyType({})
    refused: Mapping[str, TerminalError] = MappingProxyType({})
    overdue: Sequence[str] = ()
    unread: Sequence[str] = ()


def unread_text(unread: Sequence[str]) -> str:
    """What is in a source's folder and is not read, for people."""
    more = f" and {len(unread) - _NAMES_SHOWN} others" if len(unread) > _NAMES_SHOWN else ""
    return f"not read in the source's folder: {', '.join(unread[:_NAMES_SHOWN])}{more}"


class Chosen(NamedTuple):
    """The ranges of an interval, and the names of which the source no longer has what was bound."""

    ranges: list[BoundRange]
    gone: list[str]


class Survey(NamedTuple):
    """What a look at the source shows of the mirrored tables before anything is read.

    *unseen* are tables, by name, and *settings* are settings of the source, for which something is missing; the value
    describes what. *without_mask* are tables whose change table has no change mask.
    """

    unseen: Mapping[str, str] = MappingProxyType({})
    without_mask: Collection[str] = ()
    settings: Mapping[str, str] = MappingProxyType({})


class AnnouncedColumn(NamedTuple):
    """A column; *type* is the change log's name of it, else the source's; empty where nothing gives the type."""

    name: str
    type: str = ""


class Note(NamedTuple):
    """A warning about a table that is to be mirrored, and the settings of the table that settle it."""

    text: str
    answered_by: tuple[str, ...] = ()


class Announced(NamedTuple):
    """What one message, or one description beside the messages, tells of a table; another one may name more columns.

    *key* is empty for a table that has none, None where nothing is said of it. *changes_rows*: it is an update or a
    delete. Two senders may mean two tables. *load*: an initial load that lies ready, as settings of the mirror file.
    """

    schema: str
    table: str
    columns: tuple[AnnouncedColumn, ...] = ()
    key: tuple[str, ...] | None = None
    notes: tuple[Note, ...] = ()
    changes_rows: bool = False
    sender: str = ""
    load: tuple[tuple[str, str], ...] = ()


class Format(ABC):
    """How the messages of a source are decoded: plain values, for a task carries them to its worker.

    Attributes:
        partitions: how many partitions carry changes where a complete position is kept (C-88), else 0.
        has_loads: whether rows of a full load may stand among the changes (K-18).
        renames_columns: whether the source can rename a column while its changes are read.
        joins_pieces: whether messages wait for the other pieces of one change; else for what describes them (K-05).
        first_place: what the ``minor`` of a position ends with where it is the first of its transaction, in a format
            that counts the changes of each (K-80); empty where a transaction is its ``major`` alone.
        work_per_byte: how much work a byte of its messages is next to a byte of plain rows: what starts Spark.
    """

    partitions: int = 0
    has_loads: ClassVar[bool] = False
    renames_columns: ClassVar[bool] = True
    joins_pieces: ClassVar[bool] = True
    first_place: ClassVar[str] = ""
    work_per_byte: ClassVar[float] = 1

    def work(self, transport: Transport, ranges: Iterable[BoundRange]) -> int:
        """About as much work as so many bytes of plain rows: it decides whether ranges are worth the start of Spark."""
        places = sum(bound.end - bound.start for bound in ranges)
        return int(self.work_per_byte * transport.bytes_of_a_place * places)

    def ordered_in(self, origin: str) -> str:
        """In what of the source positions rise to which the changes of *origin* belong, if in any (C-34)."""
        return partition_of(origin)

    @property
    def load(self) -> str:
        """The full load to which changes belong, the epoch of positions where the format names none (G-01)."""
        return ""

    @property
    def key_changes(self) -> str:
        """How one sees that a key changed, for people; empty where the format always shows it."""
        return ""

    @abstractmethod
    def decoder(self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()) -> Decoder:
        """The decoder, by the tables' names in messages and the structures known so far."""

    def described(self, schemas: Sequence[SourceSchema]) -> Iterator[Announced]:
        """What structures that were announced before tell of their tables; here nothing, as messages describe all."""
        return iter(())

    def structures(self, schemas: Sequence[SourceSchema]) -> Mapping[str, Sequence[Structure]]:
        """By ``schema.table`` the structures that were announced, if the order in which they held is certain."""
        return {}

    @abstractmethod
    def announced(self, messages: Iterable[Any]) -> Iterator[Announced]:
        """What messages tell of their tables, mirrored or not; one that tells nothing is left out."""

    def fast_decoder(
        self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()
    ) -> FastDecoder | None:
        """What takes most messages from blocks, much faster than the decoder; None where nothing does."""
        return None


class SchemaLookup(Protocol):
    """Knows the structures of messages that do not describe themselves, such as a schema registry."""

    def schemas(self, identities: Iterable[str]) -> list[SourceSchema]:
        """The structures that waiting messages need; unknown ones are left out."""
        ...


class Transport(ABC):
    """Where changes come from: which ranges there are. Plain values, for a task carries them to its worker.

    A range names a file, a topic partition or a table, and a half-open interval in it. The ledger binds ranges before
    anything is read, so a message is read in exactly one batch however the source grows meanwhile.

    Attributes:
        describes_tables: whether :meth:`announced` tells of every table without a look at its messages.
        reads_named_tables: whether nothing is read of a table that the mirror does not name.
        settles_after: seconds from a commit at the source to where it can be read.
        empty_range_is_damage: whether an empty bound range means that something is missing; else it marks where
            reading begins.
        lists_of_reading: whether a row carries the columns of the time when it is read, not when it changed (T-33).
        bytes_of_a_place: about how many bytes there are to read between two neighbouring places of a range.
    """

    describes_tables: ClassVar[bool] = False
    reads_named_tables: ClassVar[bool] = False
    settles_after: ClassVar[int] = 60
    empty_range_is_damage: ClassVar[bool] = False
    lists_of_reading: ClassVar[bool] = False
    bytes_of_a_place: ClassVar[int] = 1

    @abstractmethod
    def find(self, spark: Any, bound: Mapping[str, int], seen: Seen | None = None) -> Found:
        """Everything at the source beyond what is bound, as far as one run may go.

        Args:
            spark: the session, for what is read through it.
            bound: up to where each name is bound.
            seen: asks how bound files were when they were seen last; None where it does not matter.

        Raises:
            TerminalError: the source is not as it must be; the code says which.
            TransientError: it does not answer.
        """

    @abstractmethod
    def within(self, ranges: Iterable[BoundRange], interval: Interval) -> list[BoundRange]:
        """Of ranges never bound, those that a backfill of the interval binds first."""

    @abstractmethod
    def bound_before(self, ranges: Iterable[BoundRange], interval: Interval) -> Chosen:
        """Of ranges that were bound, what belongs to the interval and can still be read."""

    def ends(self, spark: Any, bound: Mapping[str, int]) -> dict[str, int]:
        """How far each name with something unbound reaches now, whatever one run would take at most."""
        found = self.find(spark, bound)
        return {name: bound.get(name, 0) + 1 for name in found.waiting} | {one.name: one.end for one in found.ranges}

    def unlimited(self) -> Transport:
        """The transport without a limit to what one run takes."""
        return self

    def retained(self) -> Mapping[str, tuple[int, int]]:
        """For each name the first place that retention kept, and the one after the newest message; empty without."""
        return {}

    def told(self, spark: Any) -> Told:
        """What the source tells of its tables, and of who sends them, beside their changes; here nothing."""
        return Told()

    def reread_from(self, source: str, bound: Mapping[str, int]) -> str | None:
        """From which position the next reading may bring changes of a table once more (T-18); None: it brings none."""
        return None

    def counts_as_bound(self, name: str) -> bool:
        """Whether messages are placed by the unit of the bounds (offsets, bytes); else only the whole is known."""
        return False

    def survey(self) -> Survey:
        """Look at the source for the mirrored tables before anything is read, without a JVM."""
        return Survey()

    @abstractmethod
    def announced(self, form: Format, most: int, spark: Callable[[], Any]) -> Iterator[Announced]:
        """What the source tells of its tables, mirrored or not, by a look at about *most* messages, read by *form*."""


class BlockLog(Protocol):
    """Decodes and logs blocks of rows, in a worker."""

    def take_block(self, block: RowBlock) -> None:
        """Decode and log rows."""
        ...

    def finish(self) -> Any:
        """What was written and seen."""
        ...


class QueriedTransport(Transport):
    """A transport whose ranges are read by queries, each in a task of its own."""

    @abstractmethod
    def read(self, spark: Any, ranges: Sequence[BoundRange], log: Callable[[int], BlockLog], job: str) -> list[Any]:
        """Read, decode and log ranges; what came of each, in no particular order. Nothing is kept of a job that fails.

        *log* begins to log the range at a place of *ranges*, in a worker. *job* is what people see of it in Spark.
        """


class MessageTransport(Transport):
    """A transport whose ranges a worker reads by itself."""

    @property
    def numbering(self) -> Numbering:
        """What the places of its messages show: where reading began, or which messages are missing; see Numbering."""
        return ""

    def pinned(
        self, bound: Callable[[], Mapping[str, int]], files: Callable[[], Mapping[str, BoundFile]]
    ) -> MessageTransport:
        """The transport with the proof that what it reads is still what was bound, by what the ledger knows of it."""
        return self

    def announced(self, form: Format, most: int, spark: Callable[[], Any]) -> Iterator[Announced]:
        return form.announced(self.sample(most))

    def sample(self, most: int) -> Iterator[Any]:
        """About *most* messages, an equal share from the beginning of each range."""
        ranges = [one for one in self.unlimited().find(None, {}).ranges if one.start < one.end]
        ranges = ranges[:: -(-len(ranges) * _FEWEST // most) or 1]
        left = most
        for at, one in enumerate(ranges):
            for message in islice(self.read(one), max(left // (len(ranges) - at), 1)):
                left -= 1
                yield message

    def unlimited(self) -> MessageTransport:
        return self

    @abstractmethod
    def read(self, bound: BoundRange) -> Iterator[Any]:
        """The messages of one bound range, in the order in which they stand there, as the decoder takes them."""

    def blocks(self, bound: BoundRange) -> Iterator[Any] | None:
        """The messages of a range in blocks, and then the damage at its end; None where a range holds too little."""
        return None


def longest(ranges: Iterable[BoundRange]) -> list[BoundRange]:
    """The ranges that lie in no other one: a file that grew was bound as a whole each time."""
    kept: list[BoundRange] = []
    for bound in sorted(set(ranges), key=lambda b: (b.name, b.start, -b.end)):
        if not (kept and kept[-1].name == bound.name and bound.end <= kept[-1].end):
            kept.append(bound)
    return kept
