"""The commands that carry out decisions of an operator, such as accept-schema and drop-table. They start no JVM."""

from __future__ import annotations

import argparse
import os
import pwd
from datetime import timedelta

from sqlalchemy import Engine

from open_mirroring.changes.manifest import LetterPlace
from open_mirroring.codes import next_step_of
from open_mirroring.config import Mirror, load_mirror
from open_mirroring.errors import TerminalError
from open_mirroring.fault_points import reach
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.dead_letters import accept_letters, settled_letters
from open_mirroring.ledger.opening import ledger_to_look
from open_mirroring.ledger.read_places import accept_gaps
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.ledger.requests import ACCEPT_RELOAD, DROP, Asked, answer
from open_mirroring.ledger.reset_ledger import ResetLedger
from open_mirroring.operate.deciding import decide, now
from open_mirroring.operate.exit_codes import Exit, UsageError
from open_mirroring.operate.operations import TABLE, Operation
from open_mirroring.operate.words import shown
from open_mirroring.protocols.table_losses import OFFSETS_MISSING
from open_mirroring.protocols.table_stops import LEDGER_UNKNOWN
from open_mirroring.protocols.verdicts import Verdict
from open_mirroring.reconciliation.inspection import inspect_mirror
from open_mirroring.reconciliation.joined_tables import ledger_of
from spark_jobs.cli.looking import never_run, not_begun
from spark_jobs.cli.reporting import json_text, request_of
from spark_jobs.dead_letters.open_letters import LetterChoice, read_open_letters, untyped_letters

_LIST_LETTERS = "`open-mirroring dead-letters FILE --json` lists those that are open, with batch, origin and place"


def decided(arguments: argparse.Namespace, **fields: str) -> Exit:
    """Carry out a decision, then check whether the cause of the table's stop is gone.

    *fields* are values of the decision that are not options of the command, by their names in the web page's form.
    """
    mirror, ledger = _opened(arguments)
    operation: Operation = arguments.operation
    given = {one.field: getattr(arguments, one.name.strip("-")) for one in operation.fields if one.name}
    source = given.pop(TABLE.field, "")
    form = {**given, **fields, "source": source, "request": request_of(arguments)}
    for sentence in decide(mirror, ledger, operation.name, form, _reason(arguments)):
        print(shown(sentence))
    # A table that is being dropped is not in the mirror file, and nothing is found of it.
    finding = inspect_mirror(mirror, ledger).get(source) if source else None
    if finding is None:
        return Exit.DONE
    print(shown(now(finding)))
    return Exit.TABLES_STOPPED if finding.verdict is Verdict.STOP else Exit.DONE


def accept_schema(arguments: argparse.Namespace) -> Exit:
    """Record that columns were dropped at the source, or that a column was renamed."""
    if arguments.dropped is not None:
        # A line end behind each, as a name may have a comma.
        return decided(arguments, subject="".join(f"{name}\n" for name in arguments.dropped))
    column, _, renamed_to = arguments.renamed.partition("=")
    if not (column and renamed_to):
        raise UsageError(f"{arguments.renamed!r} is not OLD=NEW", "--renamed OLD=NEW")
    return decided(arguments, subject=column, renamed_to=renamed_to)


def accept_reload(arguments: argparse.Namespace) -> Exit:
    """Accept a full load that a Qlik task made again; refused if the change log does not show where the load begins."""
    from spark_jobs.reload_table import came_again, declared_table

    mirror, ledger = _opened(arguments)
    source, request = arguments.table, request_of(arguments)
    # A table that the ledger does not know yet has nothing in the change log; the decision refuses it.
    is_known = source in LedgerReader(ledger, mirror.name).tables(source)
    if is_known and answer(ledger, mirror.name, Asked(request, ACCEPT_RELOAD, source)) is None:
        came_again(mirror, ledger, declared_table(mirror, source))
    form = {"source": source, "request": request}
    print(*decide(mirror, ledger, ACCEPT_RELOAD, form, _reason(arguments)))
    return Exit.DONE


