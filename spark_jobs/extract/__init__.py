"""Extracts one batch of the change log: binds ranges, reads them in workers, joins pieces of messages, commits."""
