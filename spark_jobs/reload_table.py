"""Spark job: resets one table and builds it again, while the other tables of its mirror continue.

``spark-submit spark_jobs/reload_table.py MIRROR.yaml --table S.T --reason TEXT --approved-by NAME``, or
:func:`reload_table` in a running Spark session. The next run continues the reset of a killed run from the last stage
that the ledger recorded.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Engine

from open_mirroring.changes.source_reloads import ReloadedRows, unseen_reload
from open_mirroring.codes import Trait, having
from open_mirroring.config import Mirror, Table
from open_mirroring.config.source import ChangeTables
from open_mirroring.config.storage import log_place
from open_mirroring.config.tables import JdbcLoad
from open_mirroring.errors import TerminalError
from open_mirroring.fabric.target import target_watch
from open_mirroring.fault_points import reach
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.decisions import RENAME_POSSIBLE
from open_mirroring.ledger.reading import LedgerReader, TableState
from open_mirroring.ledger.requests import RELOAD, Asked, answer, table_unknown
from open_mirroring.ledger.reset_ledger import ResetLedger, load_needed
from open_mirroring.operate.exit_codes import Exit, exit_of_report
from open_mirroring.operate.operations import RELOAD as OPERATION
from open_mirroring.operate.reset_driver import ResetDriver
from open_mirroring.protocols.resetting import RESET_OPEN
from open_mirroring.protocols.table_stops import LOAD_REPEATED, RELOAD_SEEN
from open_mirroring.reconciliation.inspection import declaration, zone_address
from open_mirroring.reconciliation.losses import look
from spark_jobs.changelog.delta_log import log_files
from spark_jobs.initial_load import load
from spark_jobs.load.planning import refuse_handed_over
from spark_jobs.plan.table_plan import PlanStop
from spark_jobs.publish.changes import is_followed, publish
from spark_jobs.publish.logged_rows import reloaded_rows
from spark_jobs.publish.publication import Preparation
from spark_jobs.runtime.job import Job
from spark_jobs.sources.registry import format_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_REFUSED = "; it cannot be built from that load: "

QUIET = timedelta(minutes=10)
"""A full load without a new row for so long counts as ended, if no later change proves it."""

FOLLOWED = having(Trait.FOLLOWED)
"""Stop codes after which the table may be rebuilt from the change log with the present columns."""


class Reloaded(NamedTuple):
    """The result: the table's generation, the stage of its reset (empty: the reset is done), what the reset awaits."""

    table: str
    generation: int
    stage: str
    waits_for: str
    stopped: dict[str, str]
    losses: Mapping[str, str] = MappingProxyType({})

    @property
    def exit(self) -> Exit:
        """The exit code: that of a stop if a table is stopped, else "on hold" if the reset waits, else by losses."""
        if self.waits_for and not self.stopped:
            return Exit.ON_HOLD
        return exit_of_report(self.stopped, self.losses)

    @property
    def hold(self) -> str:
        """Why the table is on hold; empty once its reset is done."""
        return f"{RESET_OPEN}: it is rebuilt ({self.stage}), waits for {self.waits_for}" if self.waits_for else ""


def request_reload(
    mirror: Mirror, ledger: Engine, source: str, reason: Reason, *, again: bool = False, request: str = ""
) -> bool:
    """Request the reset of a table; returns False if no reset begins. The request itself deletes nothing.

    No reset begins if a call with the same id *request* was made before (G-30). Without *again*, none begins either
    while a reset of the table is under way. But a new reset begins if the settings of the table have changed since that
    reset began, or if the rebuilt table was stopped. Raises ``LOAD_NEEDED`` if the table has no initial load and the
    change log does not have all of its rows.
    """
    table = declared_table(mirror, source)
    reader = LedgerReader(ledger, mirror.name)
    if state := reader.tables(source).get(source):
        highest = reader.highest(source, reader.mirror().committed).values()
        refuse_handed_over(table, state.row.generation + 1, max(highest, default=None))
    if table.initial_load is None and answer(ledger, mirror.name, Asked(request, RELOAD, source)) is None:
        _refuse_what_log_lacks(mirror, ledger, table)
    if table.keeps_deleted and table.initial_load is not None:
        log.warning("%s: rows that were deleted at the source before the load do not come back", source)
    resets = ResetLedger(ledger, mirror.name)
    requested = resets.request_reload(declaration(table), reason, again=again, request=request)
    reach("reset.requested")
    return requested


