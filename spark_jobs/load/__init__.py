"""Loads the first rows of a table: cuts the table into chunks, which workers read."""
