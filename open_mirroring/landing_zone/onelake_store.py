"""A landing zone in OneLake, through the part of the ADLS Gen2 DFS endpoint that OneLake supports (O-03).

The store uses plain REST instead of the storage SDK for three reasons. First, the SDK repeats appends, flushes and
renames in the same way; here each call states whether its repetition is safe. Second, a REST call costs a seventh of
the SDK's processor time. Third, every answer to a conditional call is checked for ``x-ms-rejected-headers``, so a
condition that OneLake ignored is noticed.

Public source: Microsoft Learn, *Azure Data Lake Storage Gen2 REST API* with its error codes: Path Create, Update, Read,
Delete, List, Get Properties; *OneLake parity and integration* (ignored headers).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from open_mirroring.errors import TerminalError, TransientError, disk_error
from open_mirroring.landing_zone.onelake_address import OneLakeZone
from open_mirroring.landing_zone.store import Content, ObjectInfo, RenameOutcome, why_unsafe
from open_mirroring.remote.entra import STORAGE_AUDIENCE, AuthorizedService
from open_mirroring.remote.http_service import Answer, HttpService, Request, described

_VERSION = "2020-06-12"
"""The REST API version with which the conditional rename was tested on OneLake (O-05)."""
_CONDITIONS = {"if-none-match", "if-match", "x-ms-source-if-match", "x-ms-rename-source"}
_NO_ZONE = {"FilesystemNotFound", "WorkspaceNotFound", "ArtifactNotFound", "ItemNotFound"}
_BLOCK_BYTES = 4 << 20
_BLOCKS_AT_ONCE = 4
_PAGE = 5000
_TAKEN = {"", "PathAlreadyExists", "ConditionNotMet", "TargetConditionNotMet"}
# A retry may get another answer: the call was neither carried out nor refused for good.
_BUSY = ("Lease", "PathIsBeing", "SourcePathIsBeing", "DestinationPathIsBeing", "OperationInProgress")


class OneLakeCalls:
    """REST calls on the folder of one landing zone. Paths are relative to this folder; ETags have no quotes."""

    def __init__(self, zone: OneLakeZone) -> None:
        service = HttpService(zone.endpoint, "OneLake", zone.timeout_seconds)
        self._service = AuthorizedService(service, zone.login, STORAGE_AUDIENCE)
        self._workspace = zone.workspace
        self.zone_path = zone.path.strip("/")
        self._root = f"{zone.item}/{self.zone_path}"

    def send(self, request: Request) -> Answer:
        """Send one request about an object of the zone, and return the answer.

        Raises:
            TerminalError: ``FOREIGN_ITEM`` for an unsafe path; ``STORE_UNFIT`` when OneLake ignored a condition; and
                the errors of :meth:`AuthorizedService.send`.
        """
        return self._send(request._replace(path=self.address(request.path)))

    def send_to_workspace(self, query: Mapping[str, str]) -> Answer:
        """Send a listing request to the workspace with the query parameters *query*, and return the answer."""
        return self._send(Request("GET", f"/{quote(self._workspace, safe='')}", repeatable=True, query=query))

    def directory(self, folder: str) -> str:
        """Return the path of a folder for a listing request; the path starts with the item.

        The folder "" is the zone itself.
        """
        if folder:
            _check(folder)
        return f"{self._root}/{folder}".rstrip("/")

    def address(self, path: str) -> str:
        """Return the URL path of an object, percent-encoded; the path starts with the workspace.

        Raises:
            TerminalError: ``FOREIGN_ITEM`` for an unsafe path.
        """
        _check(path)
        return "/" + quote(f"{self._workspace}/{self._root}/{path}")

    def is_missing(self, answer: Answer) -> bool:
        """Whether *answer* means that the requested path does not exist.

        Raises:
            TerminalError: ``PLACE_MISSING`` when the workspace or the item does not exist.
        """
        if answer.status != 404:
            return False
        if error_code(answer) in _NO_ZONE:
            raise self.no_zone(answer)
        return True

    def no_zone(self, answer: Answer) -> TerminalError:
        """Build the error for an answer which shows that the workspace or the item does not exist."""
        return TerminalError(
            "PLACE_MISSING",
            f"OneLake knows no such workspace or item, or does not show it to this login: {described(answer)}",
            where=f"{self._workspace}/{self._root}",
            next_step="correct `landing_zone.workspace` and `landing_zone.item`, or make the mirrored database with "
            "`open-mirroring create`",
        )

    def expect(self, answer: Answer, status: int, path: str) -> None:
        """Refuse an answer with another status than *status*: an undocumented status does not count as success.

        Raises:
            TerminalError: ``STORE_UNFIT`` when the status differs.
        """
        if answer.status != status:
            raise TerminalError(
                "STORE_UNFIT",
                f"OneLake answers otherwise than documented: {described(answer)} instead of {status}",
                where=path,
                next_step="run `open-mirroring check`; look up the code in Azure's list of storage errors",
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
                next_step="publish nothing to this region; run `open-mirroring check`, and take its answer to the "
                "service's support",
            )
        return answer


def _check(path: str) -> None:
    reason = why_unsafe(path)
    if reason:
        raise TerminalError(
            "FOREIGN_ITEM",
            f"the path {path!r} {reason}",
            next_step="find out who put an object with this name into the landing zone, and move it away",
        )


def error_code(answer: Answer) -> str:
    """Return OneLake's error code in an answer; empty if the answer contains none."""
    return answer.headers.get("x-ms-error-code", "")


