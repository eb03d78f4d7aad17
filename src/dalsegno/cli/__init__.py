"""The command line: one file per command or small family in ``commands``; the other modules are shared.

The files in ``commands`` are imported at every start, so they import only typer at the top. Everything heavy is
imported when a command runs.
"""
