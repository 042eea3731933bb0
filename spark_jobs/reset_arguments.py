"""The arguments of whoever asks for a reset: the job and the commands alike."""

from __future__ import annotations

import argparse


def add_decision_arguments(parser: argparse.ArgumentParser) -> None:
    """Which table, why, and by whose approval."""
    parser.add_argument("--table", required=True, metavar="NAME", help="its `source` in the mirror file")
    parser.add_argument("--reason", type=stated, required=True, metavar="TEXT", help="why; kept in the ledger's audit")
    parser.add_argument("--approved-by", type=stated, required=True, metavar="NAME", help="who; kept in the audit")


def add_reset_arguments(parser: argparse.ArgumentParser) -> None:
    """Which table, why, by whose approval, and how long to wait for the target."""
    add_decision_arguments(parser)
    parser.add_argument("--wait", type=float, default=10.0, metavar="MINUTES", help="for the target (default 10)")


def stated(text: str) -> str:
    """A text that says something."""
    if not text.strip():
        raise argparse.ArgumentTypeError("say it: it is what the next one on duty reads")
    return text.strip()
