"""Frozen values that every layer shares. No behaviour beyond what belongs to the value itself."""
