"""The simulator's short form, and what it has found so far."""
