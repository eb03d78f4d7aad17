"""Definitions, listings and removal on SQLite."""
