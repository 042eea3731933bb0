"""Addresses of places in object storage, as users write them.

An address decides where a login is sent, so only the services' own hosts are accepted (S-01). Public source: Microsoft
Learn, *Azure Data Lake Storage URI*, *Connecting to Microsoft OneLake*; Amazon S3, *Bucket naming rules*.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, NamedTuple

from open_mirroring.errors import TerminalError

Service = Literal["azure", "onelake", "s3"]

_SHAPE = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<place>[^/]*)(?:/(?P<path>.*))?", re.DOTALL)
_GUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_CONTAINER = re.compile(r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]|\$root|\$web")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_AZURE_HOST = re.compile(
    r"([a-z0-9]{3,24})\.(?:dfs|blob)\.(core\.(?:windows\.net|usgovcloudapi\.net|chinacloudapi\.cn))"
)
_ONELAKE_HOST = re.compile(r"((?:[a-z0-9]+-)?onelake)\.(?:dfs|blob)\.(fabric\.microsoft\.com)")

FORMS = (
    "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH, az://CONTAINER/PATH, "
    "abfss://WORKSPACE_GUID@onelake.dfs.fabric.microsoft.com/ITEM_GUID/PATH or s3://BUCKET/PATH"
)
LOCAL_ADDRESS = ("a local path is written without file:", "write /data/events, not file:///data/events")
"""Problem and fix for a ``file:`` address."""


class StorageAddress(NamedTuple):
    """A place in object storage; *text* is its address for messages.

    *host* is scheme and host of the Blob endpoint. It is empty for S3, and if the connection names the storage
    account.
    """

    service: Service
    host: str
    container: str
    path: str
    text: str

    @property
    def account(self) -> str:
        """The storage account; empty if the connection names the storage account."""
        return self.host.partition("//")[2].partition(".")[0]

    @property
    def container_text(self) -> str:
        """The address of the container, for messages."""
        return self.text.removesuffix(self.path).removesuffix("/")


def is_address(text: str) -> bool:
    """Whether a string is an object storage address, valid or not, instead of a local path."""
    return "://" in text


def parse_address(text: str) -> StorageAddress:
    """Parse an object storage address.

    Raises ``CONFIG_INVALID`` if the address is invalid. The error does not repeat the address, which may contain a
    signature.
    """
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise _invalid("this is not an address of object storage")
    scheme, place, path = shape["scheme"], shape["place"], (shape["path"] or "").removesuffix("/")
    if "?" in text:
        raise _invalid("an address has no '?' in it", "leave the query out: a signature belongs to the connection")
    parts = path.split("/") if path else []
    if any(part in ("", ".", "..") for part in parts) or any(unicodedata.category(c) == "Cc" for c in text):
        raise _invalid("a part of its path is empty, '.' or '..', or it holds a control character")
    if text != text.strip():
        raise _invalid("it begins or ends with a blank")
    match scheme:
        case "file":
            raise _invalid(*LOCAL_ADDRESS)
        case "abfss":
            service, host, container = _at_host(place, parts)
        case "az":
            service, host, container = "azure", "", _named(place, _CONTAINER, "container")
        case "s3":
            service, host, container = "s3", "", _named(place, _BUCKET, "bucket")
        case _:
            raise _invalid(
                "no address begins so", f"write {FORMS}; mount any other storage, and write the mount's path"
            )
    return StorageAddress(service, host, container, path, text.removesuffix("/"))


def _at_host(place: str, parts: list[str]) -> tuple[Service, str, str]:
    container, at, host = place.partition("@")
    if onelake := _ONELAKE_HOST.fullmatch(host):
        if not at or not re.fullmatch(_GUID, container) or not parts or not re.fullmatch(_GUID, parts[0]):
            next_step = "copy both GUIDs out of the item's address in the browser"
            raise _invalid("in OneLake workspace and item are named by GUID", next_step)
        return "onelake", f"https://{onelake[1]}.blob.{onelake[2]}", container
    azure = _AZURE_HOST.fullmatch(host)
    if azure is None:
        raise _invalid("its host is none of a storage account, nor OneLake")
    return "azure", f"https://{azure[1]}.blob.{azure[2]}", _named(container if at else "", _CONTAINER, "container")


def _named(name: str, form: re.Pattern[str], what: str) -> str:
    if not form.fullmatch(name):
        raise _invalid(f"it names no {what}", f"a {what} has 3 to 63 small letters, digits and hyphens: {FORMS}")
    return name


def _invalid(what: str, next_step: str = f"write {FORMS}") -> TerminalError:
    return TerminalError("CONFIG_INVALID", what, next_step=next_step)
