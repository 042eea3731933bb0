"""Reads the source into the change log, batch by batch: assigns ranges of the source, reads them."""
