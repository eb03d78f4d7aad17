"""The debugger of recorded runs: a session over turns, and one turn again, line by line."""
