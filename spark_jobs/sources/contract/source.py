"""Defines the two interfaces of a source: :class:`Format` decodes messages, :class:`Transport` lists and reads them.

The rest of the product uses only these, so a new source needs no change outside of :mod:`spark_jobs.sources`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from open_mirroring.changes.column_history import Structure
from open_mirroring.changes.ddl_statements import SourceReport
from open_mirroring.changes.manifest import BoundFile, BoundRange, FileVersion
from open_mirroring.errors import TerminalError
from open_mirroring.facts.read_places import Numbering
from open_mirroring.protocols.backfilling import Interval
from spark_jobs.changelog.origins import partition_of
from spark_jobs.sources.contract.decoded import Decoder, MirroredTable, SourceSchema

if TYPE_CHECKING:
    from spark_jobs.sources.contract.fast_decoder import FastDecoder
    from spark_jobs.sources.contract.message_blocks import RowBlock

_FEWEST = 100
"""A sample reads at least this many messages of each range it reads; if there are many ranges, it skips some."""

Seen = Callable[[Collection[str]], Mapping[str, FileVersion]]
"""Asks the ledger for the last known versions of files: those named, and all files that are not completely read."""

_NAMES_SHOWN = 5


class Found(NamedTuple):
    """The result of listing a source: what a run can read next.

    Args:
        ranges: ranges that belong to no batch yet.
        waiting: names of files that are not ready to be read.
        empty: those of *waiting* that have no bytes, so that nothing of them is missing.
        versions: current versions of files that are in *ranges*, or were read and have changed since (G-32).
        overdue: those of *waiting* whose writer seems to have given up: the rest of them may never come.
        refused: source tables that cannot be read now, each with the reason; nothing of them is lost.
        unread: descriptions of files and folders of the source that are not read, each with the reason.
    """

    ranges: list[BoundRange]
    waiting: list[str]
    empty: Sequence[str] = ()
    versions: Mapping[str, FileVersion] = MappingProxyType({})
    refused: Mapping[str, TerminalError] = MappingProxyType({})
    overdue: Sequence[str] = ()
    unread: Sequence[str] = ()


def unread_text(unread: Sequence[str]) -> str:
    """The message for *unread* of :class:`Found`."""
    more = f" and {len(unread) - _NAMES_SHOWN} others" if len(unread) > _NAMES_SHOWN else ""
    return f"not read in the source's folder: {', '.join(unread[:_NAMES_SHOWN])}{more}"


class Chosen(NamedTuple):
    """The ranges of a time interval, and the names (*gone*) whose data the source has deleted since it was read."""

    ranges: list[BoundRange]
    gone: list[str]


class Survey(NamedTuple):
    """What is missing at the source for the mirrored tables, found before the first run.

    *unseen* maps tables, *settings* settings of the source, to a description of what is missing. *without_mask* are
    tables whose Qlik change table has no change mask.
    """

    unseen: Mapping[str, str] = MappingProxyType({})
    without_mask: Collection[str] = ()
    settings: Mapping[str, str] = MappingProxyType({})


class AnnouncedColumn(NamedTuple):
    """A column of a source table. *type* is a SQL Server type, else the source's own; empty if unknown."""

    name: str
    type: str = ""


class Note(NamedTuple):
    """A warning about a table that is to be mirrored. Any table setting in *answered_by* makes it unnecessary."""

    text: str
    answered_by: tuple[str, ...] = ()


