"""How far a source has told its changes: what must be in the change log before a difference is one for certain."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from sqlalchemy import Engine

from open_mirroring.config import Mirror
from open_mirroring.errors import TransientError
from open_mirroring.ledger.extract_ledger import ExtractLedger
from spark_jobs.sources.kafka.place import KafkaPlace
from spark_jobs.sources.message_transports import find_ranges
from spark_jobs.sources.opening import source_of
from spark_jobs.sources.qlik.change_table import jdbc as qlik_change_jdbc
from spark_jobs.sources.qlik.change_table.jdbc import ChangeTablePlace

_SETTLE = {"kafka": 30, "capture": 960, "files": 60, "jdbc": 60}
"""Seconds from a commit to where it can be read, by transport: a Capture writes its files every 15 minutes at most."""


def settle_seconds(mirror: Mirror) -> float:
    """How long to wait between two looks, where the mirror file does not say."""
    chosen = mirror.prove.settle_seconds
    return _SETTLE[mirror.source.transport] if chosen is None else chosen


def ends_of(mirror: Mirror, ledger: Engine, spark: SparkSession) -> dict[str, int]:
    """By range of the source that is not bound altogether, how far it reaches now; nothing is bound.

    Raises:
        TerminalError: the source is not as it must be.
        TransientError: it does not answer; ``TABLE_REFUSED`` when a change table cannot be read as it is.
    """
    place = source_of(mirror).place
    bound = ExtractLedger(ledger, mirror.name).bound()
    if isinstance(place, ChangeTablePlace):
        tables = qlik_change_jdbc.find_ranges(spark, place, bound)
        if tables.refused:
            what = f"change tables cannot be read: {sorted(tables.refused)}"
            raise TransientError("TABLE_REFUSED", what, way_out="`status` says why; then prove again")
        ends = {one.name: one.end for one in tables.ranges}
        return ends | (_rows_of_partitions(spark, place) if place.control is not None else {})
    if isinstance(place, KafkaPlace):
        # To the very end, whatever one run of extraction takes at most.
        place = place._replace(max_messages_per_run=sys.maxsize)
    found = find_ranges(place, bound)
    waiting = {name: bound.get(name, 0) + 1 for name in found.waiting}
    return waiting | {one.name: one.end for one in found.ranges}


def _rows_of_partitions(spark: SparkSession, place: ChangeTablePlace) -> dict[str, int]:
    """Of every partition, those that are still open among them, to where it is bound once all its rows are read."""
    ends: dict[str, int] = {}
    for source in place.tables:
        table = place.open(spark, source)
        if table.exists:
            ends |= {f"{table.name}/{name}": rows + 1 for name, rows in table.rows_of_partitions().items() if rows}
    return ends
