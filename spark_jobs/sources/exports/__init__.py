"""Reads exports of tables as files: splits the files into pieces, and converts their rows to typed columns."""
