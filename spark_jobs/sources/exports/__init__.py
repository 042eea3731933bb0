"""Exports of tables as files: their pieces, and their rows typed."""
