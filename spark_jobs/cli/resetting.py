"""Commands that mend what somebody approves: reload-table, drop-table, repair, rebuild-ledger.

``repair`` is for a lost file number, ``rebuild-ledger`` for a lost ledger. Only rebuilding a table starts a JVM.
"""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import TYPE_CHECKING

from open_mirroring.codes import next_step
from open_mirroring.config import load_mirror
from open_mirroring.errors import TerminalError
from open_mirroring.fault_points import reach
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.opening import ledger_to_look
from open_mirroring.ledger.requests import DROP, Asked, answer
from open_mirroring.ledger.reset_ledger import ResetLedger
from open_mirroring.operate.exit_codes import Exit, UsageError, exit_of_report
from open_mirroring.operate.reset_driver import ResetDriver
from open_mirroring.operate.words import shown
from open_mirroring.protocols.resetting import ResetStage
from open_mirroring.protocols.table_stops import LEDGER_UNKNOWN
from open_mirroring.reconciliation.joined_tables import ledger_of
from spark_jobs import reload_table as job
from spark_jobs import repairs
from spark_jobs.cli.reporting import json_text
from spark_jobs.runtime.job_arguments import request_of
from spark_jobs.runtime.tasks import session_on_demand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def reload_table(arguments: argparse.Namespace) -> Exit:
    """Drop a table at the target and build it anew; goes on where it stopped."""
    mirror = load_mirror(arguments.file)
    ledger = ledger_of(mirror)
    reason, request = _reason(arguments), request_of(arguments)
    requested = job.request_reload(
        mirror,
        ledger,
        arguments.table,
        reason,
        again=arguments.again,
        request=request,
        made_anew=arguments.made_anew,
    )
    print(f"{arguments.table}: the reset is {'recorded' if requested else 'under way, or done already'}")
    if arguments.request_only:
        return Exit.DONE

    def session() -> SparkSession:
        return session_on_demand(mirror, "reload_table")

    wait = timedelta(minutes=arguments.wait)
    word = arguments.target_says
    done = job.reload_table(mirror, ledger, session, arguments.table, wait=wait, word=word, request=request)
    done = job.publish_behind(mirror, ledger, session, done)
    for table, what in done.stopped.items():
        print(f"STOPPED: {shown(table)}: {shown(what)}")
    said = _said(
        arguments.table, request, done.stage, done.waits_for, Exit.TABLES_STOPPED if done.stopped else Exit.ON_HOLD
    )
    for table, what in done.losses.items():
        print(f"LOSSES: {shown(table)}: {shown(what)}")
    return exit_of_report(None, done.losses) if said is Exit.DONE else said


def drop_table(arguments: argparse.Namespace) -> Exit:
    """Drop a table, which was taken out of the mirror file, at the target; goes on where it stopped."""
    mirror = load_mirror(arguments.file)
    ledger, request = ledger_of(mirror), request_of(arguments)
    asked = Asked(request, DROP, arguments.table)
    if answer(ledger, mirror.name, asked) is not None:
        return _said(arguments.table, request, "", "", Exit.ON_HOLD)
    if arguments.table in {table.source for table in mirror.tables}:
        raise TerminalError(
            "ARGUMENT_INVALID",
            f"the mirror file names {arguments.table!r}",
            where=str(arguments.file),
            way_out="take the table out of the mirror file first; to build it anew: `open-mirroring reload-table`",
        )
    requested = ResetLedger(ledger, mirror.name).request_drop(arguments.table, _reason(arguments), request=request)
    reach("reset.requested")
    print(f"{arguments.table}: the drop is {'recorded' if requested else 'under way, or done already'}")
    if arguments.request_only:
        return Exit.DONE
    driver = ResetDriver(mirror, ledger, arguments.table, rebuild=_nothing, asked=asked, word=arguments.target_says)
    outcome = driver.drive(timedelta(minutes=arguments.wait))
    return _said(arguments.table, request, job.stage_text(outcome), outcome.waits_for, Exit.ON_HOLD)


def _nothing() -> str:
    raise ValueError(f"a dropped table is not rebuilt: {ResetStage.DROPPED} comes before")


def _said(table: str, request: str, stage: str, waits_for: str, waiting: Exit) -> Exit:
    if not waits_for:
        print(f"{table}: done")
        return Exit.DONE
    print(f"{table}: {stage}: waits for {shown(waits_for)}; run the command again with --request {shown(request)}")
    return waiting


def _reason(arguments: argparse.Namespace) -> Reason:
    return Reason(arguments.approved_by, arguments.reason)


def repair(arguments: argparse.Namespace) -> Exit:
    """Publish a number again that the target has not applied; an interrupted repair is continued."""
    mirror = load_mirror(arguments.file)
    arguments.request = request_of(arguments)
    done = repairs.main.done(mirror, ledger_of(mirror), arguments)
    print(f"{arguments.table}: number {done.number} is published again, {done.rows} rows; the audit names who and why")
    return Exit.DONE


def rebuild_ledger(arguments: argparse.Namespace) -> Exit:
    """Make a lost ledger again; without `--apply` only say what that would come to."""
    # Imported when it runs: `repair` does without.
    from spark_jobs.rebuild_ledger import rebuild

    mirror, reason = load_mirror(arguments.file), None
    if arguments.apply:
        if not (arguments.approved_by and arguments.reason):
            raise UsageError(
                "ARGUMENT_INVALID", "--apply needs a name and a reason", way_out="add --approved-by NAME --reason TEXT"
            )
        reason = _reason(arguments)
    done = rebuild(mirror, ledger_to_look(mirror.ledger_url()), reason)
    if arguments.json:
        print(json_text(done._asdict()))
        return Exit.TABLES_STOPPED if done.stopped else Exit.DONE
    print(f"the log tells {done.batches} batches and how far {done.ranges} files or partitions of the source were read")
    for source, what in done.tables.items():
        print(f"{shown(source)}: {shown(what)}")
    for source, why in done.stopped.items():
        print(f"STOPPED: {shown(source)}: {LEDGER_UNKNOWN}: {shown(why)}. Way out: {next_step(LEDGER_UNKNOWN)}")
    if done.applied:
        print("the ledger is made again; the next run goes on from there")
    else:
        print(
            "nothing was changed; to do it: --apply --approved-by NAME --reason TEXT, while no job of the mirror runs"
        )
    return Exit.TABLES_STOPPED if done.stopped else Exit.DONE
