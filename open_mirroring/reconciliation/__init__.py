"""Is the target what the ledger says? Facts are gathered, each table gets its verdict, and a gate follows from it."""
