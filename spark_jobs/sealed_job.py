"""Spark job: runs another job, which was sent to a cluster as encrypted text, and records its end in the ledger.

``spark-submit --deploy-mode cluster spark_jobs/sealed_job.py KEY_FILE TEXT``. A driver on a cluster has neither the
mirror file nor the connections of the submitting machine, and cannot write a file on the submitting machine: so both
arrive encrypted in TEXT. A cluster reports only success or failure of a driver: so the exit code of the job is recorded
in the ledger, and this driver then ends with 0 even if the job failed.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from open_mirroring.config.loading import HOME, load_mirror
from open_mirroring.errors import MirroringError
from open_mirroring.ledger import open_ledger
from open_mirroring.operate.exit_codes import Exit, exit_of
from open_mirroring.operate.job_result import RESULT_FILE, record_end
from open_mirroring.operate.sealed_job import JobOrder, opened
from open_mirroring.operate.spark_jars import SUBMITTED
from spark_jobs.runtime.session import build_session

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Decrypt and run the job, and record its end; returns 0, or an error's exit code if nothing could be recorded."""
    parser = argparse.ArgumentParser(prog="sealed_job")
    parser.add_argument(
        "key_file", help="the file with the key, which the cluster provides; in Fabric a vault's secret"
    )
    parser.add_argument("text", help="the sealed order")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    try:
        order = opened(arguments.text, arguments.key_file)
        with TemporaryDirectory(prefix="open-mirroring-") as folder:
            _run(order, Path(folder))
    except MirroringError as error:
        log.error("%s", error)
        return exit_of(error)
    return 0


def _run(order: JobOrder, folder: Path) -> None:
    file, result = folder / "mirrors" / order.mirror, folder / "result.json"
    file.parent.mkdir()
    file.write_text(order.text, encoding="utf-8")
    os.environ.update({**order.connections, HOME: order.home, RESULT_FILE: str(result), SUBMITTED: "1"})
    mirror = load_mirror(file)
    # At once: YARN gives a driver up that has no context after 100 seconds, and a job may look around for longer.
    build_session(f"{mirror.name} {order.job}")
    try:
        code = import_module(f"spark_jobs.{order.job}").main([str(file), *order.arguments])
    except SystemExit as error:
        # Arguments that the job does not know, for the driver's jobs are of another version than the operator.
        code = error.code if isinstance(error.code, int) else Exit.TERMINAL
    record_end(open_ledger(mirror.ledger_url()), order.run, mirror.name, code, result)


if __name__ == "__main__":
    sys.exit(main())
