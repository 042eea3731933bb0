"""Pure functions on changes: their order in a table, and which change decides a key."""
