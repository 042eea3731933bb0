"""The command ``repair``: publishes a lost file number once more. It needs no JVM."""

from __future__ import annotations

import argparse

from open_mirroring.config import load_mirror
from open_mirroring.ledger.decisions import Reason
from open_mirroring.operate.exit_codes import Exit
from open_mirroring.reconciliation.joined_tables import ledger_of
from spark_jobs.publish.repair_number import repair_number
from spark_jobs.runtime.reset_arguments import request_of


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
