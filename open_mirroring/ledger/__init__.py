"""The ledger: the one durable memory of a mirror, in SQL.

Small, transactional, read by sensors and the command line without a JVM: SQLite by default, PostgreSQL by URL.
Every write of a protocol compares and raises a row version (:mod:`~open_mirroring.ledger.extract_ledger`,
:mod:`~open_mirroring.ledger.publish_ledger`), so that whoever comes late changes nothing.
"""

from open_mirroring.ledger.opening import open_ledger

__all__ = ["open_ledger"]
