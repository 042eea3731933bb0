"""Connections to Fabric's own Spark: the login, the lakehouse whose Livy API is called, and how jobs run there.

A connection has the type ``open_mirroring_livy``. Login, ``auth``, ``tenant_id`` and addresses have the form of a
connection to OneLake. The connection's ``extra`` also contains the options in :data:`OPTIONS`. Public source: Microsoft
Learn, *What is the Livy API for Data Engineering*; microsoft/fabric-samples, *Livy-API-swagger*.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal, NamedTuple, get_args

from open_mirroring.config import onelake
from open_mirroring.config.connections import Connection, invalid, option_texts

CONNECTION_TYPE = "open_mirroring_livy"
Mode = Literal["batch", "session"]
MODES: tuple[Mode, ...] = get_args(Mode)
OPTIONS = ("workspace", "lakehouse", "mode", "file", "environment", "job-key", "job-key-file")
"""What ``extra`` contains in addition to the options of OneLake."""

_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class LivyConnection(NamedTuple):
    """A connection to Fabric's Spark after its environment variable was read.

    *api* has the login and the addresses to call. *file* is the program, in OneLake, that a batch runs.
    """

    api: onelake.OneLakeConnection
    workspace: str
    lakehouse: str
    mode: Mode
    file: str
    environment: str


def livy_connection(connection: Connection) -> LivyConnection:
    """Convert a connection to the login, lakehouse and options of Fabric's Spark.

    Raises ``CONNECTION_INVALID`` for an unusable connection; the error shows no value of the connection.
    """
    extra = connection.extra
    own, shared = ({name: extra[name] for name in extra if (name in OPTIONS) is is_own} for is_own in (True, False))
    api = onelake.onelake_connection(replace(connection, conn_type=onelake.CONNECTION_TYPE, extra=shared))
    texts = option_texts(replace(connection, extra=own), OPTIONS)
    workspace, lakehouse, file, environment = (
        texts.get(name, "") for name in ("workspace", "lakehouse", "file", "environment")
    )
    mode = texts.get("mode", MODES[0])
    if mode not in MODES:
        raise invalid(connection.name, f"its mode is none of {', '.join(MODES)}")
    if not (_ID.fullmatch(workspace) and _ID.fullmatch(lakehouse) and _ID.fullmatch(environment or workspace)):
        raise invalid(connection.name, "workspace, lakehouse and environment in its extra have to be ids (GUIDs)")
    if mode == "batch" and not file.startswith("abfss://"):
        raise invalid(connection.name, "a batch needs file, the abfss:// address of its program in OneLake")
    return LivyConnection(api, workspace, lakehouse, mode, file, environment)
