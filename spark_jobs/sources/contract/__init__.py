"""Defines what every source gives to the rest: a format with its decoder, and a transport."""
