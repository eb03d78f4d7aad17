"""Definitions, listings, partitions and removal on PostgreSQL."""
