"""The last task of a run: reports the state of every table. It fails if a table needs attention or a task failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context, TaskInstanceState

from open_mirroring.codes import Trait, having, next_step_of
from open_mirroring.config import Mirror, load_mirror
from open_mirroring.errors import TerminalError
from open_mirroring.operate.operations import TABLE
from open_mirroring_airflow.connections import landing_zone, ledger_url
from open_mirroring_airflow.gate import hold_note
from open_mirroring_airflow.job_operator import by_table, done_with_losses
from open_mirroring_airflow.run_note import FAILED, noted
from open_mirroring_airflow.run_params import TABLES

if TYPE_CHECKING:
    from open_mirroring.ledger.reading import LedgerReader
    from open_mirroring.operate.mirror_view import MirrorView
    from open_mirroring.protocols.verdicts import Finding

_NAMED = 3
_RED = {TaskInstanceState.FAILED.value, TaskInstanceState.UPSTREAM_FAILED.value}


def verdicts_line(findings: Mapping[str, Finding], left: Collection[str]) -> str:
    """One line with the number of tables per verdict, worst first.

    *left* are tables with changes that are not published yet: if such a table has no worse verdict, it counts as HOLD.
    """
    from open_mirroring.operate.words import amount, verdict_counts
    from open_mirroring.protocols.verdicts import Verdict

    sound = (Verdict.PASS, Verdict.LOSSES)
    counts = Counter[Verdict | None](
        Verdict.HOLD if table in left and finding.verdict in sound else finding.verdict
        for table, finding in findings.items()
    )
    return f"{amount(len(findings), 'table')}: {verdict_counts(counts)}."


def _outcome(stopped: Mapping[str, str], red: Sequence[str], lost: Mapping[str, str]) -> str:
    """Why the run fails, in one line: Airflow's page of a run shows no more; empty where it does not."""
    said = [f"{what} {_coded(tables)}" for what, tables in (("stopped", stopped), ("with losses", lost)) if tables]
    said += [f"task {task} failed" for task in red]
    return f"{FAILED}{'; '.join(said)}." if said else ""


def _coded(tables: Mapping[str, str]) -> str:
    named = [f"{table} ({why.partition(':')[0]})" for table, why in sorted(tables.items())]
    return ", ".join(named[:_NAMED]) + (f" and {len(named) - _NAMED} more" if len(named) > _NAMED else "")


class ReconcileOperator(BaseOperator):
    """Compares ledger and landing zone of a mirror, without Spark, and decides whether the run fails.

    Airflow takes a run's state from its last tasks, and this task always runs last. The task fails with
    ``TABLES_STOPPED`` if a table is stopped; with ``JOB_FAILED`` if a task before it failed; with ``DONE_WITH_LOSSES``
    if a table has losses. Tables on hold do not fail the run, unless only an operator can end the hold. The task
    returns verdicts, note and status.
    """

    template_fields: Sequence[str] = ("mirror_file",)

    def __init__(self, *, mirror_file: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mirror_file = mirror_file
        self.said: list[str] = []

    @noted
    def execute(self, context: Context) -> dict[str, Any]:
        """Checks all tables once, and raises the error that fails the run, if there is one."""
        from open_mirroring.ledger import open_ledger
        from open_mirroring.ledger.reading import LedgerReader
        from open_mirroring.operate.job_story import story
        from open_mirroring.operate.viewing import view_mirror
        from open_mirroring.protocols.verdicts import gate
        from open_mirroring.reconciliation.inspection import inspect_mirror

        mirror = load_mirror(Path(self.mirror_file))
        ledger = open_ledger(ledger_url(mirror))
        findings = inspect_mirror(mirror, ledger, landing_zone(mirror))
        found = view_mirror(mirror, ledger, datetime.now(UTC), findings=findings)
        result, report = gate(findings), found.report
        left = self._left_over(mirror, LedgerReader(ledger, mirror.name), found, result.passing, context)
        note = hold_note({**left, **result.held})
        if note:
            self.log.warning("%s", note)
        stopped = dict(result.stopped) or self._stopped_by_publishing(context)
        stopped |= {
            table: why for table, why in result.held.items() if findings[table].code in having(Trait.ASKS_OPERATOR)
        }
        lines = [verdicts_line(findings, left), *story("", {"stopped": stopped, "losses": report.lost})]
        # A run's note has an end: what is only noted of tables comes last.
        notes = story("", {"notes": report.notes})
        for line in [*lines, *notes]:
            self.log.info("%s", line)
        losses = by_table({"losses": report.lost}, "losses") if report.lost else ""
        before, run = sorted(self.get_flat_relative_ids(upstream=True)), context["run_id"]
        states = context["ti"].get_task_states(dag_id=self.dag_id, task_ids=before, run_ids=[run]).get(run, {})
        red = [task for task in before if states.get(task) in _RED]
        outcome = _outcome(stopped, red, report.lost)
        self.said += [*filter(None, [outcome, note]), *lines, *notes]
        if red or stopped:
            failed = f"failed before this: {', '.join(red)}" if red else ""
            named = f"tables stopped: {by_table({'stopped': stopped}, 'stopped')}" if stopped else ""
            ways = {
                finding.next_step: None for table, finding in findings.items() if table in stopped and finding.next_step
            }
            lacking = f"losses: {losses}" if losses else ""
            raise TerminalError(
                "TABLES_STOPPED" if stopped else "JOB_FAILED",
                "; ".join(filter(None, (named, failed, lacking))),
                where=f"mirror {mirror.name}",
                next_step="; ".join(ways) or "look at the log of the task named; the next run goes on where it ended",
            )
        if losses:
            codes = dict.fromkeys(loss.code for found in report.losses.values() for loss in found)
            next_steps = "; ".join(next_step_of(code) for code in codes)
            raise done_with_losses(losses, where=f"mirror {mirror.name}", next_steps=next_steps)
        verdicts = {table: finding.verdict.value for table, finding in findings.items()}
        return {"verdicts": verdicts, "note": note, "status": found.document()}

    def _left_over(
        self, mirror: Mirror, reader: LedgerReader, found: MirrorView, passing: Sequence[str], context: Context
    ) -> dict[str, str]:
        """What the run has not published although nothing holds it: as where somebody marked a task of it as done."""
        from open_mirroring.ledger.reading import next_changes
        from open_mirroring.operate.words import waiting_pieces
        from open_mirroring.protocols.table_losses import ANY_TABLE

        left = {}
        if found.fragments:
            left[ANY_TABLE] = waiting_pieces(len(found.fragments))
        params = context["params"]
        chosen = [params[TABLE.field]] if params.get(TABLE.field) else params.get(TABLES) or passing
        asked = {table.source: table.state for table in found.tables if table.source in {*passing} & {*chosen}}
        # Where transactions are held back, what lies above the complete position is not work of any run as yet.
        whole = mirror.consistency == "transaction"
        for source in next_changes(reader, asked, found.state.committed, complete_transactions=whole):
            left[source] = "logged changes are not published yet; the next run does it"
        return left

    def _stopped_by_publishing(self, context: Context) -> dict[str, str]:
        """Tables that a job said it stopped, should the look afterwards find nothing of it."""
        stopped: dict[str, str] = {}
        for task in sorted(self.upstream_task_ids):
            report = context["ti"].xcom_pull(task_ids=task)
            found = report.get("stopped") if isinstance(report, dict) and "job" in report else None
            pairs = found.items() if isinstance(found, dict) else ((table, "stopped") for table in found or ())
            stopped |= {str(table): str(reason) for table, reason in pairs}
        return stopped
