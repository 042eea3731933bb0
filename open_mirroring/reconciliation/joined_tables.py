"""Adds the tables that joined by a pattern to a mirror: the mirror file has only the pattern (G-70)."""

from __future__ import annotations

from pydantic import ValidationError
from sqlalchemy import Engine

from open_mirroring.config import Mirror, Table
from open_mirroring.config.names import SourceName
from open_mirroring.config.tables import TablePattern, hashed_key
from open_mirroring.errors import TerminalError
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger.declaring import joined_tables
from open_mirroring.reconciliation.owning import refuse_other_log, refuse_other_zone

REFUSED_NEXT_STEP = (
    "write the table out under `tables` with its key, or name it under `exclude` of its pattern; then run again: "
    "nothing of it is lost"
)


def ledger_of(mirror: Mirror) -> Engine:
    """Open the mirror's ledger, migrate it, and add the tables that joined by a pattern to *mirror*.

    The connections of the ledger stay open. Raises ``MIRROR_CLASH`` if the mirror file names another landing zone or
    change log than the ledger, and the mirror's data is not there (G-175).
    """
    ledger = open_ledger(mirror.ledger_url(), keep=True)
    refuse_other_zone(mirror, ledger)
    refuse_other_log(mirror, ledger)
    declare_joined(mirror, ledger)
    return ledger


def declare_joined(mirror: Mirror, ledger: Engine) -> None:
    """Add the tables that joined by a pattern to *mirror*, with the pattern's present settings.

    Raises ``CONFIG_INVALID`` if the present settings do not fit such a table.
    """
    if not mirror.has_patterns:
        return
    joined: list[tuple[TablePattern, Table]] = []
    for one in joined_tables(ledger, mirror.name):
        name = SourceName(one.schema, one.table)
        pattern = mirror.pattern_of(name)
        if pattern is not None:
            joined.append((pattern, table_of(mirror, pattern, name, one.source, one.keys)))
    mirror.join(joined)


def table_of(mirror: Mirror, pattern: TablePattern, name: SourceName, source: str, key: tuple[str, ...]) -> Table:
    """Build the settings of a table from its key and the pattern that matches its name.

    Raises ``CONFIG_INVALID`` if a mirror file could not list the table with these settings.
    """
    try:
        table = pattern.table(name, source, key)
    except ValidationError as error:
        first = error.errors()[0]
        what = str(first.get("ctx", {}).get("what", first["msg"]))
        raise refused(mirror, source, what) from None
    if mirror.hash is not None and (why := hashed_key(key, mirror.hash.columns)):
        raise refused(mirror, source, why[0])
    return table


def refused(mirror: Mirror, source: str, what: str) -> TerminalError:
    """Build the error for a table that cannot join the mirror; *what* is the reason."""
    return TerminalError(
        "CONFIG_INVALID",
        f"table {source!r} cannot join the mirror: {what}",
        where=str(mirror.file),
        next_step=REFUSED_NEXT_STEP,
    )
