"""Finds how far the source's changes reach now: a difference counts only once the change log holds all of them."""

from __future__ import annotations

from pyspark.sql import SparkSession
from sqlalchemy import Engine

from open_mirroring.config import Mirror
from open_mirroring.ledger.extract_ledger import ExtractLedger
from spark_jobs.sources.registry import transport_of


def settle_seconds(mirror: Mirror) -> float:
    """How long to wait between two looks, where the mirror file does not say."""
    chosen = mirror.prove.settle_seconds
    return transport_of(mirror).settles_after if chosen is None else chosen


def ends_of(mirror: Mirror, ledger: Engine, spark: SparkSession) -> dict[str, int]:
    """By range of the source that is not bound altogether, how far it reaches now; nothing is bound.

    Raises:
        TerminalError: the source is not as it must be.
        TransientError: it does not answer; ``TABLE_REFUSED`` when a change table cannot be read as it is.
    """
    return transport_of(mirror).ends(spark, ExtractLedger(ledger, mirror.name).bound())
