"""Control of the emulator over HTTP, for tests that cannot reach the :class:`EmulatorServer` object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fabric_emulator.web.databases import Databases, MirroredDatabase
from fabric_emulator.web.faults import Fault, Faults
from fabric_emulator.web.messages import ApiError, Request, Response, json_response

_SERVICE_COMMANDS = ("pause", "resume", "stop", "start")


class ControlEndpoint:
    """Answers requests to ``/_emulator/…``.

    =====================================  ====================================================================
    ``GET  health``                        200 as soon as the server serves
    ``GET  status``                        every database with its status and tables
    ``POST poll``                          every service polls once; the files applied
    ``POST pause | resume | stop | start`` every service does
    ``POST clock {"seconds": N}``          the emulator's clock jumps forward
    ``GET | DELETE calls``                 calls per verb and faults that struck; DELETE counts from zero again
    ``GET | POST | DELETE faults``         the faults waiting; one more (fields of ``Fault``); none any more
    ``POST latency {"seconds": N}``        what every call takes at least
    ``POST release``                       delayed requests are carried out; their statuses
    =====================================  ====================================================================
    """

    def __init__(
        self,
        databases: Databases,
        faults: Faults,
        poll: Callable[[], list[dict[str, Any]]],
        advance_clock: Callable[[float], None],
    ) -> None:
        self._databases = databases
        self._faults = faults
        self._poll = poll
        self._advance_clock = advance_clock

    def answer(self, request: Request) -> Response:
        """Answer one request."""
        faults = self._faults
        match request.method, request.names[1:]:
            case "GET", ["health"]:
                return Response(200)
            case "GET", ["status"]:
                return json_response(200, {database.name: _status(database) for database in self._databases.all()})
            case "POST", ["poll"]:
                return json_response(200, {"applied": self._poll()})
            case "POST", [command] if command in _SERVICE_COMMANDS:
                for database in self._databases.all():
                    getattr(database.service, command)()
                return Response(200)
            case "POST", ["clock"]:
                self._advance_clock(_seconds(request))
                return Response(200)
            case "GET", ["calls"]:
                return json_response(200, {"calls": faults.calls(), "struck": faults.struck()})
            case "DELETE", ["calls"]:
                faults.reset_calls()
                return Response(200)
            case "GET", ["faults"]:
                return json_response(200, {"waiting": faults.waiting()})
            case "POST", ["faults"]:
                try:
                    faults.add(Fault(**request.document()))
                except (TypeError, ValueError) as error:
                    raise ApiError(400, "InvalidInput", f"This is no fault: {error}.") from error
                return Response(200)
            case "DELETE", ["faults"]:
                faults.clear()
                return Response(200)
            case "POST", ["latency"]:
                faults.latency = _seconds(request)
                return Response(200)
            case "POST", ["release"]:
                return json_response(200, {"released": faults.release()})
        raise ApiError(404, "UnknownEndpoint", f"There is no {request.method} {request.path}.")


def _status(database: MirroredDatabase) -> dict[str, Any]:
    return {"id": database.identity, "status": database.status(), "tables": database.service.status()}


def _seconds(request: Request) -> float:
    seconds = request.document().get("seconds")
    if not isinstance(seconds, (int, float)) or seconds < 0:
        raise ApiError(400, "InvalidInput", f"seconds is {seconds!r}, not zero or more.")
    return float(seconds)
