"""The command ``upgrade``: brings ledger and change log of a mirror to this version, or says what that would do."""

from __future__ import annotations

import argparse
from importlib.metadata import version

import sqlalchemy as sa
from sqlalchemy import Engine
from sqlalchemy.pool import NullPool

from open_mirroring.config import Mirror, load_mirror
from open_mirroring.config.storage import log_place
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.horizon import newest_dropped
from open_mirroring.ledger.opening import pending_migrations
from open_mirroring.operate.exit_codes import Exit
from open_mirroring.operate.words import shown
from spark_jobs.changelog.batch_records import read_records, write_record
from spark_jobs.changelog.newest_batch import newest_in_log
from spark_jobs.reconcile.lost_ledger import refuse_behind_log


def upgrade(arguments: argparse.Namespace) -> Exit:
    """Take every step that is pending; with `--check` only tell them."""
    mirror = load_mirror(arguments.file)
    steps = pending_migrations(mirror.ledger_url())
    refuse_behind_log(mirror)
    unrecorded, lacking = _unrecorded(mirror)
    print(f"mirror {mirror.name}: open-mirroring {version('open-mirroring')}")
    for step in steps:
        print(f"ledger: {step.revision}: {shown(step.what)}")
    if unrecorded:
        print(f"change log: {len(unrecorded)} batches have no record yet, from which a lost ledger is made again")
    if not steps and not unrecorded:
        print("nothing to do")
    elif arguments.check:
        print("nothing was changed; back up the ledger, then run it without --check, or let the next run do it")
    else:
        ledger = open_ledger(mirror.ledger_url())
        written = _write_records(mirror, ledger, unrecorded)
        print(f"done: {len(steps)} steps of the ledger, {written} records of batches")
    if lacking:
        print(
            f"of {lacking} batches maintenance has dropped what a record would hold: back up the ledger, for it cannot "
            "be made again"
        )
    return Exit.DONE


def _unrecorded(mirror: Mirror) -> tuple[list[int], int]:
    """The batches whose record can be written, and of how many nobody knows any more what it would hold."""
    root = log_place(mirror)
    newest = newest_in_log(root, mirror.name)
    missing = {*range(1, newest + 1)} - read_records(root, newest).keys()
    if not missing:
        return [], 0
    # The ledger as it is, of whatever version: one without horizon has dropped nothing.
    engine = sa.create_engine(mirror.ledger_url(), poolclass=NullPool)
    with engine.connect() as db:
        dropped = 0
        if sa.inspect(db).has_table(t.mirror_horizon.name):
            dropped = db.scalar(sa.select(newest_dropped(mirror.name))) or 0
    written = sorted(number for number in missing if number > dropped)
    return written, len(missing) - len(written)


def _write_records(mirror: Mirror, ledger: Engine, numbers: list[int]) -> int:
    """Write the records of batches that an earlier version logged."""
    c, wanted = t.log_batch.c, set(numbers)
    rows = t.rows(ledger, sa.select(c.number, c.ranges, c.manifest, c.bound_at).where(c.mirror == mirror.name))
    found = [row for row in rows if row.number in wanted]
    for row in found:
        write_record(log_place(mirror), row.number, row.ranges, row.manifest, row.bound_at)
    return len(found)