def reload_table(
    mirror: Mirror,
    ledger: Engine,
    spark: SparkSession,
    source: str,
    *,
    wait: timedelta = timedelta(0),
    request: str = "",
) -> Reloaded:
    """Continue the requested reset of a table as far as possible, and wait for Fabric for at most *wait*.

    A second call with the same id *request* has no effect once the first is done (G-30).
    """
    table = declared_table(mirror, source)
    asked = Asked(request, RELOAD, source)
    stopped: dict[str, str] = {}

    def rebuild() -> str:
        stopped.clear()
        # A table that begins with a Qlik full load in the change log has no initial load (G-125).
        loads = LedgerReader(ledger, mirror.name).tables(source)[source].start.load_state != "none"
        if loads:
            done = load(mirror, ledger, spark, [source])
            stopped.update(done.stopped)
            if waits_for := done.stopped.get(source) or done.held.get(source):
                return waits_for
        if not loads or table.loads_through_log:
            # Also a load that goes through the change log is published from there.
            published = publish(mirror, ledger, spark, [source])
            stopped.update(published.stopped)
            return published.stopped.get(source) or published.held.get(source, "")
        return ""

    outcome = ResetDriver(mirror, ledger, source, rebuild=rebuild, asked=asked).drive(wait)
    finished, losses = answer(ledger, mirror.name, asked), look(mirror, ledger).lost
    if finished is not None:
        return Reloaded(source, finished["generation"], "", "", stopped, losses)
    generation = LedgerReader(ledger, mirror.name).tables()[source].row.generation
    stage = "" if outcome.stage is None else outcome.stage.value
    return Reloaded(source, generation, stage, outcome.waits_for, stopped, losses)


def follow(
    mirror: Mirror, ledger: Engine, spark: SparkSession, only: Collection[str] | None = None
) -> dict[str, Reloaded]:
    """Reset tables that a structure change or a new full load stopped (only those in *only*), if approved.

    The mirror file has a setting that approves resets after changes of structure (G-68), and a setting that approves
    resets after full loads. A person can approve a single full load (G-125, G-126). Resets that an earlier call of this
    function began are continued. A table that cannot be reset stays stopped.
    """
    reader = LedgerReader(ledger, mirror.name)
    declared = {table.source: table for table in mirror.tables if only is None or table.source in only}
    done: dict[str, Reloaded] = {}
    for source, state in reader.tables().items():
        if source not in declared or not is_followed(state):
            continue
        stopped = _Stopped(mirror, ledger, declared[source], state)
        if state.start.accepted is not None or (state.stop_code in (RELOAD_SEEN, LOAD_REPEATED) and stopped.is_ours):
            stopped.follow_reload()
        elif state.stop_code in FOLLOWED and stopped.is_ours:
            stopped.follow_schema_change()
        now = reader.tables(source)[source]
        reset = now.reset
        if reset is None or reset.drops or now.stop_code is not None:
            continue
        if reset.who == stopped.approver or reset.is_carried_on:
            done[source] = reload_table(mirror, ledger, spark, source)
    return done


