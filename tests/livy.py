"""A stand-in for Fabric's Livy API: as strict as its public description, and what is submitted really runs.

A batch is a process of its own, a session is one that is kept. Neither has anything of the environment of who submits.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from tests.quick_java import java_options

ROOT = Path(__file__).resolve().parent.parent
WORKSPACE, LAKEHOUSE, ENVIRONMENT = (f"{digit * 8}-1111-4111-8111-{digit * 12}" for digit in "abc")
FILE = f"abfss://{WORKSPACE}@onelake.dfs.fabric.microsoft.com/{LAKEHOUSE}/Files/livy_job.py"
VAULT_SECRET = "https://shop.vault.azure.net/secrets/job-key"
CLIENT, SECRET, TOKEN = "client-1", "canary-secret-7f3a", "canary-token-5b1c"
_SESSION_FIELDS = {"name": str, "conf": dict, "tags": dict, "driverMemory": str, "executorMemory": str}
_BATCH_FIELDS = {**_SESSION_FIELDS, "file": str, "args": list}
_PREFIX = f"/v1/workspaces/{WORKSPACE}/lakehouses/{LAKEHOUSE}/livyapi/versions/2023-12-01"
_SHELL = """
import json, os, sys, traceback
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
if os.environ["LIVY_SPARK"]:
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.getOrCreate()
scope = {}
for line in sys.stdin:
    try:
        exec(json.loads(line), scope)
        output = {"status": "ok", "data": {"text/plain": ""}}
    except BaseException as error:
        traceback.print_exc()
        output = {"status": "error", "ename": type(error).__name__, "evalue": str(error), "traceback": []}
    print(json.dumps(output), file=answers, flush=True)
"""
_NOTEBOOK_UTILS = """
from pathlib import Path
class credentials:
    @staticmethod
    def getSecret(vault, name):
        assert vault == "https://shop.vault.azure.net/", vault
        return Path(__file__).with_name(name).read_text()
"""


class _Dropped(Exception):
    """The connection ends without an answer."""


class _Refused(Exception):
    def __init__(self, status: int, code: str) -> None:
        self.status, self.code = status, code


class _Run:
    """A batch, or a session with its statements."""

    def __init__(self, request: Mapping[str, Any], command: list[str], environment: Mapping[str, str], log: Path):
        self.id, self.request, self.log = str(uuid4()), request, log
        self.is_cancelled, self.looks = False, 0
        self.statements: list[dict[str, Any]] = []
        self._waiting: queue.Queue[dict[str, Any]] = queue.Queue()
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("ab"),
            text=True,
            cwd=log.parent,
            start_new_session=True,
        )

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def run_code(self, code: str) -> dict[str, Any]:
        statement = {"id": len(self.statements), "code": code, "state": "waiting", "output": None}
        self.statements.append(statement)
        self._waiting.put(statement)
        if len(self.statements) == 1:
            threading.Thread(target=self._work, daemon=True).start()
        return statement

    def _work(self) -> None:
        while True:
            statement = self._waiting.get()
            if statement["state"] != "waiting":
                continue
            statement["state"] = "running"
            try:
                self.process.stdin.write(json.dumps(statement["code"]) + "\n")
                self.process.stdin.flush()
                statement["output"] = json.loads(self.process.stdout.readline())
            except (OSError, ValueError):
                return  # the session died, and its statement stays as it was
            statement["state"] = "cancelled" if statement["state"] == "cancelling" else "available"

    def cancel_statement(self, statement: dict[str, Any]) -> None:
        if statement["state"] == "running":
            statement["state"] = "cancelling"
            os.kill(self.process.pid, signal.SIGINT)

    def described(self, is_batch: bool) -> dict[str, Any]:
        """As a single one is shown: at first there is no state but that of Fabric's own queue."""
        self.looks += 1
        code = self.process.poll()
        found: dict[str, Any] = {"id": self.id, "name": self.request["name"], "artifactId": LAKEHOUSE}
        if self.is_cancelled:
            return {**found, "state": "killed", "result": "Cancelled", "cancellationReason": "User cancelled"}
        if code is None and self.looks == 1:
            where = "fabricBatchStateInfo" if is_batch else "fabricSessionStateInfo"
            return {**found, "state": None, "result": "Uncertain", where: {"state": "queued"}}
        if code is None:
            busy = any(one["state"] in ("running", "cancelling") for one in self.statements)
            return {**found, "state": "running" if is_batch else "busy" if busy else "idle", "result": "Uncertain"}
        if code == 0 and is_batch:
            return {**found, "state": "success", "result": "Succeeded"}
        reason = [{"message": f"the driver ended with {code}", "errorCode": "Spark_User_Error", "source": "User"}]
        return {**found, "state": "dead", "result": "Failed", "errorInfo": reason}

    def listed(self, is_batch: bool) -> dict[str, Any]:
        looks, found = self.looks, self.described(is_batch)
        self.looks = looks
        over = found["state"] in ("killed", "success", "dead")
        states = {"schedulerState": "Ended" if over else "Scheduled", "livyState": found["state"]}
        return {"id": self.id, "name": found["name"], "result": found["result"], **states}


