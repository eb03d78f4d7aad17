"""Typed values that enter and leave a Python workflow."""
