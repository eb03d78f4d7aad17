"""The machine of Python workflows."""
