"""Operators that run a job of ours by ``spark-submit`` and turn its exit code into what Airflow understands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Context
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException, AirflowSkipException

from open_mirroring.config import Mirror, load_mirror
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring_airflow.assets import Mark, asset_alias, marks, published_since, table_assets
from open_mirroring_airflow.connections import job_connections, ledger_url, missing
from open_mirroring_airflow.run_params import (
    REASON,
    TABLE,
    backfill_arguments,
    checked_tables,
    chosen_tables,
    letter_arguments,
)
from open_mirroring_airflow.spark_installation import class_path, job_environment, job_file, logging_option
from open_mirroring_airflow.submit_hook import JobSubmitHook

_TERMINAL, _USAGE, _TABLES_STOPPED, _TRANSIENT, _ON_HOLD = 1, 2, 3, 4, 5
_ERRORS: dict[int, type[TerminalError | TransientError]] = {
    _TERMINAL: TerminalError,
    _USAGE: TerminalError,
    _TRANSIENT: TransientError,
}
_MARKS = "confirmed_before"
_LOOK_MINUTES = 0.2
"""A reset looks at the target twice, and gives the slot of its pool back: other tables wait for it."""


class OpenMirroringSparkOperator(SparkSubmitOperator):
    """Run one of our jobs for a mirror; returns the job's own short report.

    The mirror file is read where the task runs, so it has to be there under the same path. Connections that it names
    go into the submitting process's environment alone: onto no command line, into no file, into no rendered field.
    Every job is idempotent: a retry submits it again.

    Exit codes: 0 done; 1 terminal; 2 wrong use; 3 some tables stopped, the others are done; 4 transient; 5 on hold.

    Args:
        mirror: name of the mirror; the application is called ``<mirror> <job>``.
        mirror_file: path of its file.
        job: name of the job, that of its module.
        kwargs: those of any operator.

    Raises:
        TerminalError: ``SPARK_CONNECTION_MISSING`` (the provider would go on with YARN), ``SPARK_MISSING``,
            ``CONNECTION_MISSING``, ``TABLES_STOPPED``, ``JOB_USAGE``, or the job's own code.
        TransientError: the job's own code, or ``JOB_DIED``.
        AirflowSkipException: the job is on hold.
    """

    template_fields: Sequence[str] = ("name", "mirror_file")

    def __init__(self, *, mirror: str, mirror_file: str, job: str, **kwargs: Any) -> None:
        super().__init__(name=f"{mirror} {job}", **kwargs)
        self.mirror = mirror
        self.mirror_file = mirror_file
        self.job = job

    def execute(self, context: Context) -> Any:
        """Run the job to its end."""
        mirror = load_mirror(Path(self.mirror_file))
        return self.run_job(mirror, self.job_arguments(mirror, context), context)

    def job_arguments(self, mirror: Mirror, context: Context) -> list[str]:
        """The job's arguments after the mirror file."""
        return []

    def run_job(self, mirror: Mirror, arguments: list[str], context: Context) -> dict[str, Any] | None:
        """Submit, wait, and judge the exit code; the job's report."""
        self.application = str(job_file(self.job))
        self.application_args = [str(mirror.file), *arguments]
        self._hook = hook = self._job_hook(mirror)
        try:
            super().execute(context)
        except AirflowException as error:
            if not hook.exit_code:
                raise
            return self._judge(hook, hook.exit_code, error)
        return short(hook.report)

    def tables_stopped(self, report: dict[str, Any] | None) -> dict[str, Any] | None:
        """What to make of tables that stopped while the others are done: here, the task fails naming them.

        Raises:
            TerminalError: ``TABLES_STOPPED``.
        """
        raise TerminalError(
            "TABLES_STOPPED",
            f"tables stopped: {stopped_text(report)}; the others are done",
            where=self.job,
            way_out="see the runbook's section of each code; `open-mirroring status` shows the evidence",
        )

    def on_kill(self) -> None:
        """End the submitting process, if there is one."""
        if self._hook is not None:
            self._hook.on_kill()

    def _job_hook(self, mirror: Mirror) -> JobSubmitHook:
        spark = mirror.spark
        try:
            BaseHook.get_connection(spark.connection)
        except AirflowNotFoundException:
            raise missing(spark.connection, mirror.file, "SPARK_CONNECTION_MISSING") from None
        return JobSubmitHook(
            environment=job_environment(job_connections(mirror)),
            class_path=class_path(),
            cores=spark.cores,
            conf={"spark.driver.extraJavaOptions": logging_option(), "spark.ui.enabled": "false"},
            conn_id=spark.connection,
            driver_memory=spark.memory,
            executor_memory=spark.memory,
            name=self.name,
            application_args=self.application_args,
        )

    def _judge(self, hook: JobSubmitHook, exit_code: int, error: Exception) -> dict[str, Any] | None:
        if exit_code == _TABLES_STOPPED:
            return self.tables_stopped(short(hook.report))
        if exit_code == _ON_HOLD:
            raise AirflowSkipException(f"HOLD: {self.job} of mirror {self.mirror} found every table on hold")
        self._fail(hook, exit_code, error)

    def _fail(self, hook: JobSubmitHook, exit_code: int, error: Exception) -> NoReturn:
        kind = _ERRORS.get(exit_code)
        if kind is not None and hook.error is not None:
            code, text = hook.error
            raise kind(code, text, where=self.job) from error
        if exit_code == _USAGE:
            raise TerminalError(
                "JOB_USAGE",
                "the job refused its arguments",
                where=self.job,
                way_out="the task's log says which; are Airflow's plugins and the jobs of the same version?",
            ) from error
        # Killed, or ended before the job's own code could say why: another attempt may do, and can do no harm.
        raise TransientError(
            "JOB_DIED",
            f"the job ended with exit code {exit_code} without saying why",
            where=self.job,
            way_out="look at the last lines of the task's log",
        ) from error