class LivyStub:
    """The API, with what ran in it. *faults* maps ``METHOD /path`` to what happens to its next calls, in order:

    a status, ``never`` (not carried out, and no answer), ``lost`` (carried out, and no answer) or ``slow`` (in two
    seconds).
    """

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.library = folder, folder / "library"
        self.library.mkdir(parents=True)
        (self.library / "notebookutils.py").write_text(_NOTEBOOK_UTILS)
        (self.library / "job-key").write_text(key)
        self.batches: dict[str, _Run] = {}
        self.sessions: dict[str, _Run] = {}
        self.faults: dict[str, list[str | int]] = {}
        self.bodies: list[str] = []
        self.url = ""
        self.spark_options = ""

    def start_spark(self) -> None:
        """Sessions have Spark from their start, and all of it starts quickly."""
        self.spark_options = java_options()

    def replace_job(self, body: str) -> None:
        """The jobs there do this instead, as the body of ``main(argv)``."""
        package = self.library / "spark_jobs"
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        (package / "sealed_job.py").write_text(
            f"import sys, time\n\n\ndef main(argv=None):\n    argv = argv or sys.argv[1:]\n{lines}"
        )

    def connection(self, mode: str = "batch", **extra: Any) -> str:
        addresses = {"fabric_endpoint": self.url, "authority": self.url, "timeout_seconds": 5}
        at = {"workspace": WORKSPACE, "lakehouse": LAKEHOUSE, "environment": ENVIRONMENT, "mode": mode, "file": FILE}
        key = {"job-key": "job_key", "job-key-file": VAULT_SECRET}
        login = {"conn_type": "open_mirroring_livy", "login": CLIENT, "password": SECRET}
        return json.dumps({**login, "extra": {"tenant_id": "tenant-1", **addresses, **at, **key, **extra}})

    def logs(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def answer(self, method: str, address: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        if address == "/tenant-1/oauth2/v2.0/token":
            asked = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            if (asked["client_id"], asked["client_secret"]) != (CLIENT, SECRET):
                raise _Refused(401, "invalid_client")
            assert asked["scope"] == "https://api.fabric.microsoft.com/.default"
            return 200, {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            raise _Refused(401, "TokenInvalid")
        parts = urlsplit(address)
        if not parts.path.startswith(_PREFIX):
            raise _Refused(404, "EntityNotFound")
        path = parts.path.removeprefix(_PREFIX)
        faults = self.faults.get(f"{method} {re.sub('/[0-9a-f-]{36}', '/ID', path)}", [])
        fault = faults.pop(0) if faults else None
        if isinstance(fault, int):
            raise _Refused(fault, "Refused")
        if fault == "never":
            raise _Dropped
        if fault == "slow":
            time.sleep(2)
        found = self._routed(method, path, parse_qs(parts.query), self._json(method, headers, body))
        if fault == "lost":
            raise _Dropped
        return found

    def _json(self, method: str, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
        if method != "POST" or not body:
            return {}
        if headers.get("Content-Type") != "application/json":
            raise _Refused(415, "UnsupportedMediaType")
        self.bodies.append(body.decode())
        return dict(json.loads(body))

    def _routed(self, method: str, path: str, query: Mapping[str, list[str]], body: dict[str, Any]) -> tuple[int, Any]:
        names = path.strip("/").split("/")
        runs = {"batches": self.batches, "sessions": self.sessions}.get(names[0])
        if runs is None:
            raise _Refused(404, "EntityNotFound")
        is_batch = names[0] == "batches"
        if len(names) == 1 and method == "POST":
            run = self._started(is_batch, body)
            runs[run.id] = run
            return 202, run.described(is_batch)
        if len(names) == 1 and method == "GET":
            skip, top = int(query.get("$skip", ["0"])[0]), int(query.get("$top", ["2"])[0])
            page = list(runs.values())[skip : skip + min(top, 2)]
            return 200, {"items": [one.listed(is_batch) for one in page], "totalCountOfMatchedItems": len(runs)}
        if names[1] not in runs:
            raise _Refused(404, "SessionNotFound")
        run = runs[names[1]]
        if len(names) == 2 and method == "GET":
            return 200, run.described(is_batch)
        if len(names) == 2 and method == "DELETE":
            run.is_cancelled = run.process.poll() is None or run.is_cancelled
            run.end()
            return 200, None
        if is_batch or names[2] != "statements" or run.process.poll() is not None:
            raise _Refused(404, "SessionNotFound")
        if len(names) == 3 and method == "POST":
            if body.keys() != {"code", "kind"} or body["kind"] != "pyspark":
                raise _Refused(400, "InvalidRequest")
            return 200, dict(run.run_code(body["code"]))
        if len(names) == 3:
            return 200, {"statements": run.statements, "total_statements": len(run.statements)}
        statement = run.statements[int(names[3])]
        if len(names) == 5 and names[4] == "cancel" and method == "POST":
            run.cancel_statement(statement)
            return 200, {"msg": "canceled"}
        return 200, dict(statement)

    def _started(self, is_batch: bool, body: dict[str, Any]) -> _Run:
        fields = _BATCH_FIELDS if is_batch else _SESSION_FIELDS
        sound = body.keys() <= fields.keys() and all(isinstance(body[name], fields[name]) for name in body)
        texts = [*body.get("conf", {}).values(), *body.get("args", ())]
        if not sound or not all(isinstance(text, str) for text in texts) or "name" not in body:
            raise _Refused(400, "InvalidRequest")
        if is_batch and body.get("file") != FILE:
            raise _Refused(400, "FileNotFound")
        assert json.loads(body["conf"]["spark.fabric.environmentDetails"]) == {"id": ENVIRONMENT}
        program = [str(ROOT / "examples/fabric/livy_job.py"), *body["args"]] if is_batch else ["-c", _SHELL]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": f"{self.library}:{ROOT}",
            "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false --driver-memory 512m pyspark-shell",
            "SPARK_SUBMIT_OPTS": self.spark_options,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "LIVY_SPARK": self.spark_options,
        }
        log = self.folder / f"{len(self.batches) + len(self.sessions)}.log"
        return _Run(body, [sys.executable, "-u", *program], environment, log)


def _handler(answer: Callable[..., tuple[int, Any]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                status, document = answer(self.command, self.path, self.headers, body)
            except _Dropped:
                self.close_connection = True
                return
            except _Refused as refused:
                status, document = refused.status, {"errorCode": refused.code, "message": "Refused."}
            content = b"" if document is None else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = _do

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@contextmanager
def running_livy(folder: Path, key: str) -> Iterator[LivyStub]:
    """The API on a free port of this machine; what runs in it ends with it."""
    stub = LivyStub(folder, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(stub.answer))
    stub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        for run in [*stub.batches.values(), *stub.sessions.values()]:
            run.end()
        server.shutdown()
        server.server_close()
