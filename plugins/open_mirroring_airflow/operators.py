"""The Airflow operators that run a mirror's jobs and apply the decisions of people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from open_mirroring.config import Mirror, load_mirror
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.operate.operations import REASON, ROUTINE, TABLE, TARGET_BACK, TARGET_GONE
from open_mirroring_airflow.assets import (
    Attempts,
    PublishedFiles,
    asset_alias,
    lineage,
    operator_lineage,
    table_assets,
)
from open_mirroring_airflow.connections import landing_zone, ledger_url
from open_mirroring_airflow.gate import event_error
from open_mirroring_airflow.job_operator import (
    OpenMirroringSparkOperator,
    by_table,
    done_with_losses,
    short,
    tables_listed,
    verdicts_text,
)
from open_mirroring_airflow.notifier import MirrorNotifier
from open_mirroring_airflow.run_note import noted
from open_mirroring_airflow.run_params import backfill_arguments, checked_tables, chosen_decision, chosen_tables
from open_mirroring_airflow.triggers import ResetTrigger

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from open_mirroring.ledger.reading import LedgerReader

_LOOK_MINUTES = 0.2
"""How long a reset's job waits for the target itself; after that its task is deferred, to free the slot."""
_LOOK_SECONDS = 60.0
"""Time between two checks of the target while a reset's task is deferred."""
_TARGET_WAIT = timedelta(days=1)
"""How long a reset waits for the target to show what happened there, or for an operator to confirm it."""
_GRACE = timedelta(minutes=5)
RESET_OPEN = "RESET_OPEN"
_OWED = "announce"


class ExtractOperator(OpenMirroringSparkOperator):
    """Reads what is new at the source into the change log; a backfill first reads the interval that it names.

    If there are few changes to publish, the extracting program publishes them, which saves the start of a second
    program; the publishing task after it then only sends the asset events.
    """

    def work(self, mirror: Mirror, context: Context) -> Any:
        """Reads the source. Returns the job's report.

        If the job published files, the report lists them: the publishing task sends the asset events for them.
        """
        arguments = self.job_arguments(mirror, context)
        attempts = Attempts(_ledger_reader(mirror), context["task_state_store"], table_assets(mirror))
        report, published = attempts.of(lambda: self.run_job(mirror, arguments, context))
        attempts.forget()
        return report and {**report, _OWED: [one._asdict() for one in published]}

    def job_arguments(self, mirror: Mirror, context: Context) -> list[str]:
        """The arguments of the extracting job: the tables to publish, and the interval of a backfill.

        The tables chosen for the run limit what is published; the job always reads all tables.
        """
        asked, tables = backfill_arguments(context), tables_listed(mirror, chosen_tables(mirror, context))
        return [f"--publish={tables}" if tables else "--publish", *asked]


