"""Dead letters in the change log: which are open, and which a later row settles."""
