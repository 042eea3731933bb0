"""What is at the places of a source now: topics with their offsets, and the files below a folder."""
