"""Ensures that the ledger knows the open dead letters of the log.

Most ledgers do, which one query shows. The code that reads the log is imported only for the others.
"""

from __future__ import annotations

from sqlalchemy import Engine

from open_mirroring.config import Mirror
from open_mirroring.ledger.letters import is_counted


def ensure_counted(mirror: Mirror, ledger: Engine) -> None:
    """Record the open dead letters of the log in a ledger that does not know them one by one."""
    if is_counted(ledger, mirror.name):
        return
    from spark_jobs.letters.open_letters import count_open_letters

    count_open_letters(mirror, ledger)
