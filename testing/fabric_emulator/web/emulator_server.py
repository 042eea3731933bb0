"""The complete emulator on one port: the address of all endpoints, and the place where faults apply."""

from __future__ import annotations

import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from fabric_emulator.failures import EmulatorError
from fabric_emulator.service import MirroringService
from fabric_emulator.settings import Settings
from fabric_emulator.table_mirror import Applied
from fabric_emulator.web.control import ControlEndpoint
from fabric_emulator.web.databases import DATABASE, WORKSPACE, Databases, MirroredDatabase, generic_definition
from fabric_emulator.web.dfs import DfsEndpoint
from fabric_emulator.web.fabric_rest import FabricRestEndpoint, Operations
from fabric_emulator.web.faults import Fault, Faults
from fabric_emulator.web.messages import (
    Answer,
    ApiError,
    ConnectionDropped,
    Request,
    Response,
    fabric_error,
    storage_error,
)
from fabric_emulator.web.server import HttpServer, server_context
from fabric_emulator.web.tokens import FABRIC, STORAGE, TokenIssuer, expired


class _Endpoint(NamedTuple):
    verb: str
    answer: Answer
    audience: str | None
    refuse: Callable[[ApiError, Request], Response]


class Gateway:
    """Routes a request to its endpoint by its first names; by default to the store.

    ====================================  ===============================================
    ``/<tenant>/oauth2/…``, ``…/v2.0/…``  tokens; no token needed
    ``/v1/…``                             the Fabric REST API (R-03: its own audience)
    ``/_emulator/…``                      the emulator itself; no token needed, no faults
    ``/…``                                the store (O-02: the storage audience)
    ====================================  ===============================================
    """

    def __init__(
        self,
        store: DfsEndpoint,
        fabric: FabricRestEndpoint,
        tokens: TokenIssuer,
        control: ControlEndpoint,
        faults: Faults,
    ) -> None:
        self._store = store
        self._fabric = fabric
        self._tokens = tokens
        self._control = control
        self._faults = faults

    def answer(self, request: Request) -> Response:
        """Answer one request.

        Raises:
            ConnectionDropped: there is no answer.
        """
        names = request.names
        if names[:1] == ["_emulator"]:
            return _carried_out(request, self._control.answer, fabric_error)
        if names[1:] == ["v2.0", ".well-known", "openid-configuration"]:
            return self._tokens.describe(request)
        if names[1:2] == ["oauth2"] and names[-1] == "token":
            endpoint = _Endpoint("token", self._tokens.answer, None, fabric_error)
        elif names[:1] == ["v1"]:
            verb = "status" if self._fabric.is_status_call(request) else "database"
            endpoint = _Endpoint(verb, self._fabric.answer, FABRIC, fabric_error)
        else:
            endpoint = _Endpoint(store_verb(request), self._store.answer, STORAGE, storage_error)
        return self._befallen(request, endpoint)

    def _befallen(self, request: Request, endpoint: _Endpoint) -> Response:
        struck = self._faults.strike(endpoint.verb, request.path)
        faults: dict[str, Fault] = {fault.kind: fault for fault in struck}
        time.sleep(self._faults.latency + sum(fault.seconds for fault in struck if fault.kind == "slow"))
        if "dropped_before" in faults:
            raise ConnectionDropped
        if refusal := _refusal(faults, request, endpoint):
            return endpoint.refuse(refusal, request)
        request.faults = frozenset(faults)
        refused = faults["rejected_headers"].headers if "rejected_headers" in faults else ()
        rejected = [name for name in refused if name in request.headers]
        for name in rejected:
            del request.headers[name]

        def carry_out() -> Response:
            return _carried_out(request, lambda asked: self._checked(asked, endpoint), endpoint.refuse)

        def carry_out_later() -> None:
            self._faults.delay(lambda: carry_out().status)

        if "delayed" in faults and "duplicated" not in faults:
            carry_out_later()
            raise ConnectionDropped
        response = carry_out()
        if "duplicated" in faults:
            (carry_out_later if "delayed" in faults else carry_out)()
        if "dropped_after" in faults:
            raise ConnectionDropped
        if "unavailable_after" in faults:
            return endpoint.refuse(_busy(), request)
        if rejected:
            known = response.headers.get("x-ms-rejected-headers")
            response.headers["x-ms-rejected-headers"] = ",".join([*([known] if known else []), *rejected])
        return response

    def _checked(self, request: Request, endpoint: _Endpoint) -> Response:
        if endpoint.audience is not None:
            self._tokens.check(request, endpoint.audience)
        return endpoint.answer(request)


def _carried_out(request: Request, answer: Answer, refuse: Callable[[ApiError, Request], Response]) -> Response:
    try:
        return answer(request)
    except ApiError as error:
        return refuse(error, request)


def _refusal(faults: dict[str, Fault], request: Request, endpoint: _Endpoint) -> ApiError | None:
    if "forbidden" in faults:
        code = "InsufficientPrivileges" if endpoint.audience == FABRIC else "AuthorizationPermissionMismatch"
        return ApiError(403, code, "The caller has not the right to do this.")
    if "throttled" in faults:
        code = "RequestBlocked" if endpoint.audience == FABRIC else "TooManyRequests"
        wait = {"Retry-After": f"{faults['throttled'].seconds:g}"}
        return ApiError(429, code, "Too many requests. Please retry later.", wait)
    if "unavailable_before" in faults:
        return _busy()
    if "token_expired" in faults and endpoint.audience is not None:
        return expired(request, endpoint.audience)
    if "in_use" in faults:
        return ApiError(409, "PathInUse", "The path is in use.")
    return None


