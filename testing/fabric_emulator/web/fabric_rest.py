"""The Fabric REST API of mirrored databases, by the specification ``mirroredDatabase`` and Microsoft Learn.

Rules: R-01 the status calls are POST, R-05 the definition, R-06 what a database created by REST lacks, R-07 a start of
a stopped database begins from scratch (F-76). Undocumented error codes are marked *assumed*. Operations may be
long-running (Microsoft Learn, *Long running operations*).
"""

from __future__ import annotations

import base64
import json
import threading
import uuid
from typing import Any

from fabric_emulator.web.databases import Databases, MirroredDatabase, default_schema_in
from fabric_emulator.web.messages import ApiError, Request, Response, json_response


class Operations:
    """Returns results directly, or as a long-running operation: 202, then the operation, then its result."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: dict[str, Any] = {}
        self._running: dict[str, int] = {}
        self.polls: int | None = None
        """How often an operation is ``Running`` before it has ``Succeeded``; None answers with 200 directly."""

    def result(self, request: Request, document: Any) -> Response:
        """The result of a call that may be long-running; None as *document*: no result."""
        if self.polls is None:
            return Response(200) if document is None else json_response(200, document)
        identity = str(uuid.uuid4())
        with self._lock:
            self._results[identity] = document
            self._running[identity] = self.polls
        location = f"{request.base_url}/v1/operations/{identity}"
        return Response(202, {"Location": location, "x-ms-operation-id": identity, "Retry-After": "1"})

    def answer(self, names: list[str]) -> Response:
        """``<id>`` returns the state, ``<id>/result`` the result."""
        with self._lock:
            if not names or names[0] not in self._results:
                raise ApiError(404, "OperationNotFound", "There is no such operation.")
            identity, result = names[0], names[1:] == ["result"]
            if result:
                if self._running[identity] or self._results[identity] is None:
                    raise ApiError(400, "OperationHasNoResult", "The operation has no result.")
                return json_response(200, self._results[identity])
            left = self._running[identity]
            self._running[identity] = max(left - 1, 0)
        if left:
            return json_response(200, {"status": "Running", "percentComplete": 50}, {"Retry-After": "1"})
        return json_response(200, {"status": "Succeeded", "percentComplete": 100})


_PART = "mirroring.json"
_STATUS_CALLS = ("getMirroringStatus", "getTablesMirroringStatus")


class FabricRestEndpoint:
    """Answers requests to ``/v1/workspaces…`` and ``/v1/operations…``."""

    def __init__(self, databases: Databases, operations: Operations) -> None:
        self._databases = databases
        self._operations = operations
        self.page = 100
        """Entries on one page of a paginated answer."""
        self.passing_seconds = 0.0
        """How long ``Initializing``, ``Starting`` and ``Stopping`` are shown, by the emulator's clock."""

    @staticmethod
    def is_status_call(request: Request) -> bool:
        """Whether a request asks for a mirroring status."""
        return request.names[-1] in _STATUS_CALLS

    def answer(self, request: Request) -> Response:
        """Answer one request."""
        match request.method, request.names[1:]:
            case "GET", ["workspaces"]:
                return json_response(200, {"value": [self._workspace()]})
            case "GET", ["operations", *rest]:
                return self._operations.answer(rest)
            case method, ["workspaces", workspace, *rest]:
                if workspace.casefold() != self._databases.workspace_id:
                    raise ApiError(404, "WorkspaceNotFound", f"There is no workspace {workspace}.")
                if not rest and method == "GET":
                    return json_response(200, self._workspace())
                if rest[:1] == ["mirroredDatabases"]:
                    return self._databases_call(request, rest[1:])
        raise ApiError(404, "UnknownEndpoint", f"There is no {request.method} {request.path}.")  # assumed

    def _databases_call(self, request: Request, names: list[str]) -> Response:
        match request.method, names:
            case "GET", []:
                items = [self._item(request, database) for database in self._databases.all()]
                return self._page(request, "value", items)
            case "POST", []:
                return self._create(request)
            case "GET", [identity]:
                return json_response(200, self._item(request, self._find(identity)))
            case "PATCH", [identity]:
                return self._update(request, self._find(identity))
            case "DELETE", [identity]:
                self._databases.delete(self._find(identity))
                return Response(200)
            case "POST", [identity, "getDefinition"]:
                document = {"definition": _parts(self._find(identity).definition)}
                return self._operations.result(request, document)
            case "POST", [identity, "updateDefinition"]:
                return self._update_definition(request, self._find(identity))
            case "POST", [identity, "startMirroring"]:
                return self._start(self._find(identity))
            case "POST", [identity, "stopMirroring"]:
                return self._stop(self._find(identity))
            case "POST", [identity, "getMirroringStatus"]:
                return json_response(200, {"status": self._find(identity).status()})
            case "POST", [identity, "getTablesMirroringStatus"]:
                return self._page(request, "data", list(self._find(identity).service.status().values()))
            case _, [_, call] if call in _STATUS_CALLS:
                raise ApiError(405, "MethodNotAllowed", f"{call} is a POST (R-01).", {"Allow": "POST"})
        raise ApiError(404, "UnknownEndpoint", f"There is no {request.method} {request.path}.")  # assumed

    def _find(self, identity: str) -> MirroredDatabase:
        for database in self._databases.all():
            if database.identity == identity.casefold():
                return database
        raise ApiError(404, "ItemNotFound", f"There is no mirrored database {identity}.")

    def _create(self, request: Request) -> Response:
        document = request.document()
        name, description = _texts(document, {})
        definition = document.get("definition")
        database = self._databases.create(name, description, None if definition is None else _definition(definition))
        database.service.initialize()
        database.pass_through("Initializing", self.passing_seconds)
        return json_response(201, self._item(request, database))

    def _update(self, request: Request, database: MirroredDatabase) -> Response:
        name, description = _texts(
            request.document(), {"displayName": database.name, "description": database.description}
        )
        self._databases.rename(database, name, description)
        return json_response(200, self._item(request, database))

    def _update_definition(self, request: Request, database: MirroredDatabase) -> Response:
        definition = _definition(request.document().get("definition"))
        changes_schema = default_schema_in(definition) != default_schema_in(database.definition)
        if changes_schema and database.status() not in ("Initialized", "Stopped"):
            # The documentation has this rule for "some properties"; which ones, and the code, are assumed.
            raise ApiError(400, "UpdateNotAllowed", "defaultSchema changes only while Initialized or Stopped.")
        database.definition = definition
        return self._operations.result(request, None)

    def _start(self, database: MirroredDatabase) -> Response:
        self._not_initializing(database)
        if database.definition is None:
            raise ApiError(400, "MirroringDefinitionMissing", "The mirrored database has no definition (R-06).")
        if database.status() in ("Initialized", "Stopped"):
            database.service.start()
            database.pass_through("Starting", self.passing_seconds)
        return Response(200)

    def _stop(self, database: MirroredDatabase) -> Response:
        self._not_initializing(database)
        if database.status() != "Stopped":
            database.service.stop()
            database.pass_through("Stopping", self.passing_seconds)
        return Response(200)

    def _not_initializing(self, database: MirroredDatabase) -> None:
        if database.status() == "Initializing":
            raise ApiError(400, "OperationNotAllowedWhileInitializing", "The database is initializing.")  # assumed

    def _workspace(self) -> dict[str, str]:
        return {"id": self._databases.workspace_id, "displayName": self._databases.workspace, "type": "Workspace"}

    def _item(self, request: Request, database: MirroredDatabase) -> dict[str, Any]:
        workspace = self._databases.workspace_id
        return {
            "id": database.identity,
            "type": "MirroredDatabase",
            "displayName": database.name,
            "description": database.description,
            "workspaceId": workspace,
            "properties": {
                "oneLakeTablesPath": f"{request.base_url}/{workspace}/{database.identity}/Tables",
                "sqlEndpointProperties": {
                    "connectionString": "emulator.datawarehouse.invalid",
                    "id": database.identity,
                    "provisioningStatus": "Success",
                },
                "defaultSchema": database.default_schema,
            },
        }

    def _page(self, request: Request, name: str, entries: list[Any]) -> Response:
        token = request.query.get("continuationToken", "0")
        if not token.isdecimal():
            raise ApiError(400, "InvalidInput", f"The continuation token {token!r} is not one of ours.")
        start, end = int(token), int(token) + self.page
        document: dict[str, Any] = {name: entries[start:end]}
        if len(entries) > end:
            document["continuationToken"] = str(end)
            document["continuationUri"] = f"{request.base_url}{request.path}?continuationToken={end}"
        return json_response(200, document)


