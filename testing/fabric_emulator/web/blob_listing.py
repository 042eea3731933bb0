"""*List Blobs* of the Blob endpoint, by which Delta readers find the files of a table (Azure Storage REST)."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import formatdate
from xml.etree import ElementTree

from fabric_emulator.web.messages import Request, Response
from fabric_emulator.web.path_store import PathEntry


def folder_of(request: Request) -> list[str]:
    """The names of the folder that all paths with the wanted prefix are in."""
    return [name for name in request.query.get("prefix", "").rpartition("/")[0].split("/") if name]


def blob_listing(request: Request, found: Mapping[str, PathEntry]) -> Response:
    """All files among *found* with the wanted prefix, on one page; with a delimiter folded into their folders."""
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
