"""Who is reported what: a failed task, a run that is not done in time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DeadlineReference
from airflow.serialization.serialized_objects import DagSerialization

from open_mirroring.config import load_mirror
from open_mirroring.errors import TerminalError
from open_mirroring_airflow.dag_factory import build_dags
from open_mirroring_airflow.notifier import MirrorNotifier
from tests.dags.conftest import MIRROR

pytestmark = pytest.mark.airflow

SECRET = "canary-51c2"
CONTEXT: Any = {
    "dag_run": SimpleNamespace(run_id="scheduled__9"),
    "dag": SimpleNamespace(dag_id="shop__replicate"),
    "exception": TerminalError(
        "TABLES_STOPPED", "tables stopped: dbo.orders: FILE_MISSING", next_step="move the file back"
    ),
}


class Receiver:
    """An HTTP service that keeps what is posted to it."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.messages.append(json.loads(content))
                receiver.authorizations.append(self.headers.get("Authorization"))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/alerts"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    connection = {"conn_type": "http", "host": made.address, "password": SECRET}
    monkeypatch.setenv("AIRFLOW_CONN_ALERTS", json.dumps(connection))
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def test_a_failure_is_posted_with_its_code_and_next_step(receiver: Receiver) -> None:
    MirrorNotifier("shop", connection="alerts").notify(CONTEXT)
    (message,) = receiver.messages
    assert {name: message[name] for name in ("mirror", "event", "dag", "run")} == {
        "mirror": "shop",
        "event": "failed",
        "dag": "shop__replicate",
        "run": "scheduled__9",
    }
    assert "TABLES_STOPPED" in message["text"] and "Next step: move the file back" in message["text"]
    assert receiver.authorizations == [f"Bearer {SECRET}"]


def test_of_an_error_that_is_not_ours_only_its_kind_is_reported(receiver: Receiver) -> None:
    MirrorNotifier("shop", connection="alerts").notify(CONTEXT | {"exception": RuntimeError(f"password={SECRET}")})
    assert SECRET not in json.dumps(receiver.messages) and "RuntimeError" in receiver.messages[0]["text"]


async def _awaited(notifier: MirrorNotifier) -> None:
    await notifier


def test_a_missed_deadline_is_reported_without_a_context(receiver: Receiver, metadata_database: None) -> None:
    import asyncio

    notifier = MirrorNotifier("shop", "overdue", None, "a run is not done 90 minutes after it was queued")
    asyncio.run(_awaited(notifier))
    assert notifier.message({})["text"] == "Mirror shop: overdue: a run is not done 90 minutes after it was queued"
    assert receiver.messages == [], "without a connection it stands in the log"


def test_every_task_shows_and_only_replicate_has_a_deadline(write_mirror: Callable[..., Path]) -> None:
    text = MIRROR + "alerts: {connection: alerts, deadline_minutes: 90}\n"
    dags = {dag.dag_id: dag for dag in build_dags(load_mirror(write_mirror(text)))}
    for dag in dags.values():
        for task in dag.tasks:
            callbacks = task.on_failure_callback
            assert [one.connection for one in callbacks] == ["alerts"]
        DagSerialization.from_dict(DagSerialization.to_dict(dag))
    (deadline,) = dags["shop__replicate"].deadline
    assert isinstance(deadline.reference, type(DeadlineReference.DAGRUN_QUEUED_AT))
    assert deadline.interval.total_seconds() == 90 * 60
    assert deadline.callback.path == "open_mirroring_airflow.notifier.MirrorNotifier"
    assert deadline.callback.kwargs["connection"] == "alerts"
    assert [name for name, dag in dags.items() if dag.deadline] == ["shop__replicate"]
