"""Reads which files and rows the landing zone and the change log contain, to be compared with the ledger."""
