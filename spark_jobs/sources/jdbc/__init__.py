"""Tables of a database, read over JDBC or ``COPY``: dialects, chunks, rows as exact texts."""
