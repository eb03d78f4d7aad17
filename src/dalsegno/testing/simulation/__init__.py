"""The simulator: the real core, engine and memory adapters under virtual time, with faults drawn from a seed."""