def etag_of(answer: Answer) -> str:
    """Return the ETag in an answer, without quotes."""
    return unquoted(answer.headers.get("ETag", ""))


def unquoted(etag: str) -> str:
    """Return an ETag without its quotes and weak mark (``W/``), as the ledger stores it."""
    return etag.removeprefix("W/").strip('"')


def busy(path: str, answer: Answer) -> TransientError:
    """Build the error for a call that failed because of another call on the same object."""
    return TransientError(
        "CHANGED_MEANWHILE",
        f"another program uses this object: {described(answer)}",
        where=path,
        next_step="the next run tries again; if the error stays, find out who else writes there or holds a lease",
    )


class OneLakeStore:
    """:class:`~open_mirroring.landing_zone.store.LandingZoneStore` in OneLake; safe for several threads.

    An object is written in three steps: create, append, flush. Before the flush, and after a failure, readers see an
    empty object (O-07). An empty object never appears under a final name, because only :meth:`rename` makes final
    names. Reads, appends at a position, deletes, and flushes bound to the object just created are repeated when they
    fail; creations and renames never are.

    Raises:
        TerminalError: from every method: ``FOREIGN_ITEM`` for an unsafe path; ``STORE_UNFIT`` when OneLake ignored a
            condition that the protocol needs; ``PLACE_MISSING`` if workspace or item does not exist; and the errors of
            :class:`~open_mirroring.remote.entra.AuthorizedService`.
        TransientError: from every method: when the outcome is unknown (O-08); ``CHANGED_MEANWHILE`` when another
            writer uses the object.
    """

    def __init__(self, zone: OneLakeZone) -> None:
        self._calls = OneLakeCalls(zone)

    def create(self, path: str, content: bytes | Path) -> ObjectInfo | None:
        """Create an object that must not exist; None if the name is taken.

        The returned ETag is the one after the flush.
        """
        query, headers = {"resource": "file"}, {"If-None-Match": "*"}
        answer = self._calls.send(Request("PUT", path, repeatable=False, query=query, headers=headers))
        if answer.status in (409, 412):
            if error_code(answer) in _TAKEN:
                return None
            raise busy(path, answer)
        if answer.status == 404:  # parent folders are created implicitly, so it is the item that is missing
            raise self._calls.no_zone(answer)
        self._calls.expect(answer, 201, path)
        created = etag_of(answer)
        size = self._append(path, content)
        return self._flush(path, size, created) if size else ObjectInfo(path, 0, created)

    def read(self, path: str) -> Content | None:
        answer = self._calls.send(Request("GET", path, repeatable=True))
        if self._calls.is_missing(answer):
            return None
        self._calls.expect(answer, 200, path)
        return Content(answer.body, etag_of(answer))

    @contextmanager
    def fetch(self, path: str) -> Iterator[Path | None]:
        """A context with the object downloaded to a temporary file, which is deleted at the context's end.

        The context's value is None when the object does not exist.
        """
        with tempfile.NamedTemporaryFile(prefix="open_mirroring-") as copy:
            local = Path(copy.name)
            yield local if self._download(path, local) else None

    def _download(self, path: str, local: Path) -> bool:
        try:
            with local.open("wb") as file:
                answer = self._calls.send(Request("GET", path, repeatable=True, into=file))
        except OSError as error:
            full = disk_error(error)
            raise TransientError(
                full.code if isinstance(full, TransientError) else "UNREACHABLE",
                f"a copy cannot be written: {error.strerror or error}",
                where=path,
                next_step="free space where temporary files go, or set TMPDIR; the next run goes on",
            ) from error
        if self._calls.is_missing(answer):
            return False
        self._calls.expect(answer, 200, path)
        return True

    def stat(self, path: str) -> ObjectInfo | None:
        answer = self._calls.send(Request("HEAD", path, repeatable=True))
        if self._calls.is_missing(answer):
            return None
        self._calls.expect(answer, 200, path)
        if answer.headers.get("x-ms-resource-type") == "directory":
            return None
        return ObjectInfo(path, int(answer.headers.get("Content-Length", 0)), etag_of(answer))

    def rename(self, source: str, target: str, *, source_etag: str) -> RenameOutcome:
        """Move *source* to *target* in one step, if *source* has this ETag and *target* does not exist (O-04, O-05).

        The move is also refused if the folder of *target* does not exist.
        """
        headers = {
            "x-ms-rename-source": self._calls.address(source),
            "x-ms-source-if-match": f'"{source_etag}"',
            "If-None-Match": "*",
        }
        answer = self._calls.send(Request("PUT", target, repeatable=False, query={"mode": "legacy"}, headers=headers))
        if answer.status in (404, 409, 412):
            self._calls.is_missing(answer)
            if error_code(answer).startswith(_BUSY):
                raise busy(source, answer)
            return RenameOutcome.REFUSED
        self._calls.expect(answer, 201, target)
        return RenameOutcome.DONE

    def list(self, folder: str, skipped: Collection[str] = ()) -> Iterable[ObjectInfo]:
        """List every object below a folder, each path once. The result is empty if the folder does not exist.

        Nothing is *skipped*: one listing of everything takes fewer requests than one listing for each folder.
        """
        directory = self._calls.directory(folder)
        query = {"resource": "filesystem", "recursive": "true", "directory": directory, "maxResults": str(_PAGE)}
        found: dict[str, ObjectInfo] = {}
        while True:
            answer = self._calls.send_to_workspace(query)
            if self._calls.is_missing(answer):
                return found.values()
            self._calls.expect(answer, 200, folder)
            found.update((info.path, info) for info in self._listed(answer, folder))
            token = answer.headers.get("x-ms-continuation", "")
            if not token:
                return found.values()
            query["continuation"] = token

    def delete(self, path: str) -> None:
        answer = self._delete(path, {"recursive": "false"})
        if answer.status in (409, 412):
            raise busy(path, answer)

    def delete_folder(self, folder: str) -> None:
        """Remove a folder with its content, if the folder exists.

        Raises:
            TransientError: ``CHANGED_MEANWHILE`` while another call uses the folder (F-73). Part of the content may be
                deleted already; a repetition deletes the rest.
        """
        query = {"recursive": "true"}
        while True:
            answer = self._delete(folder, query)
            if answer.status in (409, 412):
                raise TransientError(
                    "CHANGED_MEANWHILE",
                    f"the folder cannot be deleted now: {described(answer)}",
                    where=folder,
                    next_step="run the command again; if it fails again, find and end the program that uses the folder",
                )
            token = answer.headers.get("x-ms-continuation", "")
            if not token:
                return
            query["continuation"] = token

    def _delete(self, path: str, query: Mapping[str, str]) -> Answer:
        answer = self._calls.send(Request("DELETE", path, repeatable=True, query=query))
        if not self._calls.is_missing(answer) and answer.status not in (409, 412):
            self._calls.expect(answer, 200, path)
        return answer

    # --- the steps of a creation --------------------------------------------------------------------------------

    def _append(self, path: str, content: bytes | Path) -> int:
        """Upload the content in blocks, several in parallel, and return its size. Retrying a block is safe."""
        if isinstance(content, bytes):
            size, blocks = len(content), _slices(content)
        else:
            size, blocks = content.stat().st_size, _blocks(content)
        if size <= _BLOCK_BYTES:
            for position, block in blocks:
                self._append_block(path, position, block)
            return size
        with ThreadPoolExecutor(_BLOCKS_AT_ONCE) as pool:
            # Read ahead only as many blocks as are being sent, so a large file is never in memory at once.
            waiting: list[Any] = []
            for position, block in blocks:
                if len(waiting) == _BLOCKS_AT_ONCE:
                    waiting.pop(0).result()
                waiting.append(pool.submit(self._append_block, path, position, block))
            for one in waiting:
                one.result()
        return size

    def _append_block(self, path: str, position: int, block: bytes) -> None:
        query = {"action": "append", "position": str(position)}
        headers = {"Content-Type": "application/octet-stream"}
        answer = self._calls.send(Request("PATCH", path, repeatable=True, query=query, headers=headers, body=block))
        if answer.status in (404, 409, 412):
            raise busy(path, answer)
        self._calls.expect(answer, 202, path)

    def _flush(self, path: str, size: int, created: str) -> ObjectInfo:
        """Complete the content. Bound to the object just created, so that a retry cannot change its ETag."""
        query, headers = {"action": "flush", "position": str(size)}, {"If-Match": f'"{created}"'}
        answer = self._calls.send(Request("PATCH", path, repeatable=True, query=query, headers=headers))
        if answer.status == 412:
            # An earlier try succeeded although its answer was lost: only we know this ETag.
            found = self.stat(path)
            if found is not None and found.size == size:
                return found
        if answer.status in (404, 409, 412):
            raise busy(path, answer)
        self._calls.expect(answer, 200, path)
        return ObjectInfo(path, size, etag_of(answer))

    def _listed(self, answer: Answer, folder: str) -> Iterator[ObjectInfo]:
        # The first part is the item, by name or GUID as the service prefers. The rest is below the item, as requested.
        try:
            for entry in json.loads(answer.body)["paths"]:
                inside = str(entry["name"]).partition("/")[2]
                path = inside.removeprefix(f"{self._calls.zone_path}/")
                if path == inside:
                    raise ValueError("a path outside the zone")
                if str(entry.get("isDirectory", "false")).casefold() != "true":
                    yield ObjectInfo(path, int(entry.get("contentLength", 0)), _listed_etag(entry))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TransientError(
                "UNREACHABLE",
                f"OneLake's listing cannot be understood: {type(error).__name__}",
                where=folder,
                next_step="it is listed again; if it stays so, run `open-mirroring check`",
            ) from None


def _listed_etag(entry: Mapping[str, Any]) -> str:
    # The documentation says eTag; the service has answered with etag.
    return unquoted(str(entry["etag"] if "etag" in entry else entry["eTag"]))


def _slices(content: bytes) -> Iterator[tuple[int, bytes]]:
    for position in range(0, len(content), _BLOCK_BYTES):
        yield position, content[position : position + _BLOCK_BYTES]


def _blocks(local: Path) -> Iterator[tuple[int, bytes]]:
    position = 0
    with local.open("rb") as source:
        while block := source.read(_BLOCK_BYTES):
            yield position, block
            position += len(block)
