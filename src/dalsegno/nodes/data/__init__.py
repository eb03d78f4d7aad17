"""Nodes that work on lists, objects and times."""
