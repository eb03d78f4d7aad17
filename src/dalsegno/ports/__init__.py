"""Protocols between the engine and everything outside it, guarantees numbered in their docstrings."""
