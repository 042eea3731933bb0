"""Opens locations in object storage, with logins from Airflow's connection types.

A ``wasb`` or ``adls`` connection has an account key, a SAS token or a login to Entra ID, in ``extra`` or as login and
password. The storage account is in the address; for ``az://`` it is *host* or *login* of the connection. In an ``aws``
connection login and password are the access key; if both are empty, the machine's identity is used. Public source:
Apache Airflow providers; Microsoft Learn, *Azure Storage connection strings*.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticCustomError

from open_mirroring.config.connections import Connection, invalid, option_texts, resolve
from open_mirroring.config.models import Mirror
from open_mirroring.config.names import stream_position
from open_mirroring.config.onelake import CONNECTION_TYPE as ONELAKE
from open_mirroring.config.onelake import entra_login, onelake_connection
from open_mirroring.config.section import StoredPlace
from open_mirroring.config.tables import ExportLoad, StreamFromFile
from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.onelake_address import PUBLIC_ENDPOINT
from open_mirroring.remote.http_service import TRUSTED_HOSTS, Endpoint, trusted_endpoint
from open_mirroring.storage.address import StorageAddress, is_address, parse_address
from open_mirroring.storage.object_path import ObjectPath, Place
from open_mirroring.storage.object_store import AzureLogin, Login, S3Login, StorageRoot

AZURE, S3 = ("wasb", "adls"), "aws"

_AZURE_OPTIONS = {
    "connection_string",
    "sas_token",
    "shared_access_key",
    "account_key",
    "tenant_id",
    "auth",
    "managed_identity_client_id",
    "account_url",
}
_S3_OPTIONS = {"region_name", "endpoint_url", "aws_session_token", "aws_access_key_id", "aws_secret_access_key"}
_AZURE_HOSTS = re.compile(r"[a-z0-9]{3,24}\.(?:blob|dfs)\.core\.(?:windows\.net|usgovcloudapi\.net|chinacloudapi\.cn)")
_S3_HOSTS = re.compile(r"(?:[a-z0-9-]+\.)*amazonaws\.com(?:\.cn)?")
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")


def place_of(mirror: Mirror, setting: str | StoredPlace, connection: str | None = None) -> Place:
    """Return the location that a setting names: a local path, or an address in object storage with its connection.

    Raises ``CONNECTION_INVALID`` if the connection is missing or does not fit the address.
    """
    text = str(setting)
    named = setting.connection if isinstance(setting, StoredPlace) else connection
    return storage_place(text, resolve(named or "")) if is_address(text) else mirror.resolve(text)


def log_place(mirror: Mirror) -> Place:
    """Return the location of a mirror's change log.

    Raises ``CONNECTION_INVALID`` if the change log's connection is missing or does not fit the address.
    """
    return place_of(mirror, mirror.change_log)


def stream_from(mirror: Mirror, load: ExportLoad) -> str:
    """Return the position from which changes of the stream follow the export: a commit LSN, or ``beginning``.

    The position is the setting `stream_from` of *load* in the mirror file, or is in the JSON file that `stream_from`
    names. An LSN has the form ``XXXXXXXX:XXXXXXXX:XXXX`` (C-32). Raises ``STREAM_FROM_INVALID`` if the JSON file is
    missing or contains no position. Raises errors of the object storage if the JSON file cannot be read there.
    """
    if not isinstance(load.stream_from, StreamFromFile):
        return load.stream_from
    file = place_of(mirror, load.stream_from.file, load.connection)
    try:
        content = json.loads(file.read_bytes())
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    except ValueError:
        reason = "is no JSON"
    else:
        position = content.get("stream_from") if isinstance(content, dict) else None
        try:
            return stream_position(str(position))
        except PydanticCustomError:
            reason = "contains no stream position under 'stream_from'"
    raise TerminalError(
        "STREAM_FROM_INVALID",
        f"the file that shows where the export begins in the stream {reason}",
        where=str(file),
        next_step="write a JSON object with 'stream_from': the last commit LSN before the export began, or 'beginning'",
    )


def storage_place(text: str, connection: Connection) -> ObjectPath:
    """Return the location in object storage that the address *text* names.

    Raises ``CONFIG_INVALID`` for an invalid address, and ``CONNECTION_INVALID`` for a connection that does not fit the
    address.
    """
    address = parse_address(text)
    login = _login(address, connection)
    return ObjectPath(StorageRoot(address, login), address.path)


def _login(address: StorageAddress, connection: Connection) -> Login:
    name = connection.name
    match address.service:
        case "s3":
            if connection.conn_type != S3:
                raise invalid(name, "for an s3:// address its conn_type is aws")
            return _s3(connection, option_texts(connection, _S3_OPTIONS))
        case "onelake":
            onelake = onelake_connection(connection)
            own = "" if onelake.dfs_endpoint == PUBLIC_ENDPOINT else onelake.dfs_endpoint.replace(".dfs.", ".blob.", 1)
            return AzureLogin(name, own, "onelake", "entra", entra=onelake.login)
        case _:
            if connection.conn_type == ONELAKE:
                # One login for all of Azure, so the address must contain the account.
                if not address.host:
                    raise invalid(
                        name, "it names no storage account: write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/…"
                    )
                return AzureLogin(name, "", address.account, "entra", entra=onelake_connection(connection).login)
            if connection.conn_type not in AZURE:
                raise invalid(name, f"for Azure its conn_type is one of {', '.join((*AZURE, ONELAKE))}")
            return _azure(address, connection, option_texts(connection, _AZURE_OPTIONS))


def _azure(address: StorageAddress, connection: Connection, extra: Mapping[str, str]) -> AzureLogin:
    name = connection.name
    pairs = [part.partition("=") for part in extra.get("connection_string", "").split(";") if part.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise invalid(name, "its connection_string is none of a storage account")
    parts = {key.strip(): value.strip() for key, _, value in pairs}
    url = _account_url(name, parts.get("BlobEndpoint") or extra.get("account_url") or connection.host or "")
    kind, secret, entra = _credential(connection, extra, parts)
    account = _account(connection, parts, url, by_login=kind != "entra" and connection.conn_type == "wasb")
    if not (address.account or account):
        raise invalid(name, "az:// needs the account: its host names it, or the address as abfss://CONTAINER@ACCOUNT.…")
    if address.account and account and address.account != account:
        raise invalid(name, "it belongs to another storage account than the address names")
    if url is not None:
        # Only Azure's own hosts have a twin for blobs; another one is trusted as it is written.
        is_azure = _AZURE_HOSTS.fullmatch(url.host) is not None
        endpoint = url.base.replace(".dfs.", ".blob.", 1) if is_azure else url.base + url.path
    else:
        endpoint = address.host or f"https://{account}.blob.core.windows.net"
    return AzureLogin(name, endpoint, address.account or account, kind, secret, entra)


def _credential(connection: Connection, extra: Mapping[str, str], parts: Mapping[str, str]) -> tuple[Any, str, Any]:
    name = connection.name
    key = parts.get("AccountKey") or extra.get("shared_access_key") or extra.get("account_key") or ""
    sas = parts.get("SharedAccessSignature") or extra.get("sas_token") or ""
    by_entra = "auth" in extra or "tenant_id" in extra
    if (key or sas) and (by_entra or (key and sas)):
        raise invalid(name, "it holds more than one of key, sas_token and login to Entra ID")
    if by_entra:
        return "entra", "", entra_login(connection, extra)
    if not sas:
        key = key or connection.password or ""
    try:
        b64decode(key, validate=True)
    except binascii.Error:
        raise invalid(name, "its account key is not an account key: that is base64") from None
    if not key and not sas:
        way = "password (account key), sas_token, or tenant_id with login and password"
        raise invalid(name, f"it holds no credential: {way}, or auth: workload_identity, managed_identity or cli")
    if "://" in sas:
        raise invalid(name, "its sas_token is an address: only what is behind its '?' belongs there")
    return ("sas", sas, None) if sas else ("key", key, None)


def _account(connection: Connection, parts: Mapping[str, str], url: Endpoint | None, *, by_login: bool) -> str:
    if "AccountName" in parts:
        found = parts["AccountName"]
    elif url is not None:
        # An emulator has the account in the path.
        found = url.path.strip("/") or url.host.partition(".")[0]
    else:
        found = connection.host or ((connection.login or "") if by_login else "")
    if found and not _ACCOUNT.fullmatch(found):
        raise invalid(connection.name, "its host or login is not a name of a storage account")
    return found


def _account_url(name: str, text: str) -> Endpoint | None:
    if not text or _ACCOUNT.fullmatch(text):
        return None
    found = trusted_endpoint(text if "://" in text else f"https://{text}", _AZURE_HOSTS)
    if found is None:
        raise invalid(
            name,
            "its host is neither an account's name nor https://ACCOUNT.blob.core.windows.net, a host that "
            f"{TRUSTED_HOSTS} lists, or a loopback address",
        )
    return found


def _s3(connection: Connection, extra: Mapping[str, str]) -> S3Login:
    name = connection.name
    key_id = connection.login or extra.get("aws_access_key_id", "")
    secret = connection.password or extra.get("aws_secret_access_key", "")
    if bool(key_id) != bool(secret):
        raise invalid(name, "login (key id) and password (access key) go together")
    endpoint = ""
    if "endpoint_url" in extra:
        found = trusted_endpoint(extra["endpoint_url"], _S3_HOSTS)
        if found is None:
            what = f"nor one that {TRUSTED_HOSTS} lists, nor a loopback address"
            raise invalid(name, f"its endpoint_url is not https:// with a host of Amazon's, {what}")
        endpoint = found.base + found.path
    return S3Login(name, endpoint, extra.get("region_name", ""), key_id, secret, extra.get("aws_session_token", ""))
