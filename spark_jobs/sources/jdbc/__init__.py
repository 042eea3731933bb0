"""Reads tables of a database over JDBC or by PostgreSQL's ``COPY``."""
