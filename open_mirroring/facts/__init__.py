"""Facts: what a task saw beside the rows that it wrote, carried unopened from a decoder to the ledger."""
