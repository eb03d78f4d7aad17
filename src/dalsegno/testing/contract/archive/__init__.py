"""Contract topics of the archive."""
