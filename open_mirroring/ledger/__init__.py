"""The ledger: the SQL database that records the state of a mirror and decides what is done next.

The database is SQLite, or PostgreSQL if the ledger's URL names one. The rows of mirrors and of tables have a version,
and each step of reading, publishing and resetting raises the version. A step is refused if the version is not the one
that its process read. So a process cannot overwrite a step that another process took in the meantime.
"""

from open_mirroring.ledger.opening import close_ledgers, open_ledger

__all__ = ["close_ledgers", "open_ledger"]
