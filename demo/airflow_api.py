"""The few calls of Airflow's public REST API that the demo needs (Apache Airflow, *Public API*, ``/api/v2``)."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

from demo.failures import DemoFailed

_SECONDS, _TRIES = 60.0, 5
# Never through a proxy: the server is on this machine.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class AirflowApi:
    """A client that logs in when it has to.

    Args:
        address: ``http://host:port``.
        user: user name.
        password: the user's password; it goes nowhere but to ``/auth/token``.
    """

    def __init__(self, address: str, user: str, password: str) -> None:
        self._address = address
        self._login = {"username": user, "password": password}
        self._token: str | None = None

    def health(self) -> dict[str, Any]:
        """The state of each component; empty while Airflow does not answer."""
        try:
            status, answer = self._send("GET", "/api/v2/monitor/health", None)
        except (OSError, HTTPException):
            return {}
        return answer if status == 200 else {}

    def import_errors(self) -> list[str]:
        """What is wrong with DAG files, as text."""
        answer = self._call("GET", "/importErrors")
        return [f"{one['filename']}: {one['stack_trace']}" for one in answer["import_errors"]]

    def dag_ids(self) -> set[str]:
        """The ids of the DAGs that Airflow has parsed."""
        return {dag["dag_id"] for dag in self._call("GET", "/dags?limit=100")["dags"]}

    def unpause(self, dag_id: str) -> None:
        """Let runs of this DAG start."""
        self._call("PATCH", f"/dags/{quote(dag_id)}?update_mask=is_paused", {"is_paused": False})

    def trigger(self, dag_id: str) -> str:
        """Starts a run; returns its id."""
        answer = self._call("POST", f"/dags/{quote(dag_id)}/dagRuns", {"logical_date": None})
        return str(answer["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """``queued``, ``running``, ``success`` or ``failed``."""
        return str(self._call("GET", _run(dag_id, run_id))["state"])

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """The runs of a DAG, at most the hundred that were made last."""
        answer = self._call("GET", f"/dags/{quote(dag_id)}/dagRuns?limit=100&order_by=-id")
        return list(answer["dag_runs"])

    def backfills(self, dag_id: str) -> list[dict[str, Any]]:
        """The backfills of a DAG; one that is done has ``completed_at``."""
        return list(self._call("GET", f"/backfills?dag_id={quote(dag_id)}")["backfills"])

    def tasks(self, dag_id: str, run_id: str) -> dict[str, dict[str, Any]]:
        """The task instances of a run by task."""
        answer = self._call("GET", f"{_run(dag_id, run_id)}/taskInstances")
        return {task["task_id"]: task for task in answer["task_instances"]}

    def returned(self, dag_id: str, run_id: str, task: str) -> Any:
        """What a task returned; None when it returned nothing."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{quote(task)}/xcomEntries/return_value?deserialize=true"
        answer = self._call("GET", path, none_if_missing=True)
        return None if answer is None else answer["value"]

    def _call(self, method: str, path: str, body: Any = None, *, none_if_missing: bool = False) -> Any:
        path = f"/api/v2{path}"
        if self._token is None:
            self._log_in()
        status, answer = self._patiently(method, path, body)
        if status == 401:  # a token has a time limit
            self._log_in()
            status, answer = self._patiently(method, path, body)
        if status == 404 and none_if_missing:
            return None
        if status >= 300:
            raise DemoFailed(f"Airflow answered {status} to {method} {path}: {answer}")
        return answer

    def _log_in(self) -> None:
        status, answer = self._patiently("POST", "/auth/token", self._login)
        if status != 201:
            raise DemoFailed(f"Airflow refused the login with {status}")
        self._token = answer["access_token"]

    def _patiently(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Send; a question is asked again when a busy server gives no answer, an order is not."""
        tries = _TRIES if method == "GET" else 1
        while True:
            tries -= 1
            try:
                return self._send(method, path, body)
            except (OSError, HTTPException) as error:
                if not tries:
                    raise DemoFailed(f"Airflow did not answer {method} {path}: {error}") from error

    def _send(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {self._token}"} if self._token else {}
        )
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._address}{path}", content, headers, method=method)
        try:
            with _DIRECT.open(request, timeout=_SECONDS) as response:
                status, text = response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read()
        try:
            return status, json.loads(text or b"null")
        except ValueError:
            return status, text.decode(errors="replace")


def _run(dag_id: str, run_id: str) -> str:
    return f"/dags/{quote(dag_id)}/dagRuns/{quote(run_id, safe='')}"
