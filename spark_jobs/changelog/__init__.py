"""The change log: a Delta table with every message that was read, written and read batch by batch."""
