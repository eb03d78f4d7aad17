"""Killing real processes at any moment and counting what is left."""
