"""Reaches files in object storage: their addresses, the logins to them, and the few operations that are needed."""
