"""Reads the source into the change log, batch by batch: binds ranges, reads them in workers, commits."""
