"""The ledger: the SQL database that records the state of a mirror and decides what is done next.

The database is SQLite, or PostgreSQL if the ledger's URL names one. Every row has a version. Each write compares the
version and raises it. So a process that read a row before another process changed it cannot overwrite that change.
"""

from open_mirroring.ledger.opening import close_ledgers, open_ledger

__all__ = ["close_ledgers", "open_ledger"]
