"""Reads Airflow connections by name from environment variables, in Airflow's JSON format.

Errors of this module never show the content of an environment variable. Public source: Apache Airflow, *Managing
Connections*, "Storing connections in environment variables".
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import PydanticCustomError

from open_mirroring.config.names import check_connection_name
from open_mirroring.errors import TerminalError

_TEXTS = ("conn_type", "host", "login", "password", "schema", "description")
_KNOWN = (*_TEXTS, "port", "extra")
KAFKA_FORM = "open_mirroring_kafka"
"""The connection type of a Kafka broker in our own form in Airflow; the form of Airflow's provider lacks host and
login."""
_SPELLINGS = {"postgresql": "postgres", KAFKA_FORM: "kafka"}
_FORM = (
    '{"conn_type": "postgres", "host": "…", "port": 5432, "login": "…", "password": "…", "schema": "…"} for a '
    'database (or mssql), {"conn_type": "wasb", "login": "ACCOUNT", "password": "KEY"} for object storage (or '
    "adls, aws), kafka or event_hubs for a broker, http for a schema registry, open_mirroring_onelake for OneLake, "
    "open_mirroring_livy for Fabric's Spark"
)


@dataclass(frozen=True)
class Connection:
    """A connection that was read from its environment variable; ``repr`` hides the secrets.

    *schema* is the name of the database, as in Airflow.
    """

    name: str
    conn_type: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    schema: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)


def variable(name: str) -> str:
    """Return the name of a connection's environment variable: ``shop_ledger`` → ``AIRFLOW_CONN_SHOP_LEDGER``."""
    return f"AIRFLOW_CONN_{name.upper()}"


def resolve(name: str) -> Connection:
    """Return the connection with this name.

    Raises ``CONNECTION_INVALID`` when the connection's environment variable is not set or is malformed.
    """
    try:
        check_connection_name(name)
    except PydanticCustomError:
        raise invalid("?", "this is not a name of a connection") from None
    text = os.environ.get(variable(name), "")
    if not text.strip():
        raise TerminalError(
            "CONNECTION_INVALID",
            f"the connection {name!r} is not set",
            where=variable(name),
            next_step=f"set the variable in the environment of the process, in JSON form: {_FORM}",
        )
    return parsed(name, text)


def parsed(name: str, text: str) -> Connection:
    """Parse a connection from *text*, the content of its environment variable in Airflow's JSON format.

    Raises ``CONNECTION_INVALID`` when *text* is malformed.
    """
    content = _parsed(text)
    if not isinstance(content, dict):
        raise invalid(name, "it is not a JSON object")
    if not set(content) <= set(_KNOWN):
        raise invalid(name, f"it has a key other than {', '.join(_KNOWN)}")
    for key in _TEXTS:
        if not isinstance(content.get(key), str | None):
            raise invalid(name, f"its {key} is not text")
    if not content.get("conn_type"):
        raise invalid(name, "it has no conn_type")
    spelled = content["conn_type"].replace("-", "_")
    return Connection(
        name=name,
        conn_type=_SPELLINGS.get(spelled, spelled),
        host=content.get("host") or None,
        port=_port(name, content.get("port")),
        login=content.get("login") or None,
        password=content.get("password") or None,
        schema=content.get("schema") or None,
        extra=_extra(name, content.get("extra")),
    )


def invalid(name: str, what: str) -> TerminalError:
    """Build the error for the unusable connection *name*; *what* is the mistake, without content of the connection."""
    return TerminalError(
        "CONNECTION_INVALID",
        f"the connection {name!r} cannot be used: {what}",
        where=variable(name),
        next_step=f"write it in Airflow's JSON form: {_FORM}",
    )


def option_texts(connection: Connection, known: Collection[str], *, numbers: Collection[str] = ()) -> dict[str, str]:
    """Return the options in a connection's ``extra`` as strings; empty options are left out.

    Raises ``CONNECTION_INVALID`` for an option that is not in *known*, and for a value that is not a string. The
    values of options in *numbers* may also be numbers or booleans.
    """
    # Forms of older releases save an option under a name that includes the type. Such a field is ignored when it is
    # empty.
    given = {option: value for option, value in connection.extra.items() if value not in (None, "")}
    filled = {re.sub(r"^extra__[a-z]+__", "", option): value for option, value in given.items()}
    if not filled.keys() <= {*known}:
        raise invalid(connection.name, f"its extra holds an option other than {', '.join(sorted(known))}")
    for option, value in filled.items():
        if not isinstance(value, str | int | float if option in numbers else str):
            kind = "neither a text nor a number nor true or false" if option in numbers else "no text"
            raise invalid(connection.name, f"{option} in its extra is {kind}")
    return {o: str(value).lower() if isinstance(value, bool) else str(value) for o, value in filled.items()}


def check_tenant(connection: Connection, tenant: str) -> None:
    """Raise ``CONNECTION_INVALID`` if *tenant* cannot be the id or the domain of a tenant.

    Only the characters are checked, because the tenant becomes part of the address to which the login is sent.
    """
    if not re.fullmatch(r"[A-Za-z0-9.-]+", tenant):
        raise invalid(connection.name, "its tenant_id is not a tenant's id or domain")


def _extra(name: str, extra: object) -> Mapping[str, Any]:
    # Airflow writes `extra` as an object, or as text that contains one.
    if extra is None or extra == "":
        return {}
    found = _parsed(extra) if isinstance(extra, str) else extra
    if not isinstance(found, dict):
        raise invalid(name, "its extra is not a JSON object")
    return found


def _parsed(text: str) -> Any:
    # Returns instead of raising: a JSONDecodeError carries the complete text, secrets included.
    try:
        return json.loads(text)
    except ValueError:
        return None


def _port(name: str, port: object) -> int | None:
    if port is None or port == "":
        return None
    digits = re.fullmatch(r"[0-9]{1,5}", str(port))
    if digits is None or not 1 <= int(digits[0]) <= 65535:
        raise invalid(name, "its port is not a number from 1 to 65535")
    return int(digits[0])
