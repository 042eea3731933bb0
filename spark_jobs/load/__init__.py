"""Loads the first rows of a table: cuts it into chunks, which workers read."""
