"""Qlik change tables, ``__ct``: in a database, or as files."""
