"""Calls of OneLake's DFS endpoint for one landing zone, and the meaning of the answers.

Public source: Microsoft Learn, *Azure Data Lake Storage Gen2 REST API* with its error codes; *OneLake parity and
integration*: headers that OneLake ignores are named in ``x-ms-rejected-headers`` (O-03).
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.landing_zone.onelake_address import OneLakeZone
from open_mirroring.landing_zone.paths import why_unsafe
from open_mirroring.remote.authorized_service import AuthorizedService
from open_mirroring.remote.entra import STORAGE_AUDIENCE
from open_mirroring.remote.http_service import Answer, HttpService, Request, described

_VERSION = "2020-06-12"
"""Of the REST API; with this one the conditional rename has been seen to work on OneLake (O-05)."""
_CONDITIONS = {"if-none-match", "if-match", "x-ms-source-if-match", "x-ms-rename-source"}
_NO_ZONE = {"FilesystemNotFound", "WorkspaceNotFound", "ArtifactNotFound", "ItemNotFound"}


class OneLakeCalls:
    """Calls below the folder of one landing zone; paths are relative to it, ETags without their quotes.

    Args:
        zone: the landing zone, with the login to it.
    """

    def __init__(self, zone: OneLakeZone) -> None:
        service = HttpService(zone.endpoint, "OneLake", zone.timeout_seconds)
        self._service = AuthorizedService(service, zone.login, STORAGE_AUDIENCE)
        self._workspace = zone.workspace
        self.zone_path = zone.path.strip("/")
        self._root = f"{zone.item}/{self.zone_path}"

    def send(self, request: Request) -> Answer:
        """One call about an object of the zone, by its path; errors are those of :meth:`AuthorizedService.send`.

        Raises:
            TerminalError: besides, ``PATH_UNSAFE``; ``STORE_UNFIT`` when OneLake ignored a condition of the call.
        """
        return self._send(request._replace(path=self.address(request.path)))

    def send_to_workspace(self, query: Mapping[str, str]) -> Answer:
        """A question to the workspace: its listing."""
        return self._send(Request("GET", f"/{quote(self._workspace, safe='')}", repeatable=True, query=query))

    def directory(self, folder: str) -> str:
        """A folder of the zone as a listing names it; empty for the zone itself."""
        if folder:
            _check(folder)
        return f"{self._root}/{folder}".rstrip("/")

    def address(self, path: str) -> str:
        """The encoded path of an object, from the workspace on.

        Raises:
            TerminalError: ``PATH_UNSAFE``.
        """
        _check(path)
        return "/" + quote(f"{self._workspace}/{self._root}/{path}")

    def is_missing(self, answer: Answer) -> bool:
        """Whether the answer says that there is no such path.

        Raises:
            TerminalError: ``ZONE_MISSING`` when it says that there is no such workspace or item.
        """
        if answer.status != 404:
            return False
        if error_code(answer) in _NO_ZONE:
            raise self.no_zone(answer)
        return True

    def no_zone(self, answer: Answer) -> TerminalError:
        """The error for a workspace or an item that is not there."""
        return TerminalError(
            "ZONE_MISSING",
            f"OneLake knows no such workspace or item, or does not show it to this login: {described(answer)}",
            where=f"{self._workspace}/{self._root}",
            way_out="correct `landing_zone.workspace` and `landing_zone.item`, or make the mirrored database with "
            "`open-mirroring create`",
        )

    def expect(self, answer: Answer, status: int, path: str) -> None:
        """Refuse every other status: what is not documented is not taken for done.

        Raises:
            TerminalError: ``STORE_UNFIT``.
        """
        if answer.status != status:
            raise TerminalError(
                "STORE_UNFIT",
                f"OneLake answers otherwise than documented: {described(answer)} instead of {status}",
                where=path,
                way_out="run `open-mirroring check`; look up the code in Azure's list of storage errors",
            )

    def _send(self, request: Request) -> Answer:
        answer = self._service.send(request.with_headers({"x-ms-version": _VERSION}))
        rejected = {name.strip().casefold() for name in answer.headers.get("x-ms-rejected-headers", "").split(",")}
        ignored = sorted(rejected & _CONDITIONS & {name.casefold() for name in request.headers})
        if ignored:
            raise TerminalError(
                "STORE_UNFIT",
                f"OneLake ignored the condition {', '.join(ignored)} of a call, on which exactly-once rests",
                where=str(request),
                way_out="publish nothing to this region; run `open-mirroring check`, and take its answer to the "
                "service's support",
            )
        return answer


def _check(path: str) -> None:
    reason = why_unsafe(path)
    if reason:
        raise TerminalError(
            "PATH_UNSAFE",
            f"the path {path!r} {reason}",
            way_out="paths are relative to the zone, with plain parts; look who put such a name there",
        )


def error_code(answer: Answer) -> str:
    """The service's code of a refusal; empty without one."""
    return answer.headers.get("x-ms-error-code", "")


def etag_of(answer: Answer) -> str:
    """The ETag of what the answer is about."""
    return unquoted(answer.headers.get("ETag", ""))


def unquoted(etag: str) -> str:
    """An ETag as this product writes it."""
    # Headers have it in quotes, listings have not.
    return etag.removeprefix("W/").strip('"')


def busy(path: str, answer: Answer) -> TransientError:
    """The error for a call that another one at the same object keeps from being done."""
    return TransientError(
        "STORE_CONFLICT",
        f"somebody else is at this object: {described(answer)}",
        where=path,
        way_out="the next run tries again; if it stays so, look who else writes to the landing zone or holds a lease",
    )
