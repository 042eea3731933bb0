"""A landing zone in OneLake, through the part of the ADLS Gen2 DFS endpoint that OneLake supports (O-03).

It uses plain REST, not the storage SDK, for three reasons. The SDK repeats appends, flushes and renames alike; here
each call says whether it may be repeated. A call costs a seventh of the processor time. And every answer to a
condition is checked for ``x-ms-rejected-headers``, so that a condition that OneLake ignored is noticed.

Public source: Microsoft Learn, *Azure Data Lake Storage Gen2 REST API*: Path Create, Update, Read, Delete, List, Get
Properties; *OneLake parity and integration* (ignored headers are named in ``x-ms-rejected-headers``).
"""

from __future__ import annotations

import errno
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from open_mirroring.errors import TransientError
from open_mirroring.landing_zone.onelake_address import OneLakeZone
from open_mirroring.landing_zone.onelake_calls import OneLakeCalls, busy, error_code, etag_of, unquoted
from open_mirroring.landing_zone.store import Content, ObjectInfo, RenameOutcome
from open_mirroring.remote.http_service import Answer, Request, described

_BLOCK_BYTES = 4 << 20
_BLOCKS_AT_ONCE = 4
_PAGE = 5000
_TAKEN = {"", "PathAlreadyExists", "ConditionNotMet", "TargetConditionNotMet"}
# The same request may be answered otherwise later: neither done nor refused for good.
_BUSY = ("Lease", "PathIsBeing", "SourcePathIsBeing", "DestinationPathIsBeing", "OperationInProgress")


class OneLakeStore:
    """:class:`~open_mirroring.landing_zone.store.LandingZoneStore` in OneLake; safe for several threads.

    An object is written in three steps (create, append, flush), so a reader may see it empty, and a failure may leave
    it so (O-07): never under a final name, for those are only made by :meth:`rename`. Reads, appends at a position,
    deletes, and flushes bound to the object just created are repeated after a failure; a creation and a rename never
    are. Its ETags are those of the service without their quotes.

    Raises:
        TerminalError: from every verb: ``PATH_UNSAFE``; ``STORE_UNFIT`` when OneLake ignored a condition that the
            protocol rests on; ``ZONE_MISSING`` without workspace or item; what
            :class:`~open_mirroring.remote.authorized_service.AuthorizedService` raises.
        TransientError: from every verb: its outcome is unknown (O-08); ``STORE_CONFLICT`` when somebody else is at
            the object.
    """

    def __init__(self, zone: OneLakeZone) -> None:
        self._calls = OneLakeCalls(zone)

    def create(self, path: str, content: bytes | Path) -> ObjectInfo | None:
        """Create an object that must not exist; its ETag is the one after the flush."""
        query, headers = {"resource": "file"}, {"If-None-Match": "*"}
        answer = self._calls.send(Request("PUT", path, repeatable=False, query=query, headers=headers))
        if answer.status in (409, 412):
            if error_code(answer) in _TAKEN:
                return None
            raise busy(path, answer)
        if answer.status == 404:  # folders above it come into being: what is missing is the item
            raise self._calls.no_zone(answer)
        self._calls.expect(answer, 201, path)
        created = etag_of(answer)
        size = self._append(path, content)
        return self._flush(path, size, created) if size else ObjectInfo(path, 0, created)

    def read(self, path: str) -> Content | None:
        """The whole content of a small object with its ETag; None when there is none."""
        answer = self._calls.send(Request("GET", path, repeatable=True))
        if self._calls.is_missing(answer):
            return None
        self._calls.expect(answer, 200, path)
        return Content(answer.body, etag_of(answer))

    @contextmanager
    def fetch(self, path: str) -> Iterator[Path | None]:
        """A copy in a temporary file, gone afterwards."""
        with tempfile.NamedTemporaryFile(prefix="open_mirroring-") as copy:
            local = Path(copy.name)
            yield local if self._download(path, local) else None

    def _download(self, path: str, local: Path) -> bool:
        try:
            with local.open("wb") as file:
                answer = self._calls.send(Request("GET", path, repeatable=True, into=file))
        except OSError as error:
            raise TransientError(
                "DISK_FULL" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "STORE_IO",
                f"a copy cannot be written: {error.strerror or error}",
                where=path,
                way_out="free space where temporary files go, or set TMPDIR; the next run goes on",
            ) from error
        if self._calls.is_missing(answer):
            return False
        self._calls.expect(answer, 200, path)
        return True

    def stat(self, path: str) -> ObjectInfo | None:
        """A point read: the object as it is now, None when it is not there."""
        answer = self._calls.send(Request("HEAD", path, repeatable=True))
        if self._calls.is_missing(answer):
            return None
        self._calls.expect(answer, 200, path)
        if answer.headers.get("x-ms-resource-type") == "directory":
            return None
        return ObjectInfo(path, int(answer.headers.get("Content-Length", 0)), etag_of(answer))

    def rename(self, source: str, target: str, *, source_etag: str) -> RenameOutcome:
        """Move *source* to *target* in one step (O-04, O-05); refused as well when the target's folder is gone."""
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

    def list(self, folder: str) -> Iterable[ObjectInfo]:
        """Every object below a folder, page by page, each path once; a folder that is none lists nothing."""
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
        """Remove an object; nothing happens when it is not there."""
        answer = self._delete(path, {"recursive": "false"})
        if answer.status in (409, 412):
            raise busy(path, answer)

    def delete_folder(self, folder: str) -> None:
        """Remove a folder with all it holds; nothing happens when it is not there.

        Raises:
            TransientError: ``FOLDER_IN_USE`` while somebody uses it (F-73): part of it may be gone; repeat the call.
        """
        query = {"recursive": "true"}
        while True:
            answer = self._delete(folder, query)
            if answer.status in (409, 412):
                raise TransientError(
                    "FOLDER_IN_USE",
                    f"the folder cannot be deleted now: {described(answer)}",
                    where=folder,
                    way_out="the call is repeated; look what uses the folder",
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
        """Upload the content in blocks, several at once; its size. A block that is sent again changes nothing."""
        if isinstance(content, bytes):
            size, blocks = len(content), _slices(content)
        else:
            size, blocks = content.stat().st_size, _blocks(content)
        if size <= _BLOCK_BYTES:
            for position, block in blocks:
                self._append_block(path, position, block)
            return size
        with ThreadPoolExecutor(_BLOCKS_AT_ONCE) as pool:
            # As many are read ahead as are under way: a large file is never in memory as a whole.
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
        """Make the content whole. Bound to the object just created, so that a repetition cannot change its ETag."""
        query, headers = {"action": "flush", "position": str(size)}, {"If-Match": f'"{created}"'}
        answer = self._calls.send(Request("PATCH", path, repeatable=True, query=query, headers=headers))
        if answer.status == 412:
            # An earlier try was carried out although its answer was lost: nobody else knows this ETag.
            found = self.stat(path)
            if found is not None and found.size == size:
                return found
        if answer.status in (404, 409, 412):
            raise busy(path, answer)
        self._calls.expect(answer, 200, path)
        return ObjectInfo(path, size, etag_of(answer))

    def _listed(self, answer: Answer, folder: str) -> Iterator[ObjectInfo]:
        # The first part is the item, by name or GUID as the service likes; the rest is below the item as we asked.
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
                "SERVICE_UNREACHABLE",
                f"OneLake's listing cannot be understood: {type(error).__name__}",
                where=folder,
                way_out="it is listed again; if it stays so, run `open-mirroring check`",
            ) from None


def _listed_etag(entry: Mapping[str, Any]) -> str:
    # The documentation writes eTag, answers have been seen with etag.
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
