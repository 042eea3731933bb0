"""Where messages come from: which ranges a source has, and the messages of one range.

A transport knows ranges and bytes only; formats decode. A range names a file below the source's path, or a topic
partition, and a half-open interval in it; the ledger binds ranges before anything is read, so that a message is read
in exactly one batch however the source grows meanwhile. Change tables in a database, whose rows Spark reads, are in
:mod:`spark_jobs.sources.qlik.change_table.jdbc`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from open_mirroring.ledger.extract_ledger import BoundRange, FileVersion
from spark_jobs.sources.contract import message_blocks
from spark_jobs.sources.contract.decoded import Damage
from spark_jobs.sources.contract.found import Found
from spark_jobs.sources.contract.message_blocks import Block
from spark_jobs.sources.kafka import ranges as kafka_ranges
from spark_jobs.sources.kafka import reader as kafka_reader
from spark_jobs.sources.kafka.place import KafkaPlace
from spark_jobs.sources.qlik.change_table import files as qlik_change_files
from spark_jobs.sources.transports import json_lines, line_blocks, message_files
from spark_jobs.sources.transports.message_files import SourcePlace

__all__ = ["ChangeFilesPlace", "Damage", "Found", "Place", "SourcePlace", "find_ranges", "pinned", "read_range"]

_WORTH_BYTES = 2**18
_WORTH_MESSAGES = 1_000


class ChangeFilesPlace(NamedTuple):
    """The folder of a file target, how its change tables and header columns are told (T-01, T-02), what is mirrored.

    A file may wait for its other half for *timeout_hours* (T-42).
    """

    path: Path
    suffix: str = "__ct"
    prefix: str = "header__"
    tables: tuple[str, ...] = ()
    timeout_hours: float = 24


Place = SourcePlace | ChangeFilesPlace | KafkaPlace
"""A source as a worker needs it: plain values."""


def find_ranges(source: Place, bound: Mapping[str, int], seen: Mapping[str, FileVersion] | None = None) -> Found:
    """Everything at the source beyond what is bound; *seen* is how bound files were, None where it matters not (G-32).

    Raises:
        TerminalError: ``SOURCE_FOLDER_MISSING`` when the source's folder does not exist, ``SOURCE_SHRUNK`` when a
            file is shorter than what was bound of it, ``SOURCE_REWRITTEN`` when that has changed; those of
            :func:`kafka_ranges.find_ranges`.
        TransientError: ``KAFKA_UNREACHABLE``.
    """
    match source:
        case KafkaPlace():
            return kafka_ranges.find_ranges(source, bound)
        case ChangeFilesPlace():
            return qlik_change_files.find_files(source.path, bound, source.suffix, seen, source.timeout_hours)
        case _:
            return message_files.find_ranges(source, bound, seen)


def pinned(source: Place, bound: Mapping[str, int]) -> Place:
    """The source with whatever proves, while a range is read, that it is still the one that was bound."""
    return kafka_ranges.expecting(source, bound) if isinstance(source, KafkaPlace) else source


def read_range(source: Place, bound: BoundRange) -> Iterator[Any]:
    """The messages of one bound range in the order in which they stand there, as the format's decoder takes them."""
    match source:
        case KafkaPlace():
            return kafka_reader.read_range(source, bound)
        case ChangeFilesPlace():
            return qlik_change_files.read_file(source.path, bound, source.suffix, source.prefix, source.tables)
        case _:
            return message_files.read_range(source, bound)


def counts_as_bound(source: Place | None, name: str) -> bool:
    """Whether the places of messages are numbers in their bound ranges; else a range that begins at 0 is the whole."""
    is_lines = isinstance(source, SourcePlace) and source.transport == "files" and not json_lines.is_gzip(name)
    return is_lines or isinstance(source, KafkaPlace)


def worth_blocks(source: Place, bound: BoundRange) -> bool:
    """Whether a range holds enough to be read in blocks: a decoder of blocks has to learn before it is fast."""
    return bound.end - bound.start >= (_WORTH_MESSAGES if isinstance(source, KafkaPlace) else _WORTH_BYTES)


def read_blocks(source: Place, bound: BoundRange) -> Iterator[Block]:
    """The messages of :func:`read_range` in blocks; of a source of messages, not of change tables."""
    if (
        isinstance(source, SourcePlace)
        and (source.transport, source.layout) == ("files", "bare")
        and not json_lines.is_gzip(bound.name)
        and message_files.is_known(source, bound.name)
    ):
        read_to = bound.start
        for block in line_blocks.read_blocks(source.folder, *bound):
            yield block
            read_to += len(block.content)
        bound = BoundRange(bound.name, read_to, bound.end)  # what a file cut meanwhile lacks
    yield from message_blocks.blocks_of(read_range(source, bound))
