"""The command that lists dead letters. It needs no JVM."""

from __future__ import annotations

import argparse
import sys

from open_mirroring.config import load_mirror
from open_mirroring.config.storage import log_place
from open_mirroring.errors import TerminalError
from open_mirroring.ledger.letters import NO_LETTERS, LetterCounts, letter_counts, settled_letters
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.operate.exit_codes import Exit
from open_mirroring.reconciliation.joined_tables import ledger_of
from spark_jobs.cli.looking import never_run, not_begun
from spark_jobs.cli.reporting import dead_letters_text, json_text
from spark_jobs.letters.dead_letters import ListedLetters, dead_letters, write_raw
from spark_jobs.letters.open_letters import ensure_counted
from spark_jobs.reconcile.lost_ledger import check_ledger_knows


def list_dead_letters(arguments: argparse.Namespace) -> Exit:
    """The newest dead letters; with ``--raw`` their contents go into a file, never to the terminal."""
    mirror = load_mirror(arguments.file)
    log_root = log_place(mirror)
    listed, counts = ListedLetters((), False), LetterCounts(True, {}, NO_LETTERS)
    if never_run(mirror):
        for lost in check_ledger_knows(mirror):
            raise TerminalError(lost.code, lost.what, where=f"mirror {mirror.name}", way_out=lost.way_out)
        print(not_begun(mirror), file=sys.stderr)
    else:
        ledger = ledger_of(mirror)
        settled = frozenset() if arguments.all else settled_letters(ledger, mirror.name).keys()
        ensure_counted(mirror, ledger)
        counts = letter_counts(ledger, mirror.name)
        listed = dead_letters(log_root, LedgerReader(ledger, mirror.name), arguments.limit, settled)
    if arguments.raw is not None:
        lines = write_raw(arguments.raw, log_root, listed.letters)
        print(f"{lines} dead letters with their contents are in {arguments.raw}", file=sys.stderr)
    if arguments.json:
        letters = [{**letter._asdict(), "way_out": letter.way_out} for letter in listed.letters]
        print(json_text({"dead_letters": letters, "more": listed.more, "open": counts.document()}))
    else:
        print(dead_letters_text(listed, counts))
    return Exit.DONE
