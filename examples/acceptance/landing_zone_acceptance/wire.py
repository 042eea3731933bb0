"""The wire between writer and landing zone: it sees every call, and strikes at the one that an exercise chose."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from pathlib import PurePosixPath
from typing import NamedTuple

from fabric_emulator.web.emulator_server import store_verb
from fabric_emulator.web.messages import Answer, ConnectionDropped, Request, Response

_ZONE = "/Files/LandingZone/"
_UPLOADS = ("create", "append", "flush", "rename")
_WRITES = (*_UPLOADS, "delete")


class Act(Enum):
    """What happens to a call."""

    REFUSE = "refused"
    """503, and nothing was done."""
    LOSE_DONE = "done, its answer lost"
    LOSE_NOT_DONE = "lost"
    LATE = "lost, and carried out much later"
    KILL_BEFORE = "killed before it"
    KILL_AFTER = "killed after it"
    HOLD = "held meanwhile"
    """The exercise's own action comes first, then the call is carried out."""


class Call(NamedTuple):
    """One call that changes the zone. *kind* is what calls of every run have in common, as ``rename data file``."""

    verb: str
    what: str
    path: str

    @property
    def kind(self) -> str:
        """Verb and kind of file."""
        return f"{self.verb} {self.what}"

    @property
    def uploads(self) -> bool:
        """Whether the call is a part of publishing a file, and not of cleaning up."""
        return self.verb in _UPLOADS and self.what != "folder"


class Strike(NamedTuple):
    """An act and its call: of this kind, for the *nth* different file of that kind in a run.

    A refusal strikes as long as it is set, all else once. *meanwhile* is the action of ``HOLD``; it gets the path.
    """

    kind: str
    act: Act
    nth: int = 1
    meanwhile: Callable[[str], None] | None = None


class Wire:
    """Answers every request in the emulator's place.

    Attributes:
        calls: the calls that changed the zone since the last :meth:`forget_calls`.
        running: the process that a kill ends.
        struck: whether the last strike found its call.
        after_publication: called after each change of a data file or of a table's metadata.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.running: subprocess.Popen[bytes] | None = None
        self.after_publication: Callable[[Call], None] = lambda call: None
        self.struck = False
        self._strike: Strike | None = None
        self._files: dict[str, list[str]] = {}
        self._late: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def answer(self, answer: Answer, request: Request) -> Response:
        """Answer one request; the emulator's way to do it is *answer*."""
        call = call_of(request)
        if call is None:
            return answer(request)
        strike = self._see(call)
        if strike is None:
            return self._carry_out(request, call, answer)
        match strike.act:
            case Act.REFUSE:
                return Response(503, {"x-ms-error-code": "ServerBusy"})
            case Act.LATE:
                self._late.append(partial(self._carry_out, request, call, answer))
            case Act.LOSE_DONE:
                self._carry_out(request, call, answer)
            case Act.KILL_BEFORE:
                self.kill()
            case Act.KILL_AFTER:
                self._carry_out(request, call, answer)
                self.kill()
            case Act.HOLD:
                assert strike.meanwhile is not None
                strike.meanwhile(call.path)
                return self._carry_out(request, call, answer)
            case Act.LOSE_NOT_DONE:
                pass
        raise ConnectionDropped

    @contextmanager
    def set(self, strike: Strike | None) -> Iterator[None]:
        """Strike while the context is open."""
        self._strike, self.struck = strike, False
        try:
            yield
        finally:
            self._strike = None

    def forget_calls(self) -> None:
        """Begin the list of calls again, as for a new run."""
        with self._lock:
            self.calls, self._files = [], {}

    def release(self) -> bool:
        """Carry out the calls that come late; whether there was one."""
        late, self._late = self._late, []
        for effect in late:
            effect()
        return bool(late)

    def kill(self) -> None:
        """End the running writer at once, with all its processes."""
        if self.running is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.running.pid, signal.SIGKILL)

    def _see(self, call: Call) -> Strike | None:
        with self._lock:
            self.calls.append(call)
            files = self._files.setdefault(call.kind, [])
            if call.path not in files:
                files.append(call.path)
            strike = self._strike
            if strike is None or strike.kind != call.kind or files.index(call.path) + 1 != strike.nth:
                return None
            self.struck = True
            if strike.act is not Act.REFUSE:
                self._strike = None
            return strike

    def _carry_out(self, request: Request, call: Call, answer: Answer) -> Response:
        response = answer(request)
        if call.what in ("data file", "metadata", "folder") and response.status < 300:
            with self._lock:
                self.after_publication(call)
        return response


def call_of(request: Request) -> Call | None:
    """The call that a request is, if it may change the landing zone."""
    place = request.path.partition(_ZONE)[2]
    if not place or request.path.startswith("/_emulator/"):
        return None
    verb = store_verb(request)
    if verb not in _WRITES:
        return None
    return Call(verb, _what(PurePosixPath(place)), place)


def is_data_file(path: PurePosixPath) -> bool:
    """Whether the service would read a file of this path below the landing zone."""
    return bool(path.suffix) and path.suffix != ".schema" and not any(part.startswith("_") for part in path.parts)


def _what(path: PurePosixPath) -> str:
    if path.name == "_metadata.json":
        return "metadata"
    if is_data_file(path):
        return "data file"
    return "other file" if any(part.startswith("_") for part in path.parts) else "folder"
