"""Health, metrics and remote workers."""
