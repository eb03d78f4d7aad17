"""The functional core: from a token, an outcome and ``now`` it computes transitions. No I/O, clock or randomness."""
