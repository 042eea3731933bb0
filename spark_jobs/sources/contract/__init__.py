"""Interfaces that every source implements: a format with its decoder, and a transport."""
