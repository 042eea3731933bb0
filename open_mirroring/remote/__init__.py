"""Calls of remote services over HTTP: limited in time, authorized, retried only where that is safe."""
