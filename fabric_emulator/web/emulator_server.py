"""The whole emulator behind one port."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from fabric_emulator.service import MirroringService
from fabric_emulator.settings import Settings
from fabric_emulator.web.databases import DATABASE, WORKSPACE, Databases, MirroredDatabase
from fabric_emulator.web.dfs import DfsEndpoint
from fabric_emulator.web.faults import Faults
from fabric_emulator.web.messages import ApiError, Request, Response
from fabric_emulator.web.path_store import PathStore
from fabric_emulator.web.server import ConnectionDropped, HttpServer
from fabric_emulator.web.tokens import STORAGE, TokenIssuer, expired


class EmulatorServer:
    """An emulator that serves from a thread while its context is open.

    Args:
        landing_zone: the folder behind ``Files/LandingZone``.
        tables: the folder behind ``Tables``.
        port: 0 takes a free one.
        settings: the switches of the mirroring service.
        workspace: display name of the workspace.
        database: display name of the mirrored database.
        clients: secret by client id of those who get tokens; None takes any.
        seed: of the faults' probabilities.
    """

    def __init__(
        self,
        landing_zone: Path,
        tables: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: Settings | None = None,
        workspace: str = WORKSPACE,
        database: str = DATABASE,
        clients: Mapping[str, str] | None = None,
        seed: int = 0,
    ) -> None:
        self._databases = Databases(workspace)
        self._database = MirroredDatabase(database, Path(landing_zone), Path(tables), settings)
        self._databases.add(self._database)
        self._dfs = DfsEndpoint(self._databases, PathStore())
        self.faults = Faults(seed)
        self.tokens = TokenIssuer(time.time, clients=clients)
        self._server = HttpServer(host, port, self.answer)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> EmulatorServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def service(self) -> MirroringService:
        """The mirroring service of the database."""
        return self._database.service

    @property
    def url(self) -> str:
        """Base of everything: the store, the REST API and the token endpoint."""
        return self._server.url

    @property
    def workspace_id(self) -> str:
        """GUID of the workspace."""
        return self._databases.workspace_id

    @property
    def database_id(self) -> str:
        """GUID of the mirrored database."""
        return self._database.identity

    @property
    def landing_zone_path(self) -> str:
        """``<workspace GUID>/<database GUID>/Files/LandingZone``."""
        return f"{self.workspace_id}/{self.database_id}/Files/LandingZone"

    def answer(self, request: Request) -> Response:
        """Answer a request of any endpoint."""
        names = [name for name in request.path.split("/") if name]
        if len(names) >= 3 and names[1] == "oauth2" and names[-1] == "token":
            return self.tokens.answer(request, names[0])
        verb = _verb(request)
        kinds = {fault.kind: fault for fault in self.faults.strike(verb, request.path)}
        time.sleep(self.faults.latency + sum(fault.seconds for fault in kinds.values() if fault.kind == "slow"))
        if "throttled" in kinds:
            wait = str(int(kinds["throttled"].seconds))
            raise ApiError(429, "TooManyRequests", "Too many requests.", {"Retry-After": wait})
        if "unavailable_before" in kinds:
            raise _busy()
        if "dropped_before" in kinds:
            raise ConnectionDropped
        if "token_expired" in kinds:
            raise expired(request, STORAGE)
        rejected = kinds["rejected_headers"].headers if "rejected_headers" in kinds else ()
        for name in rejected:
            request.headers.pop(name, None)
        self.tokens.check(request, STORAGE)
        response = self._dfs.answer(request)
        if "duplicated" in kinds:
            try:
                self._dfs.answer(request)
            except ApiError:  # nobody gets the answer to the copy
                pass
        if "unavailable_after" in kinds:
            raise _busy()
        if "dropped_after" in kinds:
            raise ConnectionDropped
        if rejected:
            response.headers["x-ms-rejected-headers"] = ",".join(rejected)
        return response


def _busy() -> ApiError:
    return ApiError(503, "ServerBusy", "The server is currently unable to receive requests. Please retry.")


def _verb(request: Request) -> str:
    match request.method, request.query.get("action"):
        case "PUT", _:
            return "rename" if "x-ms-rename-source" in request.headers else "create"
        case "PATCH", ("append" | "flush") as action:
            return action
        case "HEAD", _:
            return "properties"
        case "DELETE", _:
            return "delete"
        case "GET", _:
            return "list" if request.query.get("resource") == "filesystem" else "read"
    return "database"
