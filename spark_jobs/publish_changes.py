"""Spark job: publishes the logged changes of every table that passes the gate (the check before publishing).

``spark-submit spark_jobs/publish_changes.py MIRROR.yaml [--tables a,b]``, or :func:`publish_and_follow` in a running
Spark session. One Spark application publishes all tables.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from open_mirroring.changes.history_names import is_chosen
from open_mirroring.config import Mirror
from open_mirroring.errors import MirroringError
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.reconciliation.losses import look
from spark_jobs.changelog.schema import ROW_BYTES
from spark_jobs.publish.changes import Published, is_followed, publish
from spark_jobs.runtime.job import TABLES, Job
from spark_jobs.runtime.tasks import needs_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.reload_table import Reloaded

log = logging.getLogger(__name__)


def publish_and_follow(
    mirror: Mirror, ledger: Engine, spark: SparkSession, only: Sequence[str] | None = None
) -> tuple[Published, dict[str, Reloaded]]:
    """Publish tables; then reset tables that a structure change or a new full load stopped, and publish these.

    Returns what was published, and the result of each reset by table. Raises the errors of
    :func:`~spark_jobs.publish.changes.publish` and :func:`~spark_jobs.reload_table.follow`.
    """
    published = publish(mirror, ledger, spark, only)
    if not any(is_followed(state) for state in LedgerReader(ledger, mirror.name).tables().values()):
        return published, {}
    from spark_jobs.reload_table import follow  # few runs reset a table

    reloads = follow(mirror, ledger, spark, only)
    if back := [source for source, one in reloads.items() if not one.hold]:
        published = published.followed_by(publish(mirror, ledger, spark, back), back)
    return published, reloads


def _published(mirror: Mirror, ledger: Engine, spark: SparkSession, only: Sequence[str] | None) -> Published:
    published, reloads = publish_and_follow(mirror, ledger, spark, only)
    left = {source: what for source, what in published.stopped.items() if source not in reloads}
    stopped = {**left, **{source: one.stopped[source] for source, one in reloads.items() if source in one.stopped}}
    held = {**published.held, **{source: one.hold for source, one in reloads.items() if one.hold}}
    report = look(mirror, ledger)
    return published._replace(stopped=stopped, held=held, losses=report.lost, loss_report=report.document())


def publish_little(mirror: Mirror, ledger: Engine, spark: SparkSession, only: Sequence[str] | None) -> Published | None:
    """Publish in the process that has just read, if there is little to publish; None if publishing may take long.

    Publishing in the same process saves starting a publish job. After an error the function returns None too: the
    publish job of the same run then tries again and reports the error.
    """
    reader = LedgerReader(ledger, mirror.name)
    tables = [t for s, t in reader.tables().items() if is_chosen(s, only)]
    if any(map(is_followed, tables)):
        return None
    logged = reader.contents({t.source: t.row.published_batch for t in tables}, reader.mirror().committed)
    if needs_spark(spark, ROW_BYTES * sum(part.rows for parts in logged.values() for part in parts)):
        return None
    try:
        return _published(mirror, ledger, spark, only)
    except MirroringError as error:
        log.warning("publishing is left to the run's next task: %s", error)
        return None


main = Job(
    "publish_changes",
    lambda mirror, ledger, spark, named: _published(mirror, ledger, spark, named.tables),
    (TABLES,),
)


if __name__ == "__main__":
    sys.exit(main())
