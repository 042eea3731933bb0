"""Reads change data from its sources: formats decode messages; transports list and read what is unread."""
