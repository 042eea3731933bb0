"""Calls of remote services over HTTP: limited in time, authorized, and repeated only if a repetition is safe."""
