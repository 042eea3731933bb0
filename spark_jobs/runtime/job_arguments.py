"""Arguments that jobs and commands share. Imports nothing slow, so that help is quick."""

from __future__ import annotations

import argparse
import sys
from uuid import uuid4


def add_tables_argument(parser: argparse.ArgumentParser) -> None:
    """Add the tables that a job is for; None: all."""
    about = "only these source tables, separated by commas"
    parser.add_argument("--tables", type=lambda text: text.split(",") if text else None, help=about)


def add_interval_arguments(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add the interval of source time to read, and whether to read it again."""
    about = "begin of the interval to backfill: 2026-01-05T10:00:00Z"
    parser.add_argument("--from", dest="start", required=required, metavar="MOMENT", help=about)
    parser.add_argument("--to", dest="end", required=required, metavar="MOMENT", help="its end, excluded")
    parser.add_argument("--reread", action="store_true", help="read again what was read of the interval before")


def add_letter_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the selection of dead letters; all of them by default."""
    parser.add_argument("--code", help="only letters of this code")
    parser.add_argument("--table", metavar="NAME", help="only letters of this source table")
    parser.add_argument("--after", metavar="POSITION", help="only letters at this position of their stream or later")
    parser.add_argument("--before", metavar="POSITION", help="only letters before this position of their stream")


def add_decision_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the table, the reason, and the person who approved."""
    parser.add_argument("--table", required=True, metavar="NAME", help="its `source` in the mirror file")
    parser.add_argument("--reason", type=stated, required=True, metavar="TEXT", help="why; kept in the ledger's audit")
    parser.add_argument("--approved-by", type=stated, required=True, metavar="NAME", help="who; kept in the audit")
    add_request_argument(parser)


def add_request_argument(parser: argparse.ArgumentParser) -> None:
    """Add the id of the request; by default a new one."""
    about = "ask again for this request, which never has a second effect (default: a new one)"
    parser.add_argument("--request", type=stated, metavar="ID", help=about)


def request_of(arguments: argparse.Namespace) -> str:
    """The request's id; a new one is printed, so that the same request can be repeated."""
    if arguments.request is not None:
        return str(arguments.request)
    request = uuid4().hex
    print(f"request {request}: to ask for it again, add --request {request}", file=sys.stderr)
    return request


def add_reset_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the table, the reason, the person who approved, and how long to wait for the target."""
    add_decision_arguments(parser)
    parser.add_argument("--wait", type=float, default=10.0, metavar="MINUTES", help="for the target (default 10)")


def add_reload_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a reset, and the table's first rows."""
    add_reset_arguments(parser)
    add_made_anew_argument(parser)


def add_made_anew_argument(parser: argparse.ArgumentParser) -> None:
    """Add whether the table was re-created at the source."""
    about = "the source dropped the table and made it again, empty, before its newest stream began: older streams told "
    about += "of another table"
    parser.add_argument("--made-anew", action="store_true", help=about)


def add_repair_arguments(parser: argparse.ArgumentParser) -> None:
    """Add number and table, the reason, the person who approved, and how it is known that it was not applied."""
    add_decision_arguments(parser)
    parser.add_argument("--number", type=positive, required=True, metavar="N", help="the lost file number")
    parser.add_argument(
        "--not-applied", type=stated, metavar="TEXT", help="how you know that the target has not applied it"
    )


def positive(text: str) -> int:
    """An integer from 1 on."""
    if not (text.isascii() and text.isdigit() and int(text)):
        place = "; write the mirror file before this option" if text.casefold().endswith((".yaml", ".yml")) else ""
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on{place}")
    return int(text)


def stated(text: str) -> str:
    """A text that is not blank."""
    if not text.strip():
        raise argparse.ArgumentTypeError("say it: it is what the next one on duty reads")
    return text.strip()
