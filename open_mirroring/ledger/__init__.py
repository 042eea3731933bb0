"""The ledger: the durable memory of a mirror, in SQL. It is SQLite by default, PostgreSQL by URL.

Every write of a protocol compares and raises a row version, so a writer that comes late changes nothing.
"""

from open_mirroring.ledger.opening import close_ledgers, open_ledger

__all__ = ["close_ledgers", "open_ledger"]
