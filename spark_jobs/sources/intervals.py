"""Which ranges of a source belong to an interval of its time: what a backfill binds first, or reads again.

Time is told by what a source has: the window in the name of a Capture file, else a file's modification time; the
timestamps of a broker's messages; the time in a change sequence or in the name of a change table's partition, which
are in UTC. Time only chooses ranges: order comes from positions alone (G-01).

Public source: Microsoft Learn, *Capture events through Azure Event Hubs* (file names); Apache Kafka, *ListOffsets*;
Qlik help, *Change Data Partitioning*, *Change tables*.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from open_mirroring.ledger.extract_ledger import BoundRange
from open_mirroring.protocols.backfilling import Interval
from spark_jobs.sources.kafka import times as kafka_times
from spark_jobs.sources.kafka.place import KafkaPlace
from spark_jobs.sources.message_transports import Place
from spark_jobs.sources.qlik.change_table.jdbc import ChangeTablePlace
from spark_jobs.sources.transports.message_files import SourcePlace

_WINDOW = re.compile(r"(?:.+/)?(\d{4})/(\d\d)/(\d\d)/(\d\d)/(\d\d)/(\d\d)\.avro")
_PARTITION = re.compile(r"(\d{8}T\d{6})_(\d{8}T\d{6})")


class Chosen(NamedTuple):
    """The ranges of an interval, and the names of which the source no longer has what was bound."""

    ranges: list[BoundRange]
    gone: list[str]


def within(place: Place, ranges: Iterable[BoundRange], interval: Interval) -> list[BoundRange]:
    """Of ranges never bound, those of the interval; of a topic partition all before its end, for none may be left out.

    Raises:
        MirroringError: what a broker's answer means.
    """
    if isinstance(place, KafkaPlace):
        ends = kafka_times.offsets_at(place, interval.end)
        clipped = [b._replace(end=min(b.end, ends.get(b.name, b.end))) for b in ranges]
        return [bound for bound in clipped if bound.start < bound.end or bound.start == 0]
    return [bound for bound in ranges if _time_of_file(_folder(place) / bound.name, bound.name) in interval]


def bound_before(place: Place | ChangeTablePlace, ranges: Iterable[BoundRange], interval: Interval) -> Chosen:
    """Of ranges that were bound, what belongs to the interval and can still be read.

    Raises:
        MirroringError: what a broker's answer means.
    """
    full = [bound for bound in ranges if bound.end > bound.start]
    if isinstance(place, KafkaPlace):
        return _of_topics(place, full, interval)
    if isinstance(place, ChangeTablePlace):
        return Chosen(_longest(_of_change_tables(place, full, interval)), [])
    gone = {bound.name for bound in full if _size(_folder(place) / bound.name) < bound.end}
    chosen = [
        bound
        for bound in full
        if bound.name not in gone and _time_of_file(_folder(place) / bound.name, bound.name) in interval
    ]
    # What is gone tells its time in its name, if at all.
    missed = {name for name in gone if (window := _window(name)) is None or window in interval}
    return Chosen(_longest(chosen), sorted(missed))


def _of_topics(place: KafkaPlace, ranges: Sequence[BoundRange], interval: Interval) -> Chosen:
    starts, ends = (kafka_times.offsets_at(place, moment) for moment in interval)
    first = {name: kept for name, (kept, _) in kafka_times.offsets_kept(place).items()}
    chosen, gone = [], set()
    for bound in ranges:
        if bound.name not in first:
            continue  # a topic that is no longer read
        start, end = max(bound.start, starts[bound.name]), min(bound.end, ends[bound.name])
        if start < end and start < first[bound.name]:
            gone.add(bound.name)
            start = first[bound.name]
        if start < end:
            chosen.append(BoundRange(bound.name, start, end))
    return Chosen(_longest(chosen), sorted(gone))


def _of_change_tables(place: ChangeTablePlace, ranges: Sequence[BoundRange], interval: Interval) -> list[BoundRange]:
    if place.control is not None:
        return [bound for bound in ranges if _overlaps(bound.name.rpartition("/")[2], interval)]
    low, high = (int(f"{moment:%Y%m%d%H%M%S}" + "0" * 21) for moment in interval)
    clipped = (BoundRange(b.name, max(b.start, low), min(b.end, high)) for b in ranges)
    return [bound for bound in clipped if bound.start < bound.end]


def _overlaps(partition: str, interval: Interval) -> bool:
    """Whether a partition has rows of the interval; one whose name tells no time may have."""
    match = _PARTITION.fullmatch(partition)
    if match is None:
        return True
    start, end = (datetime.strptime(text, "%Y%m%dT%H%M%S").replace(tzinfo=UTC) for text in match.groups())
    return start < interval.end and interval.start < end


def _longest(ranges: Iterable[BoundRange]) -> list[BoundRange]:
    """Ranges without those that lie inside another one: a file that grew was bound as a whole each time."""
    kept: list[BoundRange] = []
    for bound in sorted(set(ranges), key=lambda b: (b.name, b.start, -b.end)):
        if not (kept and kept[-1].name == bound.name and bound.end <= kept[-1].end):
            kept.append(bound)
    return kept


def _folder(place: Place) -> Path:
    return place.folder if isinstance(place, SourcePlace) else place.path  # type: ignore[union-attr]


def _window(name: str) -> datetime | None:
    match = _WINDOW.fullmatch(name)
    return None if match is None else datetime(*map(int, match.groups()), tzinfo=UTC)  # type: ignore[arg-type, misc]


def _time_of_file(path: Path, name: str) -> datetime | None:
    """None for a file that went away since it was listed: it belongs to no interval, and the next look misses it."""
    try:
        return _window(name) or datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
