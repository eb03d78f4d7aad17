"""Nodes that decide, wait, split, join, or run other programs."""
