"""Facts: what a task observed in addition to the rows that it wrote, passed from the decoder to the ledger."""