def accept_dead_letters(arguments: argparse.Namespace) -> Exit:
    """Accept dead letters as lost: their changes are never published."""
    mirror, ledger = _opened(arguments)
    at = None
    if arguments.letter is not None:
        batch, origin, place = arguments.letter
        if not (batch.isdecimal() and place.isdecimal()):
            raise UsageError(f"{batch} and {place} are to be numbers", _LIST_LETTERS)
        at = LetterPlace(int(batch), origin, int(place))
    choice = LetterChoice(arguments.code, arguments.table, arguments.after, arguments.before, at)
    if choice == LetterChoice():
        raise UsageError("no dead letter is named", _LIST_LETTERS)
    if choice == LetterChoice(OFFSETS_MISSING):
        lost = accept_gaps(ledger, mirror.name, _reason(arguments), request=request_of(arguments))
        if not lost:
            raise TerminalError("ARGUMENT_INVALID", "no offset is missing", next_step="nothing: there is no open gap")
        print(f"accepted as lost: {lost} offsets; the audit names them")
        return Exit.DONE
    untyped = untyped_letters(LedgerReader(ledger, mirror.name), settled_letters(ledger, mirror.name))
    known = [*read_open_letters(mirror, ledger), *untyped]
    chosen = {letter.at: letter.rows if letter.table is None else 0 for letter in known if choice.includes(letter)}
    accepted = accept_letters(ledger, mirror.name, chosen, _reason(arguments), request=request_of(arguments))
    if not accepted:
        raise TerminalError("ARGUMENT_INVALID", "no open dead letter is meant by this", next_step=_LIST_LETTERS)
    print(f"accepted as lost: {accepted} dead letters; the audit names them")
    return Exit.DONE


def drop_table(arguments: argparse.Namespace) -> Exit:
    """Drop a target table that is no longer in the mirror file; a second call continues an interrupted drop."""
    from open_mirroring.operate.reset_driver import ResetDriver

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
            next_step="take it out of the mirror file first; to build it from scratch: `open-mirroring reload-table`",
        )
    requested = ResetLedger(ledger, mirror.name).request_drop(
        arguments.table, Reason(arguments.approved_by, arguments.reason), request=request
    )
    reach("reset.requested")
    print(f"{arguments.table}: the drop is {'recorded' if requested else 'under way, or done already'}")
    if arguments.request_only:
        return Exit.DONE
    driver = ResetDriver(mirror, ledger, arguments.table, asked=asked)
    outcome = driver.drive(timedelta(minutes=arguments.wait))
    if not outcome.waits_for:
        print(f"{arguments.table}: done")
        return Exit.DONE
    stage, request = "" if outcome.stage is None else outcome.stage.value, shown(request)
    print(f"{arguments.table}: {stage}: waits for {shown(outcome.waits_for)}; run it again with --request {request}")
    return Exit.ON_HOLD


def rebuild_ledger(arguments: argparse.Namespace) -> Exit:
    """Re-create a lost ledger; without ``--apply`` only print what would be written."""
    from spark_jobs.rebuild_ledger import rebuild

    mirror, reason = load_mirror(arguments.file), None
    if arguments.apply:
        if not (arguments.approved_by and arguments.reason):
            raise UsageError("--apply needs a name and a reason", "add --approved-by NAME --reason TEXT")
        reason = Reason(arguments.approved_by, arguments.reason)
    done = rebuild(mirror, ledger_to_look(mirror.ledger_url()), reason)
    if arguments.json:
        print(json_text(done._asdict()))
        return Exit.TABLES_STOPPED if done.stopped else Exit.DONE
    print(f"the log contains {done.batches} batches; {done.ranges} files or partitions of the source were read")
    for source, what in done.tables.items():
        print(f"{shown(source)}: {shown(what)}")
    for source, why in done.stopped.items():
        print(f"STOPPED: {shown(source)}: {LEDGER_UNKNOWN}: {shown(why)}. Next step: {next_step_of(LEDGER_UNKNOWN)}")
    if done.applied:
        print("the ledger is re-created; the next run goes on from there")
    else:
        print(
            "nothing was changed; to do it: --apply --approved-by NAME --reason TEXT, while no job of the mirror runs"
        )
    return Exit.TABLES_STOPPED if done.stopped else Exit.DONE


def _opened(arguments: argparse.Namespace) -> tuple[Mirror, Engine]:
    mirror = load_mirror(arguments.file)
    if never_run(mirror):
        raise TerminalError(
            "COMMAND_REFUSED", not_begun(mirror), next_step="there is nothing to clear; or name the ledger as it is"
        )
    return mirror, ledger_of(mirror)


def _reason(arguments: argparse.Namespace) -> Reason:
    # Not from the environment, where anybody can write any name.
    try:
        who = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        who = f"uid {os.getuid()}"
    return Reason(who, arguments.why)
