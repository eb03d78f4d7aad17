"""The compiler from scripts to bytecode."""
