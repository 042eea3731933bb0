"""Finds the open dead letters of a mirror, and the dead letters that a later row of the same key settles."""