class ProveOperator(OpenMirroringSparkOperator):
    """Compare the chosen tables with their source.

    The task fails when a table differs, and is skipped when no table could be proved. A scheduled run compares the
    rows that are due, if the mirror file sets ``prove.cover_in_days``. A message is sent once when a part of a table
    was not compared for longer than ``prove.alert_after_days``.
    """

    _report: dict[str, Any] | None = None

    def form(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """The params of the run, with whether the run compares only the rows that are due."""
        form, is_scheduled = super().form(mirror, context), context["dag_run"].run_type == "scheduled"
        is_routine = mirror.prove.cover_in_days is not None and (is_scheduled or form.get(ROUTINE.field))
        return {**form, ROUTINE.field: is_routine}

    def work(self, mirror: Mirror, context: Context) -> Any:
        """Compares the tables, and then sends a message if rows were not compared for too long."""
        try:
            return super().work(mirror, context)
        finally:
            self._alert(mirror, context)

    def log_report(self, report: dict[str, Any]) -> None:
        """Writes a summary of the proof into the task's log, and keeps the report for :meth:`work`."""
        self._report = report
        super().log_report(report)

    def _alert(self, mirror: Mirror, context: Context) -> None:
        """Send a message about tables that came to be late since the run before."""
        settings, now = mirror.prove, datetime.now(UTC)
        if settings.cover_in_days is None or settings.alert_after_days is None:
            return
        tables = ((self._report or {}).get("tables") or {}).items()
        late = {source: one["verified"] for source, one in tables if one.get("verified") and one["verified"]["is_late"]}
        period = timedelta(days=settings.cover_in_days) / settings.runs_from(now)
        limit = now - timedelta(days=settings.alert_after_days) - period
        if new := [source for source, one in late.items() if datetime.fromisoformat(one["oldest"]) > limit]:
            about = (
                f"some rows were not compared with the source for {settings.alert_after_days} days: {', '.join(new)}"
            )
            MirrorNotifier(mirror.name, "unverified", mirror.alerts.connection, about)(context)

    def on_hold(self, report: dict[str, Any]) -> NoReturn:
        """Skips the task, with the names of the tables that could not be proved."""
        raise AirflowSkipException(f"UNPROVEN: {verdicts_text(report, 'UNPROVEN')}; no table is found to differ")


class DeepCheckOperator(OpenMirroringSparkOperator):
    """Compare all published files with the ledger and the change log, by rows and digests.

    The DAG has no task after this one, so this task itself fails for tables with losses, as for stopped tables.
    """

    def done_with_losses(self, report: dict[str, Any] | None) -> dict[str, Any] | None:
        """Fails the task with ``DONE_WITH_LOSSES`` and the names of the tables with losses."""
        raise done_with_losses(by_table(report, "losses"), where=self.job)


class PublishingOperator(OpenMirroringSparkOperator):
    """Run a job that publishes files, and send an asset event for every table with new files.

    The task succeeds although tables are stopped, because a failed task of Airflow sends no asset events; the run's
    last task fails and names the stopped tables. *gate_task_id* is the task that asks the gate, the check before
    publishing: if no table passes, this task is skipped. Without *gate_task_id* the tables chosen for the run are
    published. *extract_task_id* is the task that reads the source, and that may already have published files.
    """

    def __init__(self, *, gate_task_id: str | None = None, extract_task_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(outlets=[asset_alias(kwargs["mirror"])], **kwargs)
        self.gate_task_id = gate_task_id
        self.extract_task_id = extract_task_id
        self._whole: dict[str, Any] | None = None
        self._sent: tuple[Mirror, Sequence[PublishedFiles]] | None = None

    def work(self, mirror: Mirror, context: Context) -> Any:
        """Runs the job, and sends asset events for the files that are new in the ledger."""
        read = context["ti"].xcom_pull(task_ids=self.extract_task_id) if self.extract_task_id else None
        done = self._done_by_reading(read or {}, context)
        arguments = self.job_arguments(mirror, context) if done is None else []
        ledger = _ledger_reader(mirror)
        ledger.mirror().refuse_stopped(mirror.name)
        self._whole = None
        owed = (read or {}).get(_OWED, ())
        attempts = Attempts(ledger, context["task_state_store"], table_assets(mirror), owed)

        def publish() -> dict[str, Any] | None:
            if done is None:
                return self.run_job(mirror, arguments, context)
            self.log.info("The program that read has published as well.")
            self.log_report(done)
            return short(done)

        report, published = attempts.of(publish, self._log_files)
        self._send(mirror, published, context)
        attempts.forget()
        return report

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """The tables that the task read and wrote; Airflow's OpenLineage provider calls this method by its name."""
        return None if self._sent is None else operator_lineage(*self._sent)

    def log_report(self, report: dict[str, Any]) -> None:
        """Keeps the report until the attempt ends, because only then the ledger shows all published files."""
        self._whole = report

    def _log_files(self, published: Sequence[PublishedFiles]) -> None:
        """Tell the job's report, with files and rows as the ledger has them: earlier attempts published some."""
        if self._whole is None:
            return
        files: dict[str, list[int]] = {}
        rows: dict[str, int] = {}
        for one in published:
            files.setdefault(one.table, []).extend(range(one.first_number, one.number + 1))
            rows[one.table] = rows.get(one.table, 0) + one.rows
        super().log_report({**self._whole, **({"files": files, "rows": rows} if files else {})})

    def job_arguments(self, mirror: Mirror, context: Context) -> list[str]:
        """The argument that names the tables to publish."""
        listed = tables_listed(mirror, self._tables(mirror, context))
        return [f"--tables={listed}"] if listed else []

    def _done_by_reading(self, read: dict[str, Any], context: Context) -> dict[str, Any] | None:
        """The report of what the task that read has published; None where something may be left to publish.

        A table that was on hold then may pass the gate now. An operator who clears this task wants it done again.
        """
        done: dict[str, Any] | None = read.get("published")
        if done is None or context["ti"].try_number > 1:
            return None
        passing = {*(context["ti"].xcom_pull(task_ids=self.gate_task_id) or {}).get("passing", ())}
        is_skipped = not passing and not any(done["files"].values())
        return None if is_skipped or passing & {*done["held"]} else done

    def tables_stopped(self, report: dict[str, Any] | None) -> dict[str, Any] | None:
        """Lets the task succeed although tables are stopped: a failed task sends no asset events."""
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

    def _send(self, mirror: Mirror, published: Sequence[PublishedFiles], context: Context) -> None:
        """Send an asset event for each table with new files."""
        self._sent = mirror, published
        assets = table_assets(mirror)
        events = context["outlet_events"][asset_alias(mirror.name)]
        for one in published:
            events.add(assets[one.table], extra={**lineage(mirror, one.table), **one._asdict()})


class ApprovedOperator(OpenMirroringSparkOperator):
    """Run a job in the name of the person who answered the approval task *approval_task_id*.

    One approval is one request: when the task is retried, cleared or killed, the job does not start a second request
    (G-30).
    """

    def __init__(self, *, approval_task_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.approval_task_id = approval_task_id

    def form(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """The params of the run, with the approver's name and the id of the request.

        Raises ``ARGUMENT_INVALID`` if the approval contains no name.
        """
        form = super().form(mirror, context)
        if TABLE.field in form:
            checked_tables(mirror, [form[TABLE.field]])
        by = (context["ti"].xcom_pull(task_ids=self.approval_task_id) or {}).get("responded_by_user") or {}
        if not (name := by.get("name") or by.get("id")):
            raise TerminalError(
                "ARGUMENT_INVALID",
                "no one approved this run by name",
                where=f"task {self.approval_task_id}",
                next_step="answer the approval as a user of Airflow; marking its task as a success approves nothing",
            )
        request = f"{self.dag_id}/{context['run_id']}/{self.approval_task_id}"
        return {**form, "approved_by": name, "request": request, "wait": _LOOK_MINUTES}


class ReloadOperator(ApprovedOperator, PublishingOperator):
    """Reset the table that was chosen for the run and build it from scratch, in the name of the person who approved.

    While the reset waits for the target, the task is deferred and uses no Spark. After a day of waiting the task fails
    with ``RESET_OPEN``.
    """

    def work(self, mirror: Mirror, context: Context) -> Any:
        """Continues the reset as far as possible; defers the task while the reset waits for the target."""
        return self._carry_on(mirror, context, (datetime.now(UTC) + _TARGET_WAIT).isoformat())

    @noted
    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Continues the reset when the trigger ends.

        Raises ``RESET_OPEN`` if the trigger ended before the target was ready.
        """
        error = event_error(event)
        if error is not None:
            raise error
        if not event["goes_on"]:
            raise TerminalError(RESET_OPEN, event["waits_for"], where=self.job, next_step=self._next_step)
        return self._carry_on(load_mirror(Path(self.mirror_file)), context, event["until"])

    def on_hold(self, report: dict[str, Any]) -> NoReturn:
        """Raises ``RESET_OPEN``, a transient error: the reset still waits for the target."""
        what = f"the reset of {report['table']} ({report['stage']}) waits for {report['waits_for']}"
        raise TransientError(RESET_OPEN, what, where=self.job)

    def _carry_on(self, mirror: Mirror, context: Context, until: str) -> Any:
        try:
            return super().work(mirror, context)
        except TransientError as waits:
            if waits.code != RESET_OPEN:
                raise
            table = context["params"][TABLE.field]
            reset = _ledger_reader(mirror).tables(table)[table].reset
            self.log.info("Waiting: %s. %s", waits.what, self._next_step)
            self.defer(
                trigger=ResetTrigger(
                    mirror_file=str(mirror.file),
                    table=table,
                    stage="" if reset is None else reset.stage.value,
                    waits_for=waits.what,
                    until=until,
                    poll_interval=_LOOK_SECONDS,
                ),
                method_name=self.execute_complete.__name__,
                timeout=_TARGET_WAIT + _GRACE,
            )

    @property
    def _next_step(self) -> str:
        return (
            f"Where nothing shows what the target has, look there, then start {self.mirror}__decide with the decision "
            f"{TARGET_GONE.name} or {TARGET_BACK.name}. Clear this task if it has given up: it goes on from there"
        )

    def job_arguments(self, mirror: Mirror, context: Context) -> list[str]:
        """The job's arguments from the params of the run, not the list of tables of a publishing task."""
        return OpenMirroringSparkOperator.job_arguments(self, mirror, context)


class CorrectOperator(ApprovedOperator):
    """Reads again, into the change log, the rows that a proof found to differ; each proof is corrected once (G-45)."""

    def on_hold(self, report: dict[str, Any]) -> NoReturn:
        """Raises a transient error, so that Airflow retries the task: the rows could not be read now."""
        next_step = "fix what it names; the task tries again, and can be cleared"
        raise TransientError("PROOF_FAILED", report["waits"], where=self.job, next_step=next_step)


class DecideOperator(BaseOperator):
    """Take the decision that the params of the run name, in the name of the user who started the run.

    One run is one request: when the task is retried or cleared, nothing is decided a second time (G-30). The task
    returns sentences that say what was decided.
    """

    template_fields: Sequence[str] = ("mirror_file",)

    def __init__(self, *, mirror_file: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mirror_file = mirror_file
        self.said: list[str] = []

    @noted
    def execute(self, context: Context) -> list[str]:
        """Takes the decision, and checks the table once after it."""
        action, fields = chosen_decision(context["params"])
        who = context["dag_run"].triggering_user_name
        if not who:
            raise TerminalError(
                "ARGUMENT_INVALID",
                "no one started this run by name, so no one decides",
                where=f"run {context['run_id']}",
                next_step="start it as a user of Airflow: *Trigger*, on the DAG's page",
            )
        from open_mirroring.ledger import open_ledger
        from open_mirroring.ledger.auditing import Reason
        from open_mirroring.operate.deciding import decide_and_look
        from open_mirroring.reconciliation.joined_tables import declare_joined

        mirror = load_mirror(Path(self.mirror_file))
        ledger = open_ledger(ledger_url(mirror))
        declare_joined(mirror, ledger)
        form = {"source": fields.pop(TABLE.field, ""), **fields, "request": f"{self.dag_id}/{context['run_id']}"}
        said = decide_and_look(
            mirror, ledger, landing_zone(mirror), action, form, Reason(who, context["params"][REASON.field])
        )
        for sentence in said:
            self.log.info("%s", sentence)
        self.said += said
        return said


def _ledger_reader(mirror: Mirror) -> LedgerReader:
    from open_mirroring.ledger import open_ledger
    from open_mirroring.ledger.reading import LedgerReader

    return LedgerReader(open_ledger(ledger_url(mirror)), mirror.name)
