"""Runs a job as a program with arguments and an exit code."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Engine

from open_mirroring.config import Mirror, load_mirror
from open_mirroring.errors import MirroringError
from open_mirroring.ledger.opening import close_ledgers, system_error
from open_mirroring.operate.arguments import Argument, add_arguments, argument
from open_mirroring.operate.exit_codes import Exit, exit_of, exit_of_report
from open_mirroring.operate.job_result import RESULT_FILE, leave_error, leave_report
from open_mirroring.reconciliation.joined_tables import ledger_of
from spark_jobs.runtime.collector import spare_the_collector
from spark_jobs.runtime.tasks import is_of_spark, session_on_demand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

TABLES = argument(
    "--tables",
    "only these source tables, separated by commas",
    type=lambda text: text.split(",") if text else None,
)
"""The argument with the tables that a job is for; None means all."""


def as_ours(error: Exception) -> MirroringError | None:
    """Convert an error of a library to a MirroringError; None if the error is a defect that developers fix."""
    if not is_of_spark(error):
        return system_error(error)
    from spark_jobs.runtime.worker_tasks import workers_error

    return workers_error(error)


class Job(NamedTuple):
    """A job: its name, its work on a mirror, and its arguments after the mirror file.

    A Job is called as the entry point of a program. The command line does the same *work* and prints the result for an
    operator.
    """

    name: str
    work: Callable[[Mirror, Engine, SparkSession, argparse.Namespace], Any]
    arguments: Sequence[Argument] = ()

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Parse ``MIRROR.yaml``, do the work, write and print its report, and return the exit code.

        Spark starts when the work needs it: a job with nothing to do starts no JVM.
        """
        spare_the_collector()
        parser = argparse.ArgumentParser(prog=self.name)
        parser.add_argument("mirror", type=Path, help="the mirror file (mirrors/NAME.yaml)")
        add_arguments(parser, self.arguments)
        arguments = parser.parse_args(argv)
        # Only warnings of other libraries: their details would hide the job's own messages.
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
        for our_own in ("open_mirroring", "spark_jobs"):
            logging.getLogger(our_own).setLevel(logging.INFO)
        try:
            mirror = load_mirror(arguments.mirror)
            result = self.done(mirror, ledger_of(mirror), arguments)
        except Exception as error:
            ours = error if isinstance(error, MirroringError) else as_ours(error)
            if ours is None:
                raise
            log.error("%s", ours)
            leave_error(ours.code, str(ours).removeprefix(f"{ours.code}: "))
            return exit_of(ours)
        finally:
            close_ledgers()
        report = {"job": self.name, "mirror": mirror.name, **result._asdict()}
        leave_report(report)
        if RESULT_FILE not in os.environ:
            # Without a result file, standard output is the only place for the report.
            print(json.dumps(report, default=str), flush=True)
        return exit_of_result(result)

    def done(self, mirror: Mirror, ledger: Engine, arguments: argparse.Namespace) -> Any:
        """Do the job's work and return its result."""
        return self.work(mirror, ledger, session_on_demand(mirror, self.name), arguments)


def exit_of_result(result: Any) -> Exit:
    """The exit code of a job: the result's property ``exit`` if it has one, else by the result's stops and losses."""
    own: Exit | None = getattr(result, "exit", None)
    return own if own is not None else exit_of_report(getattr(result, "stopped", None), getattr(result, "losses", None))
