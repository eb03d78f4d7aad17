"""Commits on SQLite: rows read, settled and written back in one transaction."""
