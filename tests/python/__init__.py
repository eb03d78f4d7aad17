"""Durable Python functions."""
