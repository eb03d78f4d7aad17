"""Expressions of graphs: compiled once, evaluated by the machine in `lang.runtime`."""
