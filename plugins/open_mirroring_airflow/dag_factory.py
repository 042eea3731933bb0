"""Builds the DAGs of a mirror. They depend on its file alone, so every parse gives the same DAGs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import (  # type: ignore[attr-defined]  # Airflow's stub leaves out what is for deadlines
    DAG,
    AsyncCallback,
    CronDataIntervalTimetable,
    DeadlineAlert,
    DeadlineReference,
    TriggerRule,
)

from open_mirroring.config import Mirror
from open_mirroring.operate import operations
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
from open_mirroring_airflow.retry_policy import retrying
from open_mirroring_airflow.run_note import TAG
from open_mirroring_airflow.run_params import decision_params, params_of
from open_mirroring_airflow.sensors import GateSensor
from open_mirroring_airflow.verdict import ReconcileOperator

_START = datetime(2020, 1, 1, tzinfo=UTC)
"""Before anything there may be to backfill; with ``catchup=False`` nothing runs because of it."""
_DEEP_CHECK = "30 2 * * *"
_APPROVAL = timedelta(days=1)
"""How long a reset waits for its approval; without an answer the run fails."""
_MAINTENANCE = "30 3 * * *"
_OWNER = "open-mirroring"


def build_dags(mirror: Mirror, pool: str = "default_pool") -> list[DAG]:
    """The DAGs ``<mirror>__<what>``: one of each in :data:`~open_mirroring_airflow.dag_docs.DAGS`.

    ``replicate`` runs by the mirror's schedule, ``reconcile`` and ``maintain`` daily, the others by hand.

    Args:
        mirror: the mirror.
        pool: the pool of Airflow whose slots limit how many Spark applications run at a time; it must exist.
    """
    spark = _spark(mirror, pool)
    builds = (
        _initial_load,
        _replicate,
        _reconcile,
        _decide,
        _reload_table,
        _repair,
        _replay_dead_letters,
        _prove,
        _correct_table,
        _maintain,
    )
    return [build(mirror, spark) for build in builds]


def _replicate(mirror: Mirror, spark: dict[str, Any]) -> DAG:
    """Extract ∥ gate → publish → reconcile."""
    with _dag(mirror, "replicate", mirror.schedule, deadline=_deadline(mirror)) as dag:
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


def _initial_load(mirror: Mirror, spark: dict[str, Any]) -> DAG:
    with_load = [table.source for table in mirror.tables if table.initial_load is not None]
    choices = _sources(mirror) if mirror.has_patterns or not with_load else with_load
    with _dag(mirror, "initial_load", params=params_of(operations.INITIAL_LOAD, choices)) as dag:
        load = PublishingOperator(task_id="load", job=operations.INITIAL_LOAD.job, **spark)
        load >> _leaf(mirror)
    return dag


def _reconcile(mirror: Mirror, spark: dict[str, Any]) -> DAG:
    with _dag(mirror, "reconcile", _DEEP_CHECK) as dag:
        DeepCheckOperator(task_id="deep_check", job=operations.RECONCILE.job, **spark)
    return dag


def _reload_table(mirror: Mirror, spark: dict[str, Any]) -> DAG:
    """Approve → reload → reconcile."""
    with _dag(mirror, "reload_table") as dag:
        question = f"Drop {{{{ params.table }}}} of the mirror {mirror.name} at the target and build it from scratch?"
        approve = _approval(question, dag_docs.RELOAD_APPROVAL)
        reload = ReloadOperator(task_id="reload", job=operations.RELOAD.job, approval_task_id=approve.task_id, **spark)
        approve >> reload >> _leaf(mirror)
    return dag


def _repair(mirror: Mirror, spark: dict[str, Any]) -> DAG:
    """Approve → repair → reconcile."""
    with _dag(mirror, "repair") as dag:
        lost = "number {{ params.number }} of {{ params.table }}"
        approve = _approval(f"Publish {lost} of the mirror {mirror.name} again?", dag_docs.REPAIR_APPROVAL)
        repair = ApprovedOperator(
            task_id="repair", job=operations.REPAIR.job, approval_task_id=approve.task_id, **spark
        )
        approve >> repair >> _leaf(mirror)
    return dag


def _decide(mirror: Mirror, spark: dict[str, Any]) -> DAG:
    with _dag(mirror, "decide", params=decision_params(_sources(mirror))) as dag:
        DecideOperator(task_id="decide", mirror_file=str(mirror.file))
    return dag


def _replay_dead_letters(mirror: Mirror, spark: dict[str, Any]) -> DAG:
    with _dag(mirror, "replay_dead_letters") as dag:
        replay = OpenMirroringSparkOperator(task_id="replay", job=operations.REPLAY.job, **spark)
        publish = PublishingOperator(task_id="publish", job="publish_changes", **spark)
        replay >> publish >> _leaf(mirror)
    return dag


def _prove(mirror: Mirror, spark: dict[str, Any]) -> DAG:
    # By hand, or by whoever triggers it: it reads all rows of the source, and only its owner knows when that may be.
    with _dag(mirror, "prove", None) as dag:
        ProveOperator(task_id="prove", job=operations.PROVE.job, **spark)
    return dag


def _correct_table(mirror: Mirror, spark: dict[str, Any]) -> DAG:
    """Approve → correct → publish → reconcile."""
    with _dag(mirror, "correct_table") as dag:
        found = f"the proof {{{{ params.proof }}}} of the mirror {mirror.name} found to differ"
        approve = _approval(f"Publish the rows that {found}?", dag_docs.CORRECTION_APPROVAL)
        correct = CorrectOperator(
            task_id="correct", job=operations.CORRECT.job, approval_task_id=approve.task_id, **spark
        )
        publish = PublishingOperator(task_id="publish", job="publish_changes", **spark)
        approve >> correct >> publish >> _leaf(mirror)
    return dag


def _maintain(mirror: Mirror, spark: dict[str, Any]) -> DAG:
    with _dag(mirror, "maintain", _MAINTENANCE) as dag:
        OpenMirroringSparkOperator(task_id="maintain", job=operations.MAINTAIN.job, **spark)
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


def _approval(subject: str, what: str) -> ApprovalOperator:
    return ApprovalOperator(
        task_id="approve",
        subject=subject,
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
    """A DAG that runs by *cron* and by hand; None: when it is triggered, empty: only by hand.

    Its form is that of its operation, unless other params are given.
    """
    if cron == "":
        kwargs["allowed_run_types"] = ["manual"]
    _, operation = dag_docs.DAGS[what]
    if operation is not None:
        kwargs.setdefault("params", params_of(operation, _sources(mirror)))
    notifier = MirrorNotifier(mirror.name, "failed", mirror.alerts.connection)
    return DAG(
        dag_id=f"{mirror.name}__{what}",
        description=f"{what.replace('_', ' ').capitalize()} of the mirror {mirror.name}",
        # With data intervals, so that a backfill names what it is for; the plain cron timetable gives empty ones.
        schedule=CronDataIntervalTimetable(cron, timezone="UTC") if cron else None,
        start_date=_START,
        catchup=False,
        max_active_runs=1,
        tags=[TAG, mirror.name],
        default_args={"owner": _OWNER, **retrying(), "on_failure_callback": notifier},
        doc_md=dag_docs.text(what, mirror.name, gate_minutes=mirror.gate.timeout_minutes),
        **kwargs,
    )


def _spark(mirror: Mirror, pool: str) -> dict[str, Any]:
    """The arguments of every task that starts Spark."""
    # One at a time of a kind: backfills have their own limit of runs, and ignore the DAG's. The ledger lets one writer
    # through in any case; the others would start Spark to be told so.
    return {"mirror": mirror.name, "mirror_file": str(mirror.file), "pool": pool, "max_active_tis_per_dag": 1}


def _sources(mirror: Mirror) -> list[str] | None:
    """The tables to choose from; None where some may join by a pattern, which the file does not tell."""
    return None if mirror.has_patterns else [table.source for table in mirror.tables]
