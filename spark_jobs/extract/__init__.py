"""One batch of the change log: bind ranges, read them in workers, join pieces of messages, commit."""
