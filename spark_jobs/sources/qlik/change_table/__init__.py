"""Reads Qlik change tables (``<table>__ct``) in a database or as files."""
