"""The address and login of a Delta table for delta-rs, in a folder or in object storage.

delta-rs keeps a login as long as a table is open, so a new token is requested each time a table is opened (S-04).
Public source: delta-rs, *Object store configuration*; object_store, ``AzureConfigKey`` and ``AmazonS3ConfigKey``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from open_mirroring.storage.logins import AzureLogin, S3Login
from open_mirroring.storage.object_path import ObjectPath, Place


def delta_address(place: Place) -> tuple[str, dict[str, str] | None]:
    """Return the URI of the Delta table at a place, and delta-rs' storage options, which contain secrets.

    For a local folder the storage options are None.
    """
    if isinstance(place, Path):
        return str(place), None
    login, address = place.root.login, place.root.address
    if isinstance(login, S3Login):
        return f"s3://{address.container}/{place.key}", _s3(login)
    # This form names the account: with az:// and an emulator, releases of delta-rs wrote to the container's root.
    domain = address.host.partition("//")[2].replace(".blob.", ".dfs.", 1) or f"{login.account}.dfs.core.windows.net"
    return f"abfss://{address.container}@{domain}/{place.key}", _azure(place, login)


def _azure(place: ObjectPath, login: AzureLogin) -> dict[str, str]:
    address = place.root.address
    credential: Mapping[str, Any] = place.store.credential() or {}
    secrets = {"access_key": "account_key", "sas_token": "sas_key", "token": "bearer_token"}
    options = {option: str(credential[name]) for name, option in secrets.items() if name in credential}
    options["account_name"] = address.account or login.account
    endpoint = login.endpoint or address.host
    if endpoint:
        options["endpoint"] = endpoint
    if endpoint.startswith("http://"):
        options["allow_http"] = "true"
    return options


def _s3(login: S3Login) -> dict[str, str]:
    given = {
        "aws_region": login.region,
        "aws_access_key_id": login.key_id,
        "aws_secret_access_key": login.secret,
        "aws_session_token": login.token,
        "aws_endpoint": login.endpoint,
    }
    options = {option: value for option, value in given.items() if value}
    if login.endpoint:
        options["aws_virtual_hosted_style_request"] = "false"
    if login.endpoint.startswith("http://"):
        options["aws_allow_http"] = "true"
    # Two drivers must never commit the same version.
    options["aws_conditional_put"] = "etag"
    return options
