"""A change: its position in the order of its table, and which change of a key counts. Pure functions."""
