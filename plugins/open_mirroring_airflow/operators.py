"""The Airflow operators of a mirror's jobs and decisions: what each gets from its run, and what the task returns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from open_mirroring.config import Mirror, load_mirror
from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.ledger.requests import TARGET_BACK, TARGET_GONE
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
    done_with_losses,
    losses_text,
    short,
    verdicts_text,
)
from open_mirroring_airflow.run_note import noted
from open_mirroring_airflow.run_params import (
    MADE_ANEW,
    NOT_APPLIED,
    NUMBER,
    PROOF,
    REASON,
    TABLE,
    backfill_arguments,
    checked_tables,
    chosen_decision,
    chosen_tables,
    letter_arguments,
)
from open_mirroring_airflow.triggers import ResetTrigger

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from open_mirroring.ledger.reading import LedgerReader

_LOOK_MINUTES = 0.2
"""A reset looks at the target twice, and gives its slot back while it waits."""
_LOOK_SECONDS = 60.0
"""Between two looks of a reset that waits deferred."""
_TARGET_WAIT = timedelta(days=1)
"""How long a reset waits for the target to show what happened there, or for somebody to say it."""
_GRACE = timedelta(minutes=5)
RESET_OPEN = "RESET_OPEN"
_OWED = "announce"


class ExtractOperator(OpenMirroringSparkOperator):
    """Carry what is new at the source into the change log.

    What is read next is decided by the ledger; only a backfill reads its own interval first.

    Args:
        publishes: whether it publishes as well, where that is little: one program for both. The task that publishes
            then only tells and announces it.
        kwargs: those of :class:`OpenMirroringSparkOperator`.
    """

    def __init__(self, *, publishes: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.publishes = publishes

    def work(self, mirror: Mirror, context: Context) -> Any:
        """Read; hand on what was published as well."""
        if not self.publishes:
            return super().work(mirror, context)
        attempts = Attempts(_ledger_reader(mirror), context["task_state_store"], table_assets(mirror))
        try:
            report = super().work(mirror, context)
        except Exception:
            with suppress(MirroringError):  # as in publishing
                attempts.published()
            raise
        owed = [one._asdict() for one in attempts.published()]
        attempts.forget()
        return report and {**report, _OWED: owed}

    def job_arguments(self, mirror: Mirror, context: Context) -> list[str]:
        """The interval of a backfill; extraction is always for all tables.

        Raises:
            TerminalError: ``ARGUMENT_INVALID`` for a run that is to read again without saying what.
        """
        asked = backfill_arguments(context)
        if not self.publishes:
            return asked
        tables = _tables_listed(mirror, chosen_tables(mirror, context))
        return [f"--publish={tables}" if tables else "--publish", *asked]


class ReplayOperator(OpenMirroringSparkOperator):
    """Decode open dead letters again; what comes of them is a new batch of the change log."""

    def job_arguments(self, mirror: Mirror, context: Context) -> list[str]:
        """The letters chosen for the run."""
        return letter_arguments(context)


class ProveOperator(OpenMirroringSparkOperator):
    """Compare the chosen tables with their source; the task fails when one is not equal, skips when none is proved.

    Raises:
        TerminalError: also ``NOT_EQUAL`` naming the tables.
    """

    def job_arguments(self, mirror: Mirror, context: Context) -> list[str]:
        """The tables to compare."""
        return _tables_argument(mirror, chosen_tables(mirror, context))

    def on_hold(self, report: dict[str, Any]) -> NoReturn:
        """Skip, naming what is not proved."""
        raise AirflowSkipException(f"UNPROVEN: {verdicts_text(report, 'UNPROVEN')}; no table is found to differ")


class DeepCheckOperator(OpenMirroringSparkOperator):
    """Compare every file, row and digest; nothing comes after it, so it fails for losses as for stopped tables."""

    def done_with_losses(self, report: dict[str, Any] | None) -> dict[str, Any] | None:
        """Fail, naming them.

        Raises:
            TerminalError: ``DONE_WITH_LOSSES``.
        """
        raise done_with_losses(losses_text(report), where=self.job)


class PublishingOperator(OpenMirroringSparkOperator):
    """Run a job that publishes files; every table with new ones gets an asset event.

    A stopped table fails nothing here: a failed task emits no events, and the good tables are published. The run's
    last task names what stopped.

    Args:
        gate_task_id: the gate whose passing tables are published; None: the tables chosen for the run.
        extract_task_id: the task that reads, and may have published as well.
        kwargs: those of :class:`OpenMirroringSparkOperator`.

    Raises:
        AirflowSkipException: the gate let no table pass, or gave no answer.
        TerminalError: also with the mirror's own code, when it is stopped as a whole.
    """

    def __init__(self, *, gate_task_id: str | None = None, extract_task_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(outlets=[asset_alias(kwargs["mirror"])], **kwargs)
        self.gate_task_id = gate_task_id
        self.extract_task_id = extract_task_id
        self._whole: dict[str, Any] | None = None
        self._sent: tuple[Mirror, Sequence[PublishedFiles]] | None = None

    def work(self, mirror: Mirror, context: Context) -> Any:
        """Publish, and send asset events for what is new in the ledger."""
        read = context["ti"].xcom_pull(task_ids=self.extract_task_id) if self.extract_task_id else None
        done = self._done_by_reading(read or {}, context)
        arguments = self.job_arguments(mirror, context) if done is None else []
        ledger = _ledger_reader(mirror)
        ledger.mirror().refuse_stopped(mirror.name)
        self._whole = None
        owed = (read or {}).get(_OWED, ())
        attempts = Attempts(ledger, context["task_state_store"], table_assets(mirror), owed)
        try:
            if done is None:
                report = self.run_job(mirror, arguments, context)
            else:
                self.log.info("The program that read has published as well.")
                self.tell(done)
                report = short(done)
        except Exception:
            with suppress(MirroringError):  # a ledger that does not answer now is asked by the next attempt
                self._tell(attempts.published())
            raise
        self._tell(published := attempts.published())
        self._send(mirror, published, context)
        attempts.forget()
        return report

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """What was read and written; Airflow's provider of OpenLineage asks for it by this name."""
        return None if self._sent is None else operator_lineage(*self._sent)

    def tell(self, report: dict[str, Any]) -> None:
        """Not yet: the ledger shows at the end which files and rows were published."""
        self._whole = report

    def _tell(self, published: Sequence[PublishedFiles]) -> None:
        """Tell the job's report, with files and rows as the ledger has them: earlier attempts published some."""
        if self._whole is None:
            return
        files: dict[str, list[int]] = {}
        rows: dict[str, int] = {}
        for one in published:
            files.setdefault(one.table, []).extend(range(one.first_number, one.number + 1))
            rows[one.table] = rows.get(one.table, 0) + one.rows
        super().tell({**self._whole, **({"files": files, "rows": rows} if files else {})})

    def job_arguments(self, mirror: Mirror, context: Context) -> list[str]:
        """The tables to publish."""
        return _tables_argument(mirror, self._tables(mirror, context))

    def _done_by_reading(self, read: dict[str, Any], context: Context) -> dict[str, Any] | None:
        """The report of what the task that read has published; None where something may be left to publish.

        That may be what was on hold then and passes the gate by now. Whoever clears this task wants it done again.
        """
        done: dict[str, Any] | None = read.get("published")
        if done is None or context["ti"].try_number > 1:
            return None
        passing = {*(context["ti"].xcom_pull(task_ids=self.gate_task_id) or {}).get("passing", ())}
        is_skipped = not passing and not any(done["files"].values())
        return None if is_skipped or passing & {*done["held"]} else done

    def tables_stopped(self, report: dict[str, Any] | None) -> dict[str, Any] | None:
        """Go on: what is told at the end names them."""
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


