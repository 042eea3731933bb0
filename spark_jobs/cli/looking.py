"""The commands status, dead-letters and schema, which publish and decide nothing, and start no JVM."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.engine import make_url

from open_mirroring.config import Mirror, load_mirror
from open_mirroring.config.models import schema_document
from open_mirroring.config.storage import log_place
from open_mirroring.errors import MirroringError, TerminalError
from open_mirroring.ledger.dead_letters import NO_LETTERS, LetterCounts, letter_counts, settled_letters
from open_mirroring.ledger.decisions import OpenStop
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.operate.exit_codes import Exit, exit_of_report
from open_mirroring.operate.places import ledger_shown, places
from open_mirroring.operate.viewing import view_mirror
from open_mirroring.operate.words import amount, shown
from open_mirroring.protocols.verdicts import Finding
from open_mirroring.reconciliation.inspection import inspect_mirror
from open_mirroring.reconciliation.joined_tables import ledger_of
from spark_jobs.cli.reporting import dead_letters_text, json_text, wrapped
from spark_jobs.cli.status_text import colours_wanted, status_text
from spark_jobs.dead_letters.open_letters import ensure_counted
from spark_jobs.reconcile.lost_ledger import check_ledger_knows, empty_ledger, log_ahead, log_behind


def status(arguments: argparse.Namespace) -> Exit:
    """Print how far each table is mirrored, what stops it, and the fix; exit code 3 for a stop, 6 for losses."""
    mirror = load_mirror(arguments.file)
    if never_run(mirror) and not check_ledger_knows(mirror):
        document = {"mirror": mirror.name, "started": False, "tables": [], "places": places(mirror)}
        print(json.dumps(document) if arguments.json else not_begun(mirror))
        return Exit.DONE
    with ExitStack() as stack:
        # Looking creates no ledger: where it is gone, what was published is seen by one that knows nothing.
        ledger = stack.enter_context(empty_ledger()) if never_run(mirror) else ledger_of(mirror)
        return _status(arguments, mirror, ledger)


def _status(arguments: argparse.Namespace, mirror: Mirror, ledger: Engine) -> Exit:
    findings: Mapping[str, Finding] = {}
    failed, lost = "", None
    try:
        ensure_counted(mirror, ledger)
        findings = inspect_mirror(mirror, ledger, record=False)
    except MirroringError as error:
        # What the ledger knows is still worth seeing; why the rest is not known is shown next to it.
        failed = str(error)
    try:
        lost = log_ahead(mirror, ledger)
    except MirroringError as error:
        failed = failed or str(error)
    found = view_mirror(
        mirror,
        ledger,
        datetime.now(UTC),
        findings=findings,
        not_inspected=failed,
        stop=OpenStop(None, lost.code, lost.what, None) if lost else None,
        closely=None if arguments.json or arguments.wide else (),
    )
    if arguments.json:
        tables = [table.document() for table in found.tables]
        print(json_text({"started": True, "places": places(mirror), **found.document(), "tables": tables}))
    else:
        print(status_text(found, arguments.file, wide=arguments.wide, coloured=colours_wanted()))
        if arguments.wide:
            print(f"\n{places_text(mirror)}")
    return exit_of_report(found.stopped, found.report.lost)


def list_dead_letters(arguments: argparse.Namespace) -> Exit:
    """Print the newest dead letters. With ``--raw``, write their content into a file."""
    from spark_jobs.dead_letters.listing import ListedLetters, dead_letters, write_raw  # loads Arrow

    mirror = load_mirror(arguments.file)
    log_root = log_place(mirror)
    listed, counts = ListedLetters((), False), LetterCounts(True, {}, NO_LETTERS)
    if never_run(mirror):
        for lost in check_ledger_knows(mirror):
            raise TerminalError(lost.code, lost.what, where=f"mirror {mirror.name}", next_step=lost.next_step)
        print(not_begun(mirror), file=sys.stderr)
    else:
        ledger = ledger_of(mirror)
        settled = frozenset() if arguments.all else settled_letters(ledger, mirror.name).keys()
        if behind := log_behind(mirror, ledger):
            raise behind
        ensure_counted(mirror, ledger)
        counts = letter_counts(ledger, mirror.name)
        listed = dead_letters(log_root, LedgerReader(ledger, mirror.name), arguments.limit, settled)
    if arguments.raw is not None:
        lines = write_raw(arguments.raw, log_root, listed.letters)
        written = amount(lines, "dead letter with its content is", "dead letters with their contents are")
        print(f"{written} in {arguments.raw}", file=sys.stderr)
    if arguments.json:
        letters = [{**letter._asdict(), "next_step": letter.next_step} for letter in listed.letters]
        print(json_text({"dead_letters": letters, "more": listed.more, "open": counts.document()}))
    else:
        print(dead_letters_text(listed, counts, arguments.file))
    return Exit.DONE


def schema(_: argparse.Namespace) -> Exit:
    """Print the JSON Schema of mirror files."""
    print(schema_document(), end="")
    return Exit.DONE


def never_run(mirror: Mirror) -> bool:
    """Whether the ledger is an SQLite file that does not exist yet; a command that only looks must not create it."""
    url = make_url(mirror.ledger_url())
    return url.get_backend_name() == "sqlite" and not Path(url.database or "").exists()


def not_begun(mirror: Mirror) -> str:
    """The message for a mirror without a ledger; it shows the ledger's address, which may be mistyped."""
    said = f"mirror {mirror.name}: nothing has run yet; there is no ledger at {ledger_shown(mirror)}"
    return f"{wrapped(said, 0)}\n{places_text(mirror)}"


def places_text(mirror: Mirror) -> str:
    """The places where the mirror reads and writes, one per line."""
    return "\n".join(f"  {what:<13} {shown(place)}" for what, place in places(mirror).items())
