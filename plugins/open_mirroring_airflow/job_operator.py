"""Runs a job of the product in its own process; the job's exit code and report decide the state of the Airflow task.

Airflow imports this module for each task and each parse of the DAGs. So slow imports, such as Airflow's Spark provider
(half a second), are inside the functions that use them.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseHook, BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException, AirflowSkipException

from open_mirroring.config import Mirror, load_mirror
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fabric.livy_connection import CONNECTION_TYPE as FABRIC_SPARK
from open_mirroring.operate.arguments import command_words
from open_mirroring.operate.exit_codes import Exit
from open_mirroring.operate.operations import OPERATIONS
from open_mirroring.operate.spark_jars import jar_files
from open_mirroring_airflow.connections import job_connections, missing, resolved
from open_mirroring_airflow.run_note import noted
from open_mirroring_airflow.run_params import TABLES, chosen_tables
from open_mirroring_airflow.submission.spark_installation import job_environment, job_file, logging_option

if TYPE_CHECKING:
    from open_mirroring_airflow.submission.livy_hook import LivySubmitHook
    from open_mirroring_airflow.submission.submit_hook import ClusterSubmitHook, JobSubmitHook

    JobHook = JobSubmitHook | ClusterSubmitHook | LivySubmitHook

_ERRORS: dict[int, type[TerminalError | TransientError]] = {
    Exit.TERMINAL: TerminalError,
    Exit.USAGE: TerminalError,
    Exit.TRANSIENT: TransientError,
}


class OpenMirroringSparkOperator(BaseOperator):
    """Run the job *job* (the name of its module) for a mirror.

    The task returns a short form of the job's report. The machine on which the task runs needs the mirror file under
    the same path. Secrets are only in the environment of the submitting process, or in encrypted text for a driver on
    the cluster. Every job is idempotent, so a retry of the task submits the job again. If the job ends with an error,
    the task fails with the error's code. If the job left no error, the code is ``INSTALLATION_INCOMPLETE`` for refused
    arguments, else ``JOB_FAILED``. If the job is on hold, the task is skipped.
    """

    template_fields: Sequence[str] = ("name", "mirror_file")

    def __init__(self, *, mirror: str, mirror_file: str, job: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.name = f"{mirror} {job}"
        self.mirror = mirror
        self.mirror_file = mirror_file
        self.job = job
        self.said: list[str] = []
        self._hook: JobHook | None = None
        self._is_ended_by_airflow = False

    @noted
    def execute(self, context: Context) -> Any:
        """Run the job to its end, and write the run's note."""
        return self.work(load_mirror(Path(self.mirror_file)), context)

    def work(self, mirror: Mirror, context: Context) -> Any:
        """The work of the task; subclasses override this method, while :meth:`execute` writes the run's note."""
        return self.run_job(mirror, self.job_arguments(mirror, context), context)

    def job_arguments(self, mirror: Mirror, context: Context) -> list[str]:
        """The job's command line arguments after the mirror file, made from the params of the run."""
        operation = next((one for one in OPERATIONS if one.job == self.job), None)
        return [] if operation is None else command_words(operation.arguments, self.form(mirror, context))

    def form(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """The params of the run (the values of the trigger form) by field."""
        params = dict(context["params"])
        return {**params, TABLES: tables_listed(mirror, chosen_tables(mirror, context))} if TABLES in params else params

    def run_job(self, mirror: Mirror, arguments: list[str], context: Context) -> dict[str, Any] | None:
        """Runs the job to its end. Returns the job's report, or raises the error for the job's exit code."""
        from open_mirroring_airflow.submission.submit_hook import ClusterSubmitHook

        program = str(job_file(self.job))
        self._hook = hook = self._job_hook(mirror, arguments)
        try:
            hook.submit(program)
        except AirflowException:
            # An end in the ledger is the job's own word, whatever the cluster makes of its driver.
            if not hook.exit_code and not isinstance(hook, ClusterSubmitHook):
                raise
        # Outside of the handler: the provider's error repeats the job's log, and would stand above ours.
        if hook.result.report is not None:
            self.log_report(hook.result.report)
        return self._judge(hook, hook.exit_code) if hook.exit_code else short(hook.result.report)

    def log_report(self, report: dict[str, Any]) -> None:
        """Writes a summary of the job's report into the task's log and into the run's note."""
        from open_mirroring.operate.job_story import story

        lines = story(self.job, report)
        for line in lines:
            self.log.info("%s", line)
        self.said += lines

    def tables_stopped(self, report: dict[str, Any] | None) -> dict[str, Any] | None:
        """Fails the task with ``TABLES_STOPPED`` and the names of the stopped tables.

        The job's work for all tables that are not stopped is already done.
        """
        raise TerminalError(
            "TABLES_STOPPED",
            f"tables stopped: {by_table(report, 'stopped')}; the others are done",
            where=self.job,
            next_step="see the runbook's section of each code; `open-mirroring status` shows the evidence",
        )

    def on_hold(self, report: dict[str, Any]) -> NoReturn:
        """Skips the task, because the job could do nothing now."""
        raise AirflowSkipException(f"HOLD: {self.job} of mirror {self.mirror} found every table on hold")

    def done_with_losses(self, report: dict[str, Any] | None) -> dict[str, Any] | None:
        """Logs a warning for the tables with losses; the task succeeds, so that the tasks after it run."""
        self.log.warning("Done with losses: %s.", by_table(report, "losses"))
        return report

    def on_kill(self) -> None:
        """Ends the process that submitted the job, if one is running."""
        self._is_ended_by_airflow = True
        if self._hook is not None:
            self._hook.on_kill()

    def _job_hook(self, mirror: Mirror, arguments: list[str]) -> JobHook:
        from open_mirroring_airflow.submission.submit_hook import ClusterSubmitHook, JobSubmitHook, is_cluster_mode

        spark = mirror.spark
        try:
            connection = BaseHook.get_connection(spark.connection)
        except AirflowNotFoundException:
            raise missing(spark.connection, mirror.file) from None
        if connection.conn_type == FABRIC_SPARK:
            from open_mirroring_airflow.submission.livy_hook import LivySubmitHook

            return LivySubmitHook(mirror, self.job, arguments, resolved(spark.connection, connection))
        common: dict[str, Any] = {
            "class_path": jar_files(),
            "conn_id": spark.connection,
            "driver_memory": spark.memory,
            "executor_memory": spark.memory,
            "name": self.name,
        }
        if is_cluster_mode(connection):
            return ClusterSubmitHook(mirror=mirror, job=self.job, job_arguments=arguments, **common)
        return JobSubmitHook(
            environment=job_environment(job_connections(mirror)),
            cores=spark.cores,
            conf={"spark.driver.extraJavaOptions": logging_option(), "spark.ui.enabled": "false"},
            application_args=[str(mirror.file), *arguments],
            **common,
        )

    def _judge(self, hook: JobHook, exit_code: int) -> dict[str, Any] | None:
        if exit_code == Exit.TABLES_STOPPED:
            return self.tables_stopped(short(hook.result.report))
        if exit_code == Exit.DONE_WITH_LOSSES:
            return self.done_with_losses(short(hook.result.report))
        if exit_code == Exit.NOT_EQUAL:
            raise self._not_equal(hook.result.report or {})
        if exit_code == Exit.ON_HOLD:
            self.on_hold(short(hook.result.report) or {})
        self._fail(hook, exit_code)

    def _not_equal(self, report: dict[str, Any]) -> TerminalError:
        """Name what differs; what the proof before found as well was sent already."""
        from open_mirroring_airflow.notifier import AlreadySent

        differ = {table: one for table, one in report.get("tables", {}).items() if one["verdict"] == "DIFFERENT"}
        is_known = bool(differ) and all(one.get("is_known") for one in differ.values())
        proofs = ", ".join(f"{one['proof']} of {table}" for table, one in sorted(differ.items()) if one.get("proof"))
        return (AlreadySent if is_known else TerminalError)(
            "NOT_EQUAL",
            f"not equal to the source: {'; '.join(difference_text(*one) for one in sorted(differ.items()))}",
            where=self.job,
            next_step=f"the task's log names the keys and whose fault it is; to correct the rows, trigger "
            f"{self.mirror}__correct_table with the proof ({proofs}), or reload the table",
        )

    def _fail(self, hook: JobHook, exit_code: int) -> NoReturn:
        kind = _ERRORS.get(exit_code)
        if kind is not None and hook.result.error is not None:
            code, text = hook.result.error
            raise kind(code, text, where=self.job)
        if exit_code == Exit.USAGE:
            raise TerminalError(
                "INSTALLATION_INCOMPLETE",
                "the job refused its arguments",
                where=self.job,
                next_step="see the task's log; are Airflow's plugins and the jobs of the same version?",
            )
        # Killed, or ended before the job's own code could say why: another attempt may do, and can do no harm.
        what, next_step = _death(exit_code, is_ended_by_airflow=self._is_ended_by_airflow)
        raise TransientError("JOB_FAILED", what, where=self.job, next_step=next_step)


def _death(exit_code: int, *, is_ended_by_airflow: bool) -> tuple[str, str]:
    """How a job ended that left neither report nor error, and what to do."""
    goes_on = "the next attempt goes on where it ended"
    if is_ended_by_airflow:
        return (
            "Airflow ended the job: its task was cleared, marked, or timed out, or its worker is shutting down",
            f"{goes_on}; nothing has to be done",
        )
    from open_mirroring_airflow.submission.submit_hook import NO_END

    if exit_code == NO_END:
        return (
            "the job ended without saying why: its driver on the cluster was killed, or never began",
            f"look at the driver's log on the cluster; {goes_on}",
        )
    # A shell in between reports the signal as 128 and its number.
    number = -exit_code if exit_code < 0 else exit_code - 128
    if number in {*signal.Signals}:
        name = signal.Signals(number).name
        if number == signal.SIGKILL:
            name += ", which the system sends where memory runs out"
        return f"the job was ended by {name}", f"{goes_on}; if it happens again, give the machine more memory"
    return f"the job ended with exit code {exit_code} and left no message", "look at the last lines of the task's log"


def tables_listed(mirror: Mirror, tables: list[str]) -> str:
    """*tables*, separated by commas, as one command line argument of a job.

    The argument is empty if *tables* are all tables of the mirror, because the length of a command line is limited.
    """
    if {*tables}.issuperset(table.source for table in mirror.tables):
        return ""
    unlistable = [table for table in tables if "," in table]
    if unlistable:
        raise TerminalError(
            "ARGUMENT_INVALID",
            f"a name with a comma cannot be in a list of tables: {unlistable}",
            where=str(mirror.file),
            next_step="publish all tables of this mirror, or give that table a mirror of its own",
        )
    return ",".join(tables)


def short(report: dict[str, Any] | None) -> dict[str, Any] | None:
    """A job's report without lists and long texts, small enough for the return value of an Airflow task."""
    if report is None:
        return None
    return {name: value for name, value in report.items() if name != "loss_report" and not isinstance(value, list)}


def done_with_losses(losses: str, *, where: str, next_steps: str = "") -> TerminalError:
    """The error ``DONE_WITH_LOSSES``, for a run that published all files although some tables have losses.

    *losses* lists the tables and what each of them lacks.
    """
    return TerminalError(
        "DONE_WITH_LOSSES",
        f"everything was published, with losses: {losses}",
        where=where,
        next_step=next_steps or "see `open-mirroring status` for the fix of each",
    )


def by_table(report: dict[str, Any] | None, what: str) -> str:
    """Lists tables of a job's report with the reason for each, for a message.

    *what* is the field of the report to list: ``stopped`` or ``losses``.
    """
    listed = (report or {}).get(what) or {}
    return "; ".join(f"{table}: {why}" for table, why in sorted(listed.items())) or "see the task's log"


def difference_text(table: str, proved: dict[str, Any]) -> str:
    """How a table differs from its source, for a message: ``dbo.orders (3 rows differ, columns name, price)``.

    *proved* is the part of a proof's report about this table.
    """
    count = sum(proved.get(kind, 0) for kind in ("missing", "extra", "different", "doubled"))
    columns = f", columns {', '.join(proved['columns'])}" if proved.get("columns") else ""
    return f"{table} ({count} {'row differs' if count == 1 else 'rows differ'}{columns})"


def verdicts_text(report: dict[str, Any] | None, verdict: str) -> str:
    """The names of the tables that have the verdict *verdict* in a proof's report, for a message."""
    tables = (report or {}).get("tables") or {}
    return ", ".join(sorted(name for name, one in tables.items() if one["verdict"] == verdict)) or "see the task's log"