class _Stopped:
    """A stopped table that may be reset without a person's request."""

    def __init__(self, mirror: Mirror, ledger: Engine, declared: Table, state: TableState) -> None:
        self._mirror, self._ledger, self._declared, self._state = mirror, ledger, declared, state
        self._reader, self._resets = LedgerReader(ledger, mirror.name), ResetLedger(ledger, mirror.name)
        self.approver = f"the mirror file {mirror.name}"

    @property
    def is_ours(self) -> bool:
        """Whether the table has no reset that a person requested."""
        reset = self._state.reset
        return reset is None or reset.who == self.approver or reset.is_carried_on

    def follow_reload(self) -> None:
        """Request the reset of a table that a Qlik task reloaded, if approved; it begins with the newest full load."""
        declared, state, accepted = self._declared, self._state, self._state.start.accepted
        if state.stop_code is None:
            self._resets.keep_stopped(declared.source, "the table is no longer stopped: there is no load to accept")
            return
        first, *refused = (state.stop_what or "").split(_REFUSED)
        if accepted is None:
            if declared.keeps_deleted:
                return  # deleted rows that stay are in no load: only a person may give them up (G-192)
            if (declared.on_reload or self._mirror.publish.on_reload) == "stop":
                return
            newest = self._reader.mirror().committed
            if refused and declared.source not in self._reader.contents({declared.source: newest - 1}, newest):
                return  # the change log has no more batches than at the last look
        reason = accepted or Reason(self.approver, f"on_reload: rebuild; {state.stop_code}: {state.stop_what}")
        try:
            if accepted is None and not self._may_begin("on_reload", self._mirror.publish.reloads_per_day):
                return
            found = came_again(self._mirror, self._ledger, declared)
            if found is not None and accepted is None and not self._has_ended(found):
                log.info("%s stays stopped: its load may not have come to its end", declared.source)
                return
            source = self._mirror.source
            self._resets.request_reload(
                declaration(declared)._replace(loads=found is None),
                reason,
                again=True,
                reloaded=found,
                loads_stream=source.load if found is None and isinstance(source, ChangeTables) else "",
                is_carried_on=True,
            )
            reach("reset.requested")
        except TerminalError as error:
            log.warning("%s stays stopped: %s", declared.source, error)
            self._resets.keep_stopped(declared.source, f"{first}{_REFUSED}{error.code}: {error.what}")

    def follow_schema_change(self) -> None:
        """Request the reset of a table that a change of structure stopped, if the mirror file approves such resets."""
        declared, state, publish_settings = self._declared, self._state, self._mirror.publish
        setting, chosen = "on_schema_change", declared.on_schema_change or publish_settings.on_schema_change
        is_asked = state.stop_code == RENAME_POSSIBLE
        is_jdbc = isinstance(declared.initial_load, JdbcLoad)  # rows of an export were written before the change
        if is_asked and is_jdbc and (declared.on_possible_rename or publish_settings.on_possible_rename) == "reload":
            setting, chosen, is_asked = "on_possible_rename", "reload", False
        if is_asked or chosen == "stop" or (declared.initial_load is not None and not (chosen == "reload" and is_jdbc)):
            return
        if declared.keeps_deleted and declared.initial_load is not None:
            return  # as for a reload
        published = [c.name for c in state.columns.columns if not c.content and c.name not in declared.key]
        if declared.chosen.of(published) != published:
            return  # the mirror file leaves out what is published: no one has said whether that is meant
        reason = Reason(self.approver, f"{setting}: {chosen}; {state.stop_code}: {state.stop_what}")
        try:
            if not self._may_begin(setting, publish_settings.schema_reloads_per_day):
                return
            request_reload(self._mirror, self._ledger, declared.source, reason)
        except TerminalError as error:
            log.warning("%s stays stopped: %s", declared.source, error)

    def _may_begin(self, setting: str, limit: int) -> bool:
        """Whether *setting* may reset the table: at most *limit* times a day, and only if the target can be asked.

        Otherwise a source that changes with each run would keep the table away from the target, or a reset would never
        end.
        """
        state = self._state
        if self._resets.requests_of(state.source, self.approver, setting, timedelta(days=1)) >= limit:
            log.warning("%s stays stopped: it was re-created %d times in 24 hours already", state.source, limit)
            return False
        if target_watch(self._mirror, zone_address(self._mirror)).sees(state.folder) is None:
            log.warning("%s stays stopped: no one can see whether the target has dropped it", state.source)
            return False
        return True

    def _has_ended(self, found: ReloadedRows) -> bool:
        """Whether a full load is complete: a change follows it (K-67), or no row of it arrived for a while."""
        came = self._reader.committed_at({found.load.last_batch}).get(found.load.last_batch)
        return found.load.new_from is not None or came is None or datetime.now(UTC) - came >= QUIET


