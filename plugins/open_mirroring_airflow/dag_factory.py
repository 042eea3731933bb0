"""Builds the DAGs of a mirror from its mirror file alone, so every parse by Airflow gives the same DAGs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import (  # type: ignore[attr-defined]  # Airflow's stub leaves out what is for deadlines
    DAG,
    AssetOrTimeSchedule,
    AsyncCallback,
    BaseOperator,
    CronDataIntervalTimetable,
    DeadlineAlert,
    DeadlineReference,
    ExceptionRetryPolicy,
    RetryAction,
    RetryRule,
    TriggerRule,
    chain,
)

from open_mirroring.config import Mirror
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.operate import operations
from open_mirroring.operate.operations import TABLE
from open_mirroring_airflow import dag_docs
from open_mirroring_airflow.job_operator import OpenMirroringSparkOperator
from open_mirroring_airflow.notifier import MirrorNotifier
from open_mirroring_airflow.operators import (
    ApprovedOperator,
    CorrectOperator,
    DecideOperator,
    DeepCheckOperator,
    ExtractOperator,
    ProveOperator,
    PublishingOperator,
    ReloadOperator,
)
from open_mirroring_airflow.run_note import TAG
from open_mirroring_airflow.run_params import decision_params, params_of
from open_mirroring_airflow.sensors import GateSensor
from open_mirroring_airflow.verdict import ReconcileOperator
from open_mirroring_airflow.watching import watched_source

_START = datetime(2020, 1, 1, tzinfo=UTC)
"""The DAGs' ``start_date``, early enough for any backfill; with ``catchup=False`` it starts no runs."""
_DEEP_CHECK = "30 2 * * *"
_APPROVAL = timedelta(days=1)
"""How long a reset waits for its approval; without an answer the run fails."""
_MAINTENANCE = "30 3 * * *"
_OWNER = "open-mirroring"
RETRIES = 2
_RETRY_DELAY = timedelta(minutes=1)
_RETRYING = ExceptionRetryPolicy(
    [
        RetryRule(TerminalError, RetryAction.FAIL, reason="Trying again gives the same answer"),
        RetryRule(TransientError, RetryAction.RETRY, retry_delay=_RETRY_DELAY, reason="May pass by itself"),
    ]
)
"""Any other error follows the task's ``retries``."""


def build_dags(mirror: Mirror, pool: str = "default_pool") -> list[DAG]:
    """The DAGs ``<mirror>__<what>`` of a mirror: one for each name in :data:`~open_mirroring_airflow.dag_docs.DAGS`.

    ``replicate`` and ``prove`` run by the schedules in the mirror file, ``reconcile`` and ``maintain`` daily. All
    other DAGs run only when a user triggers them. *pool* is an Airflow pool, which must exist; its slots limit how
    many Spark applications run at a time.
    """
    # One at a time of a kind: backfills have their own limit of runs, and ignore the DAG's. The ledger lets one writer
    # through in any case; the others would start Spark for nothing.
    spark = {"mirror": mirror.name, "mirror_file": str(mirror.file), "pool": pool, "max_active_tis_per_dag": 1}
    with_load = [table.source for table in mirror.tables if table.initial_load is not None]
    loadable = _sources(mirror) if mirror.has_patterns or not with_load else with_load
    params = params_of(operations.INITIAL_LOAD, loadable)

    dag = partial(_job, mirror, spark)
    with _dag(mirror, "decide", params=decision_params(_sources(mirror, histories=True))) as decide:
        DecideOperator(task_id="decide", mirror_file=str(mirror.file))
    return [
        dag("initial_load", PublishingOperator, "load", params=params),
        _replicate(mirror, spark),
        dag("reconcile", DeepCheckOperator, "deep_check", cron=_DEEP_CHECK, leaf=False),
        decide,
        dag("reload_table", ReloadOperator, "reload", approval=dag_docs.RELOAD_APPROVAL),
        dag("repair", ApprovedOperator, "repair", approval=dag_docs.REPAIR_APPROVAL),
        dag("replay_dead_letters", OpenMirroringSparkOperator, "replay", publishes=True),
        # Without a schedule, by whatever triggers it: only its owner knows when all rows of the source may be read.
        dag("prove", ProveOperator, "prove", cron=mirror.prove.schedule, leaf=False),
        dag("correct_table", CorrectOperator, "correct", approval=dag_docs.CORRECTION_APPROVAL, publishes=True),
        dag("maintain", OpenMirroringSparkOperator, "maintain", cron=_MAINTENANCE, leaf=False),
    ]