class Announced(NamedTuple):
    """What one message, or one description at the source, shows of a table; another one may name more columns.

    *key* is empty if the table has none, None if unknown. *changes_rows*: the message is an update or a delete.
    *sender* is the database or task it comes from: equal names of two senders may be two tables. *load* is an initial
    load that is ready at the source, as settings of the mirror file.
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
    """How the messages of a source are decoded. Instances hold plain values only: Spark pickles them to its workers.

    Attributes:
        partitions: number of partitions, if the mirror has to know up to where each is complete (C-88); else 0.
        has_loads: whether rows of a full load may be among the changes (K-18).
        renames_columns: whether the source can rename a column while its changes are read.
        joins_pieces: whether fragments wait for other pieces of one change; else for a table's structure (K-05).
        first_place: how the ``minor`` part of a position ends for the first change of a transaction, in a format that
            numbers the changes of each (K-80); empty if ``major`` alone identifies the transaction.
        work_per_byte: decoding work per byte, relative to plain rows; decides whether Spark is started.
    """

    partitions: int = 0
    has_loads: ClassVar[bool] = False
    renames_columns: ClassVar[bool] = True
    joins_pieces: ClassVar[bool] = True
    first_place: ClassVar[str] = ""
    work_per_byte: ClassVar[float] = 1

    def work(self, transport: Transport, ranges: Iterable[BoundRange]) -> int:
        """Estimates the work of decoding ranges, in bytes of plain rows; decides whether starting Spark is worth it."""
        places = sum(bound.end - bound.start for bound in ranges)
        return int(self.work_per_byte * transport.bytes_of_a_place * places)

    def ordered_in(self, origin: str) -> str:
        """The name of the part of the source, such as a partition, in which positions of *origin* only rise (C-34)."""
        return partition_of(origin)

    @property
    def load(self) -> str:
        """The epoch of positions in a format without one: the full load to which the changes belong (G-01)."""
        return ""

    @property
    def key_changes(self) -> str:
        """A text for operators: how a change of a key is found; empty if the format always shows it."""
        return ""

    @abstractmethod
    def decoder(self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()) -> Decoder:
        """Creates the decoder. *tables* are by their names in messages, *schemas* the structures known so far."""

    def described(self, schemas: Sequence[SourceSchema]) -> Iterator[Announced]:
        """The tables that known structures describe; none in a format whose messages describe themselves."""
        return iter(())

    def structures(self, schemas: Sequence[SourceSchema]) -> Mapping[str, Sequence[Structure]]:
        """The structures of each ``schema.table`` in the order in which they applied, if that order is certain."""
        return {}

    @abstractmethod
    def announced(self, messages: Iterable[Any]) -> Iterator[Announced]:
        """The tables that messages show, mirrored or not; messages that show none are skipped."""

    def fast_decoder(
        self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()
    ) -> FastDecoder | None:
        """Creates the fast path, which decodes most messages much faster than the decoder; None if there is none."""
        return None


class SchemaLookup(Protocol):
    """Finds the structures of messages that do not contain them, for example in a schema registry."""

    def schemas(self, identities: Iterable[str]) -> list[SourceSchema]:
        """The structures with these ids, which waiting messages name; unknown ids are skipped."""
        ...


class Transport(ABC):
    """Lists the ranges of a source that can be read. Instances hold plain values: Spark pickles them to its workers.

    A range is a half-open interval of a file, a topic partition or a table. The ledger assigns ranges to a batch
    ("binds" them) before anything is read, so each message is read in exactly one batch, even if the source grows
    meanwhile.

    Attributes:
        describes_tables: whether :meth:`announced` finds every table without reading messages.
        reads_named_tables: whether only tables that the mirror names are read.
        settles_after: seconds from a commit at the source until it can be read.
        empty_range_is_damage: whether an empty bound range means that something is missing; else it marks where
            reading begins.
        lists_of_reading: whether rows have the table's columns at the time of reading, not of the change (T-33).
        bytes_of_a_place: about how many bytes one step of a range is, such as one offset.
    """

    describes_tables: ClassVar[bool] = False
    reads_named_tables: ClassVar[bool] = False
    settles_after: ClassVar[int] = 60
    empty_range_is_damage: ClassVar[bool] = False
    lists_of_reading: ClassVar[bool] = False
    bytes_of_a_place: ClassVar[int] = 1

    @abstractmethod
    def find(self, spark: Any, bound: Mapping[str, int], seen: Seen | None = None) -> Found:
        """Lists what can be read and belongs to no batch yet, up to the limit of one run.

        Args:
            spark: the session, for sources that are read through it.
            bound: for each name (file, partition or table) the end of what belongs to batches.
            seen: asks for the last known versions of files, to notice changed ones; None: changes do not matter.

        Raises:
            TerminalError: the source is wrong or has lost data; the code says how.
            TransientError: the source does not answer.
        """

    @abstractmethod
    def within(self, ranges: Iterable[BoundRange], interval: Interval) -> list[BoundRange]:
        """Selects from unbound *ranges* what a backfill of the time interval reads first."""

    @abstractmethod
    def bound_before(self, ranges: Iterable[BoundRange], interval: Interval) -> Chosen:
        """Selects from bound *ranges* what belongs to the time interval, and reports what the source has deleted."""

    def ends(self, spark: Any, bound: Mapping[str, int]) -> dict[str, int]:
        """The current end of each name that has unread data, without the limit of one run; proofs compare it."""
        found = self.find(spark, bound)
        return {name: bound.get(name, 0) + 1 for name in found.waiting} | {one.name: one.end for one in found.ranges}

    def unlimited(self) -> Transport:
        """A copy of the transport without a limit of what one run reads."""
        return self

    def retained(self) -> Mapping[str, tuple[int, int]]:
        """For each name the first offset that retention has kept, and the end offset; empty without retention."""
        return {}

    def report(self, spark: Any) -> SourceReport:
        """What the source reports of its tables in addition to changes, such as DDL; here nothing."""
        return SourceReport()

    def reread_from(self, source: str, bound: Mapping[str, int]) -> str | None:
        """The position from which the next run may read changes of a table again (T-18); None: it reads none again."""
        return None

    def counts_as_bound(self, name: str) -> bool:
        """Whether places of messages have the unit of their range (offsets, bytes), so that both can be compared."""
        return False

    def survey(self) -> Survey:
        """Checks, without a JVM and before the first run, whether the source has what the mirrored tables need."""
        return Survey()

    @abstractmethod
    def announced(self, form: Format, most: int, spark: Callable[[], Any]) -> Iterator[Announced]:
        """The tables at the source, mirrored or not, found in about *most* messages that the format *form* decodes."""


class BlockLog(Protocol):
    """Decodes blocks of rows in a worker, and writes them to the change log."""

    def take_block(self, block: RowBlock) -> None:
        """Decodes and writes one block."""
        ...

    def finish(self) -> Any:
        """Ends writing. Returns the files written, with counts and observations."""
        ...


class QueriedTransport(Transport):
    """A transport whose ranges are read by queries, each in a task of its own."""

    @abstractmethod
    def read(self, spark: Any, ranges: Sequence[BoundRange], log: Callable[[int], BlockLog], job: str) -> list[Any]:
        """Reads, decodes and logs ranges. Returns the result of each range's :meth:`BlockLog.finish`, in any order.

        *log* creates the log of a range, by its index in *ranges*, in a worker. *job* is the job's description in
        Spark.
        """


class MessageTransport(Transport):
    """A transport of messages in files or topics: a worker reads a range by itself, without Spark's readers."""

    @property
    def numbering(self) -> Numbering:
        """What the messages' places prove: where reading began, or which ones are missing; see :data:`Numbering`."""
        return ""

    def pinned(
        self, bound: Callable[[], Mapping[str, int]], files: Callable[[], Mapping[str, BoundFile]]
    ) -> MessageTransport:
        """A copy that checks, by versions in the ledger, that it reads the files or topics that were bound."""
        return self

    def announced(self, form: Format, most: int, spark: Callable[[], Any]) -> Iterator[Announced]:
        return form.announced(self.sample(most))

    def sample(self, most: int) -> Iterator[Any]:
        """Reads about *most* messages, an equal share from the beginning of each range; if there are many, of some."""
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
        """Reads the messages of one bound range, in their order, as input of the decoder."""

    def blocks(self, bound: BoundRange) -> Iterator[Any] | None:
        """Reads a range in blocks for the fast path; damage at its end comes last. None if the range is too small."""
        return None


def longest(ranges: Iterable[BoundRange]) -> list[BoundRange]:
    """Removes ranges that are part of another one: a file that grew may have been bound completely several times."""
    kept: list[BoundRange] = []
    for bound in sorted(set(ranges), key=lambda b: (b.name, b.start, -b.end)):
        if not (kept and kept[-1].name == bound.name and bound.end <= kept[-1].end):
            kept.append(bound)
    return kept
