"""What the landing zone and the change log hold, for whoever compares them with the ledger."""
