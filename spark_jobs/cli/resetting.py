"""The commands ``drop-table`` and ``rebuild-ledger``. They start no JVM."""

from __future__ import annotations

import argparse
from datetime import timedelta

from open_mirroring.codes import next_step
from open_mirroring.config import load_mirror
from open_mirroring.errors import TerminalError
from open_mirroring.fault_points import reach
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.opening import ledger_to_look
from open_mirroring.ledger.requests import DROP, Asked, answer
from open_mirroring.ledger.reset_ledger import ResetLedger
from open_mirroring.operate.exit_codes import Exit, UsageError
from open_mirroring.operate.reset_driver import ResetDriver
from open_mirroring.operate.words import shown
from open_mirroring.protocols.resetting import ResetStage
from open_mirroring.protocols.table_stops import LEDGER_UNKNOWN
from open_mirroring.reconciliation.joined_tables import ledger_of
from spark_jobs.cli.reporting import json_text, request_of


def drop_table(arguments: argparse.Namespace) -> Exit:
    """Drop a table, which was taken out of the mirror file, at the target; goes on where it stopped."""
    mirror = load_mirror(arguments.file)
    ledger, request = ledger_of(mirror), request_of(arguments)
    asked = Asked(request, DROP, arguments.table)
    if answer(ledger, mirror.name, asked) is not None:
        print(f"{arguments.table}: done")
        return Exit.DONE
    if arguments.table in {table.source for table in mirror.tables}:
        raise TerminalError(
            "ARGUMENT_INVALID",
            f"the mirror file names {arguments.table!r}",
            where=str(arguments.file),
            way_out="take it out of the mirror file first; to build it from scratch: `open-mirroring reload-table`",
        )
    requested = ResetLedger(ledger, mirror.name).request_drop(arguments.table, _reason(arguments), request=request)
    reach("reset.requested")
    print(f"{arguments.table}: the drop is {'recorded' if requested else 'under way, or done already'}")
    if arguments.request_only:
        return Exit.DONE
    driver = ResetDriver(mirror, ledger, arguments.table, rebuild=_nothing, asked=asked)
    outcome = driver.drive(timedelta(minutes=arguments.wait))
    if not outcome.waits_for:
        print(f"{arguments.table}: done")
        return Exit.DONE
    stage, request = "" if outcome.stage is None else outcome.stage.value, shown(request)
    print(f"{arguments.table}: {stage}: waits for {shown(outcome.waits_for)}; run it again with --request {request}")
    return Exit.ON_HOLD


def _nothing() -> str:
    raise ValueError(f"a dropped table is not rebuilt: {ResetStage.DROPPED} comes before")


def _reason(arguments: argparse.Namespace) -> Reason:
    return Reason(arguments.approved_by, arguments.reason)


def rebuild_ledger(arguments: argparse.Namespace) -> Exit:
    """Re-create a lost ledger; without `--apply` only show what would come of it."""
    from spark_jobs.rebuild_ledger import rebuild

    mirror, reason = load_mirror(arguments.file), None
    if arguments.apply:
        if not (arguments.approved_by and arguments.reason):
            raise UsageError("--apply needs a name and a reason", "add --approved-by NAME --reason TEXT")
        reason = _reason(arguments)
    done = rebuild(mirror, ledger_to_look(mirror.ledger_url()), reason)
    if arguments.json:
        print(json_text(done._asdict()))
        return Exit.TABLES_STOPPED if done.stopped else Exit.DONE
    print(f"the log contains {done.batches} batches; {done.ranges} files or partitions of the source were read")
    for source, what in done.tables.items():
        print(f"{shown(source)}: {shown(what)}")
    for source, why in done.stopped.items():
        print(f"STOPPED: {shown(source)}: {LEDGER_UNKNOWN}: {shown(why)}. Next step: {next_step(LEDGER_UNKNOWN)}")
    if done.applied:
        print("the ledger is re-created; the next run goes on from there")
    else:
        print(
            "nothing was changed; to do it: --apply --approved-by NAME --reason TEXT, while no job of the mirror runs"
        )
    return Exit.TABLES_STOPPED if done.stopped else Exit.DONE
