"""Initial loads: a table is cut into chunks, and workers read them."""
