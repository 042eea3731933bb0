"""The open dead letters in the change log, and those that a later row settles."""
