"""Decides to which addresses a connection may send a login: to the service's own hosts over https, or to loopback.

Only the person who installs the product can trust more hosts: ``OPEN_MIRRORING_TRUSTED_HOSTS`` lists them, separated by
commas. In this list, ``http://HOST`` allows a service without TLS in a private network.
"""

from __future__ import annotations

import ipaddress
import os
import re
from typing import NamedTuple
from urllib.parse import urlsplit

TRUSTED_HOSTS = "OPEN_MIRRORING_TRUSTED_HOSTS"


class Endpoint(NamedTuple):
    """A trusted address: scheme, host and port, and the path without a trailing slash."""

    base: str
    host: str
    path: str


def trusted_endpoint(text: str, hosts: re.Pattern[str]) -> Endpoint | None:
    """Parse an address to which a login may be sent; None if the address is invalid or not trusted."""
    try:
        address = urlsplit(text)
        host, port = (address.hostname or "").lower(), address.port
    except ValueError:
        return None
    local = is_loopback(host) and address.scheme in ("http", "https")
    listed = {known.strip().lower() for known in os.environ.get(TRUSTED_HOSTS, "").split(",")} - {""}
    trusted = address.scheme == "https" and (hosts.fullmatch(host) is not None or host in listed)
    trusted = trusted or (address.scheme == "http" and f"http://{host}" in listed)
    if address.username is not None or address.query or address.fragment or not (local or trusted):
        return None
    at = f"[{host}]" if ":" in host else host
    return Endpoint(f"{address.scheme}://{at}" + (f":{port}" if port else ""), host, address.path.rstrip("/"))


def is_loopback(host: str) -> bool:
    """Whether a host name means this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
