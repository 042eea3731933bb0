"""Runs tasks in Spark's workers, and runs a job as a program with arguments and an exit code."""

from __future__ import annotations

import argparse
import json
import logging
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import pyarrow as pa
from cryptography.fernet import Fernet
from py4j.protocol import Py4JError
from pyspark.cloudpickle import dumps
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sqlalchemy import Engine

from open_mirroring.config import Mirror, load_mirror
from open_mirroring.errors import MirroringError, disk_error
from open_mirroring.ledger.opening import system_error
from open_mirroring.operate.exit_codes import Exit, exit_of, exit_of_report
from open_mirroring.operate.job_result import RESULT_FILE, leave_error, leave_report
from open_mirroring.reconciliation.joined_tables import ledger_of
from spark_jobs.runtime.session import session_on_demand
from spark_jobs.runtime.worker_tasks import outcomes, sent_beside, task_frame, text_of, workers_error


@dataclass(frozen=True)
class ParcelKey:
    """The key of one job, made for it and forgotten with it, by which only its own workers can read its tasks.

    Spark keeps tasks, and functions of more than a megabyte, in a file for a moment, and it shows plans on its page and
    in its event log. None of these may hold a secret (S-04). The key travels inside a function, in memory only.
    """

    _key: bytes = field(default_factory=Fernet.generate_key, repr=False)

    def packed(self, value: Any) -> str:
        """The value as text of letters, digits, ``-``, ``_`` and ``=``."""
        return Fernet(self._key).encrypt(dumps(value)).decode()

    def unpacked(self, text: str) -> Any:
        """The value that was packed by this key."""
        return pickle.loads(Fernet(self._key).decrypt(text))


Task = TypeVar("Task")
Result = TypeVar("Result")
log = logging.getLogger(__name__)


@runtime_checkable
class HasExit(Protocol):
    """A result that says itself how the job ends."""

    @property
    def exit(self) -> Exit:
        """The exit code."""
        ...


def run_job(
    spark: SparkSession, description: str, function: Callable[[Task], Result], tasks: Sequence[Task]
) -> list[Result]:
    """Run *function* over *tasks* in Spark's workers, one partition each, and return the results in order.

    Tasks and results are small (paths, counts): rows never cross between the JVM and Python. Tasks and function, which
    may hold logins, are encrypted; the key travels in memory only (S-04).

    Raises:
        MirroringError: what a task raised on purpose, as itself; of several the first task's.
    """
    if not tasks:
        return []
    key = ParcelKey()
    parcels = [key.packed(task) for task in tasks]
    found = outcomes(spark, description, _ErrorsAsValues(key), key.packed(function), parcels)
    for outcome in found:
        if isinstance(outcome, MirroringError):
            raise outcome
    return found


def sealed_frame(
    spark: SparkSession, work: Callable[[Task], Iterable[pa.RecordBatch]], tasks: Sequence[Task], schema: str
) -> DataFrame:
    """The lines that *work* makes of *tasks*, one partition each, as a frame that is read when it is asked for.

    Sealed as in :func:`run_job`. The key is another one each time, so that no two plans are equal: Spark would answer
    the later one from what it kept of the earlier one, and a look at a source must never be an earlier look.
    """
    key = ParcelKey()

    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for line in (line for batch in batches for line in batch.to_pylist()):
            yield from key.unpacked(line["work"])(key.unpacked(line["task"]))

    frame = task_frame(spark, [key.packed(task) for task in tasks]).withColumn("work", F.lit(key.packed(work)))
    return frame.mapInArrow(each, schema)


def sealed(spark: SparkSession, work: Callable[..., Result]) -> Callable[..., Result]:
    """*work* as a small function that can be called in a worker, for rows of Spark's own reader.

    Sealed as in :func:`run_job`: what Spark hands over through a file has a login or salt in no readable form. The key
    is another one each time, as in :func:`sealed_frame`.
    """
    key = ParcelKey()
    parcel = sent_beside(spark, key.packed(work))

    def unsealed(*given: Any) -> Result:
        return cast("Callable[..., Result]", key.unpacked(text_of(parcel)))(*given)

    return unsealed


class _ErrorsAsValues:
    """Brings a task's own errors back as values: Spark would retry them and bury them in a stack of its own."""

    def __init__(self, key: ParcelKey) -> None:
        self._key = key

    def __call__(self, function: str, task: str) -> Any:
        try:
            return self._key.unpacked(function)(self._key.unpacked(task))
        except MirroringError as error:
            return error
        except OSError as error:
            ours = disk_error(error)
            if ours is None:
                raise
            return ours


def told(error: Exception) -> MirroringError | None:
    """Our error for one that a job met outside of its own code; None for one that its developers have to mend."""
    return workers_error(error) if isinstance(error, PySparkException | Py4JError) else system_error(error)


class Job(NamedTuple):
    """A job: its name, what it does with a mirror, and the arguments that it takes behind the mirror file.

    Called, it is a program's entry. The command line does the same *work* and tells its result to a person.
    """

    name: str
    work: Callable[[Mirror, Engine, SparkSession, argparse.Namespace], Any]
    add_arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Parse ``MIRROR.yaml``, open the ledger, do the work, leave and print its report; the exit code.

        Spark starts when the work asks for it: a job with nothing to do costs no JVM.
        """
        parser = argparse.ArgumentParser(prog=self.name)
        parser.add_argument("mirror", type=Path, help="the mirror file (mirrors/NAME.yaml)")
        self.add_arguments(parser)
        arguments = parser.parse_args(argv)
        # Of other libraries only what may matter: their chatter hides what the job says.
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
        for our_own in ("open_mirroring", "spark_jobs"):
            logging.getLogger(our_own).setLevel(logging.INFO)
        try:
            mirror = load_mirror(arguments.mirror)
            result = self.done(mirror, ledger_of(mirror), arguments)
        except Exception as error:
            ours = error if isinstance(error, MirroringError) else told(error)
            if ours is None:
                raise
            log.error("%s", ours)
            leave_error(ours.code, str(ours).removeprefix(f"{ours.code}: "))
            return exit_of(ours)
        report = {"job": self.name, "mirror": mirror.name, **result._asdict()}
        leave_report(report)
        if RESULT_FILE not in os.environ:
            # Whoever named a file tells people what is in it.
            print(json.dumps(report, default=str), flush=True)
        return exit_of_result(result)

    def done(self, mirror: Mirror, ledger: Engine, arguments: argparse.Namespace) -> Any:
        """Do the work; its result."""
        return self.work(mirror, ledger, session_on_demand(f"{mirror.name} {self.name}"), arguments)


def exit_of_result(result: Any) -> Exit:
    """How a job ends that came to a result: as this says itself, or by the stops and losses that it names."""
    if isinstance(result, HasExit):
        return result.exit
    return exit_of_report(getattr(result, "stopped", None), getattr(result, "losses", None))
