"""Exhaustive search over the real publish and extract machines: every interleaving, bounded disturbances."""
