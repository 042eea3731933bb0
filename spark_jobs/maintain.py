"""Job: moves the horizon, drops older changes from the change log, and removes files that nothing refers to.

The horizon of a table is the position up to which all its changes are published for good. ``spark-submit
spark_jobs/maintain.py MIRROR.yaml``, or :func:`maintain`. The job may run next to other jobs, and may be repeated. The
job never rewrites or compacts files of the change log, because workers read these files by their sealed names.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Engine

from open_mirroring.changes.horizon import LoggedTable, advance
from open_mirroring.changes.log_position import is_of_generation
from open_mirroring.config import Mirror
from open_mirroring.config.storage import log_place
from open_mirroring.landing_zone.opening import open_store
from open_mirroring.ledger.dead_letters import settled_letters
from open_mirroring.ledger.extract_ledger import ExtractLedger
from open_mirroring.ledger.horizon import forget, move_horizon
from open_mirroring.ledger.reading import LedgerReader, TableState
from open_mirroring.reconciliation.inspection import declare_tables, zone_address
from spark_jobs.changelog.change_log import drop_blocks, vacuum
from spark_jobs.changelog.schema import BATCHES_PER_BLOCK
from spark_jobs.dead_letters.open_letters import OpenLetter, read_open_letters, untyped_letters
from spark_jobs.publish.zone_ports import sweep_staging
from spark_jobs.reconcile.lost_ledger import refuse_lost_ledger
from spark_jobs.runtime.job import Job
from spark_jobs.sources.registry import transport_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_TRIES = 3


class Maintained(NamedTuple):
    """The result of a run.

    *horizon* is the time from which on the source may be read again. All batches above *horizon_batch* are kept.
    *moved* has the new horizon of each table, as ``ordinal:major``: the number of the stream (one enabling of streaming
    or one Qlik full load) and the commit in it. *held_by* is what prevents a later horizon. *vacuumed*, *swept* and
    *forgotten* count what was removed: files of the change log, staged files, entries of the ledger.
    """

    horizon: datetime | None
    horizon_batch: int
    moved: Mapping[str, str]
    held_by: Sequence[str]
    dropped_batch: int
    vacuumed: int
    swept: int
    forgotten: int


def maintain(
    mirror: Mirror, ledger: Engine, spark: SparkSession | None = None, *, now: datetime | None = None
) -> Maintained:
    """Do the maintenance that is due; *spark* is not used.

    Raises ``CHANGED_MEANWHILE`` if another writer changed the change log at the same time; ``LOG_DAMAGED`` if the
    change log lacks its newest batches and a table needs them; ``LEDGER_LOST`` if the ledger lacks what is published or
    logged.
    """
    declare_tables(mirror, ledger)
    refuse_lost_ledger(mirror, ledger)
    moment = now or datetime.now(UTC)
    before = moment - timedelta(days=mirror.maintenance.keep_days)
    moved, held_by = _move(mirror, ledger, before)
    root, reader = log_place(mirror), LedgerReader(ledger, mirror.name)
    horizon = reader.mirror_horizon()
    dropped = 0 if horizon is None else horizon.dropped
    drop_blocks(root, dropped)
    vacuumed = 0
    if reader.mirror().open_batch is None:
        # A batch that is bound now writes files younger than any that may go; one that was bound before may not.
        vacuumed = vacuum(root, timedelta(days=mirror.maintenance.keep_days))
    store, states = open_store(zone_address(mirror)), reader.tables().values()
    swept = sum(sweep_staging(store, one.folder, one.row.generation, one.row.confirmed) for one in states)
    audit_before = moment - timedelta(days=mirror.maintenance.audit_days)
    return Maintained(
        horizon=None if horizon is None else horizon.at,
        horizon_batch=0 if horizon is None else horizon.batch,
        moved=moved,
        held_by=held_by,
        dropped_batch=dropped,
        vacuumed=vacuumed,
        swept=swept,
        forgotten=forget(ledger, mirror.name, dropped=dropped, audit_before=audit_before),
    )


def _move(mirror: Mirror, ledger: Engine, before: datetime) -> tuple[dict[str, str], list[str]]:
    reader = LedgerReader(ledger, mirror.name)
    for _ in range(_TRIES):
        committed, known = reader.mirror().committed, reader.mirror_horizon()
        fragments = ExtractLedger(ledger, mirror.name).open_fragments()
        states = reader.tables()
        untyped = untyped_letters(reader, settled_letters(ledger, mirror.name))
        # A dead letter of a table that is not mirrored does not concern the others.
        letters = [one for one in (*read_open_letters(mirror, ledger), *untyped) if one.table in {None, *states}]
        waiting = [(f.epoch, f.pos) for f in fragments]
        moved, of_tables = advance(
            reader.batch_times(),
            _tables(mirror, ledger, reader, states, letters, waiting),
            known,
            before=before,
            held_from=min([x.at.batch for x in letters] + [f.since_batch for f in fragments], default=None),
            batches_per_block=BATCHES_PER_BLOCK,
        )
        held_by = []
        if letters:
            first = min(x.at.batch for x in letters)
            held_by.append(f"{len(letters)} open dead letters, the first in batch {first}")
        if fragments:
            held_by.append(f"{len(fragments)} split messages that wait for pieces")
        if resets := [source for source, state in states.items() if state.reset]:
            held_by.append(f"the resets of {resets}, which may need their complete log")
        if moved is None or (moved == known and not of_tables):
            return {}, held_by
        in_reset = [state.id for state in states.values() if state.reset is not None]
        lives = [(states[source].id, states[source].row.generation, h) for source, h in of_tables.items()]
        if move_horizon(ledger, mirror.name, committed, moved, lives, in_reset):
            return {source: f"{h.ordinal}:{h.major}" for source, h in of_tables.items()}, held_by
    return {}, ["batches or resets were begun or completed meanwhile: the next run moves it"]


def _tables(
    mirror: Mirror,
    ledger: Engine,
    reader: LedgerReader,
    states: Mapping[str, TableState],
    letters: Sequence[OpenLetter],
    waiting: Sequence[tuple[str, str]],
) -> dict[str, LoggedTable]:
    contents = reader.contents(dict.fromkeys(states, 0), reader.mirror().committed)
    epochs, horizons = reader.epochs(s.id for s in states.values()), reader.horizons(states.values())
    completing = {table.source for table in mirror.tables if table.complete_rows or table.keeps_deleted}
    completing |= {table.source for table in mirror.targets if table.keys_of_rows is not None and table.key}
    bound = ExtractLedger(ledger, mirror.name).bound()
    transport = transport_of(mirror)
    named = {table.source: ".".join(table.source_name) for table in mirror.targets}
    found = {}
    for source, state in states.items():
        again = transport.reread_from(named.get(source, source), bound)
        open_here = [x for x in letters if x.table in (None, source) and x.epoch is not None and x.position is not None]
        known = epochs.get(state.id, {})
        found[source] = LoggedTable(
            published_batch=state.row.published_batch,
            epochs=known,
            contents=[p for p in contents.get(source, []) if is_of_generation(p.epoch, state.row.generation)],
            waiting=[*waiting, *((x.epoch or "", x.position or "") for x in open_here)],
            reread_from=None if again is None else (max([0, *known.values()]), again),
            completes_rows=source in completing,
            horizon=horizons.get(state.id),
            published_position=state.row.published_position,
            in_reset=state.reset is not None,
        )
    return found


main = Job("maintain", lambda mirror, ledger, spark, _: maintain(mirror, ledger, spark))


if __name__ == "__main__":
    sys.exit(main())
