"""Compares the target with the ledger: gathers facts, gives each table a verdict, and decides whether to publish."""
