"""Defines the two interfaces of a source: :class:`Format` decodes messages, :class:`Transport` lists and reads them.

The rest of the product uses only these two interfaces, so a new source needs no change outside of
:mod:`spark_jobs.sources`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

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
        empty: the files of *waiting* that have no bytes, so no data of these files is missing.
        versions: current versions of files that are in *ranges*, or that were read and have changed since (G-32).
        overdue: the files of *waiting* whose writer seems to have given up: the rest of these files may never come.
        refused: source tables that cannot be read now, each with the error; the source still has all of their changes.
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
    """The message for an operator about the field *unread* of :class:`Found`."""
    more = f" and {len(unread) - _NAMES_SHOWN} others" if len(unread) > _NAMES_SHOWN else ""
    return f"not read in the source's folder: {', '.join(unread[:_NAMES_SHOWN])}{more}"


class Chosen(NamedTuple):
    """The ranges of a time interval; *gone* are the names whose data the source has deleted after it was read."""

    ranges: list[BoundRange]
    gone: list[str]


class Survey(NamedTuple):
    """What is missing at the source for the mirrored tables, found before the first run.

    *unseen* maps mirrored tables, and *settings* maps settings of the source, to a description of what is missing.
    *without_mask* are tables whose Qlik change table has no change mask.
    """

    unseen: Mapping[str, str] = MappingProxyType({})
    without_mask: Collection[str] = ()
    settings: Mapping[str, str] = MappingProxyType({})


class AnnouncedColumn(NamedTuple):
    """A column of a source table. *type* is a SQL Server type, else the source's own type; empty if unknown."""

    name: str
    type: str = ""


class Note(NamedTuple):
    """A warning about a table that is to be mirrored.

    The warning is not shown if the table in the mirror file has any of the settings *answered_by*.
    """

    text: str
    answered_by: tuple[str, ...] = ()


class Announced(NamedTuple):
    """What one message, or one description at the source, shows of a table.

    Another message may show more columns of the same table. *key* is empty if the table has no key, None if unknown.
    *changes_rows*: the message is an update or a delete. *sender* is the database or Qlik task that sent the message:
    equal table names of two senders may be two tables. *load* are settings for the mirror file that read an initial
    load which is ready at the source.
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
        partitions: number of partitions, if the mirror has to know up to where each partition is complete (C-88); else
            0.
        has_loads: whether rows of a Qlik full load may be among the changes (K-18).
        renames_columns: whether the source can rename a column while its changes are read.
        joins_pieces: True if fragments wait for other pieces of the same change; False if fragments wait for a table's
            structure (K-05).
        first_place: how the ``minor`` part of a log position ends for the first change of a transaction, if the format
            numbers the changes of each transaction (K-80); empty if the ``major`` part alone identifies the
            transaction.
        work_per_byte: decoding work per byte, relative to plain rows; decides whether Spark is started.
    """

    partitions: int = 0
    has_loads: ClassVar[bool] = False
    renames_columns: ClassVar[bool] = True
    joins_pieces: ClassVar[bool] = True
    first_place: ClassVar[str] = ""
    work_per_byte: ClassVar[float] = 1

    def work(self, transport: Transport, ranges: Iterable[BoundRange]) -> int:
        """Estimates the work of decoding *ranges*, in bytes of plain rows; decides whether Spark is started."""
        places = sum(bound.end - bound.start for bound in ranges)
        return int(self.work_per_byte * transport.bytes_of_a_place * places)

    def ordered_in(self, origin: str) -> str:
        """The name of the part of the source, such as a partition, in which positions of *origin* only rise (C-34)."""
        return partition_of(origin)

    @property
    def load(self) -> str:
        """The epoch of log positions in Qlik's formats: the setting ``source.load`` (G-01).

        The setting names the Qlik full load to which the changes belong. Empty in the format of change events, whose
        messages name their epoch.
        """
        return ""

    @property
    def key_changes(self) -> str:
        """A message for operators: how a change of a key is recognized; empty if each change shows it."""
        return ""

    @abstractmethod
    def decoder(self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()) -> Decoder:
        """Creates the decoder.

        *tables* are the mirrored tables by their names in messages, *schemas* the table structures known so far.
        """

    def described(self, schemas: Sequence[SourceSchema]) -> Iterator[Announced]:
        """The tables in the known structures *schemas*; none if a format's messages contain their structure."""
        return iter(())

    def structures(self, schemas: Sequence[SourceSchema]) -> Mapping[str, Sequence[Structure]]:
        """The structures of each ``schema.table`` in the order in which they applied, if this order is certain."""
        return {}

    @abstractmethod
    def announced(self, messages: Iterable[Any]) -> Iterator[Announced]:
        """The tables that messages show, mirrored or not; messages that show no table are skipped."""

    def fast_decoder(
        self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()
    ) -> FastDecoder | None:
        """Creates the fast path, which decodes most messages faster than the decoder; None if the format has none."""
        return None


class SchemaLookup(Protocol):
    """Finds the table structures of messages that do not contain them, for example in a schema registry."""

    def schemas(self, identities: Iterable[str]) -> list[SourceSchema]:
        """The structures with the ids *identities*, which waiting messages name; unknown ids are skipped."""
        ...


