"""The ledger: the SQL database that records the state of a mirror and decides what is done next.

It is SQLite, or PostgreSQL by URL. Every row has a version that each write compares and raises. So a process that works
with an outdated row changes nothing.
"""

from open_mirroring.ledger.opening import close_ledgers, open_ledger

__all__ = ["close_ledgers", "open_ledger"]
