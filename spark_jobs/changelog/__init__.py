"""The change log: a Delta table of every message that was read, written and read batch by batch."""
