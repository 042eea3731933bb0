"""Compares the target with the ledger: gathers facts, gives each table a verdict, and derives the gate from it."""
