"""Stores written by earlier releases, opened and finished by the present code."""
