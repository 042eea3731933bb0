"""Publishes the logged changes of every table that passes the gate (the check before publishing).

:mod:`spark_jobs.publish.driver` carries out the publish protocol of each table. This module finds the next changes of
each table; one Spark job computes the rows of all tables.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import Engine

from open_mirroring.changes.column_history import place_text
from open_mirroring.changes.history_names import is_chosen
from open_mirroring.config import Mirror
from open_mirroring.config.storage import log_place
from open_mirroring.landing_zone.opening import ZoneAddress
from open_mirroring.ledger.columns import note_columns, note_former, note_gone
from open_mirroring.ledger.publish_ledger import StagedDetails
from open_mirroring.ledger.reading import LedgerReader, TableState, changes_up_to, next_changes
from open_mirroring.protocols import publishing as protocol
from open_mirroring.protocols.verdicts import gate
from open_mirroring.reconciliation.inspection import declare_tables, inspect_mirror, zone_address
from spark_jobs.changelog.schema import ROW_BYTES
from spark_jobs.dead_letters.healing import settle_outdated_letters
from spark_jobs.dead_letters.open_letters import ensure_counted
from spark_jobs.plan.table_plan import PlanStop, TablePlan
from spark_jobs.publish.driver import PublicationDriver, StagedWork, Staging
from spark_jobs.publish.publication import Preparation, Prepared
from spark_jobs.publish.staging import StagedTable, StageTarget, StageTask, stage, stage_no_rows
from spark_jobs.reconcile.lost_ledger import log_ahead
from spark_jobs.runtime.tasks import THREADS, run_job, tasks_wanted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_LEAST_ROWS, _MOST_ROWS = 2**14, 2**18
"""The least and most rows of small tables in one task: a task opens log files, and holds its rows in memory."""


class Published(NamedTuple):
    """The result of a run: new file numbers by table, and tables on hold or stopped with the reason.

    *losses* describes what each table of the mirror lacks; *loss_report* has the dead letters and ignored tables.
    """

    files: Mapping[str, Sequence[int]]
    held: Mapping[str, str]
    stopped: Mapping[str, str]
    losses: Mapping[str, str] = MappingProxyType({})
    loss_report: Mapping[str, Any] = MappingProxyType({})

    def followed_by(self, later: Published, tables: Collection[str]) -> Published:
        """Merge with the result of a *later* run; of the given *tables*, only the later holds and stops count."""
        files = {s: [*self.files.get(s, ()), *later.files.get(s, ())] for s in {**self.files, **later.files}}
        held, stopped = ({s: why for s, why in said.items() if s not in tables} for said in (self.held, self.stopped))
        return later._replace(files=files, held={**held, **later.held}, stopped={**stopped, **later.stopped})


def publish(mirror: Mirror, ledger: Engine, spark: SparkSession, only: Sequence[str] | None = None) -> Published:
    """Publish every table that passes the gate, or only the tables in *only* and their histories.

    Publications that an earlier run left open are finished first. A table that has to stop does not delay the others.

    Raises:
        TransientError: the ledger or the landing zone does not answer; the next run finishes what is open.
        TerminalError: ``ARGUMENT_INVALID`` if *only* names a table that the mirror does not have; a stop of the entire
            mirror; or an error of one table's folder in the landing zone, after all other tables were published.
    """
    ids = declare_tables(mirror, ledger, only)
    if lost := log_ahead(mirror, ledger):
        raise lost
    reader = LedgerReader(ledger, mirror.name)
    reader.mirror().refuse_stopped(mirror.name)
    ensure_counted(mirror, ledger)
    before = reader.tables()
    chosen = [source for source in ids if is_chosen(source, only)]
    findings = {s: f for s, f in inspect_mirror(mirror, ledger, everything=False).items() if s in chosen}
    verdict = gate(findings)
    # An open intent is finished on hold too: no one else seals or abandons its numbers.
    open_ones = [s for s in verdict.held if before[s].row.intent is not None]
    clean = {source for source, finding in findings.items() if not finding.left_over}
    work = _ChangesWork(mirror, ledger, spark, verdict.passing)
    driver = PublicationDriver(mirror, ledger, work, clean)
    # A table with nothing to do is not taken over: that would cost a write for each in every run.
    passing = {before[source].id: before[source] for source in verdict.passing}
    busy = work.find(passing, {table_id: state.row for table_id, state in passing.items()})
    idle = {s for s in verdict.passing if s in clean and before[s].row.intent is None and before[s].id not in busy}
    driver.drive([before[source] for source in (*verdict.passing, *open_ones) if source not in idle])
    for error in driver.postponed.values():
        raise error  # every other table is done
    after = reader.tables()
    stopped = {s: f"{t.stop_code}: {t.stop_what}" for s, t in after.items() if t.stop_code and s in chosen}
    settle_outdated_letters(mirror, ledger)
    return Published(driver.made, verdict.held, {**verdict.stopped, **stopped})


def is_followed(state: TableState) -> bool:
    """Whether a table may have to be reset: it is stopped or in a reset, or its newest full load was accepted."""
    return not (state.start.accepted is None and state.stop_code is None and state.reset is None)


class _ChangesWork:
    """Publishes logged changes: the next work of a table is what the change log has above its published batch."""

    kind: Literal["changes"] = "changes"

    def __init__(self, mirror: Mirror, ledger: Engine, spark: SparkSession, passing: Sequence[str]) -> None:
        self._mirror = mirror
        self._spark = spark
        self._ledger = ledger
        self._reader = reader = LedgerReader(ledger, mirror.name)
        self._preparation = Preparation(mirror, reader)
        self._zone = zone_address(mirror)
        self._passing = set(passing)

    def find(
        self, tables: Mapping[str, TableState], rows: Mapping[str, protocol.TableRow]
    ) -> Mapping[str, protocol.Work | protocol.CannotStage]:
        """The next changes of each table that passes the gate and has new changes.

        For a table without new changes, the stop, if the mirror file contradicts its published columns.
        """
        ready = {
            state.source: state._replace(row=rows[t])
            for t, state in tables.items()
            if state.source in self._passing and state.start.load_state != "pending"
        }
        whole = self._mirror.consistency == "transaction"
        work = next_changes(self._reader, ready, self._reader.mirror().committed, complete_transactions=whole)
        states = {state.id: (state, work[source]) for source, state in ready.items() if source in work}
        limits = self._preparation.limits(states, complete_transactions=whole) if states else {}
        for t, limit in limits.items():
            state, whole_work = states[t]
            # What comes before the change of structure goes first; where nothing does, the table stops.
            if before := changes_up_to(self._reader, state, whole_work, limit):
                work[state.source] = before
        quiet = self._preparation.refused(ready.values(), work)
        return {**{t: work[state.source] for t, state in tables.items() if state.source in work}, **quiet}

    def stage(self, tables: Mapping[str, TableState], intents: Mapping[str, protocol.Intent]) -> Mapping[str, Staging]:
        """Plan the changes in workers, and stage them as files."""
        fresh = {state.id: state for state in self._reader.tables().values()}
        prepared = self._preparation.prepare([(fresh[t], intent) for t, intent in intents.items()])
        planned = {t: one for t, one in prepared.items() if isinstance(one, Prepared)}
        self._note_columns(fresh, intents, planned)
        size, tasks = ROW_BYTES * sum(one.rows for one in planned.values()), self._cut([*planned.values()])
        log.info("staging %d tables in %d tasks", len(prepared), len(tasks))
        staged: dict[str, list[StagedTable]] = {t: [] for t in intents}
        work = partial(stage, log_place(self._mirror), self._zone, self._mirror.salt())
        for results in run_job(self._spark, f"stage {len(prepared)} tables", work, tasks, size, THREADS):
            for result in results:
                staged[result.table_id].append(result)
        for t, parts in staged.items():
            if since := min((part.unverified for part in parts if part.unverified is not None), default=None):
                keys = dict.fromkeys(fresh[t].keys, place_text(since))
                note_columns(self._ledger, t, fresh[t].row.generation, keys, intents[t].work.batch_to, again=True)
        return {t: self._with_first_file(prepared[t], staged_work(prepared[t], staged[t])) for t in intents}

    def _note_columns(
        self,
        tables: Mapping[str, TableState],
        intents: Mapping[str, protocol.Intent],
        planned: Mapping[str, Prepared],
    ) -> None:
        """Record added, dropped and renamed columns before rows are published, so that each has a note."""
        gone = self._reader.gone_columns(tables.values())
        for t, one in planned.items():
            state, batch = tables[t], intents[t].work.batch_to
            generation, known = state.row.generation, state.columns.columns
            note_columns(self._ledger, t, generation, one.unverified, batch)
            if one.former is not None:
                note_former(self._ledger, t, generation, one.former)
            if late := [c.landed_name for c in one.schema.columns if known and c.content and c not in known]:
                what = "of `extra_columns` are NULL in rows that were published before, until these change"
                next_step = "`open-mirroring reload-table` fills them as far as the log allows"
                log.warning("%s: %s %s; %s", state.source, late, what, next_step)
            if one.gone != {column.column: column.since for column in gone.get(t, ())}:
                note_gone(self._ledger, t, generation, one.gone, batch)

    def _with_first_file(self, prepared: Prepared | PlanStop, staging: Staging) -> Staging:
        """Add a first file without rows if nothing was staged and `empty_tables` is `create` (F-92)."""
        creates_empty = self._mirror.publish.empty_tables == "create"
        if creates_empty and isinstance(prepared, Prepared) and isinstance(staging, StagedWork):
            (plan, target), columns = prepared.plans[0], prepared.schema.columns
            if not staging.staged.files and target.footer.first_number == 1 and columns:
                empty = stage_no_rows(self._zone, target, columns, plan.keys)
                return staging._replace(staged=protocol.Staged((empty,)))
        return staging

    def _cut(self, prepared: Sequence[Prepared]) -> list[StageTask]:
        """Divide the work into tasks of similar size: large tables by key buckets, small ones together.

        Small tables stay in the order of the log files, so that a task finds its rows next to each other.
        """
        rows = sum(one.rows for one in prepared)
        tasks = tasks_wanted(self._spark, ROW_BYTES * rows, THREADS)
        share = max(_LEAST_ROWS, min(_MOST_ROWS, rows // tasks))
        groups = [[plan] for one in prepared if len(one.plans) > 1 for plan in one.plans]
        together: list[tuple[TablePlan, StageTarget]] = []
        weight = 0
        for one in sorted((p for p in prepared if len(p.plans) == 1), key=lambda p: p.plans[0][0].source):
            if weight and weight + one.rows // 2 > share:
                together, weight = [], 0
            if not together:
                groups.append(together)
            together += one.plans
            weight += one.rows
        return [tuple(tables) for tables in groups]


def stage_here(mirror: Mirror, prepared: Prepared, zone: ZoneAddress) -> StagedWork | protocol.CannotStage:
    """Stage one table's files in this process, without Spark."""
    work = partial(stage, log_place(mirror), zone, mirror.salt())
    return staged_work(prepared, [part for plan in prepared.plans for part in work((plan,))])


def staged_work(prepared: Prepared | PlanStop, parts: Sequence[StagedTable]) -> StagedWork | protocol.CannotStage:
    """Combine the staged *parts* of a table, in order, into one result; a stop in any part stops the table."""
    if isinstance(prepared, PlanStop):
        return protocol.CannotStage(prepared.code, prepared.what)
    for part in parts:
        if part.stop is not None:
            return protocol.CannotStage(*part.stop)
    counts = Counter({"changes": prepared.waiting, "waiting": prepared.waiting} if prepared.waiting else {})
    for part in parts:
        counts.update(part.counts)
    rejected = [reject for part in parts for reject in part.rejected]
    files = tuple(file for part in parts for file in part.files)
    return StagedWork(protocol.Staged(files), StagedDetails(prepared.schema, counts, rejected))