def came_again(mirror: Mirror, ledger: Engine, declared: Table) -> ReloadedRows | None:
    """The newest full load of a table in the change log; None if the full load is in files.

    Raises ``RELOAD_UNCLEAR`` if there is no new full load, or if it is not certain where in the change log the full
    load begins. Raises ``LOAD_NEEDED`` if files of the full load are no longer in the change log.
    """
    if format_of(mirror).has_loads:
        return _newest_load(mirror, ledger, declared)
    if not declared.begins_with_load_of_task or not isinstance(mirror.source, ChangeTables):
        raise unseen_reload()
    reader = LedgerReader(ledger, mirror.name)
    state = reader.tables(declared.source)[declared.source]
    if mirror.source.load in reader.epochs([state.id]).get(state.id, {}):
        raise unseen_reload()
    return None


def _newest_load(mirror: Mirror, ledger: Engine, declared: Table) -> ReloadedRows:
    """Where a table's newest full load begins in the change log (G-125; ``RELOAD_UNCLEAR``, ``LOAD_NEEDED``)."""
    reader, source = LedgerReader(ledger, mirror.name), declared.source
    up_to, state = reader.mirror().committed, reader.tables(source)[source]
    logged = reader.contents({source: 0}, up_to).get(source, [])
    epoch = format_of(mirror).load
    there = {*log_files(log_place(mirror))}
    # What maintenance has dropped came before the load, or the load is refused for it.
    files = sorted({file for part in logged if part.epoch == epoch for file in part.files} & there)
    if not files:
        raise unseen_reload()
    found = reloaded_rows(log_place(mirror), files, source, epoch, reader.starts(state.id))
    of_load = {file for part in logged if part.batch >= found.load.first_batch for file in part.files}
    if missing := of_load - there:
        raise load_needed(mirror.name, source, f"{len(missing)} of its files are not in the log any more")
    return replace(found, up_to=up_to)


def declared_table(mirror: Mirror, source: str) -> Table:
    """The settings of table *source* in the mirror file; raises ``ARGUMENT_INVALID`` if the file has no such table."""
    declared = {table.source: table for table in mirror.targets}
    if source not in declared:
        raise table_unknown(mirror.name, [source], declared)
    return declared[source]


def _refuse_what_log_lacks(mirror: Mirror, ledger: Engine, table: Table) -> None:
    """Raise ``LOAD_NEEDED`` if the change log lacks files of the table, or its rows do not fit one schema."""
    reader = LedgerReader(ledger, mirror.name)
    state = reader.tables().get(table.source)
    if state is None or (state.reset is not None and state.stop_code is None):
        return  # the reset that is under way was judged when it was asked for
    logged = reader.contents({table.source: 0}, reader.mirror().committed).get(table.source, [])
    if state.start.newest_load is not None:
        logged = [part for part in logged if part.batch >= state.start.newest_load.first_batch]
    wanted = {file for part in logged for file in part.files}
    if missing := wanted - {*log_files(log_place(mirror))} if wanted else ():
        raise load_needed(mirror.name, table.source, f"{len(missing)} of its files are not in the log any more")
    try:
        Preparation(mirror, reader).schema_from_log(state._replace(keys=tuple(table.key)))
    except PlanStop as stop:
        # A possible rename is asked once the table is built up to it; the answer lets it go on from there.
        if stop.code != RENAME_POSSIBLE:
            raise load_needed(mirror.name, table.source, f"{stop.code}: {stop.what}") from stop


def _reload(mirror: Mirror, ledger: Engine, spark: SparkSession, arguments: argparse.Namespace) -> Reloaded:
    source, reason, request = arguments.table, Reason(arguments.approved_by, arguments.reason), arguments.request or ""
    is_new = request_reload(mirror, ledger, source, reason, again=arguments.again, request=request)
    log.info("%s: the reset is %s", source, "recorded" if is_new else "under way, or done already")
    if arguments.request_only:
        return Reloaded(source, LedgerReader(ledger, mirror.name).tables()[source].row.generation, "REQUESTED", "", {})
    wait = timedelta(minutes=arguments.wait)
    done = reload_table(mirror, ledger, spark, source, wait=wait, request=request)
    if done.waits_for or done.stopped:
        return done
    # What the log has behind the load.
    stopped = publish(mirror, ledger, spark, [source]).stopped
    return done._replace(stopped={source: stopped[source]} if source in stopped else {})


main = Job("reload_table", _reload, OPERATION.arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
