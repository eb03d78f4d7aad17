"""The compiler from Python functions to programs of the machine."""
