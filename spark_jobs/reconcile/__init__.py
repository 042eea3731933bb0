"""Reads what the landing zone and the change log hold, to be compared with the ledger."""
