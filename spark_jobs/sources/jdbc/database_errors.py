"""What a database's refusals and silences mean for whoever reads it."""

from __future__ import annotations

from open_mirroring.config.connections import Connection
from open_mirroring.config.names import SourceName
from open_mirroring.errors import MirroringError, TerminalError, TransientError

_PERMANENT = ("22", "23", "28", "3D", "3F", "42", "S0001", "S0002")
"""Classes of SQLSTATE that an equal question will meet again: data, login, catalog, syntax and permission."""


def database_error(doing: str, state: str, what: str, connection: Connection, table: SourceName) -> MirroringError:
    """``SOURCE_REFUSED`` where an equal question would be refused again, else ``SOURCE_UNREACHABLE``.

    Args:
        doing: what was asked of the database.
        state: the SQLSTATE; empty where there was none.
        what: what the driver says; the password is taken out of it.
        connection: the connection.
        table: what was read.
    """
    if connection.password:
        what = what.replace(connection.password, "***")
    where = f"connection {connection.name}, table {table.schema}.{table.table}"
    if state.startswith(_PERMANENT):
        return TerminalError(
            "SOURCE_REFUSED",
            f"{doing}, the database refused (SQLSTATE {state}): {what}",
            where=where,
            way_out="mend the connection, the rights of its login, or the table's settings",
        )
    return TransientError(
        "SOURCE_UNREACHABLE",
        f"{doing}, the database did not answer to the end (SQLSTATE {state or 'unknown'}): {what}",
        where=where,
        way_out="the next run goes on where this one stopped; if it stays, look after the database and the network",
    )
