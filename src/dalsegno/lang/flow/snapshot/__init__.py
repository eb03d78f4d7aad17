"""Snapshots of the machine of scripts."""