def _busy() -> ApiError:
    return ApiError(503, "ServerBusy", "The server is currently unable to receive requests. Please retry.")


def store_verb(request: Request) -> str:
    """The verb of a call of the store, one of :data:`~fabric_emulator.web.faults.VERBS`."""
    match request.method, request.query.get("action"):
        case "PUT", _:
            return "rename" if "x-ms-rename-source" in request.headers else "create"
        case "PATCH", "append" | "flush" as action:
            return str(action)
        case "DELETE", _:
            return "delete"
        case "GET", _:
            lists = request.query.get("resource") == "filesystem" or request.query.get("comp") == "list"
            return "list" if lists else "read"
    return "properties"


class EmulatorServer:
    """An emulator with its own threads, which serves while its context is open.

    Args:
        landing_zone: the folder of ``Files/LandingZone``.
        tables: the folder of ``Tables``, and of the emulator's other data, under ``_…``.
        host: interface to listen at.
        port: 0 selects a free one.
        tls: serve https with a generated certificate, see :attr:`certificate`.
        tls_names: host names in it besides ``localhost``.
        database: display name of the mirrored database that runs from the beginning; None: the Fabric REST API creates
            one.
        clients: secret by client id of those who get tokens; None accepts any.
        seed: of the faults' probabilities.
        poll_every: seconds between polls of the mirroring services; None polls on request only.
        clock: seconds since 1970; :meth:`advance_clock` adds to it.
        watched: if given, it answers each request; it gets the emulator's own way to answer, and the request.

    Attributes:
        faults: the faults, and the count of calls.
        tokens: issues and checks tokens; its ``lifetime`` may be changed.
        store: the DFS endpoint, with its ``delete_page``.
        fabric: the Fabric REST endpoint, with its ``page`` and ``passing_seconds``.
        operations: its long-running operations, with ``polls``.
        databases: the workspace and its databases.
        certificate: in PEM, to be trusted by clients; None without TLS.
    """

    def __init__(
        self,
        landing_zone: Path,
        tables: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: bool = False,
        tls_names: Sequence[str] = (),
        settings: Settings | None = None,
        workspace: str = WORKSPACE,
        database: str | None = DATABASE,
        clients: Mapping[str, str] | None = None,
        seed: int = 0,
        poll_every: float | None = None,
        clock: Callable[[], float] = time.time,
        watched: Callable[[Answer, Request], Response] | None = None,
    ) -> None:
        self._clock = clock
        self._ahead = 0.0
        self._ended = threading.Event()
        self.databases = Databases(workspace, landing_zone, tables, settings or Settings(), self.now)
        if database is not None and not self.databases.all():
            self.databases.create(database, definition=generic_definition())
        self.faults = Faults(seed)
        self.tokens = TokenIssuer(self.now, clients=clients)
        self.store = DfsEndpoint(self.databases)
        self.operations = Operations()
        self.fabric = FabricRestEndpoint(self.databases, self.operations)
        control = ControlEndpoint(
            self.databases, self.faults, lambda: [done._asdict() for done in self.poll()], self.advance_clock
        )
        gateway = Gateway(self.store, self.fabric, self.tokens, control, self.faults)
        context: ssl.SSLContext | None = None
        self.certificate: Path | None = None
        if tls:
            context, self.certificate = server_context(tables / "_tls", tls_names)
        answer = partial(watched, gateway.answer) if watched else gateway.answer
        self._server = HttpServer(host, port, answer, context)
        self._threads = [threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)]
        if poll_every is not None:
            self._threads.append(threading.Thread(target=self._watch, args=(poll_every,), daemon=True))

    def __enter__(self) -> EmulatorServer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._server.shutdown()
        for thread in self._threads:
            thread.join()
        self._server.server_close()
        self.store.close()

    @property
    def url(self) -> str:
        """The base address of the store, the Fabric REST API and the token endpoint."""
        return self._server.url

    @property
    def database(self) -> MirroredDatabase:
        """The only mirrored database.

        Raises:
            ValueError: when there is none, or more than one.
        """
        (database,) = self.databases.all()
        return database

    @property
    def service(self) -> MirroringService:
        """The mirroring service of the only database."""
        return self.database.service

    @property
    def workspace_id(self) -> str:
        """GUID of the workspace."""
        return self.databases.workspace_id

    @property
    def database_id(self) -> str:
        """GUID of the only database."""
        return self.database.identity

    @property
    def landing_zone_path(self) -> str:
        """``<workspace GUID>/<database GUID>/Files/LandingZone``."""
        return f"{self.workspace_id}/{self.database_id}/Files/LandingZone"

    def now(self) -> float:
        """The emulator's time in seconds since 1970."""
        return self._clock() + self._ahead

    def advance_clock(self, seconds: float) -> None:
        """Advance the time of tokens and of every service, for the life of this emulator."""
        self._ahead += seconds

    def poll(self) -> list[Applied]:
        """Let every service poll once."""
        return [done for database in self.databases.all() for done in database.poll()]

    def _watch(self, seconds: float) -> None:
        printed = ""
        while not self._ended.wait(seconds):
            try:
                self.poll()
                now = ""
            except (EmulatorError, ExceptionGroup) as error:  # the next poll tries again; printed once
                now = f"{error}"
                if now != printed:
                    print(now, file=sys.stderr, flush=True)
            printed = now
