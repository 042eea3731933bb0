"""The DFS endpoint: Path operations of the Azure Data Lake Storage Gen2 REST reference that OneLake supports.

Rules: O-01 names, O-03 what OneLake ignores and what clients cannot change, O-04 to O-07, O-09. The answers to HEAD and
GET also contain the Blob endpoint's headers, because the Azure SDK reads both through one address. Delta readers find
the files of a table by its *List Blobs* (Azure Storage REST).
"""

from __future__ import annotations

import base64
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from email.utils import formatdate
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

from fabric_emulator.web.databases import Databases
from fabric_emulator.web.item_paths import ItemPath, is_guid, place_of, split_path
from fabric_emulator.web.messages import ApiError, Request, Response, json_response
from fabric_emulator.web.path_conditions import Conditions
from fabric_emulator.web.path_store import PathEntry, PathStore

ACCOUNT = "onelake"
_PAGE = 5_000
_FILETIME_EPOCH = 116_444_736_000_000_000
# Headers that OneLake ignores and reports: the first line by O-03 (Microsoft Learn), the second because the emulator
# does not support them (assumed).
_IGNORED = re.compile(
    r"x-ms-(owner|group|permissions|umask|acl|access-tier|encryption-.*"
    r"|properties|expiry-(option|time)|proposed-lease-id|lease-.*)$|(x-ms-source-)?if-(un)?modified-since$"
)


