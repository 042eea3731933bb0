"""The one address of all endpoints, where ordered faults hit their calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from fabric_emulator.web.control import ControlEndpoint
from fabric_emulator.web.dfs import DfsEndpoint
from fabric_emulator.web.fabric_rest import FabricRestEndpoint
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
from fabric_emulator.web.tokens import FABRIC, STORAGE, TokenIssuer, expired


class _Endpoint(NamedTuple):
    verb: str
    answer: Answer
    audience: str | None
    refuse: Callable[[ApiError, Request], Response]


class Gateway:
    """Hands a request to its endpoint: by its first names, everything else goes to the store.

    ====================================  ==============================================================
    ``/<tenant>/oauth2/…``, ``…/v2.0/…``  tokens; no token needed
    ``/v1/…``                             the Fabric REST API (R-03: its own audience)
    ``/_emulator/…``                      the emulator itself; no token needed, no faults
    ``/…``                                the store (O-02: the storage audience)
    ====================================  ==============================================================
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
            endpoint = _Endpoint(_store_verb(request), self._store.answer, STORAGE, storage_error)
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


def _store_verb(request: Request) -> str:
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
