"""Commits on PostgreSQL: rows read, settled and written back in one transaction."""
