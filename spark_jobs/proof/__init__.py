"""The two sides of a proof, source and mirrored table, as hashes of rows."""
