"""Job: publishes a lost number of a table again, after somebody approved it by name; starts no JVM.

``python spark_jobs/repairs.py MIRROR.yaml --table S.T --number N --reason TEXT --approved-by NAME``, as the command
``repair``. What was interrupted is continued from its last record.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from open_mirroring.config import Mirror
from open_mirroring.ledger.auditing import Reason
from open_mirroring.operate.operations import REPAIR
from spark_jobs.publish.repair_number import Repaired, repair_number
from spark_jobs.runtime.job import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _repair(mirror: Mirror, ledger: Engine, spark: SparkSession, arguments: argparse.Namespace) -> Repaired:
    reason = Reason(arguments.approved_by, arguments.reason)
    not_applied, request = arguments.not_applied or "", arguments.request or ""
    wanted = arguments.table, arguments.number
    return repair_number(mirror, ledger, *wanted, reason, not_applied=not_applied, request=request)


main = Job("repairs", _repair, REPAIR.arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
