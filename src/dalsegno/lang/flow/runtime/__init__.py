"""The machine of scripts."""
