"""Protocols between the engine and everything outside it. Their docstrings number the guarantees."""
