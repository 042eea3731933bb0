"""How a mirror file is begun, and compared with its source: by what the source tells of its tables."""

SAMPLE = 100_000
"""About so many messages are looked at, unless somebody says otherwise."""
