"""The command line: one file per command or small family in ``commands``, what they share beside it.

The files in ``commands`` are read at every start, so they import only typer; whatever is heavy they import when they
run.
"""