def _texts(document: dict[str, Any], known: dict[str, str]) -> tuple[str, str]:
    name = document.get("displayName", known.get("displayName"))
    description = document.get("description", known.get("description", ""))
    if not isinstance(name, str) or not name.strip():
        raise ApiError(400, "InvalidInput", "displayName must be given.")
    if not isinstance(description, str) or len(description) > 256:
        raise ApiError(400, "InvalidInput", "description must be a text of at most 256 characters.")
    return name, description


def _definition(document: Any) -> dict[str, Any]:
    """The document in a definition: one part ``mirroring.json``, base64 (R-05)."""
    try:
        parts = {part["path"]: part for part in document["parts"]}
        content = json.loads(base64.b64decode(parts[_PART]["payload"], validate=True))
        if parts[_PART]["payloadType"] != "InlineBase64":
            raise ValueError("payloadType is not InlineBase64")
        if content["properties"]["source"]["type"] != "GenericMirror":
            raise ValueError("the source is not GenericMirror")
        if content["properties"]["target"]["type"] != "MountedRelationalDatabase":
            raise ValueError("the target is not MountedRelationalDatabase")
    except (KeyError, TypeError, ValueError) as error:
        raise ApiError(400, "InvalidDefinition", f"The definition cannot be used (R-05): {error!r}.") from error
    return dict(content)


def _parts(definition: dict[str, Any] | None) -> dict[str, Any]:
    if definition is None:
        return {"parts": []}
    payload = base64.b64encode(json.dumps(definition).encode()).decode()
    return {"parts": [{"path": _PART, "payload": payload, "payloadType": "InlineBase64"}]}
