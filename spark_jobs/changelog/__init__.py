"""The change log: a Delta table with every message that was read, one commit per batch."""
