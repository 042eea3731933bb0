"""Fabric over REST: the mirrored database, what it reports of itself and its tables, and what follows from that."""
