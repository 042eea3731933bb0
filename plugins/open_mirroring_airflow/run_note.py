"""Writes into a run's note what the run came to, so that Airflow's list of runs tells it before a log is opened.

A task cannot write a note in Airflow 3. It leaves its lines as an XCom, and a listener writes them into the notes of
the task and of the run when the run ends: that happens in the scheduler, which may write to Airflow's database.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow.listeners import hookimpl
from airflow.sdk import Context

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance

TAG = "open-mirroring"
"""The tag of every DAG of a mirror."""

_KEY = "note"
_LONGEST = 1000  # characters: what Airflow's column holds


def leave_note(context: Context, lines: Iterable[str]) -> None:
    """Keep what a task has to say until its run ends. The lines repeat no secret: users of Airflow see them."""
    context["ti"].xcom_push(key=_KEY, value="\n".join(lines))


class RunNotes:
    """Airflow's listener. An error in it is logged by the scheduler and changes no run."""

    @hookimpl
    def on_dag_run_success(self, dag_run: DagRun) -> None:
        """Write the notes of a run that succeeded."""
        _write_notes(dag_run)

    @hookimpl
    def on_dag_run_failed(self, dag_run: DagRun) -> None:
        """Write the notes of a run that failed."""
        _write_notes(dag_run)


def _write_notes(run: DagRun) -> None:
    from airflow.models.xcom import XComModel
    from sqlalchemy.orm import object_session

    # In a run of `dags test` the listener gets a copy that belongs to no session: nothing would keep its note.
    session = object_session(run)
    if session is None or run.dag is None or TAG not in run.dag.tags:
        return
    left = XComModel.get_many(run_id=run.run_id, dag_ids=run.dag_id, key=_KEY)
    texts = {(one.task_id, one.map_index): str(XComModel.deserialize_value(one)) for one in session.scalars(left)}
    told = [task for task in run.get_task_instances(session=session) if (task.task_id, task.map_index) in texts]
    # The last task looked at everything, so its lines come first: what does not fit is cut off at the end.
    told.sort(key=lambda task: task.end_date.timestamp() if task.end_date else 0.0, reverse=True)
    for task in told:
        _write(task, texts[task.task_id, task.map_index])
    if told:
        _write(run, "\n".join(texts[task.task_id, task.map_index] for task in told))


def _write(noted: DagRun | TaskInstance, text: str) -> None:
    kept = noted.dag_run_note if hasattr(noted, "dag_run_note") else noted.task_instance_note
    # What a user wrote is never replaced; what an earlier attempt of the run left is.
    if kept is None or kept.user_id is None:
        noted.note = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