class ExtractOperator(OpenMirroringSparkOperator):
    """Carry what is new at the source into the change log.

    What is read next is decided by the ledger; only a backfill reads its own interval first.
    """

    def job_arguments(self, mirror: Mirror, context: Context) -> list[str]:
        """The interval of a backfill; extraction is always for all tables.

        Raises:
            TerminalError: ``INTERVAL_MISSING`` for a run that is to read again without saying what.
        """
        return backfill_arguments(context)


class ReplayOperator(OpenMirroringSparkOperator):
    """Decode open dead letters again; what comes of them is a new batch of the change log."""

    def job_arguments(self, mirror: Mirror, context: Context) -> list[str]:
        """The letters chosen for the run."""
        return letter_arguments(context)


class PublishingOperator(OpenMirroringSparkOperator):
    """Run a job that publishes files; every table with new ones gets an asset event.

    A stopped table fails nothing here: a failed task emits no events, and the good tables are published. The run's
    last task names what stopped.

    Args:
        gate_task_id: the gate whose passing tables are published; None: the tables chosen for the run.
        kwargs: those of :class:`OpenMirroringSparkOperator`.

    Raises:
        AirflowSkipException: the gate let no table pass, or gave no answer.
        TerminalError: also with the mirror's own code, when it is stopped as a whole.
    """

    def __init__(self, *, gate_task_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(outlets=[asset_alias(kwargs["mirror"])], **kwargs)
        self.gate_task_id = gate_task_id

    def execute(self, context: Context) -> Any:
        """Publish, then tell of what is new in the ledger."""
        mirror = load_mirror(Path(self.mirror_file))
        arguments = self.job_arguments(mirror, context)
        ledger = LedgerReader(open_ledger(ledger_url(mirror)), mirror.name)
        stop = ledger.mirror()
        if stop.stop_code is not None:
            raise TerminalError(
                stop.stop_code,
                f"the mirror is stopped, nothing is published: {stop.stop_what}",
                where=f"mirror {mirror.name}",
                way_out="see the runbook's section of this code",
            )
        before = self._marks_before(ledger, context)
        report = self.run_job(mirror, arguments, context)
        self._tell(mirror, ledger, before, context)
        return report

    def job_arguments(self, mirror: Mirror, context: Context) -> list[str]:
        """The tables to publish."""
        return _tables_argument(mirror, self._tables(mirror, context))

    def tables_stopped(self, report: dict[str, Any] | None) -> dict[str, Any] | None:
        """Say so and go on."""
        self.log.warning("Tables stopped: %s. The others are published.", stopped_text(report))
        return report

    def _tables(self, mirror: Mirror, context: Context) -> list[str]:
        if self.gate_task_id is None:
            return chosen_tables(mirror, context)
        answer = context["ti"].xcom_pull(task_ids=self.gate_task_id)
        if answer is None:
            raise AirflowSkipException("The gate gave no answer: nothing is known to pass, so nothing is published.")
        if not answer["passing"]:
            raise AirflowSkipException(answer["note"] or "No table passes the gate.")
        return checked_tables(mirror, answer["passing"])

    def _marks_before(self, ledger: LedgerReader, context: Context) -> dict[str, Mark]:
        """How far the tables were before the first attempt of this task, so that a retry tells of all that is new."""
        store = context["task_state_store"]
        before = store.get(_MARKS)
        if before is None:
            before = marks(ledger)
            store.set(_MARKS, before)
        return before

    def _tell(self, mirror: Mirror, ledger: LedgerReader, before: dict[str, Mark], context: Context) -> None:
        assets = table_assets(mirror)
        events = context["outlet_events"][asset_alias(mirror.name)]
        for published in published_since(ledger, before, assets):
            events.add(assets[published.table], extra={"mirror": mirror.name, **published._asdict()})


class ReloadOperator(PublishingOperator):
    """Reset the table that was chosen for the run, and build it anew; in the name of whoever approved it.

    Args:
        approval_task_id: the approval whose answer names that person.
        kwargs: those of :class:`PublishingOperator`.

    Raises:
        TerminalError: ``APPROVAL_MISSING`` when nobody approved it by name.
        TransientError: also ``RESET_WAITS``, while the target is waited for: another attempt goes on.
    """

    def __init__(self, *, approval_task_id: str, **kwargs: Any) -> None:
        super().__init__(job="reload_table", **kwargs)
        self.approval_task_id = approval_task_id

    def job_arguments(self, mirror: Mirror, context: Context) -> list[str]:
        """The table, why, and who approved it."""
        [table] = checked_tables(mirror, [context["params"][TABLE]])
        answer = context["ti"].xcom_pull(task_ids=self.approval_task_id) or {}
        by = answer.get("responded_by_user") or {}
        name = by.get("name") or by.get("id")
        if not name:
            raise TerminalError(
                "APPROVAL_MISSING",
                f"nobody approved the reset of {table!r} by name",
                where=f"task {self.approval_task_id}",
                way_out="answer the approval as a user of Airflow; marking its task as a success approves nothing",
            )
        reason = context["params"][REASON]
        return ["--table", table, f"--reason={reason}", f"--approved-by={name}", f"--wait={_LOOK_MINUTES}"]


def short(report: dict[str, Any] | None) -> dict[str, Any] | None:
    """What of a job's report other tasks may want: names, numbers, counts and codes; no lists of findings."""
    return None if report is None else {name: value for name, value in report.items() if not isinstance(value, list)}


def stopped_text(report: dict[str, Any] | None) -> str:
    """The stopped tables of a job's report, for a message."""
    stopped = (report or {}).get("stopped") or ["see the task's log"]
    if isinstance(stopped, dict):
        return "; ".join(f"{table}: {reason}" for table, reason in sorted(stopped.items()))
    return ", ".join(map(str, stopped))


def _tables_argument(mirror: Mirror, tables: list[str]) -> list[str]:
    # A command line has an end: all tables need no list.
    if len(tables) == len(mirror.tables):
        return []
    unlistable = [table for table in tables if "," in table]
    if unlistable:
        raise TerminalError(
            "TABLE_UNLISTABLE",
            f"a name with a comma cannot be in a list of tables: {unlistable}",
            where=str(mirror.file),
            way_out="publish all tables of this mirror, or give that table a mirror of its own",
        )
    return ["--tables", ",".join(tables)]
