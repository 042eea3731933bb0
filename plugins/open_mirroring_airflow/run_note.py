"""Writes the outcome of a run into the run's note, which Airflow shows in its list of runs.

A task cannot write a note in Airflow 3. So each task stores its lines as an XCom, and when the run ends, a listener in
the scheduler writes these lines into the notes of task and run. Airflow's list shows only the first line of a note, so
the first line is the outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from open_mirroring.errors import MirroringError

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance

TAG = "open-mirroring"
"""The tag of every DAG of a mirror."""

FAILED = "Failed: "
"""How the note of a failed task or run begins."""

_KEY = "note"
_LONGEST = 1000  # characters: what Airflow's column holds
_RED = ("failed", "upstream_failed")


def noted(execute: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates an operator's ``execute``: the lines in ``self.said`` become the task's note, even if the task fails.

    An error becomes the first line. The lines are stored before the task fails, because the run may end at that
    moment. Airflow's users see the note, so an error from outside the product is shown only by its type.
    """

    @wraps(execute)
    def run(self: Any, context: Context, *arguments: Any, **named: Any) -> Any:
        self.said = []
        try:
            return execute(self, context, *arguments, **named)
        except AirflowSkipException as skipped:
            self.said.insert(0, str(skipped))
            raise
        except Exception as error:
            what = str(error) if isinstance(error, MirroringError) else f"{type(error).__name__}; see the task's log"
            if not (self.said and self.said[0].startswith(FAILED)):
                self.said.insert(0, FAILED + what)
            raise
        finally:
            if self.said and "ti" in context:
                context["ti"].xcom_push(key=_KEY, value="\n".join(self.said))

    return run


class RunNotes:
    """The Airflow listener that writes notes when runs end.

    The scheduler logs an error of this listener; the state of the run does not change.
    """

    @hookimpl
    def on_dag_run_success(self, dag_run: DagRun) -> None:
        """Writes the notes of a run that succeeded."""
        _write_notes(dag_run)

    @hookimpl
    def on_dag_run_failed(self, dag_run: DagRun) -> None:
        """Writes the notes of a run that failed."""
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
    # Failed tasks first; of these, and of the others, the last one looked at everything. A note is cut off at its end.
    tasks = run.get_task_instances(session=session)
    tasks.sort(key=lambda task: (task.state in _RED, task.end_date.timestamp() if task.end_date else 0.0), reverse=True)
    lines = []
    for task in tasks:
        # A task that did not run may have left lines before the run was cleared.
        text = "" if task.state == "upstream_failed" else texts.get((task.task_id, task.map_index), "")
        _write(task, text)
        lines += [text] if text else []
    if run.state == "failed" and not (lines and lines[0].startswith(FAILED)):
        red = ", ".join(sorted({task.task_id for task in tasks if task.state in _RED})) or "the run"
        lines.insert(0, f"{FAILED}{red} ended without a message: killed, timed out, or marked as failed. See its log.")
    _write(run, "\n".join(lines))


def _write(noted: DagRun | TaskInstance, text: str) -> None:
    kept = noted.dag_run_note if hasattr(noted, "dag_run_note") else noted.task_instance_note
    # What a user wrote is never replaced; what an earlier attempt of the run left is.
    if (text and kept is None) or (kept is not None and kept.user_id is None):
        noted.note = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
