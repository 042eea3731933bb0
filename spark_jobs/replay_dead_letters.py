"""Spark job: decodes open dead letters again, with the present decoder and settings, into a separate batch.

``spark-submit spark_jobs/replay_dead_letters.py MIRROR.yaml [--code C] [--table T] [--after P] [--before P]``, or
:func:`replay_letters` in a running Spark session. Each decoded row keeps the position of its message, so an old row
never replaces a newer row (I17).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Engine

from open_mirroring.changes.manifest import Scope
from open_mirroring.config import Mirror
from open_mirroring.operate.operations import LETTERS
from open_mirroring.reconciliation.inspection import declare_tables
from open_mirroring.reconciliation.losses import look
from spark_jobs.dead_letters.open_letters import LetterChoice, OpenLetter, ensure_counted, read_open_letters
from spark_jobs.extract.driver import ExtractionDriver
from spark_jobs.reconcile.lost_ledger import refuse_lost_ledger
from spark_jobs.runtime.job import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Replayed(NamedTuple):
    """The result: the number of dead letters *replayed* (now decoded), and by code the number *left*, which stay open.

    *batch* is the new batch, or None if no dead letter was to be decoded. *no_message* counts dead letters whose
    message is not in the change log. *healed* are the tables whose dead letters with unreadable keys are all decoded
    now.
    """

    batch: int | None
    replayed: int
    left: Mapping[str, int]
    no_message: Mapping[str, int]
    counts: Mapping[str, int]
    healed: Sequence[str]
    losses: Mapping[str, str] = MappingProxyType({})


def replay_letters(mirror: Mirror, ledger: Engine, spark: SparkSession, chosen: LetterChoice) -> Replayed:
    """Decode the open dead letters that *chosen* selects; a batch that an earlier run left open is finished first."""
    declare_tables(mirror, ledger)
    refuse_lost_ledger(mirror, ledger)
    ensure_counted(mirror, ledger)
    driver = ExtractionDriver(mirror, ledger, spark)
    bound: list[OpenLetter] = []

    def letters() -> Scope:
        found = [letter for letter in read_open_letters(mirror, ledger) if chosen.includes(letter)]
        bound[:] = [letter for letter in found if letter.is_message]
        return Scope("replay", letters=[letter.at for letter in bound])

    driver.drive([letters])
    left = [letter for letter in read_open_letters(mirror, ledger) if chosen.includes(letter)]
    replayed = {letter.at for letter in bound} - {letter.at for letter in left}
    return Replayed(
        batch=driver.completed[-1] if bound and driver.completed else None,
        replayed=len(replayed),
        left=_by_code(left),
        no_message=_by_code(letter for letter in left if not letter.is_message),
        counts=driver.counts if bound else {},
        healed=() if driver.manifest is None or not bound else tuple(driver.manifest.healed),
        losses=look(mirror, ledger).lost,
    )


def _by_code(letters: Iterable[OpenLetter]) -> dict[str, int]:
    return dict(sorted(Counter(letter.code for letter in letters).items()))


def _replay(mirror: Mirror, ledger: Engine, spark: SparkSession, of: argparse.Namespace) -> Replayed:
    return replay_letters(mirror, ledger, spark, LetterChoice(of.code, of.table, of.after, of.before))


main = Job("replay_dead_letters", _replay, LETTERS)


if __name__ == "__main__":
    sys.exit(main())
