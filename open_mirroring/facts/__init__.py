"""Facts: what a task saw in addition to the rows that it wrote, carried from a decoder to the ledger."""
