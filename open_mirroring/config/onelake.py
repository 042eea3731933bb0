"""Connections to OneLake and the Fabric API: the login, and the addresses of OneLake and the API.

A connection has the type ``open_mirroring_onelake``. Its ``extra`` contains ``auth``, ``tenant_id``, and the addresses
of OneLake and the API if they are not the public ones. For a service principal *login* is the client id, *password* the
secret. Addresses that are not public must be trusted (``OPEN_MIRRORING_TRUSTED_HOSTS``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from open_mirroring.config.connections import Connection, check_tenant, invalid, option_texts
from open_mirroring.landing_zone.onelake_address import PUBLIC_ENDPOINT, PUBLIC_FABRIC_ENDPOINT
from open_mirroring.remote.entra import AUTHS, PUBLIC_AUTHORITY, EntraLogin
from open_mirroring.remote.http_service import TRUSTED_HOSTS, trusted_endpoint

CONNECTION_TYPE = "open_mirroring_onelake"

_OPTIONS = {"auth", "tenant_id", "dfs_endpoint", "fabric_endpoint", "authority", "timeout_seconds"}
_HOSTS = {
    "dfs_endpoint": re.compile(r"([a-z0-9-]+\.)+dfs\.fabric\.microsoft\.com"),
    "fabric_endpoint": re.compile(r"([a-z0-9-]+\.)*api\.fabric\.microsoft\.com"),
    "authority": re.compile(r"login\.(microsoftonline\.(com|us)|partner\.microsoftonline\.cn)"),
}


class OneLakeConnection(NamedTuple):
    """A connection to OneLake after its environment variable was read: the login, and the addresses to call."""

    login: EntraLogin
    dfs_endpoint: str
    fabric_endpoint: str
    timeout_seconds: float


def onelake_connection(connection: Connection) -> OneLakeConnection:
    """Convert a connection to the login and addresses of OneLake.

    Raises ``CONNECTION_INVALID`` for an unusable connection; the error shows no value of the connection.
    """
    name = connection.name
    if connection.conn_type != CONNECTION_TYPE:
        raise invalid(name, f"for OneLake its conn_type is {CONNECTION_TYPE}")
    texts = option_texts(connection, _OPTIONS, numbers={"timeout_seconds"})
    return OneLakeConnection(
        entra_login(connection, texts, _endpoint(name, "authority", texts, PUBLIC_AUTHORITY)),
        _endpoint(name, "dfs_endpoint", texts, PUBLIC_ENDPOINT),
        _endpoint(name, "fabric_endpoint", texts, PUBLIC_FABRIC_ENDPOINT),
        _seconds(name, texts.get("timeout_seconds", "60")),
    )


def entra_login(connection: Connection, extra: Mapping[str, str], authority: str = PUBLIC_AUTHORITY) -> EntraLogin:
    """Return the login to Entra ID that a connection contains; *extra* are its options ``auth``, ``tenant_id``, ….

    Raises ``CONNECTION_INVALID`` if a part of the login is missing or does not fit ``auth``.
    """
    name, tenant = connection.name, extra.get("tenant_id", "")
    auth = next((one for one in AUTHS if one == extra.get("auth", AUTHS[0])), None)
    if auth is None:
        raise invalid(name, f"its auth is none of {', '.join(AUTHS)}")
    if tenant:
        check_tenant(connection, tenant)
    by_secret = auth == "service_principal"
    if by_secret and not (tenant and connection.login and connection.password):
        raise invalid(name, "a service_principal needs tenant_id, login (client id) and password (secret)")
    if connection.password and not by_secret:
        raise invalid(name, f"{auth} has no password: it would only lie about")
    client = ("" if by_secret else extra.get("managed_identity_client_id")) or connection.login or ""
    return EntraLogin(name, auth, tenant, client, connection.password or "", authority)


def _endpoint(name: str, option: str, texts: dict[str, str], public: str) -> str:
    found = trusted_endpoint(texts.get(option, public), _HOSTS[option])
    if found is None or found.path:
        raise invalid(
            name,
            f"its {option} is not https://HOST with a host of Microsoft's or one that {TRUSTED_HOSTS} lists, nor a "
            "loopback address",
        )
    return found.base


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 600:
        raise invalid(name, "its timeout_seconds is not a number from 0 to 600")
    return seconds
