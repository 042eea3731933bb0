"""The ledger: the durable memory of a mirror, in SQL.

It is small and transactional, and sensors and the command line read it without a JVM. It is SQLite by default,
PostgreSQL by URL. Every write of a protocol compares and raises a row version
(:mod:`~open_mirroring.ledger.extract_ledger`, :mod:`~open_mirroring.ledger.publish_ledger`), so a writer that comes
late changes nothing.
"""

from open_mirroring.ledger.opening import close_ledgers, open_ledger

__all__ = ["close_ledgers", "open_ledger"]