class DfsEndpoint:
    """Answers requests to ``[/onelake]/<workspace>/<item>/<path>``."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._store = PathStore()
        self._lock = threading.Lock()
        self._shown: dict[tuple[str, tuple[str, ...], bool], dict[str, PathEntry]] = {}
        self.delete_page: int | None = None
        """The maximum of paths per request to delete a folder; clients follow the continuation."""
        self.made: Counter[Path] = Counter()
        """How often each local path was created as a file, by a creation or by a rename to it."""

    def close(self) -> None:
        """Discard unfinished uploads."""
        self._store.close()

    def answer(self, request: Request) -> Response:
        """Answer one request."""
        names = split_path(request.path)
        names = names[1:] if names and names[0] == ACCOUNT else names
        response = self._answer(request, names)
        ignored = sorted(name for name in request.headers if _IGNORED.match(name))
        if ignored:
            response.headers["x-ms-rejected-headers"] = ",".join(ignored)
        return response

    def _answer(self, request: Request, names: list[str]) -> Response:
        if len(names) < 2:
            return self._container(request, names)
        if request.method == "GET" and request.query.get("resource") == "filesystem":
            # From a client whose account address ends in an item, or that treats a folder as the file system.
            return self._list(request, *names)
        if request.query.get("restype") == "container":
            if request.method == "GET" and request.query.get("comp") == "list":
                return self._list_blobs(request, *names)
            if request.method in ("GET", "HEAD") and "comp" not in request.query:
                return self._container_properties(self._store.properties(self._place(names), _conditions(request)))
        place = self._place(names)
        match request.method, request.query.get("action"), request.query.get("resource"):
            case "PUT", None, _ if "x-ms-rename-source" in request.headers:
                return self._rename(request, place)
            case "PUT", None, "file" | "directory":
                return self._create(request, place)
            case "PATCH", "append", _:
                return self._append(request, place)
            case "PATCH", "flush", _:
                return self._flush(request, place)
            case "HEAD", None | "getStatus" | "getAccessControl", _:
                entry = self._store.properties(place, _conditions(request))
                return Response(200, _properties(entry), length=entry.size)
            case "GET", None, None:
                return self._read(request, place)
            case "DELETE", None, _:
                return self._delete(request, place)
        raise ApiError(400, "UnsupportedOperation", f"OneLake does not offer {request.method} with these parameters.")

    def _container(self, request: Request, names: list[str]) -> Response:
        """O-03: only HEAD on account and container, and the listing of a container."""
        if names:
            self._databases.check_workspace(names[0])
        match request.method, request.query.get("resource"), request.query.get("restype"):
            case ("HEAD", _, _) | ("GET", None, "container") if "comp" not in request.query:
                # The latter is the Blob endpoint's request for the properties of a container.
                return self._container_properties(PathEntry(True, 0, "0x1", 0))
            case "GET", "filesystem", _ if names:
                return self._list(request, names[0])
            case "GET", None, "container" if names and request.query["comp"] == "list":
                return self._list_blobs(request, names[0])
        raise ApiError(403, "OperationNotAllowedOnThisPath", "OneLake allows HEAD and listing of a workspace only.")

    @staticmethod
    def _container_properties(entry: PathEntry) -> Response:
        return Response(200, {"x-ms-namespace-enabled": "true", **_stamps(entry)})

    def _place(self, names: list[str]) -> ItemPath:
        workspace, item, *rest = names
        return place_of(self._databases.find(workspace, item).folders, rest)

    def _create(self, request: Request, place: ItemPath) -> Response:
        _empty(request)
        if request.query["resource"] == "directory":
            return Response(201, _stamps(self._store.create_directory(place, _conditions(request))))
        created = self._store.create_file(place, _conditions(request))
        self._note(place)
        return Response(201, _stamps(created))

    def _append(self, request: Request, place: ItemPath) -> Response:
        self._store.append(place, _position(request), request.body)
        if request.query.get("flush") == "true":
            end = _position(request) + len(request.body)
            return Response(202, _stamps(self._store.flush(place, end, _conditions(request))))
        return Response(202, {"x-ms-request-server-encrypted": "true"})

    def _flush(self, request: Request, place: ItemPath) -> Response:
        _empty(request)
        return Response(200, _stamps(self._store.flush(place, _position(request), _conditions(request))))

    def _rename(self, request: Request, target: ItemPath) -> Response:
        _empty(request)
        names = split_path(unquote(urlsplit(request.headers["x-ms-rename-source"]).path))
        names = names[1:] if names and names[0] == ACCOUNT else names
        if len(names) < 2:
            raise ApiError(400, "InvalidSourceUri", "x-ms-rename-source must be /<workspace>/<item>/<path>.")
        on_source = Conditions(
            request.headers.get("x-ms-source-if-match"), request.headers.get("x-ms-source-if-none-match")
        )
        renamed = self._store.rename(self._place(names), target, on_source, _conditions(request))
        if not renamed.is_directory:
            self._note(target)
        return Response(201, _stamps(renamed))

    def _note(self, place: ItemPath) -> None:
        with self._lock:
            self.made.update([place.local] if place.local is not None else ())

    def _read(self, request: Request, place: ItemPath) -> Response:
        wanted = _range(request.headers.get("x-ms-range") or request.headers.get("range"))
        entry, content = self._store.read(place, wanted, _conditions(request))
        headers = _properties(entry) | {"Content-Type": "application/octet-stream"}
        if wanted is None:
            return Response(200, headers, content)
        headers["Content-Range"] = f"bytes {wanted[0]}-{wanted[0] + len(content) - 1}/{entry.size}"
        return Response(206, headers, content)

    def _delete(self, request: Request, place: ItemPath) -> Response:
        recursive = request.query.get("recursive") == "true"
        done = self._store.delete(place, _conditions(request), recursive=recursive, limit=self.delete_page)
        headers = {} if done else {"x-ms-continuation": _token(request.path)}
        return Response(200, {"x-ms-delete-type-permanent": "true"} | headers)

    def _list(self, request: Request, workspace: str, *above: str) -> Response:
        """Names are relative to the workspace, also when the address names a folder *above* `directory` (assumed)."""
        names = [*above, *split_path(request.query.get("directory", ""))]
        recursive = request.query.get("recursive") == "true"
        key = (workspace, tuple(names), recursive)
        found = dict(self._found(workspace, names, recursive=recursive))
        with self._lock:
            shown = self._shown.get(key, {}) if "stale_listing" in request.faults else found
            self._shown[key] = shown
        after = _after(request.query.get("continuation"))
        page = _page_size(request)
        rest = [name for name in sorted(shown) if name > after]
        headers = {"x-ms-continuation": _token(rest[page - 1])} if len(rest) > page else {}
        paths = [_listed(name, shown[name]) for name in rest[:page]]
        if "repeated_listing" in request.faults:
            paths = [path for path in paths for _ in range(2)]
        return json_response(200, {"paths": paths}, headers)

    def _list_blobs(self, request: Request, workspace: str, *above: str) -> Response:
        try:
            found = dict(self._found(workspace, [*above, *folder_of(request)], recursive=True))
        except ApiError as error:
            if error.code != "PathNotFound":
                raise
            found = {}  # the Blob endpoint lists a missing folder as an empty one
        prefix = "".join(f"{name}/" for name in above)
        found = {name.removeprefix(prefix): entry for name, entry in found.items()}
        return blob_listing(request, found)

    def _found(self, workspace: str, names: list[str], *, recursive: bool) -> Iterator[tuple[str, PathEntry]]:
        """The entries of a listing, by path below the workspace, with the names of the request."""
        below: list[str] = []
        if not names:
            below = [database.store_name(guid=is_guid(workspace)) for database in self._databases.all()]
        elif len(names) == 1:
            below = ["Files", "Tables"]
        elif names[1:] == ["Files"]:
            below = ["LandingZone", "Monitoring"]
        prefix = "".join(f"{name}/" for name in names)
        if names:
            entries = self._store.children(self._place([workspace, *names]), recursive=recursive)
            hidden = "_" if names[1:] == ["Tables"] else None  # the emulator's own folders next to the tables
            yield from ((prefix + name, entry) for name, entry in entries.items() if name[0] != hidden)
        for name in below:
            place = self._place([workspace, *names, name])
            if place.local is not None and not place.local.exists():  # a client may delete the complete landing zone
                continue
            yield prefix + name, self._store.properties(place, Conditions())
            if recursive:
                yield from self._found(workspace, [*names, name], recursive=True)


def _empty(request: Request) -> None:
    # O-09: also when the header is missing.
    if request.headers.get("content-length") != "0":
        raise ApiError(400, "ContentLengthMustBeZero", "The Content-Length request header must be zero.")


def _conditions(request: Request) -> Conditions:
    return Conditions(request.headers.get("if-match"), request.headers.get("if-none-match"))


def _position(request: Request) -> int:
    try:
        return int(request.query["position"])
    except (KeyError, ValueError):
        raise ApiError(400, "InvalidQueryParameterValue", "position must be given and a number.") from None


def _page_size(request: Request) -> int:
    text = request.query.get("maxResults", str(_PAGE))
    if not text.isdecimal() or not int(text) >= 1:
        raise ApiError(400, "InvalidQueryParameterValue", f"maxResults is {text!r}, not one or more.")
    return min(int(text), _PAGE)


def _range(header: str | None) -> tuple[int, int | None] | None:
    if header is None:
        return None
    match = re.fullmatch(r"bytes=([0-9]+)-([0-9]*)", header.strip())
    if match is None:
        raise ApiError(400, "InvalidHeaderValue", f"The range {header!r} is not understood.")
    return int(match[1]), int(match[2]) if match[2] else None


def _token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _after(token: str | None) -> str:
    try:
        return base64.urlsafe_b64decode(token or "").decode()
    except ValueError:
        raise ApiError(400, "InvalidQueryParameterValue", "The continuation token is not valid.") from None


def _stamps(entry: PathEntry) -> dict[str, str]:
    return {"ETag": f'"{entry.etag}"', "Last-Modified": formatdate(entry.modified / 1e9, usegmt=True)}


def _properties(entry: PathEntry) -> dict[str, str]:
    kind = "directory" if entry.is_directory else "file"
    blob = {"x-ms-blob-type": "BlockBlob", "x-ms-meta-hdi_isfolder": "true"}
    if not entry.is_directory:
        del blob["x-ms-meta-hdi_isfolder"]
    return {
        **_stamps(entry),
        **blob,
        "Accept-Ranges": "bytes",
        "x-ms-resource-type": kind,
        "x-ms-owner": "$superuser",  # O-03
        "x-ms-group": "$superuser",
        "x-ms-permissions": "---------",
        "x-ms-lease-status": "unlocked",
        "x-ms-lease-state": "available",
        "x-ms-server-encrypted": "true",
    }


def _listed(name: str, entry: PathEntry) -> dict[str, str]:
    return {
        "name": name,
        **({"isDirectory": "true"} if entry.is_directory else {}),
        "contentLength": str(entry.size),
        "etag": entry.etag,
        "lastModified": formatdate(entry.modified / 1e9, usegmt=True),
        "creationTime": str(_FILETIME_EPOCH + entry.modified // 100),
        "owner": "$superuser",
        "group": "$superuser",
        "permissions": "---------",
    }


def folder_of(request: Request) -> list[str]:
    """The names of the common folder of all paths with the requested prefix."""
    return [name for name in request.query.get("prefix", "").rpartition("/")[0].split("/") if name]


def blob_listing(request: Request, found: Mapping[str, PathEntry]) -> Response:
    """All files among *found* with the requested prefix, on one page; with a delimiter grouped by folder."""
    prefix, delimiter = request.query.get("prefix", ""), request.query.get("delimiter")
    after = request.query.get("startFrom", "")
    root = ElementTree.Element("EnumerationResults")
    blobs = ElementTree.SubElement(root, "Blobs")
    folders: set[str] = set()
    for name, entry in sorted(found.items()):
        if not name.startswith(prefix) or name < after or entry.is_directory:
            continue
        folder, separator, _ = name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
        if separator:
            folders.add(f"{prefix}{folder}{separator}")
            continue
        blob = ElementTree.SubElement(blobs, "Blob")
        ElementTree.SubElement(blob, "Name").text = name
        properties = ElementTree.SubElement(blob, "Properties")
        for field, text in {
            "Last-Modified": formatdate(entry.modified / 1e9, usegmt=True),
            "Etag": entry.etag,
            "Content-Length": str(entry.size),
            "Content-Type": "application/octet-stream",
            "BlobType": "BlockBlob",
            "ResourceType": "file",
        }.items():
            ElementTree.SubElement(properties, field).text = text
    for folder in sorted(folders):
        ElementTree.SubElement(ElementTree.SubElement(blobs, "BlobPrefix"), "Name").text = folder
    ElementTree.SubElement(root, "NextMarker")
    body = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return Response(200, {"Content-Type": "application/xml"}, body)
