"""Reads exports of tables as files: splits them into pieces, and converts their rows to typed columns."""
