"""Credentials: the vault, where they may go, and that they never come out again."""
