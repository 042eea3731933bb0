"""Calls of the Fabric REST API for mirrored databases: create, start, and read the status of database and tables.

One status call serves all tables of the database, because calls are limited per identity (R-04). Public source:
Microsoft Learn, *Fabric REST APIs: MirroredDatabase*, *Long running operations*, *Throttling*; R-01 to R-07.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fabric.target_status import (
    DatabaseStatus,
    TableMirroringStatus,
    database_status,
    error_text,
    table_status,
)
from open_mirroring.remote.entra import FABRIC_AUDIENCE, AuthorizedService, EntraLogin
from open_mirroring.remote.http_service import Answer, HttpService, Request, described

_DEFINITION_PART = "mirroring.json"
_PLAIN_CODE = re.compile(r"[A-Za-z0-9_.]{1,80}")
_OPERATION_SECONDS = 300.0
_ASK_AGAIN_SECONDS = 5.0


class MirroredDatabase(NamedTuple):
    """A mirrored database in Fabric; *id* and *workspace* are the GUIDs of database and workspace."""

    workspace: str
    id: str
    name: str


class FabricCalls:
    """Calls of the Fabric REST API, with access tokens for this API (R-03). No answer is cached.

    Each call raises ``SERVICE_REFUSED`` with the API's own code when the API refuses it, and the errors of
    :class:`~open_mirroring.remote.entra.AuthorizedService`. If a call that changes something raises a TransientError,
    the change may have been carried out nevertheless.
    """

    def __init__(self, endpoint: str, login: EntraLogin, timeout_seconds: float = 60.0) -> None:
        service = HttpService(endpoint, "the Fabric API", timeout_seconds)
        self._service = AuthorizedService(service, login, FABRIC_AUDIENCE)

    def _document(self, answer: Answer, path: str) -> dict[str, Any]:
        self._expect(answer, path)
        found = _json(answer)
        if not isinstance(found, dict):
            raise _not_understood(path)
        return found

    def _expect(self, answer: Answer, path: str) -> None:
        if not 200 <= answer.status < 300:
            raise _refused(answer, path)


class FabricApi(FabricCalls):
    """Client of the Fabric REST API for mirrored databases."""

    def __init__(
        self,
        endpoint: str,
        login: EntraLogin,
        timeout_seconds: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(endpoint, login, timeout_seconds)
        self._sleep = sleep

    def find_workspace(self, name: str) -> str | None:
        """Return the GUID of the workspace *name*; None if the login can see no workspace of this name."""
        for workspace in self._pages("GET", "/v1/workspaces", "value"):
            if workspace.get("displayName") == name:
                return str(workspace["id"])
        return None

    def find_database(self, workspace: str, name: str) -> MirroredDatabase | None:
        """Return the mirrored database with the display name *name*; None if the workspace has none of this name.

        *workspace* is the GUID of the workspace.
        """
        for item in self._pages("GET", _databases(workspace), "value"):
            if item.get("displayName") == name:
                return _database(workspace, item)
        return None

    def get(self, workspace: str, database: str) -> MirroredDatabase | None:
        """Return the mirrored database with the GUID *database*; None if the workspace has no such database."""
        path = f"{_databases(workspace)}/{quote(database, safe='')}"
        answer = self._service.send(Request("GET", path, repeatable=True))
        if answer.status == 404:
            return None
        return _database(workspace, self._document(answer, path))

    def create(
        self, workspace: str, name: str, definition: Mapping[str, Any], description: str = ""
    ) -> MirroredDatabase:
        """Create a mirrored database from its JSON definition. The database is not started (R-06)."""
        path = _databases(workspace)
        payload = base64.b64encode(json.dumps(definition).encode()).decode()
        part = {"path": _DEFINITION_PART, "payload": payload, "payloadType": "InlineBase64"}
        document = {"displayName": name, "description": description, "definition": {"parts": [part]}}
        body = json.dumps(document).encode()
        answer = self._service.send(Request("POST", path, repeatable=False, headers=_JSON, body=body))
        return _database(workspace, self._finished(answer, path))

    def definition(self, database: MirroredDatabase) -> dict[str, Any] | None:
        """Return the JSON definition of a mirrored database; None if the database has no definition (R-06)."""
        path = f"{_path(database)}/getDefinition"
        document = self._finished(self._service.send(Request("POST", path, repeatable=True)), path)
        try:
            for part in document["definition"]["parts"]:
                if part["path"] == _DEFINITION_PART:
                    found = json.loads(base64.b64decode(part["payload"], validate=True))
                    return dict(found)
        except (KeyError, TypeError, ValueError):
            raise _not_understood(path) from None
        return None

    def start(self, database: MirroredDatabase) -> None:
        """Start a database that was never started; its state must be ``Initialized``, which the caller checks (R-07).

        A start of a stopped database rebuilds every table from scratch (F-76).
        """
        path = f"{_path(database)}/startMirroring"
        self._expect(self._service.send(Request("POST", path, repeatable=False)), path)

    def stop(self, database: MirroredDatabase) -> None:
        """Stop a database. A later start of the stopped database rebuilds every table from scratch (F-76)."""
        path = f"{_path(database)}/stopMirroring"
        self._expect(self._service.send(Request("POST", path, repeatable=False)), path)

    def status(self, database: MirroredDatabase) -> DatabaseStatus:
        """Return the status of a mirrored database. The API demands POST for this request (R-01)."""
        path = f"{_path(database)}/getMirroringStatus"
        document = self._document(self._service.send(Request("POST", path, repeatable=True)), path)
        return database_status(document)

    def table_statuses(self, database: MirroredDatabase) -> list[TableMirroringStatus]:
        """Return the status of every table of a mirrored database, read page by page with POST (R-01)."""
        return [
            table_status(entry) for entry in self._pages("POST", f"{_path(database)}/getTablesMirroringStatus", "data")
        ]

    # --- calls ----------------------------------------------------------------------------------------------------

    def _pages(self, method: str, path: str, name: str) -> Iterator[dict[str, Any]]:
        # Follow the continuation token, not the URI: no answer may decide where our token goes.
        query: dict[str, str] = {}
        while True:
            document = self._document(self._service.send(Request(method, path, repeatable=True, query=query)), path)
            entries = document.get(name, [])
            if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
                raise _not_understood(path)
            yield from entries
            token = document.get("continuationToken")
            if not token or token == query.get("continuationToken"):
                return
            query = {"continuationToken": str(token)}

    def _finished(self, answer: Answer, path: str) -> dict[str, Any]:
        """The result of a call that may have become a long-running operation."""
        if answer.status != 202:
            return self._document(answer, path)
        operation = f"/v1/operations/{quote(answer.headers.get('x-ms-operation-id', ''), safe='')}"
        waited = 0.0
        while waited < _OPERATION_SECONDS:
            retry = answer.headers.get("Retry-After", "")
            seconds = float(retry) if retry.isascii() and retry.isdigit() else _ASK_AGAIN_SECONDS
            self._sleep(seconds)
            waited += seconds
            answer = self._service.send(Request("GET", operation, repeatable=True))
            document = self._document(answer, operation)
            if document.get("status") == "Succeeded":
                result = f"{operation}/result"
                return self._document(self._service.send(Request("GET", result, repeatable=True)), result)
            if document.get("status") == "Failed":
                raise _refused(answer, path, error_text(document.get("error")))
        raise TransientError(
            "UNREACHABLE",
            f"an operation of the Fabric API is not done after {waited:.0f} s",
            where=path,
            next_step="call again: what is already done is not done twice",
        )


_JSON = {"Content-Type": "application/json"}


def generic_mirror(
    default_schema: str = "dbo", *, retention_days: int | None = None, change_data_feed: bool | None = None
) -> dict[str, Any]:
    """Return the JSON definition of an open mirrored database (R-05, R-10).

    An argument that is None is left out, so that Fabric uses its own default.
    """
    properties: dict[str, Any] = {"defaultSchema": default_schema, "format": "Delta"}
    chosen = {"retentionInDays": retention_days, "enableDeltaChangeDataFeed": change_data_feed}
    properties |= {name: value for name, value in chosen.items() if value is not None}
    target = {"type": "MountedRelationalDatabase", "typeProperties": properties}
    return {"properties": {"source": {"type": "GenericMirror", "typeProperties": {}}, "target": target}}


def _databases(workspace: str) -> str:
    return f"/v1/workspaces/{quote(workspace, safe='')}/mirroredDatabases"


def _path(database: MirroredDatabase) -> str:
    return f"{_databases(database.workspace)}/{quote(database.id, safe='')}"


def _database(workspace: str, item: Mapping[str, Any]) -> MirroredDatabase:
    try:
        return MirroredDatabase(workspace, str(item["id"]), str(item["displayName"]))
    except KeyError:
        raise _not_understood(_databases(workspace)) from None


def _json(answer: Answer) -> Any:
    try:
        return json.loads(answer.body)
    except ValueError:
        return None


def _refused(answer: Answer, path: str, error: str = "") -> TerminalError:
    document = _json(answer)
    code = str(document.get("errorCode", "")) if isinstance(document, dict) else ""
    said = error or (code if _PLAIN_CODE.fullmatch(code) else "")
    return TerminalError(
        "SERVICE_REFUSED",
        f"the Fabric API refuses: {described(answer)}{', ' + said if said else ''}",
        where=path,
        next_step="look the code up in the documentation of this call; the identity needs Contributor in the "
        "workspace, and the tenant has to let it use Fabric APIs",
    )


def _not_understood(path: str) -> TransientError:
    return TransientError(
        "UNREACHABLE",
        "an answer of the Fabric API cannot be understood",
        where=path,
        next_step="call again; if it stays so, this version is too old for the API",
    )