def _replicate(mirror: Mirror, spark: dict[str, Any]) -> DAG:
    """Extract ∥ gate → publish → reconcile."""
    with _dag(mirror, "replicate", mirror.cron, deadline=_deadline(mirror)) as dag:
        extract = ExtractOperator(task_id="extract", job="extract_changes", **spark)
        gate = GateSensor(task_id="gate", mirror_file=str(mirror.file))
        publish = PublishingOperator(
            task_id="publish",
            job="publish_changes",
            gate_task_id=gate.task_id,
            extract_task_id=extract.task_id,
            # What the log has is published, also when this run could not read more.
            trigger_rule=TriggerRule.ALL_DONE,
            **spark,
        )
        [extract, gate] >> publish >> _leaf(mirror)
    return dag


def _job(
    mirror: Mirror,
    spark: dict[str, Any],
    what: str,
    kind: type[OpenMirroringSparkOperator],
    task_id: str,
    *,
    approval: tuple[str, str] | None = None,
    publishes: bool = False,
    leaf: bool = True,
    **more: Any,
) -> DAG:
    """Approve, if need be → the operation's job → publish what it logged → reconcile."""
    _, operation = dag_docs.DAGS[what]
    assert operation is not None
    with _dag(mirror, what, **more) as dag:
        tasks: list[BaseOperator] = []
        if approval is not None:
            tasks.append(_approval(mirror, *approval))
        approved = {"approval_task_id": tasks[0].task_id} if tasks else {}
        tasks.append(kind(task_id=task_id, job=operation.job, **approved, **spark))
        if publishes:
            tasks.append(PublishingOperator(task_id="publish", job="publish_changes", **spark))
        if leaf:
            tasks.append(_leaf(mirror))
        chain(*tasks)
    return dag


def _deadline(mirror: Mirror) -> DeadlineAlert | None:
    minutes = mirror.alerts.deadline_minutes
    if minutes is None:
        return None
    message = {
        "mirror": mirror.name,
        "event": "overdue",
        "connection": mirror.alerts.connection,
        "about": f"a run of {mirror.name}__replicate is not done {minutes} minutes after it was queued",
    }
    # From being queued on: the logical date of a run by hand or of a backfill says nothing of when it should be done.
    reference, interval = DeadlineReference.DAGRUN_QUEUED_AT, timedelta(minutes=minutes)
    return DeadlineAlert(reference=reference, interval=interval, callback=AsyncCallback(MirrorNotifier, kwargs=message))


def _approval(mirror: Mirror, question: str, what: str) -> ApprovalOperator:
    return ApprovalOperator(
        task_id="approve",
        subject=question.replace("$mirror", mirror.name),
        body=f"Reason: {{{{ params.reason }}}}\n\n{what}",
        response_timeout=_APPROVAL,
        # Asked once: whoever let it time out is not asked again.
        retries=0,
        # Rejected is done: nothing after it has to run.
        ignore_downstream_trigger_rules=True,
    )


def _leaf(mirror: Mirror) -> ReconcileOperator:
    return ReconcileOperator(task_id="reconcile", mirror_file=str(mirror.file), trigger_rule=TriggerRule.ALL_DONE)


def _dag(mirror: Mirror, what: str, cron: str | None = "", **kwargs: Any) -> DAG:
    """A DAG that runs by *cron* and by hand; None: when it is triggered, empty: only by hand."""
    if cron == "":
        kwargs["allowed_run_types"] = ["manual"]
    # With data intervals, so that a backfill names what it is for; the plain cron timetable gives empty ones.
    schedule: Any = CronDataIntervalTimetable(cron, timezone="UTC") if cron else None
    if what == "replicate" and mirror.on_new_data is not None:
        source = watched_source(mirror, mirror.on_new_data)
        schedule = AssetOrTimeSchedule(timetable=schedule, assets=[source])
    _, operation = dag_docs.DAGS[what]
    if operation is not None:
        histories = any(one.field == TABLE.field and one.is_required for one in operation.fields)
        kwargs.setdefault("params", params_of(operation, _sources(mirror, histories=histories)))
    notifier = MirrorNotifier(mirror.name, "failed", mirror.alerts.connection)
    return DAG(
        dag_id=f"{mirror.name}__{what}",
        description=f"{what.replace('_', ' ').capitalize()} of the mirror {mirror.name}",
        schedule=schedule,
        start_date=_START,
        catchup=False,
        max_active_runs=1,
        tags=[TAG, mirror.name],
        default_args={
            "owner": _OWNER,
            "retries": RETRIES,
            "retry_delay": _RETRY_DELAY,
            "retry_policy": _RETRYING,
            "on_failure_callback": notifier,
        },
        doc_md=dag_docs.text(what, mirror.name, gate_minutes=mirror.gate.timeout_minutes),
        **kwargs,
    )


def _sources(mirror: Mirror, *, histories: bool = False) -> list[str] | None:
    """The tables to choose from; None where some may join by a pattern, which the file does not tell.

    Where a run is for one table, *histories* are tables to choose, too; where it is for several, they go with theirs.
    """
    chosen = mirror.targets if histories else mirror.tables
    return None if mirror.has_patterns else [table.source for table in chosen]
