"""Facts: what a task that reads the source observes next to the rows that it writes; the ledger collects them."""
