"""Graph documents: read, normalised and written."""
