"""Contract topics of the ledger."""