class Transport(ABC):
    """Lists the ranges of a source that can be read. Instances hold plain values: Spark pickles them to its workers.

    A range is a half-open interval of a file, a topic partition or a table. The ledger assigns ranges to a batch
    ("binds" them) before they are read, so each message is read in exactly one batch, even if the source grows in the
    meantime.

    Attributes:
        describes_tables: whether :meth:`announced` finds every table without reading messages.
        reads_named_tables: whether only tables that the mirror file names are read.
        settles_after: seconds from a commit at the source until the change can be read.
        empty_range_is_damage: True if an empty bound range means that data is missing; False if it marks where reading
            begins.
        lists_of_reading: whether rows have the columns that the table had when the row was read, not when the row
            changed (T-33).
        bytes_of_a_place: the approximate number of bytes of one step of a range, such as one offset.
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
            spark: the Spark session, for sources that are read by Spark.
            bound: for each name (file, partition or table) the end of the data that belongs to batches.
            seen: returns the last known versions of files, to notice changed files; None: changed files do not matter.

        Raises:
            TerminalError: the source is wrong or has lost data; the error's code names which.
            TransientError: the source does not answer.
        """

    @abstractmethod
    def within(self, ranges: Iterable[BoundRange], interval: Interval) -> list[BoundRange]:
        """Selects from *ranges*, which belong to no batch yet, what a backfill of the interval reads first."""

    @abstractmethod
    def bound_before(self, ranges: Iterable[BoundRange], interval: Interval) -> Chosen:
        """Selects from *ranges*, which belong to batches, those of the time interval.

        The result also names the data of the interval that the source has deleted.
        """

    def ends(self, spark: Any, bound: Mapping[str, int]) -> dict[str, int]:
        """The current end of each name (file, partition or table) that has unread data, without the limit of one run.

        A proof asks for these ends after a comparison, to know how far the source's changes reach.
        """
        found = self.unlimited().find(spark, bound)
        return {name: bound.get(name, 0) + 1 for name in found.waiting} | {one.name: one.end for one in found.ranges}

    def unlimited(self) -> Self:
        """A copy of the transport that lists all unread data, without the limit of one run."""
        return self

    def retained(self) -> Mapping[str, tuple[int, int]]:
        """For each partition the first offset that the broker has kept, and the end offset.

        Empty for a source that does not delete data after some time.
        """
        return {}

    def report(self, spark: Any) -> SourceReport:
        """What the source reports about its tables apart from changes, such as DDL; by default nothing."""
        return SourceReport()

    def reread_from(self, source: str, bound: Mapping[str, int]) -> str | None:
        """The position from which the next run reads changes of *source* again (T-18); None if it reads none again."""
        return None

    def counts_as_bound(self, name: str) -> bool:
        """Whether the messages of *name* (a file or a topic partition) are numbered by bytes or offsets, as ranges are.

        Only then the place of a message can be compared with the end of a range.
        """
        return False

    def survey(self) -> Survey:
        """Checks, without a JVM and before the first run, whether the source has what the mirrored tables need."""
        return Survey()

    @abstractmethod
    def announced(self, form: Format, most: int, spark: Callable[[], Any]) -> Iterator[Announced]:
        """The tables at the source, mirrored or not, found in about *most* messages that the format *form* decodes."""


class BlockLog(Protocol):
    """Decodes blocks of rows in a Spark worker, and writes them to the change log."""

    def take_block(self, block: RowBlock) -> None:
        """Decodes one block, and writes its rows to the change log."""
        ...

    def finish(self) -> Any:
        """Closes the files of the change log. Returns the files written, with counts and observations."""
        ...


class QueriedTransport(Transport):
    """A transport that reads its ranges by queries, each range in its own Spark task."""

    @abstractmethod
    def read(self, spark: Any, ranges: Sequence[BoundRange], log: Callable[[int], BlockLog], job: str) -> list[Any]:
        """Reads and decodes ranges, and writes them to the change log.

        Returns the result of each range's :meth:`BlockLog.finish`, in any order. *log* is called in a worker with the
        index of a range in *ranges*, and creates the range's :class:`BlockLog`. *job* is the description that Spark
        shows for the job.
        """


class MessageTransport(Transport):
    """A transport of messages in files or topics: a worker reads a range by itself, without Spark's readers."""

    @property
    def numbering(self) -> Numbering:
        """What the numbers of messages prove: where reading began, or which are missing (:data:`Numbering`)."""
        return ""

    def pinned(
        self, bound: Callable[[], Mapping[str, int]], files: Callable[[], Mapping[str, BoundFile]]
    ) -> MessageTransport:
        """A copy that checks, while it reads, that files or topics are the ones assigned to the batch.

        *bound* returns for each name how far it belongs to batches; *files* returns the versions of files from the
        ledger.
        """
        return self

    def announced(self, form: Format, most: int, spark: Callable[[], Any]) -> Iterator[Announced]:
        return form.announced(self.sample(most))

    def sample(self, most: int) -> Iterator[Any]:
        """Reads about *most* messages from the source, an equal share from the beginning of each range.

        If there are too many ranges for that, only some ranges are read.
        """
        ranges = [one for one in self.unlimited().find(None, {}).ranges if one.start < one.end]
        ranges = ranges[:: -(-len(ranges) * _FEWEST // most) or 1]
        left = most
        for at, one in enumerate(ranges):
            for message in islice(self.read(one), max(left // (len(ranges) - at), 1)):
                left -= 1
                yield message

    @abstractmethod
    def read(self, bound: BoundRange) -> Iterator[Any]:
        """Reads the messages of one range of a batch in their order, as input of the decoder."""

    def blocks(self, bound: BoundRange) -> Iterator[Any] | None:
        """Reads a range in blocks for the fast path; damage at the end of the range comes last.

        Returns None if the range is too small for the fast path.
        """
        return None


def longest(ranges: Iterable[BoundRange]) -> list[BoundRange]:
    """Removes ranges that are part of another range.

    A file that grew may have been assigned completely to several batches, with a larger range each time.
    """
    kept: list[BoundRange] = []
    for bound in sorted(set(ranges), key=lambda b: (b.name, b.start, -b.end)):
        if not (kept and kept[-1].name == bound.name and bound.end <= kept[-1].end):
            kept.append(bound)
    return kept
