"""End-to-end scenarios: documents run by a whole engine, on every stack."""
