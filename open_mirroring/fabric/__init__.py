"""Fabric over REST: creates and starts the mirrored database, and reads the status of it and its tables."""