class _ApprovedOperator(OpenMirroringSparkOperator):
    """Run a job in the name of the person who approved it. One approval is one request, however often it is tried."""

    def __init__(self, *, approval_task_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.approval_task_id = approval_task_id

    def _approver(self, context: Context, what: str) -> str:
        """Who approved it by name, as an argument.

        Raises:
            TerminalError: ``ARGUMENT_INVALID``.
        """
        by = (context["ti"].xcom_pull(task_ids=self.approval_task_id) or {}).get("responded_by_user") or {}
        if name := by.get("name") or by.get("id"):
            return f"--approved-by={name}"
        raise TerminalError(
            "ARGUMENT_INVALID",
            f"nobody approved {what} by name",
            where=f"task {self.approval_task_id}",
            way_out="answer the approval as a user of Airflow; marking its task as a success approves nothing",
        )

    def _decided(self, mirror: Mirror, context: Context, what: str) -> list[str]:
        """The table, why, who approved it, and the request, which is the same in each try of this task (G-30)."""
        [table] = checked_tables(mirror, [context["params"][TABLE]])
        approver = self._approver(context, f"{what} {table!r}")
        request = f"{self.dag_id}/{context['run_id']}/{self.approval_task_id}"
        return ["--table", table, f"--reason={context['params'][REASON]}", approver, f"--request={request}"]


class ReloadOperator(_ApprovedOperator, PublishingOperator):
    """Reset and rebuild the table that was chosen for the run, in the name of the person who approved it.

    While the target has to do its part the task waits deferred: a look costs neither a slot nor Spark.

    Args:
        approval_task_id: the approval whose answer names that person.
        kwargs: those of :class:`PublishingOperator`.

    Raises:
        TerminalError: ``ARGUMENT_INVALID`` when the approval names nobody; ``RESET_OPEN`` when the target has not
            done its part after a day, and nobody has said that it has.
    """

    def work(self, mirror: Mirror, context: Context) -> Any:
        """Carry the reset as far as it goes; defer while it waits."""
        return self._carry_on(mirror, context, (datetime.now(UTC) + _TARGET_WAIT).isoformat())

    @noted
    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Take the trigger's answer, and carry the reset on."""
        error = event_error(event)
        if error is not None:
            raise error
        if not event["goes_on"]:
            raise TerminalError(RESET_OPEN, event["waits_for"], where=self.job, way_out=self._way_out)
        return self._carry_on(load_mirror(Path(self.mirror_file)), context, event["until"])

    def on_hold(self, report: dict[str, Any]) -> NoReturn:
        """Wait for the target, which the job did for a moment only."""
        what = f"the reset of {report['table']} ({report['stage']}) waits for {report['waits_for']}"
        raise TransientError(RESET_OPEN, what, where=self.job)

    def _carry_on(self, mirror: Mirror, context: Context, until: str) -> Any:
        try:
            return super().work(mirror, context)
        except TransientError as waits:
            if waits.code != RESET_OPEN:
                raise
            table = context["params"][TABLE]
            reset = _ledger_reader(mirror).tables(table)[table].reset
            self.log.info("Waiting: %s. %s", waits.what, self._way_out)
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
    def _way_out(self) -> str:
        return (
            f"Where nothing shows what the target has, look there, then start {self.mirror}__decide with the decision "
            f"{TARGET_GONE} or {TARGET_BACK}. Clear this task if it has given up: it goes on from there"
        )

    def job_arguments(self, mirror: Mirror, context: Context) -> list[str]:
        """The table, why, and who approved it."""
        made_anew = ["--made-anew"] if context["params"][MADE_ANEW] else []
        return [*self._decided(mirror, context, "the reset of"), *made_anew, f"--wait={_LOOK_MINUTES}"]


class CorrectOperator(_ApprovedOperator):
    """Log the rows of the keys that a proof found to differ; in the name of whoever approved it.

    One proof is corrected once, however often this task is tried (G-46).

    Args:
        approval_task_id: the approval whose answer names that person.
        kwargs: those of :class:`OpenMirroringSparkOperator`.

    Raises:
        TerminalError: ``ARGUMENT_INVALID`` when nobody approved it by name.
        TransientError: ``PROOF_FAILED`` when the rows could not be read: another attempt reads them again.
    """

    def job_arguments(self, mirror: Mirror, context: Context) -> list[str]:
        """The proof, why, and who approved it."""
        proof = context["params"][PROOF]
        approver = self._approver(context, f"the correction of the proof {proof}")
        return [f"--proof={proof}", f"--why={context['params'][REASON]}", approver]

    def run_job(self, mirror: Mirror, arguments: list[str], context: Context) -> dict[str, Any] | None:
        """Run the job; what it had to give back is tried again."""
        report = super().run_job(mirror, arguments, context)
        if report and report.get("waits"):
            way_out = "mend what it names; the task tries again, and can be cleared"
            raise TransientError("PROOF_FAILED", report["waits"], where=self.job, way_out=way_out)
        return report


class RepairOperator(_ApprovedOperator):
    """Publish a lost number again, in the name of the person who approved it; starts no Spark.

    One approval is one repair, however often this task is tried, cleared or killed (G-30).

    Args:
        approval_task_id: the approval whose answer names that person.
        kwargs: those of :class:`OpenMirroringSparkOperator`.

    Raises:
        TerminalError: ``ARGUMENT_INVALID`` when nobody approved it by name; ``REPAIR_REFUSED`` and the like.
    """

    def job_arguments(self, mirror: Mirror, context: Context) -> list[str]:
        """Table and number, why, who approved it, and how it is known that the target has not applied it."""
        params = context["params"]
        known = [f"--not-applied={params[NOT_APPLIED]}"] if params[NOT_APPLIED].strip() else []
        return [*self._decided(mirror, context, "the repair of"), f"--number={params[NUMBER]}", *known]


class DecideOperator(BaseOperator):
    """Take the decision that the run's form names, in the name of the user who started the run.

    A run is one request: tried or cleared again, it decides nothing more (G-30).

    Args:
        mirror_file: path of the mirror file.
        kwargs: those of any operator.

    Returns:
        What came of it and what the next run will find, in sentences.

    Raises:
        TerminalError: ``ARGUMENT_INVALID`` when nobody started the run by name, or as the
            decision does.
        TransientError: the ledger does not answer.
    """

    template_fields: Sequence[str] = ("mirror_file",)

    def __init__(self, *, mirror_file: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mirror_file = mirror_file
        self.said: list[str] = []

    @noted
    def execute(self, context: Context) -> list[str]:
        """Decide, and look at the table once."""
        action, fields = chosen_decision(context["params"])
        who = context["dag_run"].triggering_user_name
        if not who:
            raise TerminalError(
                "ARGUMENT_INVALID",
                "nobody started this run by name, so nobody decides",
                where=f"run {context['run_id']}",
                way_out="start it as a user of Airflow: *Trigger*, on the DAG's page",
            )
        from open_mirroring.ledger import open_ledger
        from open_mirroring.ledger.auditing import Reason
        from open_mirroring.operate.deciding import decide_and_look
        from open_mirroring.reconciliation.joined_tables import take_in_joined

        mirror = load_mirror(Path(self.mirror_file))
        ledger = open_ledger(ledger_url(mirror))
        take_in_joined(mirror, ledger)
        form = {"source": fields.pop(TABLE, ""), **fields, "request": f"{self.dag_id}/{context['run_id']}"}
        said = decide_and_look(
            mirror, ledger, landing_zone(mirror), action, form, Reason(who, context["params"][REASON])
        )
        for sentence in said:
            self.log.info("%s", sentence)
        self.said += said
        return said


def _ledger_reader(mirror: Mirror) -> LedgerReader:
    from open_mirroring.ledger import open_ledger
    from open_mirroring.ledger.reading import LedgerReader

    return LedgerReader(open_ledger(ledger_url(mirror)), mirror.name)


def _tables_argument(mirror: Mirror, tables: list[str]) -> list[str]:
    listed = _tables_listed(mirror, tables)
    return ["--tables", listed] if listed else []


def _tables_listed(mirror: Mirror, tables: list[str]) -> str:
    """Tables as an argument of a job; empty for all of them: a command line has an end."""
    if len(tables) == len(mirror.tables):
        return ""
    unlistable = [table for table in tables if "," in table]
    if unlistable:
        raise TerminalError(
            "ARGUMENT_INVALID",
            f"a name with a comma cannot be in a list of tables: {unlistable}",
            where=str(mirror.file),
            way_out="publish all tables of this mirror, or give that table a mirror of its own",
        )
    return ",".join(tables)
