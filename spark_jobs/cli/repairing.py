"""The commands ``repair``, for a lost file number, and ``rebuild-ledger``, for a lost ledger. They need no JVM."""

from __future__ import annotations

import argparse

from open_mirroring.config import load_mirror
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.opening import ledger_to_look
from open_mirroring.operate.exit_codes import Exit, UsageError
from open_mirroring.protocols.table_stops import LEDGER_UNKNOWN, WAYS_OUT
from open_mirroring.reconciliation.joined_tables import ledger_of
from spark_jobs.cli.reporting import json_text, shown
from spark_jobs.publish.repair_number import repair_number
from spark_jobs.runtime.job_arguments import request_of


def repair(arguments: argparse.Namespace) -> Exit:
    """Publish a number again that the target has not applied; an interrupted repair is continued."""
    mirror = load_mirror(arguments.file)
    reason = Reason(arguments.approved_by, arguments.reason)
    done = repair_number(
        mirror,
        ledger_of(mirror),
        arguments.table,
        arguments.number,
        reason,
        not_applied=arguments.not_applied or "",
        request=request_of(arguments),
    )
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
                "APPROVAL_MISSING", "--apply needs a name and a reason", way_out="add --approved-by NAME --reason TEXT"
            )
        reason = Reason(arguments.approved_by, arguments.reason)
    done = rebuild(mirror, ledger_to_look(mirror.ledger_url()), reason)
    if arguments.json:
        print(json_text(done._asdict()))
        return Exit.TABLES_STOPPED if done.stopped else Exit.DONE
    print(f"the log tells {done.batches} batches and how far {done.ranges} files or partitions of the source were read")
    for source, what in done.tables.items():
        print(f"{shown(source)}: {shown(what)}")
    for source, why in done.stopped.items():
        print(f"STOPPED: {shown(source)}: {LEDGER_UNKNOWN}: {shown(why)}. Way out: {WAYS_OUT[LEDGER_UNKNOWN]}")
    if done.applied:
        print("the ledger is made again; the next run goes on from there")
    else:
        print(
            "nothing was changed; to do it: --apply --approved-by NAME --reason TEXT, while no job of the mirror runs"
        )
    return Exit.TABLES_STOPPED if done.stopped else Exit.DONE
