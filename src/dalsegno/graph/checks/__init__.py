"""Checks of a graph: topology, references, settings and parameters."""
